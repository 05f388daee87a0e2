"""The key of a row is the same in its insert, update and delete, whatever the replica identity, and for ever."""

import datetime
import json
import signal

from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource
import psycopg
import pytest

from kit import Database, check, dsn, eventually, expect, stand
from test_incremental import copy

KEY = '{"id":1}'


def keys_of(records):
    return [record.key for record in records]


def fold(records):
    """What a consumer that keeps the last event of each key has in the end."""
    rows = {}
    for record in records:
        if record.value is None or record.json["op"] == "d":
            rows.pop(record.key, None)
        else:
            rows[record.key] = record.json["after"]
    return rows


def emptied(database, process):
    """All there is has been delivered and confirmed; the process has ended."""
    database.all_confirmed()
    assert process.stop() == 0


IDENTITIES = {
    "default": ("", "id"),
    "index": ("CREATE UNIQUE INDEX t_code ON t (code); ALTER TABLE t REPLICA IDENTITY USING INDEX t_code", "code"),
    "full": ("ALTER TABLE t REPLICA IDENTITY FULL", "id"),
}


def pytest_generate_tests(metafunc):
    if "identity" in metafunc.fixturenames:
        metafunc.parametrize("identity", IDENTITIES)


def test_one_key_in_insert_update_and_delete(database, millrace, topic, identity):
    """With a primary key on id; with an identity on another column that one is the key, for a delete has nothing else."""
    statement, column = IDENTITIES[identity]
    database.run("CREATE TABLE t (v int, id int PRIMARY KEY, code text NOT NULL);" + statement)
    process = millrace().start().streaming()
    for text in ("INSERT INTO t VALUES (0, 1, 'a')", "UPDATE t SET v = 1", "DELETE FROM t",
                 "INSERT INTO t VALUES (0, 1, 'a')", "UPDATE t SET code = 'b'", "UPDATE t SET id = 2", "DELETE FROM t"):
        database.run(text)
    key = {"id": (KEY, KEY, '{"id":2}'), "code": ('{"code":"a"}', '{"code":"b"}', '{"code":"b"}')}[column]
    changed = 3  # records of an update that changes the key: delete, tombstone, create
    count = 4 + 1 + 1 + changed + 2
    records = topic(database.topic("t")).take(count)
    emptied(database, process)
    assert set(keys_of(records[:4])) == {key[0]}
    assert None not in keys_of(records)
    assert records[-2].json["op"] == "d" and keys_of(records[-2:]) == [key[2]] * 2
    assert fold(records) == {}


def test_no_identity_takes_the_primary_key(database, millrace, topic):
    """Inserts only; the key is that of the table all the same."""
    database.run("CREATE TABLE t (id int PRIMARY KEY, v int); ALTER TABLE t REPLICA IDENTITY NOTHING;"
                 "CREATE TABLE d (id int PRIMARY KEY DEFERRABLE, v int); CREATE TABLE n (v int)")
    database.run(f"CREATE PUBLICATION {database.publication} FOR TABLE t, d, n WITH (publish = 'insert')")
    process = millrace(tables=("t", "d", "n")).start().streaming()
    for table in ("t", "d", "n"):
        database.run(f"INSERT INTO {table} VALUES (1)")
    assert keys_of(topic(database.topic("t")).take(1)) == [KEY]
    assert keys_of(topic(database.topic("d")).take(1)) == [KEY]
    assert keys_of(topic(database.topic("n")).take(1)) == [None]
    emptied(database, process)


def test_large_key_is_never_the_placeholder(database, millrace, topic):
    """An update leaves the key alone, and the server sends it as the old key only."""
    database.run("CREATE TABLE t (id text PRIMARY KEY, v int); ALTER TABLE t ALTER id SET STORAGE EXTERNAL;"
                 "CREATE TABLE i (v int, code text NOT NULL UNIQUE); ALTER TABLE i ALTER code SET STORAGE EXTERNAL;"
                 "ALTER TABLE i REPLICA IDENTITY USING INDEX i_code_key")
    process = millrace(tables=("t", "i")).start().streaming()
    database.run("INSERT INTO t SELECT repeat(g::text, 2500), 1 FROM generate_series(1, 2) g; UPDATE t SET v = 2;"
                 "DELETE FROM t; INSERT INTO i SELECT 1, repeat('x', 2500); UPDATE i SET v = 2; DELETE FROM i")
    records = topic(database.topic("t")).take(8)
    assert keys_of(records[0:2]) == keys_of(records[2:4]) == keys_of(records[4:8:2]) == keys_of(records[5:8:2])
    assert records[2].json["op"] == "u" and records[2].json["after"] == {"id": "1" * 2500, "v": 2}
    records = topic(database.topic("i")).take(4)
    assert set(keys_of(records)) == {json.dumps({"code": "x" * 2500}, separators=(",", ":"))}
    emptied(database, process)


