"""Which tables are streamed: what is configured, and nothing else; tables that go; very many of them."""

import contextlib
import hashlib
import json
import os
import re
import signal
import subprocess
import threading
import time

import psycopg
import pytest

from kit import BINARY, Database, check, connect, dsn, eventually, expect, swapped
from ledger import peak_rss_mb
from processes import broker_pid


def values(records):
    return [record.json["after"]["id"] for record in records if record.value is not None]


@pytest.mark.parametrize("what", ["FOR ALL TABLES", "FOR TABLE t, other"])
def test_tables_is_a_filter(database, millrace, topic, what):
    database.run("CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE other (id int PRIMARY KEY)")
    database.run(f"CREATE PUBLICATION {database.publication} {what}")
    database.run("INSERT INTO other VALUES (0)")
    process = millrace()
    expect(check(process), 0, "also sends 1 table that is not in", "public.other")
    process.start().streaming()
    assert any("also sends" in line["message"] for line in process.log("setup_warning"))
    database.run("INSERT INTO other VALUES (1); INSERT INTO t VALUES (1); TRUNCATE other")
    database.run("INSERT INTO other VALUES (2); INSERT INTO t VALUES (2)")
    assert values(topic(database.topic("t")).take(2)) == [1, 2]
    assert process.stop() == 0
    assert database.topic("other") not in database.topics()


def test_a_table_that_comes_later_is_told_of(database, millrace, topic):
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    database.run(f"CREATE PUBLICATION {database.publication} FOR ALL TABLES")
    process = millrace().start().streaming()
    database.run("CREATE TABLE late (id int PRIMARY KEY)")
    database.run("INSERT INTO late VALUES (1); INSERT INTO t VALUES (1)")
    assert values(topic(database.topic("t")).take(1)) == [1]
    assert process.wait_for("table_unlisted")["table"] == "public.late"
    assert process.stop() == 0
    assert database.topic("late") not in database.topics()


def test_partitions_of_a_listed_table(database, millrace, topic):
    """Also one that is made while the stream runs, and one of a partition."""
    database.run("CREATE TABLE t (id int PRIMARY KEY) PARTITION BY RANGE (id);"
                 "CREATE TABLE t_1 PARTITION OF t FOR VALUES FROM (0) TO (10);"
                 "CREATE TABLE other (id int PRIMARY KEY) PARTITION BY RANGE (id);"
                 "CREATE TABLE other_1 PARTITION OF other FOR VALUES FROM (0) TO (10)")
    database.run(f"CREATE PUBLICATION {database.publication} FOR TABLE t, other")
    process = millrace().start().streaming()
    database.run("INSERT INTO other VALUES (1); INSERT INTO t VALUES (1)")
    database.run("CREATE TABLE t_2 PARTITION OF t FOR VALUES FROM (10) TO (20) PARTITION BY RANGE (id);"
                 "CREATE TABLE t_2_1 PARTITION OF t_2 FOR VALUES FROM (10) TO (15)")
    database.run("INSERT INTO t VALUES (11)")
    assert values(topic(database.topic("t_1")).take(1)) == [1]
    assert values(topic(database.topic("t_2_1")).take(1)) == [11]
    assert process.stop() == 0
    assert database.topic("other_1") not in database.topics()


GONE = {
    "detached": "ALTER TABLE t DETACH PARTITION jan",
    "dropped": "DROP TABLE jan",
    "killed": "DROP TABLE jan",
    "altered": "ALTER TABLE t ADD w int; ALTER TABLE t DROP v; ALTER TABLE t DETACH PARTITION jan; DROP TABLE jan",
    "all": "DROP TABLE t",
}


@pytest.mark.parametrize("semantics", ["at-least-once", "exactly-once"])
@pytest.mark.parametrize("how", GONE)
def test_a_partition_that_is_gone_at_the_next_start(database, millrace, topic, how, semantics):
    """Its rows of before come: it was a partition then. So do those of one that came and went meanwhile."""
    database.run("CREATE TABLE t (id int PRIMARY KEY, v text) PARTITION BY LIST (id);"
                 "CREATE TABLE jan PARTITION OF t FOR VALUES IN (1); CREATE TABLE rest PARTITION OF t DEFAULT")
    process = millrace(sink__kafka__delivery=f'"{semantics}"').start().streaming()
    database.run("INSERT INTO t VALUES (0, 'a')")
    assert values(topic(database.topic("rest")).take(1)) == [0]
    if how == "killed":
        emptied(database)  # a start that has stored nothing refuses tables that are gone
        process.kill()
    else:
        assert process.stop() == 0
    database.run("INSERT INTO t VALUES (1, 'a'); CREATE TABLE may PARTITION OF t FOR VALUES IN (5); INSERT INTO t VALUES (5, 'a');"
                 "DROP TABLE may; " + GONE[how])
    process.start().streaming()
    assert values(topic(database.topic("jan")).take(1)) == [1]
    assert values(topic(database.topic("may")).take(1)) == [5]
    assert not process.log("table_unlisted")
    assert {line["table"] for line in process.log("partition_gone")} == {"public.jan", "public.may"}


@pytest.mark.parametrize("semantics", ["at-least-once", "exactly-once"])
@pytest.mark.parametrize("how", ["ALTER TABLE t DETACH PARTITION spring", "ALTER TABLE t RENAME TO u", "CREATE SCHEMA s; ALTER TABLE t SET SCHEMA s",
                                 "DROP TABLE spring"])
def test_what_a_partition_belongs_to_is_another_at_the_next_start(database, millrace, topic, how, semantics):
    """It is one still, of a table that is none any more, or has another name. Those of a table that was never listed are not taken for ours."""
    database.run("CREATE TABLE t (id int PRIMARY KEY) PARTITION BY LIST (id);"
                 "CREATE TABLE spring PARTITION OF t FOR VALUES IN (4, 5) PARTITION BY LIST (id); CREATE TABLE may PARTITION OF spring DEFAULT;"
                 "CREATE TABLE alike (LIKE t INCLUDING ALL) PARTITION BY LIST (id); CREATE TABLE alike_1 PARTITION OF alike DEFAULT")
    database.run(f"CREATE PUBLICATION {database.publication} FOR TABLE t, alike")
    process = millrace(sink__kafka__delivery=f'"{semantics}"').start().streaming()
    database.run("INSERT INTO t VALUES (4)")
    reader = topic(database.topic("may"))
    assert values(reader.take(1)) == [4]
    emptied(database)
    assert process.stop() == 0
    database.run("INSERT INTO t VALUES (5); INSERT INTO alike VALUES (7);" + how)
    process.start().streaming()
    assert values(reader.take(1)) == [5]
    emptied(database)
    assert process.stop() == 0
    assert database.topic("alike_1") not in database.topics()


@pytest.mark.parametrize("how", ["DROP TABLE jan", "ALTER TABLE t DETACH PARTITION jan"])
def test_a_partition_that_is_gone_after_a_reconnect(database, millrace, topic, how):
    database.run("CREATE TABLE t (id int PRIMARY KEY) PARTITION BY LIST (id); CREATE TABLE jan PARTITION OF t FOR VALUES IN (1, 2)")
    process = millrace(pipeline__reconnect_max='"100ms"').start().streaming()
    process.process.send_signal(signal.SIGSTOP)
    database.run("INSERT INTO t VALUES (1)")
    database.run("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = %s", [database.slot])
    database.run("INSERT INTO t VALUES (2)")
    database.run(how)
    process.process.send_signal(signal.SIGCONT)
    assert values(topic(database.topic("jan")).take(2)) == [1, 2]
    assert not process.log("table_unlisted")


@pytest.mark.parametrize("lives", [True, False], ids=["lives", "starts"])
def test_a_partition_that_goes_on_as_a_table(database, millrace, topic, lives):
    """Of a publication of all tables: its rows as a partition come, and no others; nor those of tables that never were one, whatever
    columns they had."""
    database.run("CREATE TABLE t (id int PRIMARY KEY, v text) PARTITION BY LIST (id); CREATE TABLE jan PARTITION OF t FOR VALUES IN (1, 2);"
                 "CREATE TABLE rest PARTITION OF t DEFAULT; CREATE TABLE alike (LIKE t INCLUDING ALL);"
                 "CREATE TABLE less (id int PRIMARY KEY)")
    database.run(f"CREATE PUBLICATION {database.publication} FOR ALL TABLES")
    process = millrace().start().streaming()
    database.run("INSERT INTO t VALUES (1)")
    reader = topic(database.topic("jan"))
    assert values(reader.take(1)) == [1]
    if not lives:
        assert process.stop() == 0
    database.run("INSERT INTO t VALUES (2); INSERT INTO alike VALUES (7); INSERT INTO less VALUES (7); DROP TABLE less;"
                 "ALTER TABLE t DETACH PARTITION jan")
    if lives:
        database.run("INSERT INTO jan VALUES (3)")  # it commits before that is seen
    else:
        process.start().streaming()
    assert values(reader.take(1)) == [2]
    for step in (10, 20):
        database.run(f"INSERT INTO t VALUES ({step})")
        assert values(topic(database.topic("rest")).take(1 if step == 10 else 2))[-1] == step
        database.run(f"INSERT INTO jan VALUES ({step})")
    database.run("INSERT INTO t VALUES (30)")
    assert values(topic(database.topic("rest")).take(3))[-1] == 30
    assert process.stop() == 0
    assert values(reader.read()) in ([], [3])
    assert not {database.topic("alike"), database.topic("less")} & set(database.topics())


@contextlib.contextmanager
def seen_by_nobody(database, text):
    """A transaction that is in the WAL; the server's own sessions see it once a synchronous standby has it, and there is none."""
    writer = threading.Thread(target=database.run, daemon=True, args=(text,))
    with database.setting("synchronous_standby_names", "'nobody'"):
        writer.start()
        eventually(lambda: database.run("SELECT 1 FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND datname = %s",
                                        [database.name]), 60, "the commit")
        yield
    writer.join(60)


def test_a_partition_that_no_session_sees_yet(database, millrace, topic):
    """PostgreSQL sends a transaction once its commit is written; its own sessions see it when the synchronous standby has it."""
    database.run("CREATE TABLE t (id int PRIMARY KEY) PARTITION BY RANGE (id)")
    process = millrace().start().streaming()
    with seen_by_nobody(database, "CREATE TABLE t_1 PARTITION OF t FOR VALUES FROM (0) TO (10); INSERT INTO t VALUES (1)"):
        eventually(lambda: process.log("source_lost") or process.log("table_unlisted"), 60, "the verdict on the partition")
    assert "do not see yet" in process.log("source_lost")[0]["message"]
    assert values(topic(database.topic("t_1")).take(1)) == [1]
    assert not process.log("table_unlisted")


@pytest.mark.parametrize("tables, change, table, key, after", [
    ("CREATE TABLE t (id int PRIMARY KEY) PARTITION BY RANGE (id); CREATE TABLE t_1 (id int PRIMARY KEY);"
     "CREATE TABLE t_0 PARTITION OF t FOR VALUES FROM (10) TO (11)",
     "ALTER TABLE t ATTACH PARTITION t_1 FOR VALUES FROM (0) TO (10); INSERT INTO t VALUES (2)", "t_1", {"id": 2}, {"id": 2}),
    ("CREATE TABLE t (id int PRIMARY KEY, b int NOT NULL); ALTER TABLE t REPLICA IDENTITY FULL",
     "ALTER TABLE t DROP CONSTRAINT t_pkey, ADD PRIMARY KEY (b); INSERT INTO t VALUES (2, 7)", "t", {"b": 7}, {"id": 2, "b": 7}),
    ("CREATE TABLE t (id int PRIMARY KEY)",
     "CREATE DOMAIN d AS int; ALTER TABLE t ADD b d; INSERT INTO t VALUES (2, 7)", "t", {"id": 2}, {"id": 2, "b": 7}),
], ids=["partition", "key", "type"])
def test_what_no_session_sees_at_the_start(database, millrace, topic, tables, change, table, key, after):
    """The catalog is read when the stream is opened, behind a commit that it does not show yet."""
    database.run(tables)
    database.run(f"CREATE PUBLICATION {database.publication} FOR ALL TABLES")
    process = millrace(types='"plain"').start().streaming()
    assert process.stop() == 0
    with seen_by_nobody(database, change):
        end = database.run("SELECT pg_current_wal_insert_lsn()")[0][0]
        process.start().streaming()
        asks = "SELECT 1 FROM pg_stat_activity WHERE query LIKE %s AND datname = %s AND pid <> pg_backend_pid()"
        eventually(lambda: database.run(asks, ["%pg_visible_in_snapshot%", database.name]) or
                   database.slot_row(f"confirmed_flush_lsn >= '{end}'"), 60, "a question, or a verdict without one")
    record = topic(database.topic(table)).take(1)[0]
    assert (json.loads(record.key), record.json["after"]) == (key, after)
    assert not process.log("table_unlisted")


