#!/usr/bin/env python3
"""Consumes a topic of millrace so that each change counts once, whatever crashes: millrace, Kafka, this program.

    python consume_once.py --brokers localhost:9092 --topic shop.public.orders --store results.db

The one rule: keep the highest mr-pos of each partition, and drop what is not above it. It must be kept together with
the results, in one transaction; here both are in an SQLite file. The offset is kept with them, so Kafka's own consumer
groups are not needed. Needs confluent-kafka."""

import argparse
import sqlite3
import sys
import time

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition


def open_store(path):
    store = sqlite3.connect(path)
    store.executescript("""
        CREATE TABLE IF NOT EXISTS progress (partition INTEGER PRIMARY KEY, position BLOB, next_offset INTEGER);
        CREATE TABLE IF NOT EXISTS results (position BLOB, key BLOB, value BLOB);
    """)
    return store


def apply(store, message, position):
    """What the program is for. Whatever it does to the store is committed with the progress."""
    store.execute("INSERT INTO results VALUES (?, ?, ?)", [position, message.key(), message.value()])


def consume(arguments):
    store = open_store(arguments.store)
    consumer = Consumer({
        "bootstrap.servers": arguments.brokers,
        "group.id": "unused",                    # must be there, but nothing is committed to it
        "enable.auto.commit": False,             # the store knows where we are
        "auto.offset.reset": "error",            # rows that retention removed unread are an error, not a surprise
        "isolation.level": "read_committed",     # no row of an aborted Kafka transaction
    })
    progress = {p: (position, offset) for p, position, offset in store.execute("SELECT * FROM progress")}
    highest = {p: position for p, (position, _) in progress.items()}
    partitions = consumer.list_topics(arguments.topic, timeout=30).topics[arguments.topic].partitions
    consumer.assign([TopicPartition(arguments.topic, p, progress[p][1] if p in progress else OFFSET_BEGINNING)
                     for p in partitions])
    dropped, heard = 0, time.monotonic()
    while arguments.idle is None or time.monotonic() - heard < arguments.idle:
        for message in consumer.consume(500, timeout=0.5):
            if message.error() is not None:
                if message.error().code() == KafkaError._AUTO_OFFSET_RESET:
                    raise KafkaException(message.error())
                continue  # the broker is away; the client reconnects
            heard = time.monotonic()
            headers, partition = dict(message.headers() or []), message.partition()
            position = headers.get("mr-pos", b"")  # none: written by another program, before millrace
            if position == b"" or position > highest.get(partition, b""):
                if "mr-resolved" not in headers:  # a marker is no event
                    apply(store, message, position)
                    highest[partition] = max(position, highest.get(partition, b""))
            else:
                dropped += 1
            store.execute("INSERT OR REPLACE INTO progress VALUES (?, ?, ?)",
                          [partition, highest.get(partition, b""), message.offset() + 1])
        store.commit()
    consumer.close()
    print(f"{dropped} repeats dropped")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--brokers", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--store", required=True, help="SQLite file of results and progress")
    parser.add_argument("--idle", type=float, help="end when nothing came for so many seconds")
    sys.exit(consume(parser.parse_args()))
