"""Every operation and tuple kind, as a consumer sees it."""

import json
import subprocess

import pytest

from consume import murmur2
from kit import BOOTSTRAP, batches_on_disk, eventually

ENVELOPE = ["before", "after", "source", "transaction", "op", "ts_ms", "ts_us", "ts_ns"]
SOURCE = ["version", "connector", "name", "ts_ms", "snapshot", "db", "sequence", "ts_us", "ts_ns", "schema",
          "table", "txId", "lsn", "xmin", "origin", "origin_lsn"]


def events(database, millrace, topic, statements, count, table="t", **options):
    """Runs the statements, each a transaction of its own, and takes the records they make."""
    process = millrace(tables=(table,), **options).start().streaming()
    for statement in statements:
        database.run(statement)
    records = topic(database.topic(table)).take(count)
    assert process.stop() == 0
    return records


def test_insert_update_delete(database, millrace, topic):
    database.run("CREATE TABLE t (id int PRIMARY KEY, v text)")
    insert, update, delete, tombstone = events(database, millrace, topic, [
        "INSERT INTO t VALUES (1, 'a')", "UPDATE t SET v = 'b'", "DELETE FROM t"], 4)
    assert list(insert.json) == ENVELOPE
    assert list(insert.json["source"]) == SOURCE
    assert [r.json["op"] for r in (insert, update, delete)] == ["c", "u", "d"]
    assert insert.json["before"] is None and insert.json["after"] == {"id": 1, "v": "a"}
    assert update.json["before"] is None and update.json["after"] == {"id": 1, "v": "b"}
    assert delete.json["before"] == {"id": 1, "v": None} and delete.json["after"] is None
    assert tombstone.value is None
    assert {r.key for r in (insert, update, delete, tombstone)} == {'{"id":1}'}


def test_source_block_and_headers(database, millrace, topic):
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    records = events(database, millrace, topic,
                     ["INSERT INTO t VALUES (1), (2)", "INSERT INTO t VALUES (3)"], 3)
    source = records[0].json["source"]
    assert (source["connector"], source["name"], source["db"]) == ("postgresql", database.prefix, database.name)
    assert (source["schema"], source["table"], source["snapshot"]) == ("public", "t", "false")
    assert source["ts_ns"] == source["ts_us"] * 1000 and source["ts_ms"] == source["ts_us"] // 1000
    assert records[0].timestamp_ms == source["ts_ms"]
    assert json.loads(source["sequence"]) == [None, str(source["lsn"])]
    third = records[2].json["source"]
    last_commit = int(json.loads(third["sequence"])[0])  # where the transaction before ended
    assert int(records[0].position[:16], 16) < last_commit <= third["lsn"]
    for record in records:
        assert int(record.headers["mr-xid"]) == record.json["source"]["txId"]
        assert int(record.headers["mr-ts"]) == record.json["source"]["ts_us"]
    positions = [r.position for r in records]
    assert positions == sorted(positions) and len({len(p) for p in positions}) == 1
    assert [p[17:] for p in positions] == ["0000000001-0", "0000000002-0", "0000000001-0"]


def test_key_change(database, millrace, topic):
    database.run("CREATE TABLE t (id int PRIMARY KEY, v text)")
    _, delete, tombstone, create = events(database, millrace, topic, [
        "INSERT INTO t VALUES (1, 'a')", "UPDATE t SET id = 2"], 4)
    assert (delete.key, delete.json["op"]) == ('{"id":1}', "d")
    assert (tombstone.key, tombstone.value) == ('{"id":1}', None)
    assert (create.key, create.json["op"], create.json["before"]) == ('{"id":2}', "c", None)
    assert create.json["after"] == {"id": 2, "v": "a"}
    assert delete.position < tombstone.position < create.position


def test_key_change_with_full_identity(database, millrace, topic):
    database.run("CREATE TABLE t (id int PRIMARY KEY, v text); ALTER TABLE t REPLICA IDENTITY FULL")
    records = events(database, millrace, topic, [
        "INSERT INTO t VALUES (1, 'a')", "UPDATE t SET v = 'b'", "UPDATE t SET id = 2", "DELETE FROM t"], 7)
    assert records[1].json["before"] == {"id": 1, "v": "a"}
    assert [r.key for r in records] == ['{"id":1}'] * 4 + ['{"id":2}'] * 3
    assert records[5].json["before"] == {"id": 2, "v": "b"}


