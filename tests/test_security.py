"""TLS and logins, to PostgreSQL and to Kafka: the good ones stream, the others say why and what to do."""

import os
import socket
import ssl
import struct

import psutil
import pytest
from confluent_kafka.admin import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

from kit import BOOTSTRAP, check, eventually, expect

CERTIFICATES = os.environ["MILLRACE_CERTIFICATES"]
SECURE = os.environ["KAFKA_SECURE_BOOTSTRAP"]


def certificate(name):
    return os.path.join(CERTIFICATES, name)


def refused(process, code, *parts):
    """Whether the stream and `check` alike say all of that."""
    ends = process.run_to_end(), check(process)
    print(ends)  # shown when the test failed
    return all(exit_code == code and all(part in text.replace('\\"', '"') for part in parts) for exit_code, text in ends)


# ---- PostgreSQL ----

def served_certificate():
    """What the server shows who asks for TLS; None without TLS."""
    with socket.create_connection(("127.0.0.1", int(os.environ["PGPORT"])), 5) as plain:
        plain.sendall(struct.pack("!ii", 8, 80877103))  # SSLRequest
        if plain.recv(1) != b"S":
            return None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        with context.wrap_socket(plain) as wrapped:
            return ssl.DER_cert_to_PEM_cert(wrapped.getpeercert(binary_form=True))


@pytest.fixture
def postgresql_tls(database):
    """Makes the server show one of the stand's certificates; without TLS again afterwards."""
    def serve(name):
        database.run(f"ALTER SYSTEM SET ssl_cert_file = '{certificate(name)}.pem'")
        database.run(f"ALTER SYSTEM SET ssl_key_file = '{certificate(name)}.key'")
        database.run("ALTER SYSTEM SET ssl = on")
        database.run("SELECT pg_reload_conf()")
        with open(certificate(f"{name}.pem"), encoding="ascii") as file:
            wanted = file.read()
        eventually(lambda: served_certificate() == wanted, what=f"the certificate {name}", not_yet=(OSError,))

    yield serve
    for setting in ("ssl", "ssl_cert_file", "ssl_key_file"):
        database.run(f"ALTER SYSTEM RESET {setting}")
    database.run("SELECT pg_reload_conf()")
    eventually(lambda: served_certificate() is None, what="a server without TLS", not_yet=(OSError,))


def tls_dsn(database, root="ca.pem", **more):
    """By the name in the good certificate, whatever that name's addresses are here."""
    words = {"host": "localhost", "hostaddr": "127.0.0.1", "port": os.environ["PGPORT"], "user": "postgres",
             "password": os.environ["PGPASSWORD"], "dbname": database.name, "sslmode": "verify-full",
             "sslrootcert": certificate(root), **more}
    return " ".join(f"{key}='{value}'" for key, value in words.items())


def test_postgresql_with_tls_and_scram(database, millrace, topic, postgresql_tls):
    """channel_binding=require: nothing but SCRAM over TLS will do."""
    postgresql_tls("good")
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    process = millrace()
    process.environment["TEST_URL"] = tls_dsn(database, channel_binding="require")
    expect(check(process), 0)
    process.start().streaming()
    database.run("INSERT INTO t VALUES (1)")
    topic(database.topic("t")).take(1)
    assert database.run("SELECT ssl FROM pg_stat_ssl WHERE pid = %s", [database.slot_row("active_pid")])[0][0]
    assert process.stop() == 0


@pytest.mark.parametrize("served,words,code,parts", [
    ("good", {"root": "other-ca.pem"}, 77, ["certificate verify failed", "sslrootcert holds the CA"]),
    ("expired", {}, 77, ["certificate verify failed", "still valid"]),
    ("wrong-host", {}, 77, ['does not match host name "localhost"', "connect by a name"]),
    ("good", {"root": "absent.pem"}, 78, ["root certificate file", "sslrootcert must name"]),
    ("good", {"password": "canary"}, 77, ["password authentication failed", "check user and password"]),
    (None, {"sslmode": "require"}, 78, ["does not support SSL", "switch TLS on in the server"]),
])
def test_postgresql_refusals(database, millrace, postgresql_tls, served, words, code, parts):
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    if served is not None:
        postgresql_tls(served)
    process = millrace()
    process.environment["TEST_URL"] = tls_dsn(database, **words)
    assert refused(process, code, *parts)
    assert "canary" not in "".join(process.lines)


# ---- Kafka ----