# Tables whose key has another order than they; each with what its key is in the table's order, and in that of its index.
TURNED = {
    "l": ("CREATE TABLE l (a int, b text, PRIMARY KEY (b, a))", ("a", "b"), ("b", "a")),
    "f": ("CREATE TABLE f (a int, b text, PRIMARY KEY (b, a)); ALTER TABLE f REPLICA IDENTITY FULL", ("a", "b"), ("b", "a")),
    "i": ("CREATE TABLE i (a int NOT NULL, b text NOT NULL, id serial PRIMARY KEY); CREATE UNIQUE INDEX i_ba ON i (b, a);"
          "ALTER TABLE i REPLICA IDENTITY USING INDEX i_ba", ("a", "b"), ("b", "a")),
    "x": ("CREATE TABLE x (a int, v int, b text, c int DEFAULT 3, PRIMARY KEY (c, a, b) INCLUDE (v)); ALTER TABLE x DROP v;"
          "ALTER TABLE x ADD PRIMARY KEY (c, a, b)", ("a", "b", "c"), ("c", "a", "b")),
    "p": ("CREATE TABLE p (a int, b text, PRIMARY KEY (b, a)) PARTITION BY LIST (a);"
          "CREATE TABLE p_1 (b text NOT NULL, a int NOT NULL); ALTER TABLE p ATTACH PARTITION p_1 DEFAULT", ("a", "b"), ("b", "a")),
}
ONE_ROW = {"a": 1, "b": "x", "c": 3}


def key_text(columns, **values):
    return json.dumps({column: {**ONE_ROW, **values}[column] for column in columns}, separators=(",", ":"))


@pytest.mark.parametrize("order", ["table", "index"])
def test_columns_of_a_key_keep_their_order(database, millrace, topic, order):
    """That of the table is all that the stream alone tells, that of the index is the catalog's: in copied rows, at the start, behind a
    reconnect and a restart, whatever the primary key and the identity."""
    for statement, _, _ in TURNED.values():
        database.run(statement)
    for table in TURNED:
        database.run(f"INSERT INTO {table} (a, b) VALUES (1, 'x')")
    process = millrace(tables=tuple(TURNED), key_order=f'"{order}"', snapshot__mode='"initial"',
                       publication__via_partition_root="true").start().streaming()

    def write():
        for table in TURNED:
            database.run(f"UPDATE {table} SET b = 'y'; UPDATE {table} SET b = 'x'")
    write()
    readers = {table: topic(database.topic(table)) for table in TURNED}
    records = {table: reader.take(7) for table, reader in readers.items()}
    database.run("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = %s",
                 [database.slot])
    process.wait_for("source_connected", times=2)
    for table in TURNED:
        copy(process, table)
    write()
    emptied(database, process)
    process.start().streaming()
    write()
    for table, reader in readers.items():
        records[table] += reader.take(13)
    emptied(database, process)
    for table, (_, of_table, of_index) in TURNED.items():
        columns = of_table if order == "table" else of_index
        assert set(keys_of(records[table])) == {key_text(columns, b=b) for b in ("x", "y")}, table


def test_order_is_that_of_the_key_at_hand(database, millrace, topic):
    """Rows of a backlog keep the order of a key that was replaced by another of as many columns; one whose column was renamed, or before
    which a column was dropped, is the same key."""
    tables = ("replaced", "renamed", "shifted")
    database.run("CREATE TABLE replaced (a int, b int, c int, d int, PRIMARY KEY (a, b));"
                 "CREATE TABLE renamed (a int, b int, c int, d int, PRIMARY KEY (b, a));"
                 "CREATE TABLE shifted (d int, a int, b int, c int, PRIMARY KEY (b, a))")
    process = millrace(tables=tables, key_order='"index"').start().streaming()
    for table in tables:
        database.run(f"INSERT INTO {table} (a, b, c, d) VALUES (1, 2, 3, 4)")
    readers = {table: topic(database.topic(table)) for table in tables}
    keys = {table: keys_of(reader.take(1)) for table, reader in readers.items()}
    emptied(database, process)
    for table in tables:
        database.run(f"DELETE FROM {table}")
    database.run("ALTER TABLE replaced DROP CONSTRAINT replaced_pkey, ADD PRIMARY KEY (d, c);"
                 "ALTER TABLE renamed RENAME b TO bb; ALTER TABLE shifted DROP d")
    process.start().streaming()
    for table, reader in readers.items():
        keys[table] += keys_of(reader.take(1))
    assert keys == {"replaced": ['{"a":1,"b":2}'] * 2, "renamed": ['{"b":2,"a":1}'] * 2, "shifted": ['{"b":2,"a":1}'] * 2}
    emptied(database, process)



def test_order_of_keys_follows_the_index(database, millrace, topic):
    """Tables that come, keys that turn, columns that get another name: in a backlog, too, and in a transaction that does it behind its rows."""
    database.run("CREATE TABLE t (a int, b text, PRIMARY KEY (a, b))")
    process = millrace(tables=("public.*",), types='"debezium"').start().streaming()
    emptied(database, process)
    database.run("INSERT INTO t VALUES (1, 'x'); ALTER TABLE t RENAME b TO z; INSERT INTO t VALUES (2, 'x')")
    process.start().streaming()
    database.run("BEGIN; ALTER TABLE t DROP CONSTRAINT t_pkey, ADD PRIMARY KEY (z, a); INSERT INTO t VALUES (3, 'x'); COMMIT;"
                 "BEGIN; CREATE TABLE n (a int, b text, PRIMARY KEY (b, a)); INSERT INTO n VALUES (1, 'x'); COMMIT")
    assert keys_of(topic(database.topic("n")).take(1)) == ['{"b":"x","a":1}']
    assert keys_of(topic(database.topic("t")).take(3)) == ['{"a":1,"b":"x"}', '{"a":2,"z":"x"}', '{"z":"x","a":3}']
    emptied(database, process)