def test_key_of_another_column_with_full_identity(database, millrace, topic):
    """The key moves to another column while the stream runs; later rows follow."""
    database.run("CREATE TABLE t (a int PRIMARY KEY, b int NOT NULL); ALTER TABLE t REPLICA IDENTITY FULL")
    records = events(database, millrace, topic, [
        "INSERT INTO t VALUES (1, 2)", "ALTER TABLE t DROP CONSTRAINT t_pkey; ALTER TABLE t ADD PRIMARY KEY (b);"
        "ALTER TABLE t ADD COLUMN c int", "INSERT INTO t VALUES (3, 4)"], 2)
    assert [r.key for r in records] == ['{"a":1}', '{"b":4}']


def test_table_made_anew_while_streaming(database, millrace, topic):
    """Another table with the same name, and with a key that only the catalog tells."""
    database.run("CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE late (id int PRIMARY KEY)")
    database.run(f"CREATE PUBLICATION {database.publication} FOR ALL TABLES")
    process = millrace(tables=("t", "late")).start().streaming()
    database.run("DROP TABLE late; CREATE TABLE late (b int, a int, PRIMARY KEY (a, b));"
                 "ALTER TABLE late REPLICA IDENTITY FULL")
    database.run("INSERT INTO late VALUES (1, 2)")
    (record,) = topic(database.topic("late")).take(1)
    assert record.key == '{"b":1,"a":2}'


def test_composite_key_in_the_order_of_the_table(database, millrace, topic):
    database.run("CREATE TABLE t (a int, b text, c int, PRIMARY KEY (c, a))")
    (record,) = events(database, millrace, topic, ["INSERT INTO t VALUES (1, 'x', 2)"], 1)
    assert record.key == '{"a":1,"c":2}'


def test_index_identity(database, millrace, topic):
    database.run("CREATE TABLE t (id int NOT NULL, code text NOT NULL UNIQUE, v int);"
                 "ALTER TABLE t REPLICA IDENTITY USING INDEX t_code_key")
    records = events(database, millrace, topic,
                     ["INSERT INTO t VALUES (1, 'x', 5)", "DELETE FROM t"], 3)
    assert [r.key for r in records] == ['{"code":"x"}'] * 3
    assert records[1].json["before"] == {"id": None, "code": "x", "v": None}


def test_table_without_key(database, millrace, topic):
    database.run("CREATE TABLE t (v int); ALTER TABLE t REPLICA IDENTITY FULL")
    records = events(database, millrace, topic, ["INSERT INTO t VALUES (1)", "DELETE FROM t"], 2)
    assert [r.key for r in records] == [None, None]
    assert [r.json["op"] for r in records] == ["c", "d"]


def test_unchanged_toast(database, millrace, topic):
    """A large value that an update leaves alone is a placeholder; the whole old row supplies it."""
    make = "INSERT INTO {0} SELECT 1, 0, string_agg(md5(g::text), '') FROM generate_series(1, 3000) g"
    database.run("CREATE TABLE t (id int PRIMARY KEY, n int, big text);"
                 "CREATE TABLE f (id int PRIMARY KEY, n int, big text); ALTER TABLE f REPLICA IDENTITY FULL")
    process = millrace(tables=("t", "f")).start().streaming()
    for table in ("t", "f"):
        database.run(make.format(table))
        database.run(f"UPDATE {table} SET n = 1")
    default = topic(database.topic("t")).take(2)
    full = topic(database.topic("f")).take(2)
    assert process.stop() == 0
    assert len(default[0].json["after"]["big"]) == 96000
    assert default[1].json["after"]["big"] == "__debezium_unavailable_value"
    assert full[1].json["after"]["big"] == full[0].json["after"]["big"]
    assert full[1].json["before"]["big"] == full[0].json["after"]["big"]


def test_truncate_is_skipped_by_default(database, millrace, topic):
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    records = events(database, millrace, topic, [
        "INSERT INTO t VALUES (1)", "TRUNCATE t", "INSERT INTO t VALUES (2)"], 2)
    assert [r.json["op"] for r in records] == ["c", "c"]


def test_truncate_when_wanted(database, millrace, topic):
    database.run("CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE u (id int PRIMARY KEY REFERENCES t)")
    process = millrace(tables=("t", "u"), skipped_operations="[]").start().streaming()
    database.run("TRUNCATE t CASCADE")
    for table in ("t", "u"):
        (record,) = topic(database.topic(table)).take(1)
        assert record.key is None
        assert (record.json["op"], record.json["before"], record.json["after"]) == ("t", None, None)


