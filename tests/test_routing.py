"""Rows of one table in several topics: by a column's value, and in several streams."""

import random
import threading

import pytest

from kit import BOOTSTRAP, check, connect

REGIONS = ["eu", "us", "asia", None]
MODES = {"at-least-once": {}, "exactly-once": {"sink__kafka__delivery": '"exactly-once"'}}


def topic_of(database, region, table="orders"):
    return database.topic(table) + ("" if region is None else f".{region}")


def fold(records):
    """What the consumer of docs/events.md has in the end that drops what is not above the highest position."""
    rows, highest = {}, {}
    for record in records:
        if record.position <= highest.get(record.partition, ""):
            continue
        highest[record.partition] = record.position
        if record.value is None or record.json["op"] == "d":
            rows.pop(record.json_key["id"], None)
        else:
            rows[record.json_key["id"]] = (record.json["after"]["region"], record.json["after"]["n"])
    return rows


def write(database, rounds):
    """Rows that come, move from topic to topic, under their keys and others, and go."""
    chance = random.Random(7)
    with connect(database.name) as connection:
        for n in range(rounds):
            region = chance.choice(REGIONS)
            row = chance.randrange(400)
            connection.execute("INSERT INTO orders VALUES (%s, %s, %s) ON CONFLICT (id) DO UPDATE SET n = EXCLUDED.n", (row, region, n))
            connection.execute("UPDATE orders SET region = %s, n = %s WHERE id %% 40 = %s", (region, n, n % 40))
            connection.execute("UPDATE orders SET id = id + 1000, region = %s WHERE id = %s AND NOT EXISTS "
                               "(SELECT FROM orders WHERE id = %s)", (chance.choice(REGIONS), row, row + 1000))
            connection.execute("DELETE FROM orders WHERE id = %s", (chance.randrange(1400),))


@pytest.mark.parametrize("mode", MODES)
def test_each_topic_is_its_part_of_the_table(database, millrace, topic, mode):
    """Rows that are there are copied, others come, move and go, and millrace is killed meanwhile."""
    database.run("CREATE TABLE orders (id int PRIMARY KEY, region text, n int); ALTER TABLE orders REPLICA IDENTITY FULL;"
                 "INSERT INTO orders SELECT g, (ARRAY['eu', 'us', 'asia', NULL])[g % 4 + 1], 0 FROM generate_series(1, 300) g")
    process = millrace(tables=["orders"], routing__by_column='["orders:region"]', routing__by_column_fallback='"table"',
                       snapshot__mode='"initial"', **MODES[mode]).start().streaming()
    topics = {region: topic(topic_of(database, region)) for region in REGIONS}
    records = {region: topics[region].take(75) for region in REGIONS}
    writer = threading.Thread(target=write, args=(database, 300), daemon=True)
    writer.start()
    records["eu"] += topics["eu"].take(100)
    process.kill()
    process.start().streaming()
    writer.join(120)
    assert not writer.is_alive()
    last = {region: -1 - i for i, region in enumerate(REGIONS)}
    for region, row in last.items():
        database.run("INSERT INTO orders VALUES (%s, %s, 0)", (row, region))
    for region, row in last.items():
        while row not in (record.json_key["id"] for record in records[region][-5000:]):
            records[region] += topics[region].take(1)
            records[region] += topics[region].read(0.1)
        table = {row[0]: (region, row[1]) for row in
                 database.run("SELECT id, n FROM orders WHERE region IS NOT DISTINCT FROM %s", (region,))}
        assert fold(records[region]) == table, region
    assert process.stop() == 0


def test_truncate_tells_in_the_tables_own_topic(database, millrace, topic):
    database.run("CREATE TABLE orders (id int PRIMARY KEY, region text); ALTER TABLE orders REPLICA IDENTITY FULL")
    process = millrace(tables=["orders"], routing__by_column='["orders:region=%s.{value}.{topic}"]' % database.prefix,
                       skipped_operations="[]").start().streaming()
    database.run("INSERT INTO orders VALUES (1, 'eu')")
    database.run("TRUNCATE orders")
    row = topic(f"{database.prefix}.eu.{database.topic('orders')}").take(1)[0]
    emptied = topic(database.topic("orders")).take(1)[0]
    assert row.json["op"] == "c" and emptied.json["op"] == "t" and emptied.position > row.position
    assert process.stop() == 0


