"""Rows of one table in several streams, each with a topic of its own."""

import threading

import pytest

from kit import BOOTSTRAP, check, connect, expect

STREAMS = """
[metadata]
version = "v0"
[source]
type = "postgres"
[source.postgres]
connection = "env:TEST_URL"
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
                                                'format = "json"')).start().streaming()
    whole, new = topic(f"{database.prefix}.all"), topic(f"{database.prefix}.new")
    copied = whole.take(100), new.take(100)
    for records in copied:
        assert [record.json["op"] for record in records] == ["READ"] * 100
    ids = range(101, 301)
    writer = threading.Thread(target=write_in_turn, args=(database, ids), daemon=True)
    writer.start()
    seen = {"all": whole.take(60), "new": new.take(10)}
    process.kill().start().streaming()
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


def test_key_of_a_stream_that_was_not_known(database, millrace, topic):
    """A column outside the replica identity: no row ends under a key that it never had. Outboxx's own form has the key "null"."""
    database.run("CREATE TABLE orders (id int PRIMARY KEY, region text, secret text)")
    text = STREAMS.format(slot=database.slot, publication=database.publication, brokers=BOOTSTRAP, prefix=database.prefix,
                          more='[http]\naddress = "127.0.0.1:0"\n[log]\nformat = "json"')
    text = text.replace('routing_key = "id"', 'routing_key = "region"')
    process = millrace(text=text)
    assert check(process)[0] == 0
    process.write('format = "debezium"\n' + text)
    expect(check(process), 78, "sink.routing_key of table", "which key the row had")
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
