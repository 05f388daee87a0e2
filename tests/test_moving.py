"""`millrace move` on the cluster that is to be left (docs/upgrading-postgresql.md); faults/test_move.py goes on at others."""

import re
import subprocess
import threading

import psycopg
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AclBinding, AclOperation, AclPermissionType, ResourcePatternType, ResourceType

from faults.servers import Broker
from faults.test_move import drained, move
from kit import BINARY, BOOTSTRAP, Topic, check, dsn, eventually, expect
from test_docs import read


def stored(database):
    """The newest position of the pipeline."""
    reader, newest = Topic("__millrace_state"), None
    while records := reader.read(0.5):
        for record in records:
            newest = record.json if record.key == f"{database.prefix}/{database.slot}" else newest
    reader.close()
    return newest


@pytest.mark.parametrize("delivery", ["at-least-once", "exactly-once"])
def test_a_cluster_is_left_at_a_fence_and_gone_back_to(database, millrace, topic, delivery):
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    process = millrace(sink__kafka__delivery=f'"{delivery}"').start().streaming()
    eventually(lambda: "in use by" in move(process), what="its stored position", not_yet=(AssertionError,))
    assert "stop it in order first" in move(process, "--fence", wanted=78)
    database.run("INSERT INTO t VALUES (1)")
    drained(process, database)
    said = move(process)
    assert "nothing here holds them back" in said and "steps:" in said and "pause:" in said, said
    database.run("INSERT INTO t VALUES (2)")
    assert "not delivered" in move(process, "--fence", wanted=10)
    process.start().streaming()
    drained(process, database)
    assert "fenced" in move(process, "--fence")
    moved = stored(database)["moved"]
    assert moved["entered"] == "0/0" and moved["left"] == stored(database)["end_lsn"]
    assert database.slot_row(f"confirmed_flush_lsn >= '{moved['left']}'")
    assert "is already" in move(process, "--accept-cluster", moved["from"], wanted=78)
    # It goes on nevertheless: then the fence is void.
    process.start().streaming()
    database.run("INSERT INTO t VALUES (3)")
    drained(process, database)
    assert "moved" not in stored(database)
    assert [record.json_key["id"] for record in topic(database.topic("t")).take(3)] == [1, 2, 3]


def test_messages_are_not_left_behind(database, millrace, topic):
    """Whoever may connect writes them, also where writes are held back."""
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    process = millrace(messages__prefixes='["m"]').start().streaming()
    drained(process, database)
    database.run(f"ALTER DATABASE {database.name} SET default_transaction_read_only = on")
    assert "held back for new sessions" in move(process)
    database.run("SELECT pg_logical_emit_message(true, 'm', 'last')")
    assert "rows or messages that are not delivered" in move(process, "--fence", wanted=10)
    process.start().streaming()
    topic(f"{database.prefix}.message").take(1)
    drained(process, database)
    assert "fenced" in move(process, "--fence")
    assert "fenced" in move(process, "--fence")


def test_writes_are_held_back_and_let_in_as_printed(database, millrace):
    """Each statement in the captured database, where new sessions are read-only by then; the page's and the program's are the same."""
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    process = millrace().start().streaming()
    drained(process, database)
    said = move(process)
    hold, let_in = (re.search(pattern, said)[0].replace('"', "") for pattern in (r"ALTER DATABASE \S+ SET .* = on", r"BEGIN READ WRITE;.*COMMIT;"))
    page = read("docs/upgrading-postgresql.md").replace("shop", database.name)
    assert f"{hold};\n" in page and f"{let_in}\n" in page
    [end] = re.findall(r"SELECT pg_terminate_backend\(pid\)[^;]*;", page)
    database.run(hold)
    with psycopg.connect(dsn(database.name), autocommit=True) as begun_meanwhile:
        with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
            begun_meanwhile.execute("INSERT INTO t VALUES (1)")
        database.run(let_in)
        database.run(end)
        with pytest.raises(psycopg.OperationalError):
            begun_meanwhile.execute("SELECT 1")
    database.run("INSERT INTO t VALUES (2)")


def test_a_writer_between_the_two_messages(database, millrace, topic):
    """The fence waits for a transaction that is older than its first message; another one begins meanwhile, and is open at the second."""
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    process = millrace().start().streaming()
    drained(process, database)
    waits = "SELECT count(*) FROM pg_stat_activity WHERE datname = %s AND query LIKE '%%pg_snapshot_xmin(pg_current_snapshot())%%'"
    with psycopg.connect(dsn(database.name)) as older, psycopg.connect(dsn(database.name)) as between:
        older.execute("INSERT INTO t VALUES (1)")
        fence = subprocess.Popen([BINARY, "move", "--fence", "--config", process.path], env=process.environment, stdout=subprocess.PIPE,
                                 stderr=subprocess.STDOUT, text=True)
        eventually(lambda: database.run(waits, [database.name])[0][0] > 1, what="the fence, waiting")
        between.execute("INSERT INTO t VALUES (2)")
        older.rollback()
        said = fence.communicate(timeout=60)[0]
        assert fence.returncode == 10 and "still open" in said, said
        assert "moved" not in stored(database)
        between.commit()
    process.start().streaming()
    assert topic(database.topic("t")).take(1)[0].json_key["id"] == 2
    drained(process, database)
    assert "fenced" in move(process, "--fence")


