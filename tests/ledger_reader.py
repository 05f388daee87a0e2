#!/usr/bin/env python3
"""Usage: ledger_reader.py BROKERS LEDGER_TOPIC [--pipeline NAME] [--topic NAME]... [--from PLACE] [--to PLACE] [--exactly-once]

Proves by the ledger (docs/verify.md) that topics hold what millrace sent: nothing missing, changed, twice or out of order. It knows
the topics alone: no table, no millrace. --pipeline: where several have their ledger in one topic. --topic: one that no range names.
--from and --to: ranges between two places, as a range has them; by default all. --exactly-once: there must be no repeats.
Connects in plain text; for another way call it from Python with a consumer of your own. Needs confluent-kafka and the library
libxxhash. Exit codes: 0 proved, 1 something is wrong, 2 there is no ledger."""

import argparse
import collections
import ctypes
import ctypes.util
import json
import re
import sqlite3
import struct
import sys

MODULUS = 1 << 128
NO_PREV = "0" * 32
OWN_HEADERS = 3  # mr-pos, mr-xid, mr-ts: the last of each record
COPIED = 1 << 34  # ordinals of copied rows begin above it
BELOW = "-~"  # a place and this are above all positions at the place
MOST = "~"  # above all positions

Message = collections.namedtuple("Message", "topic partition offset key value headers")
Finding = collections.namedtuple("Finding", "kind topic partition place text")


class Hash128(ctypes.Structure):
    _fields_ = [("low", ctypes.c_uint64), ("high", ctypes.c_uint64)]


_xxh = ctypes.CDLL(ctypes.util.find_library("xxhash") or "libxxhash.so.0")
_xxh.XXH3_128bits.restype, _xxh.XXH3_128bits.argtypes = Hash128, [ctypes.c_char_p, ctypes.c_size_t]
_xxh.XXH3_64bits.restype, _xxh.XXH3_64bits.argtypes = ctypes.c_uint64, [ctypes.c_char_p, ctypes.c_size_t]


def xxh128(data):
    found = _xxh.XXH3_128bits(data, len(data))
    return found.high << 64 | found.low


def xxh64(data):
    return _xxh.XXH3_64bits(data, len(data))


def length(data):
    return 0xFFFFFFFF if data is None else len(data)


def digest(message):
    """Of a record: where it is and what it holds."""
    named = dict(message.headers[-OWN_HEADERS:])
    commit_lsn, ordinal, part = named["mr-pos"].split(b"-")
    others = b"".join(struct.pack("<HI", len(name.encode()), length(value)) + name.encode() + (value or b"")
                      for name, value in message.headers[:-OWN_HEADERS])
    value = xxh128(message.value or b"")
    return xxh128(struct.pack("<QQQIIIIQQQQ", int(commit_lsn, 16), int(ordinal, 16), int(named["mr-ts"]), int(named["mr-xid"]), int(part),
                              length(message.key), length(message.value), xxh64(message.key or b""), xxh64(others),
                              value & 0xFFFFFFFFFFFFFFFF, value >> 64))


def likeness(message):
    """What repeats of a record have in common: all but the time at which the event was made, the version of millrace, and what was known then of
    the transaction before (source.sequence). Of Avro, the key."""
    value = message.value or b""
    value = re.sub(rb'"\w*ts_(ms|us|ns)":\d+|"\w*version":"[^"]*"|"time":"[^"]*"|sequence\W*\[[^\]]*\]', b"", value) if value[:1] == b"{" else value[:0]
    return xxh64(struct.pack("<I", length(message.key)) + (message.key or b"") + value)


class Range:
    """A record of the ledger."""

    def __init__(self, text):
        fields = json.loads(text)
        self.pipeline, self.n, self.prev, self.begin, self.end = (fields[name] for name in ("pipeline", "n", "prev", "from", "to"))
        self.parts = {(topic, partition): (count, int(total, 16)) for topic, partition, count, total in fields["parts"]}
        self.digest = f"{xxh128(text):032x}"
        self.name = f"range {self.n} ({self.begin}, {self.end}]"