@pytest.mark.parametrize("together", [False, True], ids=["later", "same-transaction"])
@pytest.mark.parametrize("streamed", [False, True], ids=["not-seen", "seen"])
@pytest.mark.parametrize("what", ["FOR ALL TABLES", "FOR TABLE t, t_1", "FOR TABLE t"])
def test_a_table_that_becomes_a_partition(database, millrace, topic, what, streamed, together):
    """It was known as one that is not listed; what is put into it from then on is the listed table's."""
    database.run("CREATE TABLE t (id int PRIMARY KEY) PARTITION BY RANGE (id);"
                 "CREATE TABLE t_0 PARTITION OF t FOR VALUES FROM (0) TO (1);"
                 "CREATE TABLE t_1 (id int PRIMARY KEY)")
    database.run(f"CREATE PUBLICATION {database.publication} {what}")
    process = millrace().start().streaming()
    if streamed:
        database.run("INSERT INTO t_1 VALUES (1)")
        database.run("INSERT INTO t VALUES (0)")
        assert values(topic(database.topic("t_0")).take(1)) == [0]
    attach, insert = "ALTER TABLE t ATTACH PARTITION t_1 FOR VALUES FROM (1) TO (10)", "INSERT INTO t VALUES (2)"
    for text in [f"BEGIN; {attach}; {insert}; COMMIT"] if together else [attach, insert]:
        database.run(text)
    database.run("INSERT INTO t VALUES (3)")
    assert values(topic(database.topic("t_1")).take(2)) == [2, 3]
    assert not process.log("source_lost")


@pytest.mark.parametrize("how", ["DROP TABLE gone", "ALTER TABLE gone RENAME TO renamed"])
def test_a_table_that_is_gone(database, millrace, topic, how):
    """The next start delivers what waits, and says what is gone."""
    database.run("CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE gone (id int PRIMARY KEY)")
    process = millrace(tables=("t", "gone")).start().streaming()
    database.run("INSERT INTO t VALUES (0)")
    database.all_confirmed()  # the names are stored with the position
    assert process.stop() == 0
    database.run("INSERT INTO gone VALUES (1); INSERT INTO t VALUES (1)")
    database.run(how)
    if "RENAME" in how:
        database.run("INSERT INTO renamed VALUES (2)")
    database.run("INSERT INTO t VALUES (2)")
    expect(check(process), 0, "does not exist any more")
    process.start().streaming()
    assert values(topic(database.topic("gone")).take(1)) == [1]
    assert values(topic(database.topic("t")).take(3)) == [0, 1, 2]
    told = [line["subject"] for line in process.log("setup_warning")]
    assert 'table "public"."gone"' in told, told
    assert process.stop() == 0
    assert database.topic("renamed") not in database.topics()


@pytest.mark.parametrize("how, told", [
    ("ALTER PUBLICATION {} DROP TABLE t", "is not in publication"),
    ("ALTER TABLE t RENAME TO old; CREATE VIEW t AS SELECT * FROM old", "is not a table")])
def test_a_table_that_is_sent_no_more(database, millrace, topic, how, told):
    """The next start delivers what waits, of this table and of the others, and says what is missing."""
    database.run("CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE u (id int PRIMARY KEY)")
    process = millrace(tables=("t", "u")).start().streaming()
    assert process.stop() == 0
    database.run("INSERT INTO t VALUES (1); INSERT INTO u VALUES (1)")
    database.run(how.format(database.publication))
    database.run("INSERT INTO t VALUES (2); INSERT INTO u VALUES (2)")
    expect(check(process), 0, told)
    process.start().streaming()
    assert values(topic(database.topic("u")).take(2)) == [1, 2]
    assert any(told in line["message"] and line["subject"] == 'table "public"."t"'
               for line in process.log("setup_warning"))


def test_stop_inside_a_transaction_that_makes_a_table(database, millrace, topic):
    """Nobody knows yet whose partition that is when its rows come, behind the stop: the transaction is read to its end all
    the same, and nothing comes twice."""
    database.run("CREATE TABLE t (id int PRIMARY KEY, v text)")
    database.run(f"CREATE PUBLICATION {database.publication} FOR ALL TABLES")
    process = millrace(pipeline__memory='"64MiB"').start().streaming()
    database.run("INSERT INTO t VALUES (0)")
    reader = topic(database.topic("t"))
    reader.take(1)
    broker = broker_pid()
    os.kill(broker, signal.SIGSTOP)
    try:
        database.run("BEGIN; INSERT INTO t SELECT g, repeat('x', 50000) FROM generate_series(1, 2500) g;"
                     "CREATE TABLE made (id int PRIMARY KEY); INSERT INTO made VALUES (1); COMMIT")
        eventually(lambda: process.figure("millrace_stalled_seconds") > 0, 60, "the wait for Kafka")
        process.process.send_signal(signal.SIGTERM)
        process.wait_for("stopping")
    finally:
        os.kill(broker, signal.SIGCONT)
    assert process.ended(60) == 0
    process.start().streaming()
    database.run("INSERT INTO t VALUES (-1)")
    assert [record.json_key["id"] for record in reader.take(2501)] == [*range(1, 2501), -1]


def test_renamed_while_it_streams(database, millrace, topic):
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    process = millrace().start().streaming()
    database.run("INSERT INTO t VALUES (1); ALTER TABLE t RENAME TO renamed; INSERT INTO renamed VALUES (2)")
    assert process.wait_for("table_unlisted")["table"] == "public.renamed"
    database.run("ALTER TABLE renamed RENAME TO t; INSERT INTO t VALUES (3)")
    assert values(topic(database.topic("t")).take(2)) == [1, 3]


def test_a_typing_mistake_is_an_error(database, millrace):
    """Nothing waits behind a slot that is not there yet."""
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    expect(millrace(tables=("t", "absent")).run_to_end(), 78, "does not exist in database")


def test_settings_of_the_role_change_nothing(database, millrace, topic):
    """What a database or a role sets must not show in events."""
    for setting in ("quote_all_identifiers = on", "lc_monetary = 'C.UTF-8'", "datestyle = 'German'",
                    "extra_float_digits = -5", "bytea_output = 'escape'", "xmlbinary = 'hex'"):
        database.run(f"ALTER DATABASE {database.name} SET {setting}")
    database.run("CREATE TABLE t (id int PRIMARY KEY, c regclass, m money, d date, f float8, b bytea)")
    process = millrace().start().streaming()
    database.run("INSERT INTO t VALUES (1, 't', 1234.5::numeric::money, '2024-02-03', 0.1::float8 + 0.2::float8, '\\x01')")
    (record,) = topic(database.topic("t")).take(1)
    row = record.json["after"]
    assert (row["c"], row["m"], row["d"], row["f"], row["b"]) == ("public.t", "$1,234.50", "2024-02-03",
                                                                 0.30000000000000004, "\\x01"), row


def test_a_long_name_in_latin1(millrace_for, topic):
    """63 bytes there are 126 here, and 63 characters."""
    database = Database("ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0")
    try:
        name = "ä" * 63
        database.run(f'CREATE TABLE "{name}" (id int PRIMARY KEY)')
        process = millrace_for(database, tables=(f'public."{name}"',)).start().streaming()
        database.run(f'INSERT INTO "{name}" VALUES (1)')
        topic(database.topic("_" * 63)).take(1)
        assert process.stop() == 0
    finally:
        database.drop()


SANITIZED = "MILLRACE_TEST_SANITIZED" in os.environ
IN_SCHEMA, COLUMNS = 10, 20


def make_tables(database, count):
    columns = "id int PRIMARY KEY" + "".join(f", a_column_with_a_name_{c} int" for c in range(1, COLUMNS))
    tables = [f"s{i // IN_SCHEMA}.t{i % IN_SCHEMA}" for i in range(count)]
    for begin in range(0, count, 500):
        some = tables[begin:begin + 500]
        database.run(";".join([f"CREATE SCHEMA s{i // IN_SCHEMA}" for i in range(begin, begin + len(some), IN_SCHEMA)] +
                              [f"CREATE TABLE {table} ({columns})" for table in some]))
    database.run("ANALYZE")
    return tables


def resident(process):
    time.sleep(1)  # what was freed is given back, and the figure is of now
    return process.figure("process_resident_memory_bytes")


def acknowledge(database, process, tables):
    """A row in each of these tables, all of which Kafka has."""
    before = process.figure("millrace_records_acknowledged_total")
    for begin in range(0, len(tables), 500):
        database.run(";".join(f"INSERT INTO {table} VALUES (1)" for table in tables[begin:begin + 500]))
    eventually(lambda: process.figure("millrace_records_acknowledged_total") >= before + len(tables), 300, "the rows")