def test_settings_of_roles(database, millrace):
    """What the role that asks has set for itself holds back nobody else; and a role that sets it otherwise may write."""
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    process = millrace().start().streaming()
    drained(process, database)
    roles = [f"{database.name}_{name}" for name in ("asks", "writes")]
    database.run("; ".join(f"CREATE ROLE {role} LOGIN SUPERUSER PASSWORD 'p'" for role in roles))
    try:
        database.run(f"ALTER ROLE {roles[0]} SET default_transaction_read_only = on")
        process.environment["TEST_URL"] = dsn(database.name).replace("postgres:millrace-stand", f"{roles[0]}:p")
        assert "nothing here holds them back" in move(process)
        database.run(f"ALTER DATABASE {database.name} SET default_transaction_read_only = on", database="postgres")
        assert "held back for new sessions" in move(process)
        database.run(f"ALTER ROLE {roles[1]} IN DATABASE {database.name} SET default_transaction_read_only = 'false'", database="postgres")
        database.run(f"ALTER ROLE {roles[1]} SET work_mem = '1MB'", database="postgres")
        assert "nothing here holds them back for every role" in move(process)
    finally:
        database.run(f"DROP OWNED BY {', '.join(roles)}; DROP ROLE {', '.join(roles)}", database="postgres")


def test_verify_by_a_user_who_may_not_see_the_position(database, millrace):
    """Then the shift is not known, and each place of the server may mean another one: nothing is said of the tables."""
    login, listener = "org.apache.kafka.common.security.plain.PlainLoginModule required", "listener_name_proxied"
    broker = Broker(address="localhost", **{
        "listener_security_protocol_map": "DIRECT:PLAINTEXT,PROXIED:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        f"{listener}_sasl_enabled_mechanisms": "PLAIN", f"{listener}_plain_sasl_jaas_config": f'{login} user_reader="p";',
        "authorizer_class_name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer", "super_users": "User:ANONYMOUS"})
    try:
        database.run("CREATE TABLE t (id int PRIMARY KEY)")
        direct = {"sink__kafka__brokers": f'["{broker.direct}"]'}
        as_reader = {"sink__kafka__brokers": f'["{broker.proxied}"]', "sink__kafka__sasl__mechanism": '"PLAIN"', "sink__kafka__sasl__username": '"reader"',
                     "sink__kafka__sasl__password": '"env:READER"', 'sink__kafka__properties."broker.address.family"': '"v4"'}
        process = millrace(**direct).start().streaming()
        database.run("INSERT INTO t VALUES (1)")
        drained(process, database)
        process.environment["READER"] = "p"
        process.configure(**as_reader)
        expect(check(process), 77, "the position that is stored can't be read", "grant the user Describe")
        process.configure(**direct).start().streaming()
        process.configure(**as_reader)
        for name in (database.topic("t"), "__millrace_state"):
            done = subprocess.run([BINARY, "verify", "--config", process.path], env=process.environment, capture_output=True, text=True,
                                  timeout=120, check=False)
            assert done.returncode == 77 and "__millrace_state" in done.stderr and "grant the user Describe" in done.stderr, done
            binding = AclBinding(ResourceType.TOPIC, name, ResourcePatternType.LITERAL, "User:reader", "*", AclOperation.READ, AclPermissionType.ALLOW)
            broker.admin.create_acls([binding])[binding].result(30)
        done = subprocess.run([BINARY, "verify", "--config", process.path], env=process.environment, capture_output=True, text=True,
                              timeout=120, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    finally:
        broker.close()


def test_verify_asks_for_nothing_but_the_position(database, millrace):
    """The state topic has another policy, and another pipeline's transaction is open in it."""
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    state = f"{database.prefix}.state"
    database.create_topic(state, 1, {"cleanup.policy": "compact,delete"})
    millrace_here = millrace(sink__kafka__state_topic=f'"{state}"').start().streaming()
    other = Producer({"bootstrap.servers": BOOTSTRAP, "log_level": 0, "transactional.id": state, "transaction.timeout.ms": 30000})
    other.init_transactions(30)
    other.begin_transaction()
    other.produce(state, "{}", "somebody else's")
    other.flush(30)
    ends = threading.Timer(5.5, other.abort_transaction, [30])
    ends.start()
    done = subprocess.run([BINARY, "verify", "--config", millrace_here.path], env=millrace_here.environment, capture_output=True, text=True,
                          timeout=120, check=False)
    assert ends.finished.is_set()
    ends.join(30)
    assert done.returncode == 0, done.stdout + done.stderr


def test_wrong_commands(database, millrace):
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    process = millrace()
    assert "is for the old cluster" in move(process, "--fence", "--accept-cluster", "7", wanted=64)
    assert "no position of" in move(process, wanted=78)