class Proof:
    """Takes records of the ledger and of topics, in the order of their offsets; then `prove`."""

    def __init__(self, exactly_once=False, pipeline=None):
        self.exactly_once, self.pipeline = exactly_once, pipeline
        self.ranges, self.findings, self.notes = {}, [], []  # {n: {digest: Range}}
        self.proved = 0  # records
        self.heads = {}  # {(topic, partition) of the ledger: the number of its first range}
        self.lows = {}  # {(topic, partition): its first offset}, where the head is cut
        self.store = sqlite3.connect("")  # a file of its own, gone with the process
        self.store.execute("CREATE TABLE r (topic, part, off, pos, loose, sum, alike, PRIMARY KEY (topic, part, off)) WITHOUT ROWID")

    def find(self, kind, topic, partition, place, text):
        self.findings.append(Finding(kind, topic, partition, place, text))

    # -- what is read

    def take_range(self, message):
        if message.value is None or dict(message.headers or []).get("mr-resolved"):
            return
        try:
            taken = Range(message.value)
        except (ValueError, KeyError, TypeError):
            self.find("ledger", message.topic, message.partition, message.offset, "a record of the ledger can't be read")
            return
        if self.pipeline not in (None, taken.pipeline):
            return
        same = self.ranges.setdefault(taken.n, {})
        if self.exactly_once and taken.digest in same:
            self.find("ledger", message.topic, message.partition, message.offset, f"{taken.name} is there twice")
        same[taken.digest] = taken
        self.heads.setdefault((message.topic, message.partition), taken.n)

    def take(self, message):
        headers = dict(message.headers[-OWN_HEADERS:] if message.headers else [])
        if "mr-pos" not in headers:
            self.find("extra", message.topic, message.partition, message.offset, "a record without mr-pos, which millrace did not send")
            return
        position = headers["mr-pos"].decode()
        ordinal = int(position[17:27], 16)
        # A copied row, or one of no transaction, has its place by the time it came: after a kill it comes at another.
        loose = ordinal > COPIED or (headers["mr-xid"] == b"0" and ordinal > 0)
        self.store.execute("INSERT INTO r VALUES (?, ?, ?, ?, ?, ?, ?)", (
            message.topic, message.partition, message.offset, position, loose, f"{digest(message):032x}", f"{likeness(message):016x}"))

    # -- what is proved

    def prove(self, begin=None, end=None):
        """Of the ranges that lie between two places."""
        self.store.execute("CREATE INDEX by_pos ON r (pos, topic, part)")
        self.store.execute("CREATE INDEX by_part ON r (topic, part, pos)")
        wanted = self._chain(lambda one: (begin is None or one.begin >= begin) and (end is None or one.end <= end))
        for one in wanted:
            self._prove(one)
        first, last = min((one.begin for one in wanted), default=""), max((one.end for one in wanted), default="")
        for topic, partition in self.store.execute("SELECT DISTINCT topic, part FROM r").fetchall():
            self._order(topic, partition, first, last, MOST if end is None else last + BELOW)
        self._outside(wanted)
        return not self.findings

    def _chain(self, is_wanted):
        """The ranges that are wanted; each follows another, but for those that begin a ledger."""
        found = []
        for n in sorted(self.ranges):
            before = self.ranges.get(n - 1, {})
            wanted = [one for one in self.ranges[n].values() if is_wanted(one)]
            for one in wanted:
                parent = before.get(one.prev)
                if n == 1:
                    if one.prev != NO_PREV:
                        self.find("ledger", "", -1, one.n, f"{one.name} is the first, and names one before it")
                elif parent is None and self._may_be_cut(n):
                    self.notes.append(f"the ledger begins with {one.name}: its head is cut, or in another topic")
                elif parent is None:
                    self.find("ledger", "", -1, one.n, f"range {n - 1} is missing or changed: {one.name} follows another")
                elif parent.end != one.begin:
                    self.find("ledger", "", -1, one.n, f"{one.name} does not begin where the one before ends")
                found.append(one)
            if wanted and len(self.ranges[n]) > 1:
                text = f"range {n} is there {len(self.ranges[n])} times, and differs"
                if self.exactly_once and n > 1 and len({one.prev for one in self.ranges[n].values()}) < len(self.ranges[n]):
                    self.find("ledger", "", -1, n, text)
                else:
                    self.notes.append(text + ": by two instances, or of two ledgers")
        return found

    def _may_be_cut(self, n):
        """Whether the one before may have been in the head of a partition of the ledger, which is gone."""
        return any(place in self.lows and head >= n - 1 for place, head in self.heads.items()) or n == min(self.ranges)

    def _rows(self, one, topic, partition):
        return self.store.execute("SELECT off, pos, loose, sum, alike FROM r INDEXED BY by_part WHERE topic = ? AND part = ? AND pos > ? AND pos <= ? ORDER BY off",
                                  (topic, partition, one.begin + BELOW, one.end + BELOW)).fetchall()

    def _prove(self, one):
        if not one.parts:
            self.notes.append(f"{one.name} says nothing: sessions failed again and again, and what it would say no longer fitted")
            return
        places = set(self.store.execute("SELECT DISTINCT topic, part FROM r INDEXED BY by_pos WHERE pos > ? AND pos <= ?", (one.begin + BELOW, one.end + BELOW)))
        others = one.parts.get(("", -1))
        for topic, partition in sorted(places | set(one.parts) - {("", -1)}):
            part = one.parts.get((topic, partition))
            if part is None and others is not None:
                continue  # together, below
            rows = self._rows(one, topic, partition)
            count, total = part or (0, 0)
            counted = self._counted(rows, count, total)
            if counted is None:
                self._name(one, topic, partition, rows, count, total)
            else:
                self.proved += count
                self._beside(one, topic, partition, counted, sorted(set(rows) - set(counted)))
        if others is not None:
            self._prove_others(one, sorted(places - set(one.parts)), *others)

    @staticmethod
    def _counted(rows, count, total):
        """The records that the range counts: one session has sent them, one after the other. What an earlier one sent before it was killed
        comes before, and what one that was frozen still sends, after them or between."""
        sums = [int(row[3], 16) for row in rows]
        running = sum(sums[:count])
        for first in range(len(rows) - count + 1):
            if running % MODULUS == total:
                return rows[first:first + count]
            if first + count < len(rows):
                running += sums[first + count] - sums[first]
        for order in (rows, rows[::-1]):
            chosen = list({row[1]: row for row in order}.values())
            if len(chosen) == count and sum(int(row[3], 16) for row in chosen) % MODULUS == total:
                return chosen
        return None

    def _beside(self, one, topic, partition, claimed, others):
        """Records of the range's span that are not those it counts."""
        alike = {row[1]: row[4] for row in claimed}
        for offset, position, loose, _, likeness_ in others:
            place = f"offset {offset}, {position}"
            if loose and not self.exactly_once:
                continue
            known = alike.get(position) or self._elsewhere(topic, partition, position)
            if self.exactly_once:
                self.find("twice" if position in alike else "extra", topic, partition, offset, f"{place}: {one.name} does not count it")
            elif known is None:
                self.find("extra", topic, partition, offset, f"{place}: {one.name} does not count it")
            elif known != likeness_:
                self.find("changed", topic, partition, offset, f"{place}: repeats another record, and differs")

    def _elsewhere(self, topic, partition, position):
        """After partitions were added a repeat may have another."""
        row = self.store.execute("SELECT alike FROM r INDEXED BY by_pos WHERE topic = ? AND pos = ? AND part <> ?", (topic, position, partition)).fetchone()
        return row and row[0]

    def _name(self, one, topic, partition, rows, count, total):
        """What is wrong with a part that is not proved."""
        positions = len({row[1] for row in rows})
        low = self.lows.get((topic, partition), 0)
        where = f"{topic}, partition {partition}: {one.name} counts {count} records"
        if positions < count and low > 0 and (not rows or rows[0][0] == low):
            self.find("cut", topic, partition, one.n, f"{where}, {positions} are there: the partition begins at offset {low}")
        elif positions < count:
            self.find("missing", topic, partition, one.n, f"{where}, {positions} are there")
        elif positions > count:
            excess = f"{(sum(int(row[3], 16) for row in rows) - total) % MODULUS:032x}"
            offsets = [row[0] for row in rows if row[3] == excess]
            self.find("extra", topic, partition, one.n, f"{where}, {positions} are there" + "".join(f"; offset {at} is not of it" for at in offsets))
        else:
            self.find("changed", topic, partition, one.n, f"{where}, and one at least of offsets {rows[0][0]} to {rows[-1][0]} is changed")

    def _prove_others(self, one, places, count, total):
        """Which of them are repeats, only their positions say."""
        rows = [(off, f"{topic} {partition} {position}", *rest) for topic, partition in places
                for off, position, *rest in self._rows(one, topic, partition)]
        positions = len({row[1] for row in rows})
        if self._counted(rows, count, total) is not None:
            self.proved += count
        else:
            self.find("changed" if positions >= count else "missing", "", -1, one.n,
                      f"{one.name} counts {count} records in partitions that it does not name, {positions} are there; name all topics with --topic")

    def _order(self, topic, partition, begin, sealed, most):
        """Positions grow, but for repeats, of which each follows the one before and which lead back to the highest; those that a session is
        about to repeat are in no range yet."""
        numbers, places, due, last = {}, [], 0, None  # due: the number of the record that comes next at the latest
        rows = self.store.execute("SELECT off, pos, loose FROM r WHERE topic = ? AND part = ? AND pos > ? AND pos <= ? ORDER BY off",
                                  (topic, partition, begin + BELOW, most)).fetchall()
        for offset, position, loose in rows:
            if loose and not self.exactly_once:
                continue
            number = numbers.get(position)
            if not places or position > places[-1]:
                number = numbers[position] = len(places)
                self._left_out(topic, partition, (offset, position), places[due:])
                places.append(position)
            elif not self.exactly_once and number is not None:
                self._left_out(topic, partition, (offset, position), places[due:number])
            elif self.exactly_once or self._elsewhere(topic, partition, position) is None:
                self.find("order", topic, partition, offset, f"{topic}, partition {partition}, offset {offset}: {position} comes after {places[-1]}")
            due, last = due if number is None else number + 1, (offset, position)
        if last is not None and places[-1] <= sealed + BELOW:
            self._left_out(topic, partition, last, places[due:])

    def _left_out(self, topic, partition, at, places):
        """What a run of repeats has not sent again, and, after partitions were added, is in no other one."""
        missing = next((place for place in places if self._elsewhere(topic, partition, place) is None), None)
        if missing is not None:
            self.find("order", topic, partition, at[0], f"{topic}, partition {partition}, offset {at[0]}: {at[1]}, and {missing}, which came after "
                      "what is there again, is not there again")

    def _outside(self, ranges):
        """Where no range says anything."""
        end = ""
        for one in sorted(ranges, key=lambda one: one.begin):
            if end and one.begin > end:
                self.notes.append(f"no range says anything of ({end}, {one.begin}]")
            end = max(end, one.end)
        if ranges:
            before, after = (self.store.execute(f"SELECT count(*) FROM r WHERE pos {sign} ?", (place + BELOW,)).fetchone()[0]
                             for sign, place in (("<=", min(one.begin for one in ranges)), (">", end)))
            if before or after:
                self.notes.append(f"{before} records are before the ranges, {after} after them, which end at {end}")


