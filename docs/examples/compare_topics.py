#!/usr/bin/env python3
"""Compares two topics with Debezium's envelopes, as a shadow run leaves them: records, order, partitions, keys and values.

    python compare_topics.py --brokers localhost:9092 shop.public.orders shadow.public.orders

Compares the stretch that both have, by source.lsn: either program may have begun earlier. Leaves out what differs by nature: names and
versions of the programs, and when they wrote. Ends with 1 if anything else differs. Needs confluent-kafka."""

import argparse
import json
import sys

from confluent_kafka import Consumer, KafkaException, TopicPartition


def payload(text):
    """What stands in a schema, which names the topic's prefix."""
    return json.loads(text)["payload"] if text is not None and text.startswith(b'{"schema":') else text


def normal(value):
    """An envelope without what is the program's own."""
    envelope = payload(value)
    envelope = json.loads(value) if envelope is value else envelope
    for member in ("ts_ms", "ts_us", "ts_ns"):
        envelope.pop(member, None)
    for member in ("version", "name", "sequence"):
        envelope["source"].pop(member, None)
    return envelope


def read(brokers, topic):
    """By partition: (LSN, key, envelope); a tombstone has the LSN of the record before it."""
    consumer = Consumer({"bootstrap.servers": brokers, "group.id": "unused", "enable.auto.commit": False})
    found = {}
    for partition in consumer.list_topics(topic, timeout=30).topics[topic].partitions:
        place = TopicPartition(topic, partition, 0)
        place.offset, end = consumer.get_watermark_offsets(place, timeout=30)
        consumer.assign([place])
        records, lsn = found.setdefault(partition, []), 0
        while consumer.position([place])[0].offset < end and place.offset < end:
            for message in consumer.consume(1000, timeout=1):
                if message.error():
                    raise KafkaException(message.error())
                envelope = None if message.value() is None else normal(message.value())
                lsn = lsn if envelope is None else envelope["source"]["lsn"]
                records.append((lsn, payload(message.key()), envelope))
    consumer.close()
    return found


def compare(brokers, theirs, ours, shown=20):
    left, right, differences, compared = read(brokers, theirs), read(brokers, ours), 0, 0
    firsts = [min((records[0][0] for records in side.values() if records), default=0) for side in (left, right)]
    lasts = [max((records[-1][0] for records in side.values() if records), default=0) for side in (left, right)]
    for partition in sorted({*left, *right}):
        # Within the stretch; both must have begun before it, and be past it.
        one, other = ([record for record in side.get(partition, []) if max(firsts) <= record[0] <= min(lasts)] for side in (left, right))
        pairs = [*zip(one, other)] + [(record, None) for record in one[len(other):]] + [(None, record) for record in other[len(one):]]
        compared += len(pairs)
        for a, b in pairs:
            if a != b:
                differences += 1
                if differences <= shown:
                    print(f"partition {partition}:\n  {theirs}: {a}\n  {ours}: {b}")
    print(f"{compared} records compared, {differences} differ")
    return 1 if differences or compared == 0 else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--brokers", required=True)
    parser.add_argument("theirs")
    parser.add_argument("ours")
    arguments = parser.parse_args()
    sys.exit(compare(arguments.brokers, arguments.theirs, arguments.ours))