def test_logical_messages(database, millrace, topic):
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    process = millrace(messages__prefixes='["in", "out"]').start().streaming()
    database.run("SELECT pg_logical_emit_message(true, 'other', 'hello')")
    database.run("SELECT pg_logical_emit_message(true, 'in', 'hello')")
    database.run("SELECT pg_logical_emit_message(false, 'out', 'wörld')")
    inside, outside = topic(f"{database.prefix}.message").take(2)
    assert process.stop() == 0
    assert (inside.key, outside.key) == ('{"prefix":"in"}', '{"prefix":"out"}')
    assert inside.json["message"] == {"prefix": "in", "content": "aGVsbG8="}
    assert inside.json["source"]["txId"] is not None and outside.json["source"]["txId"] is None
    process.start().streaming()
    database.run("INSERT INTO t VALUES (1)")
    topic(database.topic("t")).take(1)
    assert process.stop() == 0
    assert len(topic(f"{database.prefix}.message").read(2)) == 2, "a restart repeats no message"


def test_savepoints_and_schema_changes(database, millrace, topic):
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    records = events(database, millrace, topic, [
        "BEGIN; INSERT INTO t VALUES (1); SAVEPOINT s; INSERT INTO t VALUES (99); ROLLBACK TO s;"
        "ALTER TABLE t ADD COLUMN v text DEFAULT 'd'; INSERT INTO t VALUES (2); COMMIT",
        "ALTER TABLE t RENAME COLUMN v TO w", "UPDATE t SET w = 'x' WHERE id = 1"], 3)
    assert [r.json["after"] for r in records] == [{"id": 1}, {"id": 2, "v": "d"}, {"id": 1, "w": "x"}]


def test_odd_names_and_text(database, millrace, topic):
    database.run('CREATE SCHEMA "S x"; CREATE TABLE "S x"."T.""q" ("I d" int PRIMARY KEY, "naïve" text)')
    process = millrace(tables=('"S x"."T.""q"',)).start().streaming()
    text = 'quote " backslash \\ tab \t newline \n é 漢 😀'
    database.run('INSERT INTO "S x"."T.""q" VALUES (1, %s)', [text])
    (record,) = topic(f"{database.prefix}.S_x.T._q").take(1)
    assert process.stop() == 0
    assert record.json_key == {"I d": 1}
    assert record.json["after"] == {"I d": 1, "naïve": text}
    assert record.json["source"]["table"] == 'T."q'


def test_values_of_each_type_as_a_consumer_sees_them(database, millrace, topic):
    digits = "1234567890" * 10 + ".5"
    database.run("CREATE TYPE mood AS ENUM ('sad', 'glad'); CREATE TABLE t (id int PRIMARY KEY, i2 int2, i8 int8,"
                 " f4 float4, f8 float8, nan float8, inf float4, b bool, n numeric, ts timestamptz, d date,"
                 " raw bytea, j jsonb, a int[], u uuid, e mood, iv interval, nothing text)")
    (record,) = events(database, millrace, topic, [
        f"INSERT INTO t VALUES (1, -32768, 9223372036854775807, 1.5, 0.1, 'NaN', '-Infinity', true, {digits},"
        " '2020-02-29 12:34:56.789+02', '2020-02-29', '\\x00ff', '{\"k\": [1, \"v\"]}', '{1,NULL,3}',"
        " '6f0e2c3a-0000-4000-8000-000000000001', 'glad', '1 day 2 hours', NULL)"], 1)
    assert record.json["after"] == {
        "id": 1, "i2": -32768, "i8": 9223372036854775807, "f4": 1.5, "f8": 0.1, "nan": "NaN",
        "inf": "-Infinity", "b": True, "n": digits, "ts": "2020-02-29 10:34:56.789+00", "d": "2020-02-29",
        "raw": "\\x00ff", "j": '{"k": [1, "v"]}', "a": "{1,NULL,3}",
        "u": "6f0e2c3a-0000-4000-8000-000000000001", "e": "glad", "iv": "1 day 02:00:00", "nothing": None}


