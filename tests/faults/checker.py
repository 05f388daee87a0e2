"""The independent checker: what the topics hold against what the tables hold.

It shares no code with the product: the position, the partition of a key and the envelope are worked out here from
docs/events.md alone. It collects; `Report.line` and `Report.problems` say what it found."""

import bisect
import dataclasses
import json
import time
from collections import Counter, defaultdict

from confluent_kafka import Consumer, KafkaError, TopicPartition

from workload import MONEY, ROLLED_BACK

UNCHANGED = "__debezium_unavailable_value"


def murmur2(data):
    """As Kafka's Java client has it; the partition of a key is its 31 low bits modulo the partitions."""
    mask = 0xFFFFFFFF
    h = (0x9747B28C ^ len(data)) & mask
    whole = len(data) // 4 * 4
    for at in range(0, whole, 4):
        k = int.from_bytes(data[at:at + 4], "little") * 0x5BD1E995 & mask
        k = (k ^ k >> 24) * 0x5BD1E995 & mask
        h = (h * 0x5BD1E995 & mask) ^ k
    rest = data[whole:]
    if rest:
        h = (h ^ int.from_bytes(rest, "little")) * 0x5BD1E995 & mask
    h = (h ^ h >> 13) * 0x5BD1E995 & mask
    return h ^ h >> 15


def parse_position(text):
    """mr-pos as (commit LSN, ordinal, part); it must have the width that makes bytes compare."""
    commit, ordinal, part = text.split(b"-")
    assert (len(commit), len(ordinal), len(part)) == (16, 10, 1), text
    return int(commit, 16), int(ordinal, 16), int(part)


@dataclasses.dataclass(slots=True)
class Event:
    position: tuple
    offset: int
    xid: int
    key: object
    value: object  # None: a tombstone


@dataclasses.dataclass
class Report:
    events: int = 0
    duplicates: int = 0
    samples: int = 0
    repeated: Counter = dataclasses.field(default_factory=Counter)  # commit LSN -> repeats
    problems: Counter = dataclasses.field(default_factory=Counter)
    examples: dict = dataclasses.field(default_factory=dict)

    def wrong(self, kind, example, count=1):
        self.problems[kind] += count
        self.examples.setdefault(kind, example)

    def line(self):
        p = self.problems
        return (f"{self.events} events, {p['lost']} lost, {p['phantom']} phantom, {self.duplicates} duplicates, "
                f"{p['order']} order violations, {p['early confirm']} early confirms in {self.samples} samples, "
                f"{sum(p.values()) - p['lost'] - p['phantom'] - p['order'] - p['early confirm']} others")

    def expect_clean(self):
        assert not self.problems, f"{dict(self.problems)}; for example {self.examples}"


class Partition:
    """One partition read from its beginning. Keeps what a consumer keeps that drops what is not above the highest
    position, and judges whether that is right."""

    def __init__(self, name, number, count, report):
        self.name, self.number, self.count, self.report = name, number, count, report
        self.accepted = []  # events, positions increasing
        self.index = {}     # position -> place in accepted
        self.digests = []   # of accepted, to compare repeats
        self.replay_at = None  # place in accepted of the repeat seen last, while one runs

    def take(self, message):
        headers = dict(message.headers())
        position = parse_position(headers["mr-pos"])
        where = f"{self.name}[{self.number}] offset {message.offset()} position {headers['mr-pos']}"
        key, value = message.key(), message.value()
        if key is not None and murmur2(key) & 0x7FFFFFFF != self.number and self.count > 1 \
                and (murmur2(key) & 0x7FFFFFFF) % self.count != self.number:
            self.report.wrong("partition of a key", where)
        value = value and json.loads(value)
        digest = self._digest(key, value)
        if value is not None:  # the rest is not needed any more, and there may be millions
            value = {name: value[name] for name in ("op", "before", "after")}
        event = Event(position, message.offset(), int(headers["mr-xid"]), key and json.loads(key), value)
        if position in self.index:
            self._repeat(position, digest, where)
            return
        if self.accepted and position <= self.accepted[-1].position:
            # A consumer that drops repeats drops this one too, though it is none.
            self.report.wrong("order", where)
            return
        if self.replay_at is not None and self.replay_at != len(self.accepted) - 1:
            self.report.wrong("hole in a replay", where)
        self.replay_at = None
        self.index[position] = len(self.accepted)
        self.accepted.append(event)
        self.digests.append(digest)

    def _repeat(self, position, digest, where):
        """A repeat is the same event, and part of a run that goes on until it meets the new ones."""
        self.report.duplicates += 1
        self.report.repeated[position[0]] += 1
        place = self.index[position]
        if self.digests[place] != digest:
            self.report.wrong("changed repeat", where)
        if self.replay_at is not None and place > self.replay_at + 1:
            self.report.wrong("hole in a replay", where)
        self.replay_at = place

    @staticmethod
    def _digest(key, value):
        """Of all that must be equal. The time of encoding (ts_ms …) need not, nor does source.sequence: its first
        part, the commit before, is null in the first transaction of a connection."""
        if value is not None:
            value = {name: part for name, part in value.items() if not name.startswith("ts_")}
            value["source"] = {name: part for name, part in value["source"].items() if name != "sequence"}
        return hash((key, json.dumps(value)))