def read(consumer, topic, take, lows=None):
    """All of a topic, up to its ends as they are now."""
    from confluent_kafka import KafkaError, TopicPartition  # pylint: disable=import-outside-toplevel
    partitions = consumer.list_topics(topic, timeout=30).topics[topic].partitions
    for partition in partitions:
        low, _ = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=30)
        if lows is not None and low > 0:
            lows[topic, partition] = low
    consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
    left = set(partitions)
    while left:
        for message in consumer.consume(5000, timeout=0.2):
            if message.error() is None:
                take(Message(topic, message.partition(), message.offset(), message.key(), message.value(), message.headers() or []))
            elif message.error().code() == KafkaError._PARTITION_EOF:  # pylint: disable=protected-access
                left.discard(message.partition())
            else:
                sys.exit(f"{topic}: {message.error().str()}")


def prove(consumer, ledger_topic, topics=(), begin=None, end=None, **options):
    """The proof of a ledger. The consumer has enable.partition.eof and auto.offset.reset = earliest."""
    proof = Proof(**options)
    read(consumer, ledger_topic, proof.take_range, proof.lows)
    pipelines = {one.pipeline for same in proof.ranges.values() for one in same.values()}
    if len(pipelines) > 1:
        sys.exit(f"{ledger_topic} has the ledgers of {', '.join(sorted(pipelines))}: name one with --pipeline")
    named = {topic for same in proof.ranges.values() for one in same.values() for topic, _ in one.parts if topic}
    for topic in sorted(named | set(topics)):
        read(consumer, topic, proof.take, proof.lows)
    proof.prove(begin, end)
    return proof