def test_a_key_that_a_transaction_makes_behind_its_rows(database, millrace, topic):
    """Rows of one transaction, some before and some behind the change of the key."""
    database.run("CREATE TABLE t (id int PRIMARY KEY); ALTER TABLE t REPLICA IDENTITY FULL")
    process = millrace().start().streaming()
    database.run("BEGIN; INSERT INTO t VALUES (7);"
                 "ALTER TABLE t DROP CONSTRAINT t_pkey; ALTER TABLE t ADD COLUMN n serial, ADD PRIMARY KEY (n);"
                 "INSERT INTO t VALUES (8); COMMIT")
    records = topic(database.topic("t"))
    assert [record.json_key for record in records.take(2)] == [{"id": 7}, {"n": 2}]
    database.run("BEGIN; INSERT INTO t VALUES (9); ALTER TABLE t RENAME n TO m; INSERT INTO t VALUES (10); COMMIT")
    assert [record.json_key for record in records.take(2)] == [{"n": 3}, {"m": 4}]


def set_commit_time(database, time, statement):
    """Commits the statement at a time of its own, as a subscriber that replays another server's commits does; answers
    the commit's position."""
    name = f"o_{database.name}"
    exists = database.run("SELECT 1 FROM pg_replication_origin WHERE roname = %s", [name])
    if not exists:
        database.run("SELECT pg_replication_origin_create(%s)", [name])
    database.run(f"SELECT pg_replication_origin_session_setup('{name}'); BEGIN; {statement};"
                 f"SELECT pg_replication_origin_xact_setup('0/1', '{time}'); COMMIT")


def drop_origin(database):
    """Once the session that used it is gone."""
    eventually(lambda: database.run("SELECT pg_replication_origin_drop(%s)", [f"o_{database.name}"]), 30, "the end of the origin", (psycopg.errors.ObjectInUse,))


def test_commit_time_that_events_cannot_tell(database, millrace, topic):
    """Clamped, with a warning; Kafka, which takes no record from the future and keeps none from long ago, gets a time of these days."""
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    process = millrace().start().streaming()
    times = ["infinity", "-infinity", "2300-01-01", "0001-01-01", "2200-01-01 00:00:00+00", "1960-01-01 00:00:00+00"]
    try:
        for n, time in enumerate(times):
            set_commit_time(database, time, f"INSERT INTO t VALUES ({n})")
        database.run("INSERT INTO t VALUES (100)")
        records = topic(database.topic("t")).take(len(times) + 1)
        emptied(database, process)
    finally:
        drop_origin(database)
    assert [record.json["after"]["id"] for record in records] == [0, 1, 2, 3, 4, 5, 100]
    most = (2**63 - 1) // 1000
    assert [record.json["source"]["ts_us"] for record in records[:6]] == [
        most, -most, most, -most, 7258118400000000, -315619200000000]
    now_ms = records[6].timestamp_ms
    for record in records:
        source = record.json["source"]
        assert source["ts_ns"] == source["ts_us"] * 1000 and source["ts_ms"] == source["ts_us"] // 1000
        assert record.json["ts_ns"] >= source["ts_ns"]
        behind_ms = now_ms - record.timestamp_ms
        assert -3_600_000 <= behind_ms <= 90_000_000, "what is from long ago would be gone with Kafka's next clean-up"
    assert len(process.log("commit_time_out_of_range")) == 4


@pytest.mark.parametrize("delivery", ["at-least-once", "exactly-once"])
def test_topic_that_takes_no_record_of_then(database, millrace, topic, delivery):
    """A commit that is older than the topic's message.timestamp.before.max.ms: the cause and the remedy are named, a stop
    does not claim that it is delivered, and it comes once the topic takes it."""
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    name = database.make_topic("t", config={"message.timestamp.before.max.ms": "3600000"})
    process = millrace(sink__kafka__delivery=f'"{delivery}"').start().streaming()
    then = datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(hours=3)
    try:
        set_commit_time(database, then.isoformat(), "INSERT INTO t SELECT generate_series(1, 3)")
    finally:
        drop_origin(database)
    for lost in (process.wait_for("sink_session_lost", times=2), process.wait_for("standstill")):
        assert "message.timestamp.before.max.ms" in lost["message"] and "PURGE" not in lost["message"], lost
    assert process.stop() == 3
    end = process.log("stopped")[-1]
    assert end["exit_code"] == 3 and "delivered and confirmed" not in end["message"], end
    database.admin.incremental_alter_configs([ConfigResource(ConfigResource.Type.TOPIC, name, incremental_configs=[ConfigEntry(
        "message.timestamp.before.max.ms", "86400000", incremental_operation=AlterConfigOpType.SET)])])
    process.start().streaming()
    assert [record.json["after"]["id"] for record in topic(name).take(3)] == [1, 2, 3]


def test_transaction_with_such_a_time_can_be_skipped(database, millrace, topic):
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    process = millrace().start().streaming()
    emptied(database, process)
    try:
        set_commit_time(database, "infinity", "INSERT INTO t VALUES (1)")
    finally:
        drop_origin(database)
    database.run("INSERT INTO t VALUES (2)")
    ((begin,),) = database.run("SELECT data FROM pg_logical_slot_peek_binary_changes(%s, NULL, NULL, 'proto_version', "
                               "'1', 'publication_names', %s) WHERE get_byte(data, 0) = 66 LIMIT 1",
                               [database.slot, database.publication])
    lsn = int.from_bytes(begin[1:9], "big")
    process.start("--skip-commit-lsn", f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}").streaming()
    (record,) = topic(database.topic("t")).take(1)
    emptied(database, process)
    assert record.json["after"] == {"id": 2}
    assert len(process.log("transaction_skipped")) == 1


FULL = "ALTER TABLE t REPLICA IDENTITY FULL"


def backlog(database, process, *statements):
    """Each a transaction of its own, while nobody reads."""
    process.streaming()
    emptied(database, process)
    for statement in statements:
        database.run(statement)