@pytest.mark.timeout(900)
@pytest.mark.parametrize("count, by_pattern", [(5000, False), (50000, True)], ids=["5000 by name", "50000 by a pattern"])
def test_thousands_of_tables(database, millrace, topic, count, by_pattern):
    """A constant number of queries, and a budget of 128 MiB. Bytes of a table that sends nothing, and of one that does, from two
    sizes each; its topic is not in it, all tables have one."""
    tables = make_tables(database, count)
    sending = tables[:10000]
    database.run(f"CREATE PUBLICATION {database.publication} FOR ALL TABLES")
    options = {"pipeline__memory": '"128MiB"', "routing__sharing": '"key"',
               "routing__topic": json.dumps(database.prefix + ".all")}
    process = millrace(tables=tables[:1], **options)
    process.environment.update(MALLOC_ARENA_MAX="1", MALLOC_TRIM_THRESHOLD_="65536", MALLOC_MMAP_THRESHOLD_="65536")
    process.start().streaming()
    alone = resident(process)
    assert process.stop() == 0
    process.tables = ["s[0-9]+.t[0-9]"] if by_pattern else tables
    process.configure(**options)
    begin = time.monotonic()
    process.start().wait_for("source_connected", limit_s=60)
    measured = {"tables": count, "start_s": round(time.monotonic() - begin, 2), "alone_mb": round(alone / 2**20, 1)}
    idle = resident(process)
    few, more = sending[:len(sending) // 10], sending[len(sending) // 10:]
    acknowledge(database, process, few)
    begun = resident(process)
    acknowledge(database, process, more)
    active = resident(process)
    records = topic(database.prefix + ".all").take(len(few))
    assert {(record.json["source"]["schema"] + "." + record.json["source"]["table"]) for record in records} == set(few)
    assert len({record.key for record in records}) == len(few)
    pid = database.slot_row("active_pid")
    begin = time.monotonic()
    database.run("SELECT pg_terminate_backend(%s)", [pid])
    process.wait_for("source_connected", times=2, limit_s=60)
    measured["reconnect_s"] = round(time.monotonic() - begin, 2)
    eventually(lambda: database.slot_row("active"), what="the slot in use")
    measured.update(idle_bytes=round((idle - alone) / count), active_bytes=round((active - begun) / len(more)),
                    peak_mb=round(peak_rss_mb(process), 1))
    print(json.dumps(measured))
    assert process.stop() == 0
    if not SANITIZED:
        assert measured["idle_bytes"] <= 1024 and measured["active_bytes"] <= 2048 and measured["peak_mb"] < 128, measured


@pytest.mark.timeout(900)
def test_thousands_of_topics(database, millrace):
    """A topic each, which the sink makes; the client's own figures are off, as the log advises."""
    tables = make_tables(database, 5000)
    database.run(f"CREATE PUBLICATION {database.publication} FOR ALL TABLES")
    process = millrace(tables=["s[0-9]+.t[0-9]"], pipeline__memory='"128MiB"', metrics__interval='"0ms"').start().streaming()
    begin = time.monotonic()
    acknowledge(database, process, tables)
    measured = {"topics": len(tables), "seconds": round(time.monotonic() - begin, 1), "peak_mb": round(peak_rss_mb(process), 1)}
    print(json.dumps(measured))
    assert process.stop() == 0
    assert SANITIZED or measured["peak_mb"] < 128, measured


@pytest.mark.parametrize("owner", ["millrace", "user"])
def test_tables_by_pattern(database, millrace, topic, owner):
    """What fits is passed on, also what comes later; what is excluded, or fits no pattern, is not."""
    database.run("CREATE SCHEMA sales; CREATE TABLE sales.a (id int PRIMARY KEY); CREATE TABLE sales.tmp_a (id int PRIMARY KEY);"
                 "CREATE TABLE order_1 (id int PRIMARY KEY); CREATE TABLE order_x (id int PRIMARY KEY);"
                 "CREATE TABLE named (id int PRIMARY KEY)")
    if owner == "user":
        database.run(f"CREATE PUBLICATION {database.publication} FOR ALL TABLES")
    process = millrace(["named", "sales.*", "public.order_[0-9]+"], excluded_tables='["sales.tmp_.*"]').start().streaming()
    for table in ("sales.a", "sales.tmp_a", "order_1", "order_x", "named"):
        database.run(f"INSERT INTO {table} VALUES (1)")
    database.run("CREATE TABLE sales.b (id int PRIMARY KEY); INSERT INTO sales.b VALUES (2)")
    database.run("CREATE TABLE sales.tmp_b (id int PRIMARY KEY); INSERT INTO sales.tmp_b VALUES (2)")
    database.run("ALTER TABLE order_x RENAME TO order_2; INSERT INTO order_2 VALUES (3)")
    database.run("DROP TABLE sales.a; INSERT INTO named VALUES (4)")
    assert values(topic(database.topic("named")).take(2)) == [1, 4]
    assert values(topic(database.topic("a", "sales")).take(1)) == [1]
    assert values(topic(database.topic("b", "sales")).take(1)) == [2]
    assert values(topic(database.topic("order_1")).take(1)) == [1]
    assert values(topic(database.topic("order_2")).take(1)) == [3]
    assert process.stop() == 0
    expected = [database.topic(*name) for name in (("named",), ("order_1",), ("order_2",), ("a", "sales"), ("b", "sales"))]
    assert sorted(name for name in database.topics() if name.startswith(database.prefix + ".")) == sorted(expected)
    # The next start finds the same, and goes on.
    process.start().streaming()
    database.run("INSERT INTO sales.b VALUES (5)")
    assert values(topic(database.topic("b", "sales")).take(2)) == [2, 5]


def test_patterns_of_schemas_publish_these_alone(database, millrace):
    """A table elsewhere without a key must not lose its updates because of us."""
    database.run("CREATE SCHEMA sales; CREATE TABLE sales.a (id int PRIMARY KEY); CREATE TABLE keyless (id int)")
    process = millrace(["sales.*"]).start().streaming()
    database.run("INSERT INTO keyless VALUES (1)")
    database.run("UPDATE keyless SET id = 2")
    assert database.run("SELECT tablename FROM pg_publication_tables") == [("a",)]


def test_columns_are_shaped_wherever_a_row_is(database, millrace, topic):
    """Rows of a copy, of the stream, old rows and keys; the plain text of a masked column is nowhere."""
    database.run("CREATE TABLE t (mail text PRIMARY KEY, name text, body text, secret text);"
                 "ALTER TABLE t REPLICA IDENTITY FULL;"
                 "INSERT INTO t VALUES ('plain-mail', 'plain-name', 'plain-body', 'plain-secret')")
    process = millrace(snapshot__mode='"initial"', columns__hash='["t:mail"]', columns__hash_salt='"env:SALT"',
                       columns__mask='["public.t:na.*=4"]', columns__truncate='["*.t:body=5"]', columns__exclude='["t:secret"]')
    process.environment["SALT"] = "pepper"
    process.start().streaming()
    database.run("UPDATE t SET name = 'plain-other'; DELETE FROM t")
    records = topic(database.topic("t")).take(4)
    hashed = hashlib.sha256(b"pepperplain-mail").hexdigest()
    assert {record.key for record in records} == {json.dumps({"mail": hashed}, separators=(",", ":"))}
    row = {"mail": hashed, "name": "****", "body": "plain"}
    rows = [(record.json["before"], record.json["after"]) for record in records if record.value is not None]
    assert rows == [(None, row), (row, row), (row, None)]
    for record in records:
        assert "plain-" not in f"{record.key}{record.value}{record.headers}"
    assert process.stop() == 0
    assert not any("plain-" in line or "pepper" in line for line in process.lines)


RENAMED = {  # rules, statements, and whether millrace lives meanwhile
    "column": ({"columns__mask": '["public.users:email=8"]'}, "ALTER TABLE users RENAME email TO mail", "users"),
    "of-a-pattern": ({"columns__hash": '["*.*:e?mai[l]"]', "columns__hash_salt": '"env:SALT"'}, "ALTER TABLE users RENAME email TO post", "users"),
    "excluded": ({"columns__exclude": '["public.users:email"]'}, "ALTER TABLE users RENAME email TO mail", "users"),
    "table": ({"columns__mask": '["public.users:email=8"]'}, "ALTER TABLE users RENAME TO people", "people"),
    "made-again": ({"columns__mask": '["public.users:email=8"]'},
                   "DROP TABLE users; CREATE TABLE users (id int PRIMARY KEY, mail text)", "users"),
    "swapped": ({"columns__mask": '["public.users:email=8"]'},
                "CREATE TABLE u (LIKE users INCLUDING ALL); ALTER TABLE users RENAME TO old; ALTER TABLE u RENAME TO users;"
                "INSERT INTO users VALUES (3, 'hidden-3')", "old"),
    "name-taken": ({"columns__mask": '["public.users:email=8"]'},
                   "ALTER TABLE users RENAME email TO mail; ALTER TABLE users ADD email text", "users"),
    "swapped-columns": ({"columns__exclude": '["public.users:email"]'}, swapped("users", "note", "email"), "users"),
    "takes-another-name": ({"columns__include": '["public.users:id,note"]'}, "ALTER TABLE users DROP note; ALTER TABLE users RENAME email TO note", "users"),
    "dropped-beside": ({"columns__truncate": '["public.users:email=2"]'},
                       "ALTER TABLE users RENAME email TO mail; ALTER TABLE users DROP note", "users"),
}


@pytest.mark.parametrize("lives", [True, False], ids=["lives", "starts"])
@pytest.mark.parametrize("how", RENAMED)
def test_a_hidden_column_is_never_shown(database, millrace, topic, how, lives, monkeypatch):
    """Its rule fits nothing any more: nothing of the table goes out, until somebody has looked."""
    monkeypatch.setenv("SALT", "salt")
    rules, change, table = RENAMED[how]
    database.run("CREATE TABLE users (id int PRIMARY KEY, email text, note text)")
    process = millrace(tables=("public.*",), **rules).start().streaming()
    database.run("INSERT INTO users VALUES (1, 'hidden-1', 'seen')")
    reader = topic(database.topic("users"))
    assert "hidden-1" not in reader.take(1)[0].value
    if not lives:
        emptied(database)
        assert process.stop() == 0
    database.run(change)
    database.run(f"INSERT INTO {table} VALUES (2, 'hidden-2')")
    if not lives:
        process.start()
    assert process.ended(60) == 65
    text = "".join(process.lines)
    assert '"email\\"' in text and f"public.{table}" in text and "columns.unmatched" in text and "hidden-2" not in text, text
    assert "hidden" not in "".join(record.value for record in reader.read())
    if table != "users":
        assert database.topic(table) not in database.topics()
    mended = {**rules, "columns__unmatched": '"warn"'}
    process.configure(**mended).start().streaming()
    record = topic(database.topic(table)).take(2 if table == "users" else 1)[-1]
    assert "hidden-2" in record.value
    assert process.log("columns_unmatched")


def test_the_way_out_of_a_dropped_column_shows_nothing_of_other_tables(database, millrace, topic):
    """A rule of two tables: the message does not have it taken out, which would show the other one's values."""
    database.run("CREATE TABLE users (id int PRIMARY KEY, email text); CREATE TABLE others (id int PRIMARY KEY, email text)")
    rule = '["public.(users|others):email=8"]'
    process = millrace(tables=("public.*",), columns__mask=rule).start().streaming()
    database.run("INSERT INTO users VALUES (1, 'hidden-1')")
    reader = topic(database.topic("users"))
    assert "hidden-1" not in reader.take(1)[0].value
    emptied(database)
    assert process.stop() == 0
    database.run("ALTER TABLE users DROP email; ALTER TABLE users ADD city text; INSERT INTO users VALUES (2, 'seen'); INSERT INTO others VALUES (1, 'hidden-2')")
    assert process.start().ended(60) == 65
    message = process.log("stopped")[-1]["message"]
    assert "have the rule fit this table no more and the others as before" in message and "take the rule out" not in message, message
    process.configure(columns__mask=rule.replace("(users|others)", "others")).start().streaming()
    assert reader.take(1)[0].json["after"] == {"id": 2, "city": "seen"}
    assert topic(database.topic("others")).take(1)[0].json["after"]["email"] == "********"


OTHER_RULES = {
    "wider": ['"*.*:email=8"', '"*.*:(email|mail)=8"', '"*.*:(email|mail|e_mail)=8"'],
    "one-gone": ['"*.*:email=8", "*.*:ssn=8"', '"*.*:email=8"', '"*.*:(email|mail|e_mail)=8"'],
}


@pytest.mark.parametrize("lives", [True, False])
@pytest.mark.parametrize("how", OTHER_RULES)
def test_what_was_hidden_stays_known_when_rules_change(database, millrace, topic, how, lives):
    """As the runbook has it for one table of a rule: those of the other tables stay hidden until somebody has looked at them, too."""
    database.run("CREATE TABLE users (id int PRIMARY KEY, email text); CREATE TABLE accounts (id int PRIMARY KEY, email text, ssn text)")
    rules = OTHER_RULES[how]
    process = millrace(tables=("public.*",), columns__mask=f"[{rules[0]}]").start().streaming()
    database.run("INSERT INTO users VALUES (1, 'hidden-1'); INSERT INTO accounts VALUES (1, 'hidden-2')")
    readers = [topic(database.topic(name)) for name in ("users", "accounts")]
    assert "hidden" not in "".join(reader.take(1)[0].value for reader in readers)
    emptied(database)
    if not lives:
        assert process.stop() == 0
    database.run("ALTER TABLE users RENAME email TO mail; ALTER TABLE accounts RENAME email TO e_mail; INSERT INTO users VALUES (2, 'hidden-3'); INSERT INTO accounts VALUES (2, 'hidden-4')")
    if not lives:
        process.start()
    for rule in rules[1:]:
        assert process.ended(60) == 65
        process.configure(tables='["public.*"]', columns__mask=f"[{rule}]").start()
    assert [reader.take(1)[0].json["after"]["id"] for reader in readers] == [2, 2]
    assert "hidden" not in "".join(record.value for reader in readers for record in reader.read()) + "".join(process.lines)


@pytest.mark.parametrize("by", ["snapshot", "command"])
def test_a_copy_shows_no_more_of_a_partition_than_the_stream(database, millrace, topic, by):
    """users is a partition of people by now: no copy sends its rows as those of people either."""
    database.run("CREATE TABLE people (id int PRIMARY KEY, email text) PARTITION BY RANGE (id);"
                 "CREATE TABLE users PARTITION OF people FOR VALUES FROM (10) TO (20); INSERT INTO people VALUES (11, 'hidden-1')")
    options = {"tables": ("public.*",), "publication__via_partition_root": "true"}
    if by == "snapshot":
        process = millrace(**options, snapshot__mode='"initial"', columns__mask='["public.users:email=8"]').start()
        assert process.ended(60) == 65
        assert 'column \\"email\\" of its partition public.users' in "".join(process.lines)
    else:
        process = millrace(**options, columns__mask='["public.users:email=8"]').start().streaming()
        subprocess.run([BINARY, "snapshot", "public.people", "--config", process.path, "--address", process.address()], check=True, timeout=60)
        process.wait_for("incremental_failed")
    assert database.topic("people") not in database.topics() or "hidden-" not in "".join(record.value for record in topic(database.topic("people")).read())
    assert "hidden-" not in "".join(process.lines)


def test_a_partition_that_is_locked_holds_up_no_other(database, millrace, topic):
    """What is asked of partitions takes no locks."""
    database.run("CREATE TABLE people (id int PRIMARY KEY, email text) PARTITION BY RANGE (id);"
                 "CREATE TABLE users PARTITION OF people FOR VALUES FROM (10) TO (20); CREATE TABLE spring PARTITION OF people FOR VALUES FROM (0) TO (10)")
    process = millrace(tables=("public.*",), columns__mask='["public.(users|people):email=8", "public.users:none=8"]', columns__unmatched='"warn"',
                       publication__via_partition_root="true").start().streaming()
    with connect(database.name) as connection, connection.transaction():
        connection.execute("LOCK TABLE users IN ACCESS EXCLUSIVE MODE")
        database.run("INSERT INTO spring VALUES (1, 'hidden-1')")
        (record,) = topic(database.topic("people")).take(1)
    assert record.json["after"] == {"id": 1, "email": "********"}
    assert not process.log("source_lost") and process.stop() == 0


@pytest.mark.parametrize("delivery", ["at-least-once", "exactly-once"])
def test_the_columns_that_are_listed_and_the_key(database, millrace, topic, delivery):
    """Of a table that was there before: the key is sent though no rule lists it, and nothing takes that for a renamed column."""
    database.run("CREATE TABLE users (id int PRIMARY KEY, email text, note text)")
    process = millrace(tables=("public.*",), columns__include='["public.users:note"]', sink__kafka__delivery=f'"{delivery}"').start().streaming()
    database.run("INSERT INTO users VALUES (1, 'hidden', 'seen')")
    assert topic(database.topic("users")).take(1)[0].json["after"] == {"id": 1, "note": "seen"}


BEFORE_ANY_ROW = {
    "swapped": ("public.users:email=8", swapped("users", "email", "note")),
    "taken": ("public.users:email=8", "ALTER TABLE users RENAME email TO mail; ALTER TABLE users ADD email text"),
    "renamed": ("*.*:email=8", "ALTER TABLE users RENAME email TO mail"),
    "table": ("public.users:email=8", "ALTER TABLE users RENAME TO people"),
}


@pytest.mark.parametrize("lives", [True, False])
@pytest.mark.parametrize("how", BEFORE_ANY_ROW)
def test_a_column_that_is_renamed_before_any_row_is_never_shown(database, millrace, topic, how, lives):
    """What the rules hide is known from the start on. Other tables' rows go on until then."""
    rule, change = BEFORE_ANY_ROW[how]
    database.run("CREATE TABLE users (id int PRIMARY KEY, email text, note text); CREATE TABLE others (id int PRIMARY KEY, email text)")
    process = millrace(tables=("public.*",), columns__mask=f'["{rule}"]').start().streaming()
    emptied(database)
    if not lives:
        assert process.stop() == 0
    database.run(change)
    table = "people" if how == "table" else "users"
    database.run(f"INSERT INTO others VALUES (1, 'seen'); INSERT INTO {table} (id, {'note' if how == 'swapped' else 'mail' if how != 'table' else 'email'})"
                 " VALUES (2, 'hidden-2')")
    if not lives:
        process.start()
    assert process.ended(60) == 65
    assert "hidden-2" not in "".join(process.lines) + "".join(record.value for record in topic(database.topic("others")).take(1))
    assert database.topic("users") not in database.topics() and database.topic("people") not in database.topics()


@pytest.mark.parametrize("lives", [True, False])
def test_a_hidden_column_that_goes_before_any_row_stops_nothing(database, millrace, topic, lives):
    database.run("CREATE TABLE users (id int PRIMARY KEY, email text, note text)")
    process = millrace(tables=("public.*",), columns__mask='["public.users:email=8"]').start().streaming()
    emptied(database)
    if not lives:
        assert process.stop() == 0
    database.run("ALTER TABLE users DROP email")
    database.run("INSERT INTO users VALUES (1, 'seen')")
    if not lives:
        process.start().streaming()
    assert topic(database.topic("users")).take(1)[0].json["after"] == {"id": 1, "note": "seen"}


def test_what_no_rule_hides_any_more_is_said_once(database, millrace, topic):
    """A rule that loses a table's name, when another's new one is written, shows that table's values."""
    database.run("CREATE TABLE users (id int PRIMARY KEY, email text); CREATE TABLE customers (id int PRIMARY KEY, email text)")
    process = millrace(tables=("public.*",), columns__mask='["public.(users|customers):email=8"]').start().streaming()
    emptied(database)
    assert process.stop() == 0
    database.run("ALTER TABLE users RENAME TO people; ALTER TABLE customers RENAME TO clients")
    process = millrace(tables=("public.*",), columns__mask='["public.(clients|customers):email=8"]').start().streaming()
    line = process.wait_for("columns_shown")
    assert (line["columns"], line["count"]) == ("public.users.email", 1)
    database.run("INSERT INTO people VALUES (1, 'seen'); INSERT INTO clients VALUES (1, 'hidden')")
    assert topic(database.topic("people")).take(1)[0].json["after"]["email"] == "seen"
    assert topic(database.topic("clients")).take(1)[0].json["after"]["email"] == "********"
    assert process.stop() == 0
    process.start().streaming()
    emptied(database)
    assert process.stop() == 0 and not process.log("columns_shown")


def test_hidden_columns_of_many_tables_are_known_at_the_next_start(database, millrace, topic):
    """Too many for the names of all their columns to be stored."""
    more = "".join(f" || ', t' || i || '_of_the_columns_of_it_{n} text'" for n in range(20))
    database.run("DO $$ BEGIN FOR i IN 1..110 LOOP EXECUTE 'CREATE TABLE t' || i || ' (id int PRIMARY KEY, email text'" + more + " || ')'; END LOOP; END $$")
    process = millrace(tables=("public.*",), columns__mask='["*.*:email=8"]').start().streaming()
    database.run("DO $$ BEGIN FOR i IN 1..110 LOOP EXECUTE 'INSERT INTO t' || i || ' VALUES (1, ''hidden'')'; END LOOP; END $$")
    emptied(database)
    assert process.stop() == 0 and not process.log("columns_not_stored")
    database.run("ALTER TABLE t75 RENAME email TO mail")
    database.run("INSERT INTO t1 (id, email) VALUES (2, 'hidden'); INSERT INTO t75 (id, mail) VALUES (2, 'hidden')")
    assert process.start().ended(60) == 65
    assert 'column "email"' in process.log("stopped")[-1]["message"]
    assert "hidden" not in "".join(record.value for name in ("t1", "t75") for record in topic(database.topic(name)).read())


def test_a_hidden_column_that_goes_stops_nothing(database, millrace, topic):
    """What is dropped shows nothing, nor does a column that is added. Both names in one rule fit before and after."""
    database.run("CREATE TABLE users (id int PRIMARY KEY, email text, phone text)")
    process = millrace(tables=("public.*",), columns__mask='["public.users:(email|mail)=8", "public.users:phone=4"]').start().streaming()
    for text in ("INSERT INTO users VALUES (1, 'hidden', 'hidden')", "ALTER TABLE users ADD note text", "INSERT INTO users VALUES (2, 'hidden', 'hidden', 'a')",
                 "ALTER TABLE users DROP phone", "INSERT INTO users VALUES (3, 'hidden', 'b')", "ALTER TABLE users RENAME email TO mail",
                 "INSERT INTO users VALUES (4, 'hidden', 'c')"):
        database.run(text)
    records = topic(database.topic("users")).take(4)
    assert not any("hidden" in record.value for record in records)
    assert records[3].json["after"] == {"id": 4, "mail": "********", "note": "c"}
    emptied(database)
    assert process.stop() == 0
    database.run("INSERT INTO users VALUES (5, 'hidden', 'd')")
    process.start().streaming()
    assert topic(database.topic("users")).take(5)[-1].json["after"]["mail"] == "********"


def test_a_hidden_column_that_was_renamed_is_said_by_check(database, millrace, topic):
    database.run("CREATE TABLE t (id int PRIMARY KEY, ssn text)")
    process = millrace(columns__exclude='["public.t:ssn"]').start().streaming()
    database.run("INSERT INTO t VALUES (1, 'x')")
    assert values(topic(database.topic("t")).take(1)) == [1] and process.stop() == 0
    database.run("ALTER TABLE t RENAME ssn TO number")
    expect(check(process), 0, "with exit code 65", "(ssn|new_name)")
    database.run("INSERT INTO t VALUES (2, 'x')")
    assert process.start().ended(60) == 65


def test_a_hidden_column_of_a_backlog(database, millrace, topic):
    """The catalog is ahead of the rows. What was changed since stops nothing that can be told; a column that had another's name meanwhile does."""
    database.run("CREATE TABLE users (id int PRIMARY KEY, email text, note text)")
    process = millrace(tables=("public.*",), columns__mask='["public.users:(email|mail)=8"]').start().streaming()
    database.run("INSERT INTO users VALUES (1, 'hidden', 'seen')")
    emptied(database)
    assert process.stop() == 0
    for text in ("INSERT INTO users VALUES (2, 'hidden', 'seen')", "ALTER TABLE users RENAME email TO mail", "ALTER TABLE users ADD more text",
                 "INSERT INTO users VALUES (3, 'hidden', 'seen', 'more')", "ALTER TABLE users DROP more"):
        database.run(text)
    process.start().streaming()
    records = topic(database.topic("users")).take(3)
    assert not any("hidden" in record.value for record in records) and all("seen" in record.value for record in records)
    emptied(database)
    assert process.stop() == 0
    for text in ("ALTER TABLE users DROP note", "ALTER TABLE users RENAME mail TO note", "INSERT INTO users VALUES (4, 'hidden')",
                 "ALTER TABLE users RENAME note TO mail", "ALTER TABLE users ADD note text"):
        database.run(text)
    assert process.start().ended(60) == 65
    assert "hidden" not in "".join(record.value for record in topic(database.topic("users")).read())


def backlog(database, process, statements):
    """Of which the catalog is ahead."""
    assert process.stop() == 0
    for text in statements:
        database.run(text)
    return process


def test_a_hidden_column_that_may_have_been_another(database, millrace, topic):
    """No name is missing, and the numbers of the first row's columns are not certain any more. The way out hides both names for these rows."""
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    process = millrace(tables=("public.*",), columns__mask='["public.t:hid_.*=8"]').start().streaming()
    backlog(database, process, ["ALTER TABLE t ADD a text, ADD hid_1 text", "INSERT INTO t VALUES (1, 'seen', 'hidden-1')",
                                "BEGIN; ALTER TABLE t DROP a; ALTER TABLE t RENAME hid_1 TO a; ALTER TABLE t ADD hid_1 text; COMMIT",
                                "UPDATE t SET hid_1 = 'hidden-2'"])
    assert process.start().ended(60) == 65
    process.configure(columns__mask='["public.t:(hid_.*|a)=8"]').start().streaming()
    rows = topic(database.topic("t"))
    assert [record.json["after"]["a"] for record in rows.take(2)] == ["seen", "********"]
    backlog(database, process, ["UPDATE t SET a = 'seen'"])
    process.configure(columns__mask='["public.t:hid_.*=8"]').start().streaming()
    assert rows.take(1)[0].json["after"] == {"id": 1, "a": "seen", "hid_1": "********"}
    assert "hidden" not in "".join(record.value for record in topic(database.topic("t")).read(3))


@pytest.mark.parametrize("statements, expected", [
    (["ALTER TABLE t ADD hid_1 text", "INSERT INTO t VALUES (1, 'hidden')", "ALTER TABLE t DROP hid_1", "INSERT INTO t VALUES (2)",
      "ALTER TABLE t ADD hid_2 text", "INSERT INTO t VALUES (3, 'hidden')", "ALTER TABLE t DROP hid_2, ADD hid_1 text, ADD hid_3 text",
      "INSERT INTO t VALUES (4, 'hidden')"], [{"hid_1": "********"}, {}, {"hid_2": "********"}, {"hid_1": "********", "hid_3": None}]),
    (["ALTER TABLE t ADD hid_1 text", "INSERT INTO t VALUES (1, 'hidden')", "ALTER TABLE t ALTER hid_1 SET DEFAULT 'x', ADD b text",
      "INSERT INTO t VALUES (2, 'hidden', 'seen')"], [{"hid_1": "********"}, {"hid_1": "********", "b": "seen"}]),
    (["ALTER TABLE t ADD hid_1 text, ADD hid_2 text", "INSERT INTO t VALUES (1, 'hidden', 'hidden')", "ALTER TABLE t ADD b text",
      "INSERT INTO t VALUES (2, 'hidden', 'hidden', 'seen')", "ALTER TABLE t DROP hid_2", "INSERT INTO t VALUES (3, 'hidden', 'seen')",
      "ALTER TABLE t RENAME hid_1 TO hid_3"],
     [{"hid_1": "********", "hid_2": "********"}, {"hid_1": "********", "hid_2": "********", "b": "seen"}, {"hid_1": "********", "b": "seen"}]),
], ids=["dropped", "altered", "dropped later"])
def test_a_hidden_column_that_comes_and_goes_in_a_backlog_stops_nothing(database, millrace, topic, statements, expected):
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    process = millrace(tables=("public.*",), columns__mask='["public.t:hid_.*=8"]').start().streaming()
    backlog(database, process, statements).start().streaming()
    assert [record.json["after"] for record in topic(database.topic("t")).take(len(expected))] == [
        {"id": number, **columns} for number, columns in enumerate(expected, 1)]


PARTED = {
    "detached": ("ALTER TABLE t DETACH PARTITION spring; ALTER TABLE spring RENAME TO old; INSERT INTO old VALUES (2, 'hidden-2')", "old", 2),
    "detached-and-gone": ("ALTER TABLE t DETACH PARTITION spring; INSERT INTO spring VALUES (2, 'hidden-2'); DROP TABLE spring", "spring", 2),
    "sent-by-itself": ("ALTER PUBLICATION {} SET (publish_via_partition_root = false); INSERT INTO t VALUES (2, 'hidden-2')", "spring", 2),
    "renamed-column": ("ALTER TABLE t DETACH PARTITION spring; ALTER TABLE spring RENAME email TO mail; INSERT INTO spring VALUES (2, 'hidden-2')", "spring", 65),
}


@pytest.mark.parametrize("tables", ["t", "public.*"])
@pytest.mark.parametrize("how", PARTED)
def test_a_partition_hides_what_its_table_does(database, millrace, topic, how, tables):
    """By its own name, too, which no rule has: after DETACH where all tables are published, or the publication altered by hand."""
    database.run("CREATE TABLE t (id int PRIMARY KEY, email text) PARTITION BY RANGE (id);"
                 "CREATE TABLE spring PARTITION OF t FOR VALUES FROM (0) TO (10)")
    database.run(f"CREATE PUBLICATION {database.publication} FOR ALL TABLES WITH (publish_via_partition_root = true)")
    process = millrace(tables=(tables,), columns__mask='["public.t:email=8"]', publication__via_partition_root="true").start().streaming()
    database.run("INSERT INTO t VALUES (1, 'hidden-1')")
    assert topic(database.topic("t")).take(1)[0].json["after"]["email"] == "********"
    change, table, outcome = PARTED[how]
    database.run(change.format(database.publication))
    if outcome == 65:
        assert process.ended(60) == 65
        assert "hidden-" not in "".join(process.lines) and database.topic(table) not in database.topics()
    else:
        record = topic(database.topic(table)).take(1)[0]
        assert record.json["after"] == {"id": 2, "email": "********"}, record.value
        assert process.stop() == 0


# Rows of users, which a rule hides, come as those of people since then, of which none does.
ATTACHED = {
    "attached": "ALTER TABLE people ATTACH PARTITION users FOR VALUES FROM (10) TO (20)",
    "with-its-rows": "BEGIN; ALTER TABLE people ATTACH PARTITION users FOR VALUES FROM (10) TO (20); INSERT INTO people VALUES (11, 'hidden-3'); COMMIT",
    "within-another": "CREATE TABLE more PARTITION OF people FOR VALUES FROM (10) TO (30) PARTITION BY RANGE (id);"
                      "ALTER TABLE more ATTACH PARTITION users FOR VALUES FROM (10) TO (20)",
    "under-its-name": "DROP TABLE users; CREATE TABLE more PARTITION OF people FOR VALUES FROM (10) TO (20); INSERT INTO people VALUES (10, 'seen');"
                      "ALTER TABLE more RENAME TO users",
}


@pytest.mark.parametrize("lives", [True, False])
@pytest.mark.parametrize("how", ATTACHED)
def test_a_table_that_becomes_a_partition_hides_what_it_did(database, millrace, topic, how, lives):
    """What sends its rows now has no rule: nothing goes out until it has one."""
    database.run("CREATE TABLE users (id int PRIMARY KEY, email text); CREATE TABLE people (id int PRIMARY KEY, email text) PARTITION BY RANGE (id);"
                 "CREATE TABLE spring PARTITION OF people FOR VALUES FROM (0) TO (10)")
    process = millrace(tables=("public.*",), columns__mask='["public.users:email=8"]', publication__via_partition_root="true").start().streaming()
    database.run("INSERT INTO users VALUES (19, 'hidden-1'); INSERT INTO people VALUES (1, 'seen')")
    (record,) = topic(database.topic("people")).take(1)
    assert record.json["after"]["email"] == "seen"
    emptied(database)
    if not lives:
        assert process.stop() == 0
    database.run(ATTACHED[how])
    database.run("INSERT INTO people VALUES (12, 'hidden-2'); INSERT INTO people VALUES (2, 'seen')")
    if not lives:
        process.start()
    assert process.ended(60) == 65
    text = process.log("stopped")[-1]["message"]
    assert "public.people" in text and "public.users" in text and 'column "email"' in text
    assert "hidden-" not in "".join(record.value for record in topic(database.topic("people")).read()) + "".join(process.lines)
    process.configure(tables='["public.*"]', columns__mask='["public.(users|people):email=8"]', publication__via_partition_root="true")
    process.start().streaming()
    emptied(database)
    records = topic(database.topic("people")).read()
    assert "hidden-" not in "".join(record.value for record in records) and {12, 2} <= {record.json["after"]["id"] for record in records}


# Rows that are hidden, by a rule of users or of t, come as those of people by now, whatever the partition's name; and which column the message names.
USERS = "CREATE TABLE users (id int PRIMARY KEY, email text)"
TO_PEOPLE = "ALTER TABLE people ATTACH PARTITION {} FOR VALUES FROM (10) TO (20)"
T_1 = ("CREATE TABLE t (id int PRIMARY KEY, email text) PARTITION BY RANGE (id); CREATE TABLE t_1 PARTITION OF t FOR VALUES FROM (10) TO (20) PARTITION BY RANGE (id);"
       "CREATE TABLE t_11 PARTITION OF t_1 FOR VALUES FROM (10) TO (20)")
MOVED_IN = {
    "renamed": (USERS, "users", ["ALTER TABLE users RENAME TO people_1", TO_PEOPLE.format("people_1")]),
    "renamed-later": (USERS, "users", [TO_PEOPLE.format("users"), "ALTER TABLE users RENAME TO people_1"]),
    "other-schema": (USERS, "users", ["ALTER TABLE users SET SCHEMA parts", TO_PEOPLE.format("parts.users")]),
    "renamed-column": (USERS, "users", ["ALTER TABLE people RENAME email TO mail", "ALTER TABLE users RENAME email TO mail", TO_PEOPLE.format("users")]),
    "other-order": ("CREATE TABLE users (email text, id int PRIMARY KEY)", "users", ["ALTER TABLE users RENAME TO people_1", TO_PEOPLE.format("people_1")]),
    "of-another": (T_1, "t", ["ALTER TABLE t DETACH PARTITION t_1", TO_PEOPLE.format("t_1")]),
    "at-once": (USERS, "users", ["BEGIN; ALTER TABLE users RENAME TO users_old; DROP TABLE people; CREATE TABLE people (LIKE users_old INCLUDING ALL) PARTITION BY RANGE (id);"
                                 + TO_PEOPLE.format("users_old") + "; COMMIT"]),
}


@pytest.mark.parametrize("lives", [True, False])
@pytest.mark.parametrize("how", MOVED_IN)
def test_a_partition_hides_what_it_did_before_it_was_one(database, millrace, topic, how, lives):
    """By another name, or another table's: its rows are known by its OID."""
    made, source, change = MOVED_IN[how]
    database.run(f"CREATE SCHEMA parts; {made}; CREATE TABLE people (id int PRIMARY KEY, email text) PARTITION BY RANGE (id)")
    process = millrace(tables=("public.*", "parts.*"), columns__mask=f'["public.{source}:email=8"]', publication__via_partition_root="true").start().streaming()
    database.run(f"INSERT INTO {source} (id, email) VALUES (19, 'hidden-1')")
    assert "hidden-" not in topic(database.topic(source)).take(1)[0].value
    emptied(database)
    if not lives:
        assert process.stop() == 0
    for text in change:
        database.run(text)
    database.run("CREATE TABLE spring PARTITION OF people FOR VALUES FROM (0) TO (10); INSERT INTO people VALUES (1, 'seen')"
                 f"; INSERT INTO people (id, {'mail' if how == 'renamed-column' else 'email'}) VALUES (12, 'hidden-2')")
    if not lives:
        process.start()
    assert process.ended(60) == 65
    text = process.log("stopped")[-1]["message"]
    assert "table public.people: " in text and 'column "email" of its partition' in text and "and of the table they do not" in text, text
    assert "hidden-" not in "".join(record.value for record in topic(database.topic("people")).read()) + "".join(process.lines)
    process.configure(tables='["public.*", "parts.*"]', columns__mask=f'["public.({source}|people):(e?)mail=8"]', publication__via_partition_root="true")
    process.start().streaming()
    emptied(database)
    records = topic(database.topic("people")).read()
    assert "hidden-" not in "".join(record.value for record in records) and {1, 12} <= {record.json["after"]["id"] for record in records}


def test_a_copy_hides_what_a_partition_did_before_it_was_one(database, millrace, topic):
    database.run("CREATE TABLE people (id int PRIMARY KEY, email text) PARTITION BY RANGE (id); CREATE TABLE users (email text, id int PRIMARY KEY)")
    process = millrace(tables=("public.*",), columns__mask='["public.users:email=8"]', publication__via_partition_root="true").start().streaming()
    database.run("INSERT INTO users VALUES ('hidden-1', 11)")
    assert topic(database.topic("users")).take(1)[0].json["after"] == {"id": 11, "email": "********"}
    database.run("ALTER TABLE users RENAME TO people_1; ALTER TABLE people ATTACH PARTITION people_1 FOR VALUES FROM (10) TO (20)")
    assert process.get("/api/snapshot", method="POST", body=json.dumps({"type": "start", "tables": ["public.people"]})).status == 200
    assert 'column "email" of its partition public.people_1' in process.wait_for("incremental_failed")["message"]
    emptied(database)
    assert database.topic("people") not in database.topics()


# A partition of p that is partitioned itself; what is detached from it, or from p, or it and then what is in it.
NESTED = {
    "leaf": ("ALTER TABLE p DETACH PARTITION p0", "p0"),
    "inner-leaf": ("ALTER TABLE i DETACH PARTITION pn1", "pn1"),
    "branch": ("ALTER TABLE p DETACH PARTITION i", "i"),
    "branch-then-leaf": ("ALTER TABLE p DETACH PARTITION i; ALTER TABLE i DETACH PARTITION pn1", "pn1"),
    "unseen-inner-leaf": ("CREATE TABLE px PARTITION OF i FOR VALUES FROM (15) TO (20); INSERT INTO p VALUES (16, 'hidden-5'); ALTER TABLE i DETACH PARTITION px", "px"),
    "unseen": ("CREATE TABLE px PARTITION OF p FOR VALUES FROM (20) TO (30); INSERT INTO p VALUES (21, 'hidden-5'); ALTER TABLE p DETACH PARTITION px", "px"),
}


@pytest.mark.parametrize("when", ["running", "stopped"])
@pytest.mark.parametrize("how", NESTED)
def test_a_partition_of_a_partition_hides_what_the_outermost_does(database, millrace, topic, how, when):
    database.run("CREATE TABLE p (id int PRIMARY KEY, email text) PARTITION BY RANGE (id);"
                 "CREATE TABLE p0 PARTITION OF p FOR VALUES FROM (0) TO (10);"
                 "CREATE TABLE i PARTITION OF p FOR VALUES FROM (10) TO (20) PARTITION BY RANGE (id);"
                 "CREATE TABLE pn1 PARTITION OF i FOR VALUES FROM (10) TO (15)")
    database.run(f"CREATE PUBLICATION {database.publication} FOR ALL TABLES WITH (publish_via_partition_root = true)")
    process = millrace(tables=("public.*",), columns__mask='["public.p:email=8"]', publication__via_partition_root="true").start().streaming()
    database.run("INSERT INTO p VALUES (1, 'hidden-1'), (11, 'hidden-2')")
    assert [record.json["after"]["email"] for record in topic(database.topic("p")).take(2)] == ["********"] * 2
    emptied(database)
    if when == "stopped":
        assert process.stop() == 0
    change, table = NESTED[how]
    for text in change.split("; "):
        database.run(text)
    for change in ("UPDATE {} SET email = 'hidden-3'", "ALTER TABLE {} ADD note text", "UPDATE {} SET email = 'hidden-4'"):
        database.run(change.format(table))
    if when == "stopped":
        process.start()
    assert [record.json["after"]["email"] for record in topic(database.topic(table)).take(2)] == ["********"] * 2


BETWEEN = ("CREATE TABLE p (id int, email text) PARTITION BY RANGE (id); CREATE TABLE pn (id int, email text) PARTITION BY RANGE (id);"
           "CREATE TABLE pn1 PARTITION OF pn FOR VALUES FROM (0) TO (10)")
WITH_TWO = "ALTER TABLE p ATTACH PARTITION pn FOR VALUES FROM (0) TO (99); CREATE TABLE pn2 PARTITION OF pn FOR VALUES FROM (10) TO (99)"


@pytest.mark.parametrize("when", ["before", "running", "stopped"])
def test_a_rule_of_a_partition_that_is_partitioned_hides_what_is_in_it(database, millrace, topic, when):
    """Rows come by the outermost table's name, which no rule has: nothing goes out, also of a partition that was made since."""
    database.run(BETWEEN + (";" + WITH_TWO if when == "before" else ""))
    process = millrace(tables=("public.*",), columns__mask='["public.pn:email=8"]', publication__via_partition_root="true").start().streaming()
    if when != "before":
        database.run("INSERT INTO pn VALUES (1, 'hidden-1')")
        assert topic(database.topic("pn")).take(1)[0].json["after"]["email"] == "********"
        emptied(database)
    if when == "stopped":
        assert process.stop() == 0
    if when != "before":
        database.run(WITH_TWO)
    database.run("INSERT INTO p VALUES (11, 'hidden-2')")
    if when == "stopped":
        process.start()
    assert process.ended(60) == 65 and 'column \\"email\\" of its partition public.pn2' in "".join(process.lines)
    assert database.topic("p") not in database.topics()
    process.configure(tables='["public.*"]', columns__mask='["public.pn:email=8", "public.p:email=8"]', publication__via_partition_root="true")
    process.start().streaming()
    assert topic(database.topic("p")).take(1)[0].json["after"]["email"] == "********" and process.stop() == 0


@pytest.mark.parametrize("when", ["running", "stopped"])
def test_a_partition_of_a_former_partition_hides_what_that_does(database, millrace, topic, when):
    database.run(BETWEEN + ";" + WITH_TWO)
    process = millrace(tables=("public.*",), columns__mask='["public.pn:email=8"]', publication__via_partition_root="true").start().streaming()
    database.run("ALTER TABLE p DETACH PARTITION pn")
    database.run("INSERT INTO pn VALUES (1, 'hidden-1')")
    assert topic(database.topic("pn")).take(1)[0].json["after"]["email"] == "********"
    emptied(database)
    if when == "stopped":
        assert process.stop() == 0
    database.run("ALTER TABLE pn DETACH PARTITION pn1")
    database.run("INSERT INTO pn1 VALUES (2, 'hidden-2')")
    if when == "stopped":
        process.start()
    assert topic(database.topic("pn1")).take(1)[0].json["after"]["email"] == "********"


# What is done to the file between the two, and to the table.
OF_STREAMS = {
    "own-rule": ('["e?mail=8"]', None, "ALTER TABLE users RENAME email TO post"),
    "own-rule-swapped": ('["email=8"]', None, swapped("users", "note", "email")),
    "another-stream": (None, '["*.*:email=8"]', "ALTER TABLE users RENAME email TO post"),
}


@pytest.mark.parametrize("how", OF_STREAMS)
def test_a_hidden_column_is_shown_in_no_other_stream(database, millrace, topic, how):
    """By a stream's own rule, before any row; and in a stream that comes later, by a rule for all."""
    own, rule, change = OF_STREAMS[how]
    database.run("CREATE TABLE users (id int PRIMARY KEY, email text, note text)")
    process = millrace(tables=("users",), columns__mask=rule)

    def configure(destination):
        columns = f"columns = {{mask = {own}}}\n" if own else ""
        process.write(process.native((), {"tables": None, "columns.mask": rule}) + "[[streams]]\nsource = {resource = 'users', operations = ['read', 'insert']}\n"
                      f"{columns}sink = {{destination = '{database.topic(destination)}'}}\n")
    if own:
        configure("one")
    process.start().streaming()
    if rule:
        database.run("INSERT INTO users VALUES (1, 'hidden-1', 'seen')")
        assert "hidden" not in topic(database.topic("users")).take(1)[0].value
    emptied(database)
    assert process.stop() == 0
    database.run(change)
    database.run("INSERT INTO users VALUES (2, 'hidden-2', 'seen')")
    configure("one")
    assert process.start().ended(60) == 65 and 'column \\"email\\"' in "".join(process.lines)
    assert database.topic("one") not in database.topics()


# What is done to a partition, and to its table, while millrace is stopped; rows that show nothing, or the exit code.
FORGOTTEN = {
    "renamed-columns": ("ALTER TABLE spring RENAME email TO mail; ALTER TABLE spring RENAME note TO email", 65),
    "table-dropped": ("DROP TABLE t", 1),
    "long-ago": ("SELECT txid_current()", 1),
}


@pytest.mark.parametrize("how", FORGOTTEN)
def test_a_partition_that_was_detached_while_it_was_stopped(database, millrace, topic, how):
    """Whose it was is stored with the position; and a start that refuses is no reason for the next one not to."""
    database.run("CREATE TABLE t (id int PRIMARY KEY, email text, note text) PARTITION BY RANGE (id);"
                 "CREATE TABLE spring PARTITION OF t FOR VALUES FROM (0) TO (10)")
    database.run(f"CREATE PUBLICATION {database.publication} FOR ALL TABLES WITH (publish_via_partition_root = true)")
    process = millrace(tables=("public.*",), columns__mask='["public.t:email=8"]', publication__via_partition_root="true").start().streaming()
    database.run("INSERT INTO t VALUES (1, 'hidden-1', 'n')")
    assert topic(database.topic("t")).take(1)[0].json["after"]["email"] == "********"
    emptied(database)
    assert process.stop() == 0
    change, outcome = FORGOTTEN[how]
    for text in ("ALTER TABLE t DETACH PARTITION spring", *change.split("; ")):
        database.run(text)
    if how == "long-ago":  # no row of the slot's tells of it
        process.start().streaming()
        emptied(database)
        assert process.stop() == 0
    database.run("INSERT INTO spring VALUES (2, 'hidden-2', 'hidden-3')" if outcome == 65 else "INSERT INTO spring VALUES (2, 'hidden-2', 'n')")
    if outcome == 65:
        for _ in range(2):
            assert process.start().ended(60) == 65
        assert database.topic("spring") not in database.topics()
        return
    process.start().streaming()
    assert topic(database.topic("spring")).take(1)[0].json["after"] == {"id": 2, "email": "********", "note": "n"}


ALIKE = ("CREATE TABLE {0} (id int PRIMARY KEY, name text, email text) PARTITION BY RANGE (id);"
         "CREATE TABLE {0}_1 PARTITION OF {0} FOR VALUES FROM (0) TO (10)")
BY_ROOT = "CREATE PUBLICATION {} FOR ALL TABLES WITH (publish_via_partition_root = {})"


# What is made of a table with the columns of two that are partitioned; whether it may have been a partition.
STAGED = {
    "at-once": ("BEGIN; CREATE TABLE staging (LIKE b INCLUDING ALL); INSERT INTO staging VALUES (1, 'n', 'e'); DROP TABLE staging; COMMIT", True),
    "by-and-by": ("CREATE TABLE staging (LIKE b INCLUDING ALL); INSERT INTO staging VALUES (1, 'n', 'e'); DROP TABLE staging", True),
    "lives": ("CREATE TABLE staging (LIKE b); ALTER TABLE staging ALTER id SET STATISTICS 10, ALTER name SET STATISTICS 10, ALTER email SET STATISTICS 10;"
              "ALTER TABLE staging ADD PRIMARY KEY (id); INSERT INTO staging VALUES (1, 'n', 'e')", False),
}


@pytest.mark.parametrize("rule", ["public.a:email=8", "public.c:email=8"])
@pytest.mark.parametrize("via_root", ["true", "false"])
@pytest.mark.parametrize("how", STAGED)
def test_a_table_with_the_columns_of_two_stops_nothing(database, millrace, topic, how, via_root, rule):
    """What the rules hide of one of them is hidden, where it may have been that one's partition; else it goes out as it is."""
    database.run(ALIKE.format("a"))
    database.run(ALIKE.format("b"))
    database.run("CREATE TABLE m (id int PRIMARY KEY); CREATE TABLE c (id int PRIMARY KEY, email text)")
    database.run(BY_ROOT.format(database.publication, via_root))
    if via_root == "false":
        rule = rule.replace("public.a:", "public.(a|b)_[0-9]+:")
    process = millrace(tables=("public.*",), columns__mask=json.dumps([rule]), publication__via_partition_root=via_root).start().streaming()
    database.run("INSERT INTO a VALUES (1, 'n', 'e'); INSERT INTO b VALUES (1, 'n', 'e')")
    emptied(database)
    assert process.stop() == 0
    text, may_be_one = STAGED[how]
    for one in [text] if how == "at-once" else text.split("; "):
        database.run(one)
    database.run("INSERT INTO m VALUES (1)")
    process.start().streaming()
    assert values(topic(database.topic("m")).take(1)) == [1]
    hides = may_be_one and rule.startswith("public.a:")
    assert topic(database.topic("staging")).take(1)[0].json["after"] == {"id": 1, "name": "n", "email": "********" if hides else "e"}


def test_a_partition_that_went_from_one_table_to_another_hides_what_both_do(database, millrace, topic):
    database.run(ALIKE.format("a"))
    database.run(ALIKE.format("b"))
    database.run(BY_ROOT.format(database.publication, "true"))
    process = millrace(tables=("public.*",), columns__mask='["public.a:(email|name)=8", "public.b:name=8"]', publication__via_partition_root="true").start().streaming()
    database.run("INSERT INTO a VALUES (1, 'n', 'hidden-1'); INSERT INTO b VALUES (1, 'hidden-2', 'e')")
    emptied(database)
    for text in ("DELETE FROM b", "ALTER TABLE b DETACH PARTITION b_1", "ALTER TABLE a ATTACH PARTITION b_1 FOR VALUES FROM (20) TO (30)",
                 "INSERT INTO a VALUES (21, 'n', 'hidden-3')", "ALTER TABLE a DETACH PARTITION b_1", "INSERT INTO b_1 VALUES (22, 'hidden-4', 'hidden-5')"):
        database.run(text)
    assert topic(database.topic("b_1")).take(1)[0].json["after"] == {"id": 22, "name": "********", "email": "********"}


@pytest.mark.parametrize("hides", ["exclude", "mask"])
@pytest.mark.parametrize("when", ["running", "stopped"])
def test_the_publication_says_that_rows_come_by_the_root(database, millrace, topic, when, hides):
    """And the file says nothing."""
    database.run(ALIKE.format("t"))
    database.run(BY_ROOT.format(database.publication, "true"))
    process = millrace(tables=("public.*",), **{f"columns__{hides}": '["public.t:email"]' if hides == "exclude" else '["public.t:email=8"]'}).start().streaming()
    database.run("INSERT INTO t VALUES (1, 'n', 'hidden-1')")
    assert topic(database.topic("t")).take(1)[0].json["after"].get("email", "********") == "********"
    emptied(database)
    if when == "stopped":
        assert process.stop() == 0
    for text in ("ALTER TABLE t DETACH PARTITION t_1", "INSERT INTO t_1 VALUES (2, 'n', 'hidden-2')"):
        database.run(text)
    if when == "stopped":
        process.start().streaming()
    assert topic(database.topic("t_1")).take(1)[0].json["after"] == ({"id": 2, "name": "n"} if hides == "exclude" else {"id": 2, "name": "n", "email": "********"})


# What becomes of a partition after DETACH, and of a row that is written then; None: nothing goes out.
TURNED = {
    "swapped": (swapped("t_1", "name", "email") + "; INSERT INTO t_1 VALUES (3, 'n', 'hidden-3')", None),
    "swapped-and-gone": (swapped("t_1", "name", "email") + "; INSERT INTO t_1 VALUES (3, 'n', 'hidden-3'); DROP TABLE t_1", None),
    "others-swapped": (swapped("t_1", "name", "note") + "; INSERT INTO t_1 VALUES (3, 'n', 'hidden-3', 'o')", {"id": 3, "note": "n", "email": "********", "name": "o"}),
    "one-dropped": ("ALTER TABLE t_1 DROP name; ALTER TABLE t_1 ADD other text; INSERT INTO t_1 VALUES (3, 'hidden-3', 'n', 'o')",
                    {"id": 3, "email": "********", "note": "n", "other": "o"}),
}
# The partition's columns have other places than its table's.
ORDERED = {
    "as-they-are": ("INSERT INTO t_2 VALUES ('o', 'hidden-4', 'n', 13)", {"note": "o", "email": "********", "name": "n", "id": 13}),
    "turned-round": (swapped("t_2", "note", "email") + "; INSERT INTO t_2 VALUES ('o', 'hidden-4', 'n', 13)", None),
    "turned-round-to-the-table's": (swapped("t_2", "name", "email") + "; INSERT INTO t_2 VALUES ('o', 'hidden-4', 'n', 13)", None),
}


@pytest.mark.parametrize("when", ["running", "stopped", "listed-alone", "made-later"])
@pytest.mark.parametrize("how", [*TURNED, *ORDERED])
def test_a_column_of_a_partition_is_hidden_by_its_number(database, millrace, topic, how, when):
    """The table's columns have their names, and the partition's had them, too, as long as it was one."""
    database.run("CREATE TABLE t (id int PRIMARY KEY, dropped text, name text, email text, note text) PARTITION BY RANGE (id); ALTER TABLE t DROP dropped")
    parts = ("CREATE TABLE t_1 PARTITION OF t FOR VALUES FROM (0) TO (10);"
             "CREATE TABLE t_2 (note text, email text, name text, id int PRIMARY KEY); ALTER TABLE t ATTACH PARTITION t_2 FOR VALUES FROM (10) TO (20)")
    if when != "made-later":
        database.run(parts)
    database.run(BY_ROOT.format(database.publication, "true"))
    process = millrace(tables=("t",) if when == "listed-alone" else ("public.*",), columns__mask='["public.t:email=8"]',
                       publication__via_partition_root="true").start().streaming()
    if when == "made-later":
        database.run(parts)
    database.run("INSERT INTO t VALUES (1, 'n', 'hidden-1', 'o'), (11, 'n', 'hidden-2', 'o')")
    assert topic(database.topic("t")).take(2)[0].json["after"]["email"] == "********"
    emptied(database)
    if when == "stopped":
        assert process.stop() == 0
    table = "t_1" if how in TURNED else "t_2"
    text, row = {**TURNED, **ORDERED}[how]
    change = f"ALTER TABLE t DETACH PARTITION {table}; {text}"
    for one in [f"BEGIN; {change}; COMMIT"] if when == "listed-alone" and row is None else change.split("; "):
        database.run(one)
    if when == "stopped":
        process.start()
    if row is None:
        assert process.ended(60) == 65
        assert "hidden-" not in "".join(process.lines) and database.topic(table) not in database.topics()
    elif when == "listed-alone":  # not of "tables" any more
        emptied(database)
        assert process.stop() == 0
    else:
        assert topic(database.topic(table)).take(1)[0].json["after"] == row
        assert process.stop() == 0


def masked_by_root(database, millrace, **more):
    """A process that streams partitioned t, and masks its `email`."""
    database.run(ALIKE.format("t"))
    database.run(BY_ROOT.format(database.publication, "true"))
    return millrace(tables=("public.*",), columns__mask='["public.t:email=8"]', publication__via_partition_root="true", **more).start().streaming()


def test_the_stream_shows_a_partition_whose_table_is_gone(database, millrace, topic):
    """No table has its columns by now."""
    process = masked_by_root(database, millrace)
    emptied(database)
    assert process.stop() == 0
    for text in ("CREATE TABLE x PARTITION OF t FOR VALUES FROM (10) TO (20)", "INSERT INTO t VALUES (11, 'n', 'hidden-1')", "ALTER TABLE t DETACH PARTITION x",
                 "DROP TABLE t", "INSERT INTO x VALUES (12, 'n', 'hidden-2')", "DROP TABLE x"):
        database.run(text)
    process.start().streaming()
    assert topic(database.topic("x")).take(1)[0].json["after"] == {"id": 12, "name": "n", "email": "********"}


def test_the_stream_shows_a_partition_that_is_gone(database, millrace, topic):
    """Its columns are not its table's by then, and no catalog ever knew it."""
    process = masked_by_root(database, millrace)
    database.run("BEGIN; CREATE TABLE x PARTITION OF t FOR VALUES FROM (10) TO (20); INSERT INTO t VALUES (11, 'n', 'hidden-1');"
                 "ALTER TABLE t DETACH PARTITION x; ALTER TABLE x ALTER name TYPE varchar; INSERT INTO x VALUES (12, 'n', 'hidden-2');"
                 "ALTER TABLE x ADD more int; INSERT INTO x VALUES (13, 'n', 'hidden-3', 1); DROP TABLE x; COMMIT")
    records = topic(database.topic("x")).take(2)
    assert [record.json["after"]["email"] for record in records] == ["********"] * 2


COPIED = {
    "always": {"snapshot__mode": '"always"'},
    "added": {"snapshot__added_tables": "true"},
    "asked": {},
}


@pytest.mark.parametrize("how", COPIED)
def test_a_copy_hides_what_a_former_partition_did(database, millrace, topic, how):
    """It was made and detached while nobody saw it. A table that was none goes out as it is."""
    process = masked_by_root(database, millrace, **COPIED[how])
    database.run("INSERT INTO t VALUES (1, 'n', 'hidden-1')")
    emptied(database)
    assert process.stop() == 0
    for text in ("CREATE UNLOGGED TABLE t_2 (LIKE t INCLUDING ALL)", "INSERT INTO t_2 VALUES (11, 'n', 'hidden-2')",  # the stream has none of it
                 "ALTER TABLE t ATTACH PARTITION t_2 FOR VALUES FROM (10) TO (20)", "ALTER TABLE t DETACH PARTITION t_2", "ALTER TABLE t_2 SET LOGGED",
                 "CREATE TABLE plain (LIKE t INCLUDING ALL)", "INSERT INTO plain VALUES (12, 'n', 'e')"):
        database.run(text)
    process.start().streaming()
    if how == "asked":
        body = json.dumps({"type": "start", "tables": ["public.t_2", "public.plain"]})
        assert process.get("/api/snapshot", method="POST", body=body).status == 200
    (record,) = [one for one in topic(database.topic("t_2")).take(1) if one.json["op"] == "r"]
    assert record.json["after"] == {"id": 11, "name": "n", "email": "********"}
    assert topic(database.topic("plain")).take(1)[0].json["after"] == {"id": 12, "name": "n", "email": "e"}


def test_a_copy_fails_where_the_stream_would_end(database, millrace, topic):
    process = masked_by_root(database, millrace)
    database.run("INSERT INTO t VALUES (1, 'n', 'hidden-1')")
    emptied(database)
    for text in ("ALTER TABLE t DETACH PARTITION t_1", *swapped("t_1", "name", "email").split("; ")):
        database.run(text)
    assert process.get("/api/snapshot", method="POST", body=json.dumps({"type": "start", "tables": ["public.t_1"]})).status == 200
    assert "hidden at this place of the stream" in process.wait_for("incremental_failed")["message"]
    emptied(database)
    assert database.topic("t_1") not in database.topics()


def test_a_copy_at_the_beginning_hides_what_a_former_partition_did(database, millrace, topic):
    database.run(ALIKE.format("t"))
    database.run("INSERT INTO t VALUES (1, 'n', 'hidden-1'); CREATE TABLE plain (LIKE t INCLUDING ALL); INSERT INTO plain VALUES (1, 'n', 'e')")
    database.run("ALTER TABLE t DETACH PARTITION t_1")
    process = millrace(tables=("public.*",), columns__mask='["public.t:email=8"]', publication__via_partition_root="true", snapshot__mode='"initial"').start().streaming()
    assert topic(database.topic("t_1")).take(1)[0].json["after"]["email"] == "********"
    assert topic(database.topic("plain")).take(1)[0].json["after"]["email"] == "e"


def emptied(database):
    database.all_confirmed()


@pytest.mark.parametrize("gone", ["ALTER TABLE late ALTER secret DROP EXPRESSION", "ALTER PUBLICATION {} SET TABLE late, t"])
def test_a_hidden_column_that_was_never_sent_stays_hidden(database, millrace, topic, gone):
    """It was generated, or the publication left it out, in a table that was made after the slot."""
    by_list = "PUBLICATION" in gone
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    if by_list:
        database.run(f"CREATE PUBLICATION {database.publication} FOR TABLE t")
    process = millrace(tables=("public.*",), columns__mask='["public.*:secret=8"]').start().streaming()
    database.run(f"CREATE TABLE late (id int PRIMARY KEY, v text, secret text {'' if by_list else 'GENERATED ALWAYS AS (v) STORED'})")
    if by_list:
        database.run(f"ALTER PUBLICATION {database.publication} ADD TABLE late (id, v)")
    database.run("INSERT INTO late VALUES (1, 'v')")
    assert topic(database.topic("late")).take(1)[0].json["after"] == {"id": 1, "v": "v"}
    database.run(gone.format(database.publication))
    database.run("ALTER TABLE late RENAME secret TO plain; INSERT INTO late VALUES (2, 'v', 'hidden')")
    assert process.ended(60) == 65
    assert "hidden" not in "".join(record.value for record in topic(database.topic("late")).read())


UNPUBLISHED = {
    "swapped": "CREATE TABLE t_new (LIKE t INCLUDING ALL); ALTER TABLE t RENAME TO t_old; ALTER TABLE t_new RENAME TO t",
    "made-again": "DROP TABLE t; CREATE TABLE t (id int PRIMARY KEY)",
    "taken-out": "ALTER PUBLICATION {} DROP TABLE t",
}


@pytest.mark.parametrize("how", UNPUBLISHED)
def test_a_listed_table_that_is_not_published_is_said(database, millrace, topic, how):
    """While it runs, in check, and at the next start; and that is over once it is published again."""
    database.run("CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE u (id int PRIMARY KEY)")
    process = millrace(tables=("t", "u")).start().streaming()
    database.run(UNPUBLISHED[how].format(database.publication))
    line = process.standstill("table_unpublished")
    assert "public.t" in line["message"] and "public.u" not in line["message"], line
    database.run("INSERT INTO u VALUES (1)")
    assert values(topic(database.topic("u")).take(1)) == [1]
    assert process.figure('millrace_standstill{cause="table_unpublished"}') == 1 and process.figure("millrace_ready") == 1
    expect(check(process), 0, "is not in publication")
    assert "then send what differs: millrace verify --repair --yes" in line["message"], line
    database.run(re.search(r"Run (ALTER PUBLICATION .* ADD TABLE ONLY .*); or take it out", line["message"])[1])
    process.wait_for("standstill_over")


def looked_at(database, process):
    """Three looks at the slot: all questions of one have been answered then."""
    eventually(lambda: "\nmillrace_slot_retained_bytes " in process.get("/metrics").body, 20, "a look at the slot")
    for _ in range(3):
        kept = process.figure("millrace_slot_retained_bytes")
        database.run("SELECT pg_logical_emit_message(true, 'x', repeat('x', 1000))")
        eventually(lambda: process.figure("millrace_slot_retained_bytes") != kept, 20, "a look at the slot")  # pylint: disable=cell-var-from-loop


UNLOGGED = {
    "set": ("ALTER TABLE t SET UNLOGGED", "ALTER TABLE t SET LOGGED"),
    "made-again": ("DROP TABLE t; CREATE UNLOGGED TABLE t (id int PRIMARY KEY)", "DROP TABLE t; CREATE TABLE t (id int PRIMARY KEY)"),
    "partition": ("ALTER TABLE p_1 SET UNLOGGED", "ALTER TABLE p_1 SET LOGGED"),
}


@pytest.mark.parametrize("tables", ["public.*", "named"])
@pytest.mark.parametrize("how", UNLOGGED)
def test_a_table_that_becomes_unlogged_is_said(database, millrace, how, tables):
    """Nothing of it is in the WAL. One that was so all along is what a start warns of, and one that joins so is nobody's loss."""
    database.run("CREATE TABLE t (id int PRIMARY KEY); CREATE UNLOGGED TABLE scratch (id int PRIMARY KEY);"
                 "CREATE TABLE p (id int PRIMARY KEY) PARTITION BY RANGE (id); CREATE TABLE p_1 PARTITION OF p FOR VALUES FROM (0) TO (10)")
    database.run(f"CREATE PUBLICATION {database.publication} FOR ALL TABLES WITH (publish_via_partition_root = true)")
    process = millrace(tables=(tables,) if tables != "named" else ("t", "p"), metrics__interval='"200ms"',
                       publication__via_partition_root="true").start().streaming()
    looked_at(database, process)
    database.run("CREATE UNLOGGED TABLE more (id int PRIMARY KEY)")
    change, back = UNLOGGED[how]
    for text in change.split("; "):
        database.run(text)
    table = "public.p_1" if how == "partition" else "public.t"
    line = process.standstill("table_unpublished")
    assert "unlogged" in line["message"] and table in line["message"], line
    assert "scratch" not in line["message"] and "more" not in line["message"] and "1 streamed table" in line["message"], line
    assert process.figure('millrace_standstill{cause="table_unpublished"}') == 1 and process.figure("millrace_ready") == 1
    for text in back.split("; "):
        database.run(text)
    line = process.wait_for("table_logged_again")
    assert line["tables"] == table and "millrace verify --repair --yes" in line["remedy"], line
    process.wait_for("standstill_over")


@pytest.mark.parametrize("delivery", ["at-least-once", "exactly-once"])
@pytest.mark.parametrize("tables,table", [(("public.*",), "t"), (("public.*",), "p_1"), (("t", "p", "v"), "p_1")])
def test_a_table_that_becomes_unlogged_while_it_is_stopped_is_said(database, millrace, topic, tables, table, delivery):
    """At each start, by what the stored position has, and in check; and that it was, once it is logged again."""
    database.run("CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE v (id int PRIMARY KEY); CREATE UNLOGGED TABLE scratch (id int PRIMARY KEY);"
                 "CREATE TABLE p (id int PRIMARY KEY) PARTITION BY RANGE (id); CREATE TABLE p_1 PARTITION OF p FOR VALUES FROM (0) TO (10)")
    database.run(f"CREATE PUBLICATION {database.publication} FOR ALL TABLES WITH (publish_via_partition_root = true)")
    process = millrace(tables=tables, metrics__interval='"200ms"', publication__via_partition_root="true",
                       sink__kafka__delivery=json.dumps(delivery)).start().streaming()
    looked_at(database, process)
    database.run("INSERT INTO v VALUES (1)")  # a session in which nothing is sent stores nothing
    rows = topic(database.topic("v"))
    assert values(rows.take(1)) == [1] and process.stop() == 0
    database.run(f"ALTER TABLE {table} SET UNLOGGED")
    for row in (2, 3):
        line = process.start().streaming().standstill("table_unpublished")
        assert f"public.{table}" in line["message"] and "1 streamed table" in line["message"], line
        code, text = check(process)
        assert code == 0 and "unlogged" in text and f"public.{table}" in text.replace('"', ""), text
        database.run("INSERT INTO v VALUES (%s)", [row])
        assert values(rows.take(1)) == [row] and process.stop() == 0
    database.run(f"ALTER TABLE {table} SET LOGGED")
    assert process.start().wait_for("table_logged_again")["tables"] == f"public.{table}"


def followed(database, millrace, topic, tables=("t", "u"), **options):
    """A stream that has sent a row of u, with three looks behind it; and u's topic."""
    process = millrace(tables=tables, metrics__interval='"200ms"', **options).start().streaming()
    rows = topic(database.make_topic("u"))
    goes_on(database, process, rows, 1)
    return process, rows


def goes_on(database, process, rows, number):
    looked_at(database, process)
    database.run("INSERT INTO u VALUES (%s)", [number])
    assert values(rows.take(1)) == [number]


OUT_AND_IN = "ALTER PUBLICATION {p} DROP TABLE t; INSERT INTO t VALUES (1); ALTER PUBLICATION {p} ADD TABLE ONLY t"
# What is streamed, options, what happens, which tables are said.
PUBLISHED_AGAIN = {
    "named": (("t", "u"), {}, OUT_AND_IN, "public.t"),
    "schema": (("public.*",), {}, "ALTER PUBLICATION {p} DROP TABLES IN SCHEMA public; INSERT INTO t VALUES (1);"
               "ALTER PUBLICATION {p} ADD TABLES IN SCHEMA public", "public.*"),
    "another schema meanwhile": (("public.*",), {}, "CREATE SCHEMA o; ALTER PUBLICATION {p} SET TABLES IN SCHEMA o; INSERT INTO t VALUES (1);"
                                 "ALTER PUBLICATION {p} SET TABLES IN SCHEMA public", "public.*"),
    "alter": (("t", "u"), {"publication__alter": "true"}, OUT_AND_IN, "public.t"),
    # millrace sets the list anew, where the table was taken out and added again before.
    "alter, with a list": (("t", "u"), {"publication__alter": "true"}, OUT_AND_IN + " (id)", "public.t"),
    "alter, which adds it": (("t", "u"), {"publication__alter": "true"}, "ALTER PUBLICATION {p} DROP TABLE t; INSERT INTO t VALUES (1)", "public.t"),
    "made again": (("t", "u"), {}, "BEGIN; DROP TABLE t; CREATE TABLE t (id int PRIMARY KEY, v int); ALTER PUBLICATION {p} ADD TABLE ONLY t;"
                   "INSERT INTO t VALUES (1); COMMIT", "public.t"),
}


@pytest.mark.parametrize("when", ["running", "stopped"])
@pytest.mark.parametrize("case", PUBLISHED_AGAIN)
def test_what_is_published_again_by_other_ways_is_said(database, millrace, topic, case, when):
    tables, options, done, named = PUBLISHED_AGAIN[case]
    if when == "running" and case.startswith("alter, "):
        pytest.skip("millrace sets it right as it starts")
    database.run("CREATE TABLE t (id int PRIMARY KEY, v int); CREATE TABLE u (id int PRIMARY KEY)")
    process, rows = followed(database, millrace, topic, tables, **options)
    if when == "stopped":
        assert process.stop() == 0
    for statement in done.format(p=database.publication).split(";") if "BEGIN" not in done else [done.format(p=database.publication)]:
        database.run(statement)
    if when == "stopped":
        process.start().streaming()
    line = process.wait_for("table_published_again")
    assert line["tables"] == named and "verify --repair" in line["remedy"] and ("dropped ones" in line["message"]) == (case == "made again"), line
    assert case != "named" or "millrace snapshot" in line["remedy"] and "and no more, send what differs" in line["remedy"], line
    assert line["see"] == "millrace help E-publication-changed"  # repaired before that, it would send what is to be hidden
    goes_on(database, process, rows, 2)
    assert len(process.log("table_published_again")) == 1 and process.stop() == 0
    process.start().streaming()
    looked_at(database, process)
    assert not process.log("table_published_again") and process.stop() == 0


def test_what_millrace_sets_anew_is_not_published_again(database, millrace, topic):
    """Its own transaction drops the table and adds it with another list: all is sent."""
    database.run("CREATE TABLE t (id int PRIMARY KEY, v int); CREATE TABLE u (id int PRIMARY KEY)")
    options = {"metrics__interval": '"200ms"', "publication__alter": "true"}
    process, rows = followed(database, millrace, topic, publication__alter="true")
    assert process.stop() == 0
    process.configure(**options, publication__columns='["public.t:id"]').start().streaming().wait_for("publication_altered")
    goes_on(database, process, rows, 2)
    assert not process.log("table_published_again") and process.stop() == 0


@pytest.mark.parametrize("when", ["running", "stopped"])
def test_a_swapped_table_keeps_its_filter_and_its_list(database, millrace, topic, when):
    """The statement that is printed has them, and one who leaves them out hears of it."""
    database.run("CREATE TABLE t (id int PRIMARY KEY, v text, secret text); CREATE TABLE u (id int PRIMARY KEY)")
    database.run(f"CREATE PUBLICATION {database.publication} FOR TABLE ONLY t (id, v) WHERE (id > 0), ONLY u")
    process, rows = followed(database, millrace, topic)
    if when == "stopped":
        assert process.stop() == 0
    database.run("BEGIN; ALTER TABLE t RENAME TO t_old; CREATE TABLE t (LIKE t_old INCLUDING ALL); COMMIT")
    for start in range(2 if when == "stopped" else 0):  # the second one knows it, too
        process.start().streaming()
        goes_on(database, process, rows, start + 2)
        assert start == 1 or process.stop() == 0
    line = process.standstill("table_unpublished")
    add = f'ALTER PUBLICATION "{database.publication}" ADD TABLE ONLY "public"."t" (id, v) WHERE ((id > 0))'
    assert f"Run {add}; or take it out" in line["message"] and "what they hid goes out" not in line["message"], line
    code, text = check(process)
    assert code == 0 and f"{add}, or take it out" in text, text  # publication.alter would add it without
    if when == "stopped":
        assert process.stop() == 0
        return
    database.run(f"ALTER PUBLICATION {database.publication} ADD TABLE ONLY t")
    line = process.wait_for("standstill", times=2)
    assert line["cause"] == "publication_changed" and "was with only rows with (id > 0) and only the columns id, v" in line["message"], line
    database.run(re.search("BEGIN; .*COMMIT;", line["message"])[0])
    eventually(lambda: len(process.log("standstill_over")) == 2, 20, "nothing is left to say")


def test_a_publication_that_is_gone_is_printed_whole(database, millrace, topic):
    """With the filters, lists and options that the stream was opened with."""
    database.run("CREATE TABLE t (id int PRIMARY KEY, v text, secret text); CREATE TABLE u (id int PRIMARY KEY)")
    database.run(f"CREATE PUBLICATION {database.publication} FOR TABLE ONLY t (id, v) WHERE (id > 0), ONLY u"
                 " WITH (publish = 'insert, update', publish_via_partition_root = true)")
    process, _ = followed(database, millrace, topic)
    assert process.stop() == 0
    database.run(f"DROP PUBLICATION {database.publication}")
    made = (f'CREATE PUBLICATION "{database.publication}" FOR TABLE ONLY "public"."t" (id, v) WHERE ((id > 0)), TABLE ONLY "public"."u"'
            " WITH (publish = 'insert, update', publish_via_partition_root = true); 3.")
    expect(check(process), 10, made, without="they are not stored")
    assert process.start().ended(60) == 10 and made in process.log("stopped")[0]["message"], process.lines
    database.run(made[:-4])
    assert database.run("SELECT rowfilter, attnames::text FROM pg_publication_tables WHERE tablename = 't'") == [("(id > 0)", "{id,v}")]


@pytest.mark.parametrize("form", ["(id)", "WHERE (id < 0)"])
def test_a_publication_that_was_narrowed_while_it_was_stopped_is_said(database, millrace, form):
    database.run("CREATE TABLE t (id int PRIMARY KEY, v text)")
    process = millrace().start().streaming()
    assert process.stop() == 0 and not process.log("setup_warning")
    database.run(f"ALTER PUBLICATION {database.publication} SET TABLE t {form}")
    line = process.start().streaming().wait_for("setup_warning")
    assert '"public"."t"' in line["subject"] and "not of this configuration" in line["message"] and "publication.where" in line["remedy"], line


def test_patterns_that_match_what_is_not_published(database, millrace):
    database.run("CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE u (id int PRIMARY KEY)")
    database.run(f"CREATE PUBLICATION {database.publication} FOR TABLE u")
    process = millrace(tables=("public.*",))
    expect(check(process), 0, f'match 1 table that is not in publication "{database.publication}" (public.t)')
    process.start().streaming()
    assert "public.t" in process.standstill("table_unpublished")["message"]


def test_a_schema_that_is_made_again_is_not_published(database, millrace):
    """The publication of its tables lost it."""
    database.run("CREATE SCHEMA shop; CREATE TABLE shop.t (id int PRIMARY KEY)")
    process = millrace(tables=("shop.*",)).start().streaming()
    assert process.stop() == 0
    database.run("DROP SCHEMA shop CASCADE; CREATE SCHEMA shop; CREATE TABLE shop.t (id int PRIMARY KEY)")
    expect(check(process), 0, "match 1 table that is not in publication", "(shop.t)")
    process.start().streaming()
    assert "shop.t" in process.standstill("table_unpublished")["message"]


def test_locked_tables_hold_up_nobody_else(database, millrace, topic):
    """VACUUM FULL of one table, or of one partition: what is asked at a start and after a lost connection opens none of them."""
    database.run("CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE other (id int PRIMARY KEY, v int);"
                 "CREATE TABLE p (id int PRIMARY KEY) PARTITION BY RANGE (id);"
                 "CREATE TABLE p_1 PARTITION OF p FOR VALUES FROM (0) TO (10);"
                 "ALTER TABLE other REPLICA IDENTITY FULL; CREATE TYPE mood AS ENUM ('sad'); ALTER TABLE other ADD m mood")
    process = millrace(tables=("t", "other", "p")).start().streaming()
    assert process.stop() == 0
    with psycopg.connect(dsn(database.name)) as holder:
        holder.execute("LOCK TABLE other, p_1 IN ACCESS EXCLUSIVE MODE")
        process.start().streaming()
        database.run("INSERT INTO t VALUES (1)")
        reader = topic(database.topic("t"))
        assert values(reader.take(1)) == [1]
        database.run("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = %s", [database.slot])
        process.wait_for("source_connected", times=2)
        database.run("INSERT INTO t VALUES (2)")
        assert values(reader.take(1)) == [2]
        assert check(process)[0] == 0
        assert not database.run("SELECT FROM pg_locks WHERE NOT granted AND relation IN ('other'::regclass, 'p_1'::regclass)")


PLACEHOLDER = "name_your_tables_here"


@pytest.mark.parametrize("how", ["take-over", "edited", "file"])
def test_a_name_that_is_no_table_confirms_nothing(database, millrace, topic, how):
    """What the slot has of other tables would be confirmed, and nobody would get it."""
    database.run("CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE gone (id int PRIMARY KEY)")
    sink = {"sink__kafka__brokers": None, "sink__file__path": '"/dev/null"'} if how == "file" else {}
    if how == "edited":
        process = millrace(tables=("t", "gone")).start().streaming()
        assert process.stop() == 0
    else:
        database.run(f"CREATE PUBLICATION {database.publication} FOR TABLE t, gone")
        database.run(f"SELECT pg_create_logical_replication_slot('{database.slot}', 'pgoutput')")
    before = database.slot_row("confirmed_flush_lsn")
    database.run("INSERT INTO t VALUES (1)")
    process = millrace(tables=("tt", "gone"), **sink)
    for _ in range(2):
        expect(process.run_to_end(), 78, "does not exist, but the publication sends")
    expect(check(process), 78, "does not exist, but the publication sends", "public.t")
    assert database.slot_row("confirmed_flush_lsn") == before
    if how == "file":
        return
    process = millrace(tables=("t", "gone")).start().streaming()
    assert values(topic(database.topic("t")).take(1)) == [1]
    # Dropped while it runs: that stops nobody, not even where more is published than is streamed.
    database.run("CREATE TABLE more (id int PRIMARY KEY);"
                 f"ALTER PUBLICATION {database.publication} ADD TABLE more; DROP TABLE gone; INSERT INTO t VALUES (2)")
    assert process.stop() == 0
    process.start().streaming()
    assert values(topic(database.topic("t")).take(2)) == [1, 2]
    assert any("does not exist any more" in line["message"] for line in process.log("setup_warning"))


def test_the_converters_placeholder_never_starts(database, millrace):
    """Also where the slot is there, as in every migration, and even a table of that name."""
    database.run(f"CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE {PLACEHOLDER} (id int PRIMARY KEY);"
                 f"CREATE PUBLICATION {database.publication} FOR ALL TABLES")
    database.run(f"SELECT pg_create_logical_replication_slot('{database.slot}', 'pgoutput')")
    process = millrace(tables=(PLACEHOLDER, "t"))
    expect(process.run_to_end(), 78, "millrace convert")
    assert check(process)[0] == 78


def test_a_pattern_that_means_nothing_is_said(database, millrace):
    database.run(f"CREATE TABLE t (id int PRIMARY KEY); CREATE PUBLICATION {database.publication} FOR ALL TABLES")
    process = millrace(tables=("public.order_.*",)).start().streaming()
    assert any("match no table that is there now" in line["message"] for line in process.log("setup_warning"))