def kafka_options(mechanism="PLAIN", brokers=SECURE, root="ca.pem", username="millrace"):
    return {
        "sink__kafka__brokers": f'["{brokers}"]', "sink__kafka__tls": "true",
        "sink__kafka__tls_ca_location": f'"{certificate(root)}"',
        "sink__kafka__sasl__mechanism": f'"{mechanism}"', "sink__kafka__sasl__username": f'"{username}"',
        "sink__kafka__sasl__password": '"env:KAFKA_PASSWORD"',
        # localhost may be ::1 first, where the stand does not listen.
        'sink__kafka__properties."broker.address.family"': '"v4"',
    }


def streams(database, process, topic):
    expect(check(process), 0)
    process.start().streaming()
    database.run("INSERT INTO t VALUES (1)")
    (record,) = topic(database.topic("t")).take(1)
    assert process.stop() == 0
    return record


def test_kafka_with_tls_and_plain(database, millrace, topic):
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    assert streams(database, millrace(**kafka_options()), topic).json["after"] == {"id": 1}


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_kafka_with_tls_and_scram(database, millrace, topic, mechanism):
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    process = millrace(**kafka_options(mechanism))
    assert streams(database, process, topic).json["after"] == {"id": 1}


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
@pytest.mark.parametrize("password,username", [("canary-secret", "millrace"), (None, "nobody")])
def test_kafka_wrong_login(database, millrace, mechanism, password, username):
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    process = millrace(**kafka_options(mechanism, username=username))
    if password is not None:
        process.environment["KAFKA_PASSWORD"] = password
    assert refused(process, 77, "SASL authentication error", "check user, password and mechanism in sink.kafka.sasl")
    text = "".join(process.lines)
    assert "canary" not in text


def scram_password(database, user, password):
    credentials = UserScramCredentialUpsertion(user, ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096), password.encode())
    database.admin.alter_user_scram_credentials([credentials])[user].result(30)


@pytest.mark.parametrize("watch", ["100ms", None])
def test_kafka_password_that_changes(database, millrace, topic, tmp_path, watch):
    """Connections that are there stay; the next one takes the new password. Without reload.watch the old one is refused first."""
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    (tmp_path / "secrets").mkdir()
    secret = tmp_path / "secrets" / "kafka"
    secret.write_text("canary one")
    secret.chmod(0o600)
    scram_password(database, database.name, "canary one")
    options = {**kafka_options("SCRAM-SHA-512", username=database.name),
               "sink__kafka__sasl__password": f'"file:{secret}"', "reload__watch": watch and f'"{watch}"',
               'sink__kafka__properties."connections.max.idle.ms"': "1000"}
    process = millrace(**options).start().streaming()
    database.run("INSERT INTO t VALUES (1)")
    reader = topic(database.topic("t"))
    assert reader.take(1)
    scram_password(database, database.name, "canary two")
    secret.write_text("canary two")
    if watch:
        assert process.wait_for("secret_changed")["secret"] == "Kafka password"
    port = int(SECURE.rsplit(":", 1)[1])
    eventually(lambda: not any(one.raddr and one.raddr.port == port for one in psutil.Process(process.process.pid).net_connections()),
               what="the end of idle connections")
    database.run("INSERT INTO t VALUES (2)")
    assert reader.take(1)[0].json["after"] == {"id": 2} and process.stop() == 0
    assert ("SASL authentication error" in "".join(process.lines)) == (not watch)
    assert "canary" not in "".join(process.lines)


@pytest.mark.parametrize("options", [
    {"root": "other-ca.pem"},
    {"brokers": SECURE.replace("localhost", "127.0.0.1")},  # a host that is not in the certificate
])
def test_kafka_certificate_not_trusted(database, millrace, options):
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    assert refused(millrace(**kafka_options(**options)), 77, "certificate verify failed",
            "sink.kafka.tls_ca_location holds the CA", "names the host")


def test_kafka_ca_missing(database, millrace):
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    expect(millrace(**kafka_options(root="absent.pem")).run_to_end(), 78, "absent.pem can't be read")


def test_kafka_tls_to_a_port_without(database, millrace):
    """May be a broker that restarts: retried, with a word about what else it may be."""
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    process = millrace(**kafka_options(brokers=BOOTSTRAP)).start()
    eventually(lambda: any("speaks TLS" in r["message"] or "brokers are down" in r["message"]
                           for r in process.log("kafka_unreachable")), what="the word")
    assert process.stop() == 0
    expect(check(process), 69, "speaks TLS")