def test_lookup_that_fails_is_made_again(database, millrace, topic):
    """A new version of a table with identity FULL, and no connection left to ask for its key."""
    role = "r" + database.name
    database.run(f"CREATE TABLE t (id int PRIMARY KEY, v int); {FULL}; CREATE ROLE {role} LOGIN REPLICATION PASSWORD 'x';"
                 f"GRANT SELECT ON t TO {role}; CREATE PUBLICATION {database.publication} FOR TABLE t")
    process = millrace(metrics__interval='"0s"')
    process.environment["TEST_URL"] = process.environment["TEST_URL"].replace("postgres:millrace-stand", f"{role}:x")
    try:
        process.start().streaming()
        database.run("INSERT INTO t VALUES (1, 1)")
        reader = topic(database.topic("t"))
        records = reader.take(1)
        eventually(lambda: database.run("SELECT count(*) = 1 FROM pg_stat_activity WHERE usename = %s", [role])[0][0],
                   what="no connection of millrace's but its stream")
        database.run(f"ALTER ROLE {role} CONNECTION LIMIT 0")
        database.run("ALTER TABLE t ADD COLUMN w int; INSERT INTO t VALUES (2, 2)")
        lost = process.wait_for("source_lost")
        assert "the key of table public.t can't be looked up" in lost["message"]
        database.run(f"ALTER ROLE {role} CONNECTION LIMIT -1")
        database.run("INSERT INTO t VALUES (3, 3); ALTER TABLE t ADD COLUMN x int; INSERT INTO t VALUES (4, 4);"
                     "DELETE FROM t")
        records += reader.take(3 + 8)
        emptied(database, process)
    finally:
        database.run(f"DROP OWNED BY {role}; DROP ROLE {role}")
    assert fold(records) == {}
    assert {record.key for record in records} == {f'{{"id":{n}}}' for n in (1, 2, 3, 4)}


def test_column_of_the_key_renamed_behind_a_backlog(database, millrace, topic):
    """The catalog has the new name, the rows the old one; the column is the same."""
    database.run(f"CREATE TABLE t (v int, id int); ALTER TABLE t ADD PRIMARY KEY (id); {FULL}")
    process = millrace().start()
    backlog(database, process, "INSERT INTO t VALUES (0, 1)", "ALTER TABLE t ADD COLUMN w int",
            "UPDATE t SET v = 1", "ALTER TABLE t RENAME id TO v1", "ALTER TABLE t RENAME v TO id",
            "UPDATE t SET id = 2", "DELETE FROM t")
    process.start().streaming()
    records = topic(database.topic("t")).take(5)
    emptied(database, process)
    assert keys_of(records) == [KEY, KEY, '{"v1":1}', '{"v1":1}', '{"v1":1}']


def dropped_behind_a_backlog(database, millrace):
    """t is filled and dropped while millrace is killed; u has the same identity and stays."""
    database.run(f"CREATE TABLE t (id int PRIMARY KEY, v int); {FULL};"
                 "CREATE TABLE u (id int PRIMARY KEY); ALTER TABLE u REPLICA IDENTITY FULL")
    process = millrace(tables=("t", "u"), pipeline__reconnect_max='"100ms"').start().streaming()
    emptied(database, process)
    for statement in ("INSERT INTO t VALUES (1, 1)", "DELETE FROM t", "DROP TABLE t", "INSERT INTO u VALUES (1)"):
        database.run(statement)
    return process


def test_table_dropped_behind_a_backlog(database, millrace, topic):
    """Nobody can know its key any more: its records have none, which is logged, and all goes on."""
    process = dropped_behind_a_backlog(database, millrace).start()
    records = topic(database.topic("t")).take(2)
    assert keys_of(topic(database.topic("u")).take(1)) == [KEY]
    emptied(database, process)
    assert [(record.key, record.json["op"]) for record in records] == [(None, "c"), (None, "d")]
    assert records[1].json["before"] == {"id": 1, "v": 1}
    assert [(line["level"], line["schema"], line["table"]) for line in process.log("key_unknown")] == [("warn", "public", "t")]


def test_chosen_key_of_a_table_that_is_dropped(database, millrace, topic):
    process = dropped_behind_a_backlog(database, millrace)
    process.configure(key_columns='["t:id"]', pipeline__reconnect_max='"100ms"').start()
    records = topic(database.topic("t")).take(3)
    emptied(database, process)
    assert keys_of(records) == [KEY] * 3 and not process.log("key_unknown")


def test_dropped_table_without_key_in_a_compacted_topic(database, millrace, topic):
    """The broker takes no record without a key there: an end that names the remedy, which works."""
    database.create_topic(database.topic("t"), config={"cleanup.policy": "compact"})
    process = dropped_behind_a_backlog(database, millrace)
    expect(process.run_to_end(), 65, "INVALID_RECORD", "set key_columns for its table")
    process.configure(key_columns='["t:id"]', pipeline__reconnect_max='"100ms"').start()
    records = topic(database.topic("t")).take(3)
    emptied(database, process)
    assert keys_of(records) == [KEY] * 3


def test_table_dropped_behind_rows_whose_key_was_flagged(database, millrace, topic):
    """The stream told the key of earlier rows; it is that of the later ones."""
    database.run("CREATE TABLE t (id int PRIMARY KEY, v int)")
    process = millrace().start()
    backlog(database, process, "INSERT INTO t VALUES (1, 1)", FULL, "UPDATE t SET v = 2", "DELETE FROM t", "DROP TABLE t")
    process.start().streaming()
    records = topic(database.topic("t")).take(4)
    emptied(database, process)
    assert keys_of(records) == [KEY] * 4
    assert process.log("key_as_before") and not process.log("key_unknown")