def test_place_that_was_not_known(database, millrace, topic):
    """Before there is a slot it is an error at once; behind one, what needs the value ends the stream, and nothing is misplaced."""
    database.run("CREATE TABLE orders (id int PRIMARY KEY, region text)")
    rule = {"routing__by_column": '["orders:region"]'}
    process = millrace(tables=["orders"], **rule)
    for code, text in (check(process), process.run_to_end()):
        assert code == 78 and "which key or topic the row had" in text and "REPLICA IDENTITY FULL" in text, text
    process.configure(skipped_operations='["update", "delete"]', **rule)
    assert check(process)[0] == 0
    process.configure(routing__by_column='["orders:nope"]')
    code, text = check(process)
    assert code == 78 and "correct routing.by_column" in text, text
    database.run("ALTER TABLE orders REPLICA IDENTITY FULL")
    process.configure(**rule)
    assert process.start().streaming().stop() == 0
    database.run("ALTER TABLE orders REPLICA IDENTITY DEFAULT")
    code, text = check(process)
    assert code == 0 and "which key or topic the row had" in text, text
    process.start().streaming()
    database.run("INSERT INTO orders VALUES (1, 'eu')")
    database.run("UPDATE orders SET region = 'us'")
    assert process.ended(60) == 65
    assert process.log("route_identity") and "REPLICA IDENTITY FULL" in "".join(process.lines)
    assert [record.json["op"] for record in topic(topic_of(database, "eu")).take(1)] == ["c"]


def test_value_that_names_no_topic(database, millrace):
    """What the unit tests try of each kind, once with all around it: the end, its code, and no word of the value."""
    database.run("CREATE TABLE orders (id int PRIMARY KEY, region text); ALTER TABLE orders REPLICA IDENTITY FULL")
    process = millrace(tables=["orders"], routing__by_column='["orders:region"]').start().streaming()
    database.run("INSERT INTO orders VALUES (1, 'eu'), (2, 'canary street')")
    assert process.ended(60) == 65
    assert "letters of ASCII" in "".join(process.lines) and "canary" not in "".join(process.lines)


def test_topic_of_millrace_itself(database, millrace):
    """A value can't name the topic that keeps the position."""
    database.run("CREATE TABLE orders (id int PRIMARY KEY, region text); ALTER TABLE orders REPLICA IDENTITY FULL")
    process = millrace(tables=["orders"], routing__by_column='["orders:region={value}"]').start().streaming()
    database.run("INSERT INTO orders VALUES (1, '__millrace_state')")
    assert process.ended(60) == 65
    assert "begins with two underscores" in "".join(process.lines)


STREAMS = """
[metadata]
version = "v0"
[source]
type = "postgres"
[source.postgres]
connection_env = "TEST_URL"
slot_name = "{slot}"
publication_name = "{publication}"
[sink]
type = "kafka"
[sink.kafka]
brokers = ["{brokers}"]
tls = false
{more}
[[streams]]
name = "all"
source = {{resource = "orders", operations = ["read", "insert", "update", "delete"]}}
flow = {{format = "json"}}
sink = {{destination = "{prefix}.all", routing_key = "id"}}
[[streams]]
name = "new"
source = {{resource = "public.orders", operations = ["read", "insert"]}}
flow = {{format = "json"}}
sink = {{destination = "{prefix}.new", routing_key = "region"}}
columns = {{exclude = ["secret"]}}
"""