CONSUMER = {"group.id": "ledger-reader", "enable.partition.eof": True, "auto.offset.reset": "earliest", "enable.auto.commit": False,
            "isolation.level": "read_committed"}


def main():
    from confluent_kafka import Consumer  # pylint: disable=import-outside-toplevel
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("brokers")
    parser.add_argument("ledger_topic")
    parser.add_argument("--pipeline")
    parser.add_argument("--topic", action="append", default=[])
    parser.add_argument("--from", dest="begin")
    parser.add_argument("--to", dest="end")
    parser.add_argument("--exactly-once", action="store_true")
    wanted = parser.parse_args()
    proof = prove(Consumer({**CONSUMER, "bootstrap.servers": wanted.brokers}), wanted.ledger_topic, wanted.topic, wanted.begin, wanted.end,
                  exactly_once=wanted.exactly_once, pipeline=wanted.pipeline)
    for note in proof.notes:
        print("note:", note)
    for finding in proof.findings:
        print(f"{finding.kind.upper()}: {finding.text}")
    print(f"{sum(map(len, proof.ranges.values()))} ranges, {proof.proved} records proved, {len(proof.findings)} findings")
    return 2 if not proof.ranges else 1 if proof.findings else 0


if __name__ == "__main__":
    sys.exit(main())