def test_a_flagged_key_is_not_that_of_rows_after_it_was_dropped(database, millrace):
    """The stream flagged id; it was dropped, rows repeat it, and another key came: nobody can know what theirs was."""
    database.run("CREATE TABLE t (id int PRIMARY KEY, v int NOT NULL)")
    process = millrace().start()
    backlog(database, process, "INSERT INTO t VALUES (1, 1)", "ALTER TABLE t DROP CONSTRAINT t_pkey", FULL, "INSERT INTO t VALUES (1, 2)",
            "ALTER TABLE t ADD PRIMARY KEY (v)")
    expect(process.run_to_end(), 65, "its primary key was made after these rows")


def test_table_dropped_while_streaming(database, millrace, topic):
    """What was known of it before still holds for the rows that wait, also behind a reconnect."""
    database.run(f"CREATE TABLE t (id int PRIMARY KEY, v int); {FULL}; CREATE TABLE u (id int PRIMARY KEY)")
    process = millrace(tables=("t", "u")).start().streaming()
    database.run("INSERT INTO t VALUES (1, 1)")
    reader = topic(database.topic("t"))
    records = reader.take(1)
    process.process.send_signal(signal.SIGSTOP)
    database.run("UPDATE t SET v = 2; ALTER TABLE t ADD COLUMN w int; DELETE FROM t; DROP TABLE t")
    process.process.send_signal(signal.SIGCONT)
    records += reader.take(3)
    emptied(database, process)
    assert keys_of(records) == [KEY] * 4


def test_primary_key_moved_behind_a_backlog(database, millrace, topic):
    """Before the change nobody can know it, behind it it is known."""
    database.run(f"CREATE TABLE t (a int PRIMARY KEY, b int NOT NULL); {FULL}")
    process = millrace(pipeline__reconnect_max='"100ms"').start()
    move = "ALTER TABLE t DROP CONSTRAINT t_pkey; ALTER TABLE t ADD PRIMARY KEY (b)"
    backlog(database, process, "INSERT INTO t VALUES (1, 2)", move, "INSERT INTO t VALUES (3, 4)")
    text = expect(process.run_to_end(), 65, "its primary key was made after these rows")
    assert "null" not in text and "(1, 2)" not in text
    process.configure(key_columns='["public.t:a"]').start().streaming()
    records = topic(database.topic("t")).take(2)
    assert keys_of(records) == ['{"a":1}', '{"a":3}']
    emptied(database, process)
    process.configure()
    database.run("INSERT INTO t VALUES (5, 6)")
    process.start().streaming()
    assert keys_of(topic(database.topic("t")).take(3)[2:]) == ['{"b":6}']
    emptied(database, process)


def test_primary_key_moved_before_the_first_row_comes(database, millrace, topic):
    """The catalog was read when the stream was opened; what it said then is still true of the row."""
    database.run(f"CREATE TABLE t (a int PRIMARY KEY, b int NOT NULL); {FULL}")
    process = millrace().start().streaming()
    process.process.send_signal(signal.SIGSTOP)
    for statement in ("INSERT INTO t VALUES (1, 2)",
                      "ALTER TABLE t DROP CONSTRAINT t_pkey; ALTER TABLE t ADD PRIMARY KEY (b)",
                      "INSERT INTO t VALUES (3, 4)"):
        database.run(statement)
    process.process.send_signal(signal.SIGCONT)
    records = topic(database.topic("t")).take(2)
    emptied(database, process)
    assert keys_of(records) == ['{"a":1}', '{"b":4}']


def test_primary_key_moved_while_streaming(database, millrace, topic):
    """The relation itself is announced as it was: only the catalog tells that its key is another one."""
    database.run(f"CREATE TABLE t (a int PRIMARY KEY, b int NOT NULL); {FULL}")
    process = millrace().start().streaming()
    database.run("INSERT INTO t VALUES (1, 2)")
    reader = topic(database.topic("t"))
    records = reader.take(1)
    process.process.send_signal(signal.SIGSTOP)
    for statement in ("INSERT INTO t VALUES (3, 4)", "ANALYZE t", "INSERT INTO t VALUES (5, 6)",
                      "ALTER TABLE t DROP CONSTRAINT t_pkey; ALTER TABLE t ADD PRIMARY KEY (b)",
                      "INSERT INTO t VALUES (7, 8)"):
        database.run(statement)
    process.process.send_signal(signal.SIGCONT)
    records += reader.take(3)
    emptied(database, process)
    assert keys_of(records) == ['{"a":1}', '{"a":3}', '{"a":5}', '{"b":8}']


def test_type_of_the_key_changed_behind_a_backlog(database, millrace, topic):
    """That makes the primary key anew, and it is the same."""
    database.run(f"CREATE TABLE t (id int, v int); ALTER TABLE t ADD PRIMARY KEY (id); {FULL}")
    process = millrace().start()
    backlog(database, process, "INSERT INTO t VALUES (1, 1)", "ALTER TABLE t ALTER id TYPE bigint",
            "DELETE FROM t")
    process.start().streaming()
    records = topic(database.topic("t")).take(3)
    emptied(database, process)
    assert keys_of(records) == [KEY] * 3


