"""The screen of `millrace verify` that finds faults in a topic, and repairs them. A program of somebody else's writes into the topic: a row's
delete, an old amount, an order that there never was.

    verify.py PICTURE"""

import json
import os
import subprocess
import sys
import tempfile

from confluent_kafka import Producer

import screen
from kit import BINARY, BOOTSTRAP, Database, Millrace, Topic
from prometheus import free_port

ROWS = 20000
TABLES = ("public.customers", "public.orders")
COMMANDS = (("millrace verify --config shop.toml; echo exit code $?", 4),
            ("millrace verify orders --repair --yes --config shop.toml; echo exit code $?", 0))
WORDS = {"bad": ("different", "  missing", "  altered", "  phantom", "exit code 4"), "good": ("equal", "exit code 0")}


def fill(database):
    database.run("CREATE TABLE customers (id bigint PRIMARY KEY, name text, city text);"
                 "CREATE TABLE orders (id bigint PRIMARY KEY, customer bigint, amount numeric(10,2), state text);"
                 f"INSERT INTO customers SELECT n, 'customer ' || n, 'city ' || n % 90 FROM generate_series(1, {ROWS // 10}) n;"
                 f"INSERT INTO orders SELECT n, 1 + n % {ROWS // 10}, n % 900 + 0.90, 'new' FROM generate_series(1, {ROWS}) n")


def events(topic, count):
    reader = Topic(topic)
    try:
        return reader.take(count)
    finally:
        reader.close()


def plant(topic, records):
    """Three events as if of the transaction that wrote the rows last, in the partitions of their keys."""
    last = max(records, key=lambda record: record.position)
    head, ordinal, part = last.position.split("-")
    missing, altered = (next(record for record in records if record.json_key == {"id": key}) for key in (1007, 4711))
    deleted = {**missing.json, "op": "d", "before": missing.json["after"], "after": None}
    wrong = {**altered.json, "after": {**altered.json["after"], "amount": "9.90"}}
    phantom = {**altered.json, "op": "c", "after": {**altered.json["after"], "id": ROWS + 1}}
    producer = Producer({"bootstrap.servers": BOOTSTRAP, "log_level": 0})
    for number, (key, event) in enumerate(((missing.key, deleted), (altered.key, wrong), (f'{{"id":{ROWS + 1}}}', phantom)), 1):
        headers = [("mr-pos", f"{head}-{int(ordinal, 16) + number:010X}-{part}"), ("mr-xid", last.headers["mr-xid"])]
        producer.produce(topic, json.dumps(event), key, partition=0, headers=headers)
    assert producer.flush(30) == 0


def run(process, command):
    """What a shell shows after the command."""
    environment = {**process.environment, "PATH": f"{os.path.dirname(BINARY)}:{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-c", command], cwd=process.folder, env=environment, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=240, check=True)
    return done.stdout.splitlines()


def main(picture):
    database = Database()
    try:
        with tempfile.TemporaryDirectory() as folder:
            fill(database)
            process = Millrace(database, folder, TABLES, snapshot__mode='"initial"', skipped_operations="[]",
                               http__address=f'"127.0.0.1:{free_port()}"')
            process.start().streaming()
            database.run("UPDATE orders SET state = 'paid'")
            records = events(database.topic("orders"), 2 * ROWS)
            plant(database.topic("orders"), records[ROWS:])
            os.rename(process.path, os.path.join(folder, "shop.toml"))
            said = []
            for command, code in COMMANDS:
                said.append((command, run(process, command)))
                assert said[-1][1][-1] == f"exit code {code}", said
            assert process.stop() == 0
    finally:
        database.drop()
    with open(picture, "w", encoding="utf-8") as file:
        file.write(screen.draw("millrace verify", said, WORDS))


if __name__ == "__main__":
    main(*sys.argv[1:])