class Checker:
    def __init__(self, bootstrap, prefix, tables):
        self.report = Report()
        self.tables = tables
        self.partitions = defaultdict(list)  # table -> Partitions
        self._read(bootstrap, prefix)
        self.report.events = sum(len(p.accepted) for table in tables for p in self.partitions[table])

    def _read(self, bootstrap, prefix):
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "checker", "log_level": 0,
                             "isolation.level": "read_committed", "enable.partition.eof": True})
        open_ends, by_number = {}, {}
        for table in self.tables:
            topic = f"{prefix}.public.{table}"
            count = len(consumer.list_topics(topic, timeout=30).topics[topic].partitions)
            for number in range(count):
                partition = Partition(topic, number, count, self.report)
                self.partitions[table].append(partition)
                by_number[topic, number] = partition
                low, high = consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=30)
                if high > low:
                    open_ends[topic, number] = high
        consumer.assign([TopicPartition(topic, number, 0) for topic, number in open_ends])
        heard = time.monotonic()
        while open_ends:
            messages = consumer.consume(5000, timeout=0.5)
            heard = time.monotonic() if messages else heard
            assert time.monotonic() - heard < 60, f"nothing comes of {open_ends}"
            for message in messages:
                where = message.topic(), message.partition()
                end = message.offset()
                if message.error() is None:
                    by_number[where].take(message)
                    end += 1
                elif message.error().code() != KafkaError._PARTITION_EOF:  # pylint: disable=protected-access
                    continue
                # The last offsets may be those of transactions' ends, which no reader gets.
                if end >= open_ends.get(where, 0):
                    open_ends.pop(where, None)
        consumer.close()

    def events(self, *tables):
        """The deduplicated events of these tables in commit order."""
        events = [(event.position, table, event) for table in tables for partition in self.partitions[table]
                  for event in partition.accepted]
        events.sort(key=lambda item: item[0])
        return [(table, event) for _, table, event in events]

    # ---- properties ----

    def check_rows(self, rows, journals):
        """Complete and no phantom: `rows` is what table ledger holds, {(writer, txno): count}."""
        seen = Counter()
        for _, event in self.events("ledger"):
            row = event.value["after"]
            seen[row["writer"], row["txno"]] += 1
            if row["opno"] < 1 or row["payload"].startswith(ROLLED_BACK) or event.value["op"] != "c":
                self.report.wrong("phantom", f"{row['writer']}/{row['txno']}/{row['opno']}")
        for identity in rows.keys() | seen.keys():
            missing = rows.get(identity, 0) - seen[identity]
            if missing:
                self.report.wrong("lost" if missing > 0 else "phantom", f"transaction {identity}", abs(missing))
        for journal in journals:
            self._check_journal(journal, rows)

    def _check_journal(self, journal, rows):
        """The table itself is not believed: what the writers were told counts."""
        for identity, count in journal.committed.items():
            if rows.get(identity, 0) != count:
                self.report.wrong("lost by the server", identity)
        for identity in journal.rolled_back:
            if identity in rows:
                self.report.wrong("rolled back, yet in the table", identity)
        for identity, count in journal.unknown.items():
            if rows.get(identity, count) != count:
                self.report.wrong("torn by the server", identity)

    def check_transactions(self):
        """Of each transaction all ordinals from 1 on, once each, under one transaction id."""
        ordinals, xids = defaultdict(set), defaultdict(set)
        for _, event in self.events(*self.tables):
            commit, ordinal, _ = event.position
            ordinals[commit].add(ordinal)
            xids[commit].add(event.xid)
        for commit, found in ordinals.items():
            if len(found) != max(found) or min(found) != 1:
                self.report.wrong("transaction with a gap", f"commit {commit:X}", max(found) - len(found))
            if len(xids[commit]) != 1:
                self.report.wrong("mixed transactions", f"commit {commit:X}")

    def check_parts(self):
        """A delete is followed by its tombstone; a changed key is delete, tombstone, create of one position."""
        for table in self.tables:
            values = {event.position + (json.dumps(event.key),): event for partition in self.partitions[table]
                      for event in partition.accepted}
            for (commit, ordinal, part, key), event in values.items():
                if event.value is not None and event.value["op"] == "d":
                    tombstone = values.get((commit, ordinal, part + 1, key))
                    if tombstone is None or tombstone.value is not None:
                        self.report.wrong("tombstone missing", f"{table} {commit:X}/{ordinal}")

    def check_versions(self):
        """Each account's changes come one after the other, and at each commit the money is all there."""
        versions, balances, commit, total = defaultdict(int), {}, None, MONEY
        for _, event in self.events("acct"):
            if commit not in (None, event.position[0]) and total != MONEY:
                self.report.wrong("money", f"commit {commit:X}: {total}")
            commit = event.position[0]
            row = event.value["after"]
            if row["ver"] != versions[row["id"]] + 1:
                self.report.wrong("order of versions", f"account {row['id']} version {row['ver']}")
            versions[row["id"]] = row["ver"]
            total += row["bal"] - balances.get(row["id"], 1000)
            balances[row["id"]] = row["bal"]

    def fold(self, table, key, start=()):
        """The table that the events make; values as text, a column without a value is left out."""
        rows = {row[key]: row for row in start}
        for _, event in self.events(table):
            if event.value is None:
                continue
            if event.value["op"] == "d":
                rows.pop(str(event.value["before"][key]), None)
                continue
            after = event.value["after"]
            before = rows.get(str(after[key]), {})
            row = {}
            for name, value in after.items():
                value = before.get(name) if value == UNCHANGED else value
                if value is not None:
                    row[name] = str(value)
            rows[str(after[key])] = row
        return rows

    def check_fold(self, table, key, expected, start=()):
        """`expected`: rows of the table as {column: text}, columns that are null left out. A column that was
        dropped meanwhile is not compared."""
        columns = set().union(*expected) if expected else set()
        folded = {k: {name: value for name, value in row.items() if name in columns}
                  for k, row in self.fold(table, key, start).items()}
        wanted = {row[key]: row for row in expected}
        for k in folded.keys() | wanted.keys():
            if folded.get(k) != wanted.get(k):
                self.report.wrong(f"{table} folded", f"key {k}")

    def check_samples(self, samples):
        """No early confirm: whatever a slot had confirmed was in the log by then. `samples`: (confirmed LSN, end
        offset of each partition, asked for afterwards). Ends that went back are a broker's that has not read its
        own log yet; they say nothing."""
        highest = Counter()
        sound = []
        for confirmed, ends in samples:
            if all(end >= highest[where] for where, end in ends.items()):
                highest = Counter(ends)
                sound.append((confirmed, ends))
        samples = sound
        self.report.samples = len(samples)
        for table in self.tables:
            for partition in self.partitions[table]:
                offsets = [event.offset for event in partition.accepted]
                for confirmed, ends in samples:
                    end = ends.get((partition.name, partition.number))
                    place = len(offsets) if end is None else bisect.bisect_left(offsets, end)
                    if place < len(offsets) and partition.accepted[place].position[0] < confirmed:
                        self.report.wrong("early confirm", f"{partition.name} offset {offsets[place]}")