# Of a table whose key is `k`: what writes the catalog's rows of a primary key anew and leaves its columns.
MAINTENANCE = {
    "int": ["REINDEX TABLE CONCURRENTLY {}"],
    "varchar(20)": ["ALTER TABLE {} ALTER k TYPE varchar(50)"],
    "numeric(10,2)": ["ALTER TABLE {} ALTER k TYPE numeric(12,2)"],
    "text": ['ALTER TABLE {} ALTER k TYPE text COLLATE public.other'],
    "bigint": ["ALTER TABLE {} RENAME CONSTRAINT {}_pkey TO {}_key", "CLUSTER {} USING {}_key"],
    "smallint": ["ALTER TABLE root ATTACH PARTITION {} FOR VALUES FROM (0) TO (9)", "ALTER TABLE root DETACH PARTITION {}",
                 "CLUSTER {} USING {}_pkey"],
}


def test_maintenance_behind_a_backlog(database, millrace, topic):
    """A key that is made anew over the same columns is the same, also to a process that was started since."""
    tables = {kind: f"t{n}" for n, kind in enumerate(MAINTENANCE)}
    database.run('CREATE COLLATION public.other FROM "C"; CREATE TABLE root (v int, k smallint, PRIMARY KEY (k)) PARTITION BY RANGE (k)')
    for kind, table in tables.items():
        database.run(f"CREATE TABLE {table} (v int, k {kind}); ALTER TABLE {table} ADD PRIMARY KEY (k);"
                     f"ALTER TABLE {table} REPLICA IDENTITY FULL")
    process = millrace(tables=tuple(tables.values())).start()
    statements = []
    for kind, table in tables.items():
        statements += [f"INSERT INTO {table} VALUES (1, 1)", *(text.replace("{}", table) for text in MAINTENANCE[kind]),
                       f"DELETE FROM {table}"]
    backlog(database, process, *statements)
    process.start().streaming()
    for table in tables.values():
        records = topic(database.topic(table)).take(3)
        assert set(records[0].json_key) == {"k"} and len(set(keys_of(records))) == 1, keys_of(records)
    emptied(database, process)


def old_transaction(database):
    """Has its number, and has not written to t yet."""
    connection = psycopg.connect(dsn(database.name))
    connection.execute("INSERT INTO other VALUES (1)")
    return connection


def test_older_number_behind_a_new_key(database, millrace, topic):
    """The order of commits decides, not the numbers: known where the key was seen before the commit."""
    database.run(f"CREATE TABLE other (v int); CREATE TABLE t (id int NOT NULL); {FULL}")
    process = millrace().start()
    backlog(database, process)
    with old_transaction(database) as connection:
        database.run("ALTER TABLE t ADD PRIMARY KEY (id)")
        process.start().streaming()
        connection.execute("INSERT INTO t VALUES (1)")
    topic(database.topic("t")).take(1)  # its key is looked up before that goes
    with old_transaction(database) as connection:
        database.run("ALTER TABLE t DROP CONSTRAINT t_pkey")
        database.run("ALTER TABLE t ADD PRIMARY KEY (id)")
        database.run("INSERT INTO t VALUES (2)")
        records = topic(database.topic("t")).take(2)
        connection.execute("INSERT INTO t VALUES (3)")
    records += topic(database.topic("t")).take(3)[2:]
    emptied(database, process)
    assert keys_of(records) == ['{"id":1}', '{"id":2}', '{"id":3}']
    assert not process.log("key_as_before")


def test_older_number_by_the_time_of_commits(database, millrace, topic):
    """Where the server keeps the times of commits, also behind a restart, and beside rows that are before the key."""
    database.run("ALTER SYSTEM SET track_commit_timestamp = on")
    stand("pg-restart")
    try:
        database.run(f"CREATE TABLE other (v int); CREATE TABLE t (a int, b int NOT NULL, PRIMARY KEY (a)); {FULL}")
        process = millrace(pipeline__reconnect_max='"100ms"').start()
        backlog(database, process)
        with old_transaction(database) as connection:
            database.run("ALTER TABLE t DROP CONSTRAINT t_pkey; ALTER TABLE t ADD PRIMARY KEY (b)")
            connection.execute("INSERT INTO t VALUES (1, 2)")
        process.start().streaming()
        assert keys_of(topic(database.topic("t")).take(1)) == ['{"b":2}']
        emptied(database, process)
        database.run("INSERT INTO t VALUES (3, 4)")
        database.run("ALTER TABLE t DROP CONSTRAINT t_pkey; ALTER TABLE t ADD PRIMARY KEY (a)")
        expect(process.run_to_end(), 65, "its primary key was made after these rows")
    finally:
        database.run("ALTER SYSTEM RESET track_commit_timestamp")
        stand("pg-restart")


def test_table_made_and_filled_in_one_transaction(database, millrace, topic):
    """Its rows are in the stream before the server's other sessions see the table, and the key is younger than they are."""
    database.run("CREATE TABLE u (id int PRIMARY KEY); CREATE TABLE t (id int PRIMARY KEY)")
    database.run(f"CREATE PUBLICATION {database.publication} FOR ALL TABLES")
    process = millrace(tables=("t", "u")).start().streaming()
    database.run("DROP TABLE t")
    database.run(f"BEGIN; CREATE TABLE t (id int, v int); {FULL}; SAVEPOINT a; ALTER TABLE t ADD PRIMARY KEY (id);"
                 "RELEASE a; INSERT INTO t VALUES (1, 1); DELETE FROM t; COMMIT")
    records = topic(database.topic("t")).take(3)
    emptied(database, process)
    assert keys_of(records) == [KEY] * 3