@pytest.mark.parametrize("mode", ["at-least-once", "exactly-once"])
def test_several_streams_of_one_table(database, millrace, topic, mode):
    """Outboxx's file with two streams of one table: what a kill leaves, each topic has whole, in order, in its own form."""
    database.run("CREATE TABLE orders (id int PRIMARY KEY, region text, secret text); ALTER TABLE orders REPLICA IDENTITY FULL;"
                 "INSERT INTO orders SELECT g, 'eu-' || g, 'canary' FROM generate_series(1, 100) g")
    process = millrace(text=STREAMS.format(slot=database.slot, publication=database.publication, brokers=BOOTSTRAP, prefix=database.prefix,
                                           more=f'delivery = "{mode}"\n[snapshot]\nmode = "initial"\n[http]\naddress = "127.0.0.1:0"\n[log]\n'
                                                'format = "json"'))
    process.start().streaming()
    whole, new = topic(f"{database.prefix}.all"), topic(f"{database.prefix}.new")
    copied = whole.take(100), new.take(100)
    for records in copied:
        assert [record.json["op"] for record in records] == ["READ"] * 100
    ids = range(101, 301)
    writer = threading.Thread(target=write_in_turn, args=(database, ids), daemon=True)
    writer.start()
    seen = {"all": whole.take(60), "new": new.take(10)}
    process.kill()
    process.start().streaming()
    writer.join(120)
    assert not writer.is_alive()
    database.run("INSERT INTO orders VALUES (999, 'end', 'canary')")
    for name, reader in (("all", whole), ("new", new)):
        while '"id":999' not in seen[name][-1].value:
            seen[name] += reader.take(1)
    once = {name: above(records) for name, records in seen.items()}
    assert [record.json["data"]["id"] for record in once["new"]] == [*ids, 999]
    assert {tuple(record.json["data"]) for record in once["new"]} == {("id", "region")}
    assert {record.key for record in once["new"]} == {f"us-{n}" for n in ids} | {"end"}
    wanted = [(op, n) for n in ids for op, n in (("INSERT", n), ("UPDATE", n), ("DELETE", n - 1))] + [("INSERT", 999)]
    assert [(record.json["op"], record.json["data"]["id"]) for record in once["all"]] == wanted
    inserts = [record.position for record in once["all"] if record.json["op"] == "INSERT"]
    assert inserts == [record.position for record in once["new"]]
    assert process.stop() == 0


def test_key_of_a_stream_that_was_not_known(database, millrace, topic):
    """A column outside the replica identity: no row ends under a key that it never had. Outboxx's own form has the key "null"."""
    database.run("CREATE TABLE orders (id int PRIMARY KEY, region text, secret text)")
    text = STREAMS.format(slot=database.slot, publication=database.publication, brokers=BOOTSTRAP, prefix=database.prefix,
                          more='[http]\naddress = "127.0.0.1:0"\n[log]\nformat = "json"')
    text = text.replace('routing_key = "id"', 'routing_key = "region"')
    process = millrace(text=text)
    assert check(process)[0] == 0
    process.write('format = "debezium"\n' + text)
    code, said = check(process)
    assert code == 78 and "sink.routing_key of table" in said and "which key or topic the row had" in said, said
    database.run("ALTER TABLE orders REPLICA IDENTITY FULL")
    process.start().streaming()
    database.run("INSERT INTO orders VALUES (1, 'eu', ''), (2, 'eu', '')")
    database.run("DELETE FROM orders WHERE id = 2; ALTER TABLE orders REPLICA IDENTITY DEFAULT; DELETE FROM orders")
    assert process.ended(60) == 65
    assert 'column \\"region\\" of table public.orders: it is part of the key' in "".join(process.lines), process.lines
    assert [record.key for record in topic(f"{database.prefix}.all").take(4)] == ['{"region":"eu"}'] * 4


def write_in_turn(database, ids):
    with connect(database.name) as connection:
        for n in ids:
            connection.execute(f"INSERT INTO orders VALUES ({n}, 'us-{n}', 'canary'); UPDATE orders SET secret = 'x' WHERE id = {n};"
                               f"DELETE FROM orders WHERE id = {n - 1}")


def above(records):
    """What a consumer keeps that drops what is not above the highest position."""
    highest, kept = "", []
    for record in records:
        if record.position > highest:
            highest = record.position
            kept.append(record)
    return kept
