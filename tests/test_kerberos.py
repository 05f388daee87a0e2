"""Logins by Kerberos, with a KDC of MIT's in a folder of its own, which needs no rights: PostgreSQL by `gss`, Kafka by
GSSAPI. Only with MILLRACE_TEST_KERBEROS=1, after `scripts/setup.sh --kerberos`."""

import os
import shutil
import subprocess

import confluent_kafka
import pytest

from faults.servers import Broker, end_with_parent, free_port, port_open
from kit import check, eventually, expect

pytestmark = pytest.mark.skipif("MILLRACE_TEST_KERBEROS" not in os.environ, reason="MILLRACE_TEST_KERBEROS is not set")

REALM = "MILLRACE.TEST"
KRB5_CONF = """[libdefaults]
default_realm = {realm}
dns_lookup_kdc = false
dns_lookup_realm = false
dns_canonicalize_hostname = false
rdns = false
[realms]
{realm} = {{
  kdc = 127.0.0.1:{port}
}}
[domain_realm]
localhost = {realm}
"""
KDC_CONF = """[kdcdefaults]
kdc_listen = 127.0.0.1:{port}
kdc_tcp_listen = 127.0.0.1:{port}
[realms]
{realm} = {{
  database_name = {folder}/principal
  key_stash_file = {folder}/stash
}}
"""


class Kdc:
    def __init__(self, folder):
        self.folder, self.port = str(folder), free_port()
        self.write("krb5.conf", KRB5_CONF)
        self.write("kdc.conf", KDC_CONF)
        self.environment = {**os.environ, "KRB5_CONFIG": self.path("krb5.conf"), "KRB5_KDC_PROFILE": self.path("kdc.conf"),
                            "PATH": os.environ["PATH"] + ":/usr/sbin"}
        self.run(["kdb5_util", "create", "-s", "-W", "-r", REALM, "-P", "master"])
        with open(self.path("log"), "wb") as log:
            # pylint: disable-next=consider-using-with # outlives this function
            self.process = subprocess.Popen(["krb5kdc", "-n", "-r", REALM], env=self.environment, stdout=log, stderr=log,
                                            preexec_fn=end_with_parent)
        eventually(lambda: port_open(self.port), what="the KDC")

    def path(self, name):
        return os.path.join(self.folder, name)

    def write(self, name, text):
        with open(self.path(name), "w", encoding="ascii") as file:
            file.write(text.format(realm=REALM, port=self.port, folder=self.folder))

    def run(self, command, text=""):
        subprocess.run(command, env=self.environment, input=text, text=True, check=True, capture_output=True, timeout=60)

    def keytab(self, principal):
        path = self.path(principal.replace("/", "-") + ".keytab")
        self.run(["kadmin.local", "-r", REALM], f"addprinc -randkey {principal}\nktadd -k {path} {principal}\n")
        return path

    def close(self):
        self.process.kill()
        self.process.wait()


@pytest.fixture(scope="module")
def kdc(tmp_path_factory):
    made = Kdc(tmp_path_factory.mktemp("kdc"))
    yield made
    made.close()


@pytest.fixture(scope="module")
def keytab(kdc):
    return kdc.keytab("millrace")


@pytest.fixture
def postgresql_gss(kdc, database):
    """The stand's server lets the role `millrace` of this test in by Kerberos alone."""
    folder = database.run("SHOW data_directory")[0][0]
    hba, keytab_there = database.run("SHOW hba_file")[0][0], os.path.join(folder, "test.keytab")
    shutil.copy(kdc.keytab("postgres/localhost"), keytab_there)
    owner = os.stat(folder)
    os.chown(keytab_there, owner.st_uid, owner.st_gid)
    with open(hba, encoding="utf-8") as file:
        before = file.read()

    def serve(text, setting):
        with open(hba, "w", encoding="utf-8") as file:
            file.write(text)
        database.run(f"ALTER SYSTEM {setting}")
        database.run("SELECT pg_reload_conf()")
    database.run("CREATE ROLE millrace LOGIN SUPERUSER REPLICATION")
    serve(f"host all millrace 127.0.0.1/32 gss include_realm=0\n{before}", f"SET krb_server_keyfile = '{keytab_there}'")
    eventually(lambda: database.run("SHOW krb_server_keyfile")[0][0] == keytab_there, what="the keytab")
    yield {"host": "localhost", "hostaddr": "127.0.0.1", "port": os.environ["PGPORT"], "user": "millrace",
           "dbname": database.name}
    serve(before, "RESET krb_server_keyfile")
    database.run("DROP OWNED BY millrace")
    database.run("DROP ROLE millrace")
    os.remove(keytab_there)