def test_output_does_not_follow_settings_of_the_role(database, millrace, topic):
    database.run("CREATE TABLE t (id int PRIMARY KEY, ts timestamptz, f float8);"
                 f"ALTER DATABASE {database.name} SET datestyle = 'German';"
                 f"ALTER DATABASE {database.name} SET timezone = 'Asia/Tokyo';"
                 f"ALTER DATABASE {database.name} SET extra_float_digits = -5")
    (record,) = events(database, millrace, topic,
                       ["INSERT INTO t VALUES (1, '2020-01-01 00:00:00+00', 0.1234567890123456)"], 1)
    assert record.json["after"] == {"id": 1, "ts": "2020-01-01 00:00:00+00", "f": 0.1234567890123456}


def test_partitioned_table(database, millrace, topic):
    database.run("CREATE TABLE t (id int PRIMARY KEY) PARTITION BY RANGE (id);"
                 "CREATE TABLE t_low PARTITION OF t FOR VALUES FROM (0) TO (10)")
    process = millrace().start().streaming()
    database.run("INSERT INTO t VALUES (5)")
    (record,) = topic(database.topic("t_low")).take(1)
    assert process.stop() == 0
    assert record.json["after"] == {"id": 5}


def test_partitioner_is_that_of_java(database, millrace, topic):
    """Keys of all lengths lie where Java's clients look for them; the hash here gives what Kafka's own tests want."""
    for text, wanted in (("21", -973932308), ("foobar", -790332482), ("a-little-bit-long-string", -985981536),
                         ("a-little-bit-longer-string", -1486304829), ("abc", 479470107)):
        assert murmur2(text.encode()) == wanted % 2 ** 32
    database.run("CREATE TABLE t (id text PRIMARY KEY)")
    name = database.make_topic("t", partitions=7)
    process = millrace().start().streaming()
    database.run("INSERT INTO t SELECT repeat('k', g) FROM generate_series(0, 99) g")
    records = topic(name).take(100)
    assert process.stop() == 0
    assert {r.key: r.partition for r in records} == \
        {r.key: (murmur2(r.key.encode()) & 0x7fffffff) % 7 for r in records}
    assert {r.partition for r in records} == set(range(7))


def codecs_on_disk(topic):
    return [batch.codec for batch in batches_on_disk(topic)]


@pytest.mark.parametrize("codec,number", [("none", 0), ("gzip", 1), ("snappy", 2), ("lz4", 3), ("zstd", 4)])
def test_each_compression_is_read(database, millrace, topic, codec, number):
    database.run("CREATE TABLE t (id int PRIMARY KEY, v text)")
    process = millrace(sink__kafka__compression=f'"{codec}"').start().streaming()
    database.run("INSERT INTO t SELECT g, repeat('x', 200) FROM generate_series(1, 100) g")
    records = topic(database.topic("t")).take(100)
    assert process.stop() == 0
    assert [r.json["after"]["id"] for r in records] == list(range(1, 101))
    assert codecs_on_disk(database.topic("t"))[0] == number


def test_compression_only_where_it_pays(database, millrace, topic):
    """Events of random digits stay as they are, which lz4 makes a seventh smaller; and what can be compressed soon is again."""
    database.run("CREATE TABLE t (id int PRIMARY KEY, v text)")
    consumer = topic(database.make_topic("t"))
    process = millrace().start().streaming()
    for i in range(20):
        database.run("INSERT INTO t SELECT %s + g, (SELECT string_agg(md5(random()::text), '') FROM generate_series(1, 128) WHERE g > 0)"
                     " FROM generate_series(1, 20) g", [i * 20])
        consumer.take(20)
    random_batches = codecs_on_disk(database.topic("t"))
    assert len(random_batches) >= 20 and set(random_batches) == {0}
    for i in range(20):
        database.run("INSERT INTO t SELECT %s + g, repeat('x', 4096) FROM generate_series(1, 20) g", [1000 + i * 20])
        consumer.take(20)
    assert process.stop() == 0
    rest = codecs_on_disk(database.topic("t"))[len(random_batches):]
    assert rest.index(3) < 16 and set(rest[rest.index(3):]) == {3}


def test_rows_alone_do_not_tell_of_many(database, millrace, topic):
    """A row of random digits alone can't be compressed; of many of them the names are the same."""
    database.run("CREATE TABLE t (id int PRIMARY KEY, v text)")
    consumer = topic(database.make_topic("t"))
    process = millrace(format='"row"').start().streaming()
    for i in range(3):
        database.run("INSERT INTO t VALUES (%s, md5(random()::text))", [i])
        consumer.take(1)
    alone = codecs_on_disk(database.topic("t"))
    database.run("INSERT INTO t SELECT g, left(md5(random()::text), 8) FROM generate_series(3, 20000) g")
    consumer.take(19998)
    assert process.stop() == 0
    assert alone == [0] * 3
    many = batches_on_disk(database.topic("t"))[3:]
    assert sum(batch.records for batch in many if batch.codec == 3) >= 0.9 * 19998, many