@pytest.mark.parametrize("semantics", ["at-least-once", "exactly-once"])
def test_a_restore_beside_it(database, millrace, topic, semantics):
    """As pg_restore does it: tables, then rows, then keys. Under DEFAULT the stream itself says that the rows had no key."""
    database.run("CREATE SCHEMA shop; CREATE TABLE shop.seen (id int PRIMARY KEY)")
    process = millrace(tables=("shop.*",), sink__kafka__delivery=f'"{semantics}"').start()
    backlog(database, process, "CREATE TABLE shop.t (id int NOT NULL, v text)", "INSERT INTO shop.t VALUES (1, 'a'), (2, 'b')",
            "ALTER TABLE ONLY shop.t ADD CONSTRAINT t_pkey PRIMARY KEY (id)", "UPDATE shop.t SET v = 'c' WHERE id = 1")
    process.start().streaming()
    assert keys_of(topic(f"{database.prefix}.shop.t").take(3)) == [None, None, KEY]
    emptied(database, process)


def test_chosen_key(database, millrace, topic):
    """key_columns: in its own order, quoted where need be, with nulls where the rows have some."""
    database.run('CREATE SCHEMA "s.1"; CREATE TABLE "s.1"."t:1" (id int PRIMARY KEY, b int, "a,b" text);'
                 'ALTER TABLE "s.1"."t:1" REPLICA IDENTITY FULL')
    name = '"s.1"."t:1"'
    process = millrace(tables=(name,), key_columns=json.dumps([name + ':"a,b",b'])).start().streaming()
    for statement in ("INSERT INTO {} VALUES (1, 2, 'x')", "UPDATE {} SET id = 5", "UPDATE {} SET b = NULL",
                      "DELETE FROM {}"):
        database.run(statement.format(name))
    records = topic(database.topic("t_1", "s.1")).take(1 + 1 + 3 + 2)
    emptied(database, process)
    assert keys_of(records) == ['{"a,b":"x","b":2}'] * 4 + ['{"a,b":"x","b":null}'] * 3


@pytest.mark.parametrize("key, finding, remedy", [
    ("t:v", "which the replica identity does not hold", 'ALTER TABLE "public"."t" REPLICA IDENTITY FULL'),
    ("t:nope", "which the table does not have", "correct key_columns"),
    ("absent:id", "which the table does not have", "correct key_columns")])
def test_chosen_key_that_does_not_fit(database, millrace, key, finding, remedy):
    """Before there is a slot it is an error at once; behind one a backlog may wait whose rows it fits."""
    database.run("CREATE TABLE t (id int PRIMARY KEY, v int)")
    process = millrace(key_columns=json.dumps([key]))
    for code, text in (check(process), process.run_to_end()):
        assert code == 78 and finding in text and remedy.replace('"', '')in text.replace('\\"', '').replace('"', ''), text
    process.configure()
    assert process.start().streaming().stop() == 0
    process.configure(key_columns=json.dumps([key]))
    expect(check(process), 0, finding)
    process.start().streaming()
    assert any(finding in line["message"] for line in process.log("setup_warning"))
    if not key.startswith("absent"):
        database.run("INSERT INTO t VALUES (1, 1)")
        assert process.ended(60) == 65
        assert "key_columns" in "".join(process.lines)


def test_column_of_a_chosen_key_renamed(database, millrace, topic):
    """All that has the old name is delivered before millrace ends, so that the new one fits all that follows."""
    database.run("CREATE TABLE t (id int, v int); ALTER TABLE t REPLICA IDENTITY FULL")
    process = millrace(key_columns='["t:id"]').start().streaming()
    assert process.stop() == 0
    database.run("INSERT INTO t VALUES (1, 1)")
    database.run("ALTER TABLE t RENAME id TO renamed")
    database.run("INSERT INTO t VALUES (2, 2)")
    expect(process.run_to_end(), 65, "public.t at this place of the stream")
    process.configure(key_columns='["t:renamed"]').start().streaming()
    records = topic(database.topic("t")).take(2)
    emptied(database, process)
    assert keys_of(records) == ['{"id":1}', '{"renamed":2}']


@pytest.mark.parametrize("held, change", [
    ("part", ""), ("v", "CREATE UNIQUE INDEX i ON t1 (g, v); ALTER TABLE t1 REPLICA IDENTITY USING INDEX i")], ids=["default", "index"])
def test_generated_column_of_the_key(database, millrace, topic, held, change):
    """The stream lacks it, so several rows would have one key: refused by name, and where a pattern means the table at its
    first row. (From 18 on the server refuses updates of such a table: test_failover.py.)"""
    if database.run("SHOW server_version_num")[0][0] >= "180000":
        pytest.skip("18 refuses updates of such a table")
    database.run("CREATE TABLE t1 (part int, v int NOT NULL, g int NOT NULL GENERATED ALWAYS AS (v * 2) STORED, PRIMARY KEY (part, g));"
                 "CREATE TABLE t2 (id int PRIMARY KEY, g int GENERATED ALWAYS AS (id * 2) STORED);" + change)
    named = millrace(["t2", "t1"])
    for code, text in (check(named), named.run_to_end()):
        assert code == 78 and "which is generated and not in the stream" in text and "REPLICA IDENTITY FULL" in text
    process = millrace(["public.t[0-9]"], pipeline__reconnect_max='"100ms"').start().streaming()
    database.run("INSERT INTO t2 VALUES (1)")
    assert topic(database.topic("t2")).take(1)[0].key == KEY
    database.run("INSERT INTO t1 VALUES (1, 1), (1, 2)")
    assert process.ended(60) == 65
    assert "table public.t1 holds column" in process.log("stopped")[0]["message"]

    # What waits keeps the identity that it has: it can be let through knowingly, by a column that is there.
    database.run("ALTER TABLE t1 REPLICA IDENTITY FULL")
    if not change:  # of an index that is none any more the catalog does not tell
        assert process.run_to_end()[0] == 65
    process.configure(key_columns=f'["public.t1:{held}"]').start().streaming()
    records = topic(database.topic("t1"))
    assert [row.json_key for row in records.take(2)] == [{held: row[held]} for row in ({"part": 1, "v": 1}, {"part": 1, "v": 2})]
    emptied(database, process)

    process.configure(key_columns='["public.t1:part,v"]')
    assert check(process)[0] == 0
    process.start().streaming()
    database.run("UPDATE t1 SET v = 3 WHERE v = 2")
    assert [row.json_key["v"] for row in records.take(3)] == [2, 2, 3]  # delete, tombstone, create