@pytest.fixture(scope="module")
def broker(kdc):
    """Its listener for millrace asks for GSSAPI."""
    listener, module = "listener_name_proxied", "com.sun.security.auth.module.Krb5LoginModule"
    login = (f'{module} required useKeyTab=true storeKey=true keyTab="{kdc.keytab("kafka/localhost")}" '
             f'principal="kafka/localhost@{REALM}";')
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAVA_TOOL_OPTIONS", f"-Djava.security.krb5.conf={kdc.path('krb5.conf')}")
        made = Broker(address="localhost", **{
            "listener_security_protocol_map": "DIRECT:PLAINTEXT,PROXIED:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
            f"{listener}_sasl_enabled_mechanisms": "GSSAPI", f"{listener}_gssapi_sasl_jaas_config": login,
            "sasl_kerberos_service_name": "kafka"})
    yield made
    made.close()


def dsn_of(words, **more):
    return " ".join(f"{key}='{value}'" for key, value in {**words, **more}.items())


def test_postgresql_by_a_client_keytab(database, millrace, topic, kdc, keytab, postgresql_gss):
    """The Kerberos library gets its tickets itself. No ticket touches a disk, no program is started, and what millrace gives
    up for itself is given up."""
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    process = millrace()
    process.environment.update(KRB5_CONFIG=kdc.path("krb5.conf"), KRB5_CLIENT_KTNAME=keytab, KRB5CCNAME="MEMORY:",
                               TEST_URL=dsn_of(postgresql_gss, gssencmode="require"))
    expect(check(process), 0)
    process.start().streaming()
    database.run("INSERT INTO t VALUES (1)")
    topic(database.topic("t")).take(1)
    connection = database.run("SELECT gss_authenticated, principal, encrypted FROM pg_stat_gssapi WHERE pid = %s",
                              [database.slot_row("active_pid")])
    assert connection == [(True, f"millrace@{REALM}", True)]
    assert "kinit" not in process.log("started")[0]["confined_syscalls"]
    assert process.stop() == 0


@pytest.mark.parametrize("kinit", [False, True])
def test_kafka_with_kerberos(database, millrace, kdc, keytab, broker, tmp_path, kinit):
    """By a client keytab, or by librdkafka's own way: it starts kinit, and a cache of tickets appears."""
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    properties = {"security.protocol": "sasl_plaintext", "sasl.mechanism": "GSSAPI", "broker.address.family": "v4",
                  **({"sasl.kerberos.keytab": keytab, "sasl.kerberos.principal": "millrace"} if kinit else
                     {"sasl.kerberos.min.time.before.relogin": "0"})}
    process = millrace(sink__kafka__brokers=f'["{broker.proxied}"]', sink__kafka__create_topics="true",
                       **{f'sink__kafka__properties."{name}"': f'"{value}"' for name, value in properties.items()})
    cache = tmp_path / "tickets"
    process.environment.update(KRB5_CONFIG=kdc.path("krb5.conf"), KRB5CCNAME=f"FILE:{cache}" if kinit else "MEMORY:")
    if not kinit:
        process.environment["KRB5_CLIENT_KTNAME"] = keytab
    process.start().streaming()
    database.run("INSERT INTO t VALUES (1)")
    consumer = confluent_kafka.Consumer({"bootstrap.servers": broker.direct, "group.id": "g", "auto.offset.reset": "earliest"})
    wanted = database.topic("t")
    eventually(lambda: wanted in consumer.list_topics(timeout=5).topics, what="the topic")
    consumer.assign([confluent_kafka.TopicPartition(wanted, 0, 0)])
    assert eventually(lambda: (record := consumer.poll(1)) is not None and record.error() is None, 60, "the row")
    consumer.close()
    assert ("kinit" in process.log("started")[0]["confined_syscalls"]) == kinit
    assert cache.exists() == kinit
    assert process.stop() == 0


def test_kafka_without_a_ticket(database, millrace, kdc, broker):
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    process = millrace(sink__kafka__brokers=f'["{broker.proxied}"]',
                       **{f'sink__kafka__properties."{name}"': f'"{value}"' for name, value in {
                           "security.protocol": "sasl_plaintext", "sasl.mechanism": "GSSAPI", "broker.address.family": "v4",
                           "sasl.kerberos.min.time.before.relogin": "0"}.items()})
    process.environment.update(KRB5_CONFIG=kdc.path("krb5.conf"), KRB5CCNAME="MEMORY:")
    expect(process.run_to_end(60), 77, "No Kerberos credentials available")