def test_a_record_that_fits_compressed_alone(database, millrace, topic):
    """All in one transaction, so that each new session would have them in that order again."""
    database.run("CREATE TABLE t (id int PRIMARY KEY, v text)")
    consumer = topic(database.make_topic("t", config={"max.message.bytes": "600000"}))
    process = millrace().start().streaming()
    database.run("INSERT INTO t SELECT g, CASE WHEN g <= 100 THEN (SELECT string_agg(md5(random()::text), '') FROM generate_series(1, 128) WHERE g > 0)"
                 " ELSE repeat('x', 900000) END FROM generate_series(1, 101) g")
    assert [record.json["after"]["id"] for record in consumer.take(101)] == list(range(1, 102))
    assert process.stop() == 0 and not process.log("sink_session_lost")
    assert codecs_on_disk(database.topic("t"))[0] == 0 and codecs_on_disk(database.topic("t"))[-1] == 3


def test_librdkafka_properties_pass_through(database, millrace):
    """Those that are let through; librdkafka itself shows what it got."""
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    process = millrace(**{"log__level": '"debug"', 'sink__kafka__properties."client.id"': '"mine"',
                          'sink__kafka__properties."socket.send.buffer.bytes"': '123456',
                          'sink__kafka__properties."log.thread.name"': 'true',
                          'sink__kafka__properties."debug"': '"broker"'}).start().streaming()
    text = "".join(process.lines)
    assert "[thrd:" in text and "Connected to" in text, text


OUTBOXX = """
[metadata]
version = "v0"

[source]
type = "postgres"

[source.postgres]
connection = "env:TEST_URL"
slot_name = "{slot}"
publication_name = "{slot}"

[sink]
type = "kafka"

[sink.kafka]
brokers = ["{brokers}"]
tls = false

[snapshot]
mode = "no-snapshot"

[[streams]]
name = "orders"

[streams.source]
resource = "orders"
operations = ["insert", "update", "delete"]

[streams.flow]
format = "json"

[streams.sink]
destination = "{slot}.orders.out"
routing_key = "customer"
"""


def test_outboxx_configuration(database, millrace, topic):
    database.run("CREATE TABLE orders (id int PRIMARY KEY, customer text, paid bool, total numeric);"
                 "ALTER TABLE orders REPLICA IDENTITY FULL")
    process = millrace(text=OUTBOXX.format(slot=database.slot, brokers=BOOTSTRAP)).start()
    eventually(lambda: any("source_connected" in line for line in process.lines), what="the stream")
    database.run("INSERT INTO orders VALUES (1, 'ann', true, 9.50)")
    database.run("UPDATE orders SET paid = false")
    database.run("DELETE FROM orders")
    records = topic(f"{database.slot}.orders.out").take(3)
    assert process.stop() == 0
    assert [r.json["op"] for r in records] == ["INSERT", "UPDATE", "DELETE"]
    assert [r.key for r in records] == ["ann"] * 3
    assert list(records[0].json) == ["op", "data", "meta"]
    assert records[0].json["data"] == {"id": 1, "customer": "ann", "paid": True, "total": "9.50"}
    assert list(records[0].json["meta"]) == ["source", "resource", "timestamp", "lsn"]
    assert records[0].json["meta"]["resource"] == "public.orders"
    assert records[2].json["data"]["paid"] is False


def test_stdout_sink(database, millrace):
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    process = millrace(sink__kafka__brokers=None).start(stdout=subprocess.PIPE).streaming()
    database.run("INSERT INTO t VALUES (1)")
    line = json.loads(process.process.stdout.readline())
    assert (line["topic"], line["key"], line["value"]["op"]) == (database.topic("t"), {"id": 1}, "c")


def test_file_sink(database, millrace, tmp_path):
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    path = tmp_path / "out.jsonl"
    process = millrace(sink__kafka__brokers=None, sink__type='"file"', sink__file__path=f'"{path}"').start().streaming()
    database.run("INSERT INTO t SELECT generate_series(1, 1000)")
    eventually(lambda: path.exists() and path.read_text().count("\n") == 1000, what="a thousand lines")
    assert process.stop() == 0
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["value"]["after"]["id"] for line in lines] == list(range(1, 1001))
