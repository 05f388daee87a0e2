#!/usr/bin/env python3
"""Keeps the rows of several topics in an SQLite file, as they were in PostgreSQL at one moment: each transaction is in all tables, or in
none. Needs resolved.interval, and confluent-kafka. Reads the topics from their beginning at each start.

    python consistent_view.py localhost:9092 view.db shop.public.orders shop.public.items"""

import json
import sqlite3
import sys
from collections import defaultdict

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition


def complete_below(topics, counts, marks):
    """All that committed below this LSN has been read, in every partition of every topic; None: not known yet."""
    lsns = [marks.get((topic, p)) for topic in topics for p in range(counts[topic] or 1)]
    return None if None in lsns or not all(counts[topic] for topic in topics) else min(lsns)


def keep(store, held, cut):
    """Applies, in the order of the commits, what is below the cut. One transaction: a reader sees the view of one moment."""
    for position, topic, key, value in sorted((one for one in held if one[0][:16] < cut), key=lambda one: one[0]):
        row = json.loads(value)["after"] if value else None
        if row is None:
            store.execute("DELETE FROM view WHERE topic = ? AND key = ?", [topic, key])
        else:
            store.execute("INSERT OR REPLACE INTO view VALUES (?, ?, ?)", [topic, key, json.dumps(row)])
    store.execute("INSERT OR REPLACE INTO cut VALUES (1, ?)", [cut.decode()])
    store.commit()
    return [one for one in held if one[0][:16] >= cut]


def consume(brokers, path, topics):
    store = sqlite3.connect(path)
    store.executescript("""DROP TABLE IF EXISTS view; DROP TABLE IF EXISTS cut; CREATE TABLE cut (one INTEGER PRIMARY KEY, lsn TEXT);
                           CREATE TABLE view (topic TEXT, key TEXT, row TEXT, PRIMARY KEY (topic, key))""")
    consumer = Consumer({"bootstrap.servers": brokers, "group.id": "unused", "enable.auto.commit": False})
    read, counts, marks, highest, held, done = set(), defaultdict(int), {}, {}, [], b""
    while True:
        wanted = {(topic, p) for topic in topics for p in range(counts[topic] or 1)} - read  # a topic has one, at least
        consumer.incremental_assign([TopicPartition(topic, p, OFFSET_BEGINNING) for topic, p in wanted])
        read |= wanted
        for message in consumer.consume(500, timeout=0.2):
            if message.error() is not None:
                continue  # the topic is not there yet, or the broker is away
            headers, place = dict(message.headers()), (message.topic(), message.partition())
            if "mr-resolved" in headers:
                marks[place] = max(marks.get(place, b""), headers["mr-resolved"])
                counts[message.topic()] = max(counts[message.topic()], int(headers["mr-partitions"]))
            elif headers["mr-pos"] > highest.get(place, b"") and int(headers["mr-pos"][:16], 16) + 1 >= int(done or b"0", 16):  # else a repeat
                highest[place] = headers["mr-pos"]
                held.append((headers["mr-pos"], message.topic(), message.key().decode(), message.value()))
        cut = complete_below(topics, counts, marks)
        if cut is not None and cut > done:
            held, done = keep(store, held, cut), cut


if __name__ == "__main__":
    consume(sys.argv[1], sys.argv[2], sys.argv[3:])