def test_stop_while_a_key_is_asked_for(database, millrace, topic):
    """The catalog is locked, so that the answer does not come. From 18 on the server itself reads pg_constraint to open a table that has
    NOT NULL columns (relcache.c, CheckNNConstraintFetch), and to alter one; so this has no key, and is altered before."""
    database.run("CREATE TABLE t (id int, v int); ALTER TABLE t REPLICA IDENTITY FULL")
    process = millrace().start().streaming()
    database.run("INSERT INTO t VALUES (1, 1)")
    reader = topic(database.topic("t"))
    reader.take(1)
    with psycopg.connect(dsn(database.name)) as writer, psycopg.connect(dsn(database.name)) as locker:
        writer.execute("INSERT INTO t VALUES (2, 2); ALTER TABLE t ADD COLUMN w int; INSERT INTO t VALUES (3, 3)")
        locker.execute("LOCK TABLE pg_catalog.pg_constraint")
        writer.commit()
        # By its own connection: a new one would wait, too.
        eventually(lambda: locker.execute("SELECT pg_stat_clear_snapshot(), count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
                                          " AND datname = current_database() AND backend_type = 'client backend'").fetchone()[1] == 1,
                   what="the question waiting")
        assert process.stop(20) in (0, 3)
    process.start().streaming()
    found = []
    while 3 not in found:  # the stop may have been too soon for an answer, so that row 2 comes twice
        found += [record.json["after"]["id"] for record in reader.take(1)]
    assert 2 in found
    emptied(database, process)


def test_keys_that_are_not_utf8(database, millrace_for, topic):
    """In a database that does not know what its bytes mean."""
    odd = Database("ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0")
    try:
        odd.run("CREATE TABLE t (id text PRIMARY KEY)")
        process = millrace_for(odd, invalid_utf8='"replace"').start().streaming()
        odd.run(r"INSERT INTO t VALUES (E'\xff'), (E'\xfe'), ('a'); DELETE FROM t")
        records = topic(odd.topic("t")).take(3 + 6)
        assert process.stop() == 0
        assert {record.key for record in records} == {'{"id":{"hex":"ff"}}', '{"id":{"hex":"fe"}}', '{"id":"a"}'}
        assert fold(records) == {}
    finally:
        odd.drop()


def test_keys_swapped_in_one_statement(database, millrace, topic):
    """What docs/keys.md says of it: no order of these events folds right, the transaction as a whole does."""
    database.run("CREATE TABLE t (id int PRIMARY KEY DEFERRABLE, v text); " + FULL)
    process = millrace().start().streaming()
    database.run("INSERT INTO t VALUES (1, 'a'), (2, 'b')")
    database.run("UPDATE t SET id = 3 - id")
    records = topic(database.topic("t")).take(2 + 6)
    emptied(database, process)
    assert len(process.log("key_deferrable")) == 1
    changes = [(record.json["op"], record.json_key["id"]) for record in records if record.value is not None]
    assert changes[2:] == [("d", 1), ("c", 2), ("d", 2), ("c", 1)]
    in_order = [record for record in records[2:] if record.value is not None]
    in_order.sort(key=lambda record: record.json["op"] != "d")
    assert fold(records[:2] + in_order) == {'{"id":1}': {"id": 1, "v": "b"}, '{"id":2}': {"id": 2, "v": "a"}}


def test_key_written_otherwise_is_the_same_key(database, millrace, topic):
    """Two texts of one value, which events write alike: one update, as Debezium has it. Where they are written as they are, the keys differ."""
    database.run("CREATE TABLE n (a numeric PRIMARY KEY, v int); CREATE TABLE i (a interval, b int, PRIMARY KEY (a, b))")
    process = millrace(("n", "i"), types='"debezium"').start().streaming()
    database.run("INSERT INTO n VALUES (1.0, 1); UPDATE n SET a = 1.00; UPDATE n SET a = 1; UPDATE n SET a = 1.01")
    database.run("INSERT INTO i VALUES ('1 day', 1); UPDATE i SET a = '24:00:00'; UPDATE i SET b = 2")
    for table in ("n", "i"):
        records = topic(database.topic(table)).take(1 + {"n": 2, "i": 1}[table] + 3)
        assert "".join(record.json["op"] if record.value else "-" for record in records) == {"n": "cuud-c", "i": "cud-c"}[table]
        assert len(set(keys_of(records[:-1]))) == 1 and records[-1].key != records[0].key
    emptied(database, process)
    process.configure(types='"plain"').start().streaming()
    database.run("INSERT INTO n VALUES (5.0, 1); UPDATE n SET a = 5.00 WHERE a = 5")
    records = topic(database.topic("n")).take(6 + 4)[6:]
    assert [record.json_key["a"] for record in records] == ["5.0", "5.0", "5.0", "5.00"]
    emptied(database, process)
