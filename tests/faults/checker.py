"""The independent checker: what the topics hold against what the tables hold.

It shares no code with the product: the position (forms.py), the partition of a key and the envelope are worked out here from
docs/events.md alone. It collects; `Report.line` and `Report.problems` say what it found."""

import bisect
import dataclasses
import heapq
import itertools
import json
from array import array
from collections import Counter, defaultdict

from confluent_kafka.admin import AdminClient

from consume import murmur2, up_to_now
from forms import MillraceForm
from workload import MONEY, ROLLED_BACK

UNCHANGED = "__debezium_unavailable_value"


@dataclasses.dataclass(slots=True)
class Event:
    position: tuple
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
    unjudged: tuple = ()

    def wrong(self, kind, example, count=1):
        self.problems[kind] += count
        self.examples.setdefault(kind, example)

    def line(self):
        p = self.problems
        unjudged = f"; not judged: {', '.join(self.unjudged)}" if self.unjudged else ""
        return (f"{self.events} events, {p['lost']} lost, {p['phantom']} phantom, {self.duplicates} duplicates, "
                f"{p['order']} order violations, {p['early confirm']} early confirms in {self.samples} samples, "
                f"{sum(p.values()) - p['lost'] - p['phantom'] - p['order'] - p['early confirm']} others{unjudged}")

    def expect_clean(self):
        assert not self.problems, f"{dict(self.problems)}; for example {self.examples}"


class Partition:
    """One partition read from its beginning. Keeps what a consumer keeps that drops what is not above the highest
    position, and judges whether that is right. Of each event it keeps some numbers; what else stays is up to `keep`,
    which gets each event that such a consumer takes."""

    def __init__(self, name, number, count, report, form, keep):
        self.name, self.number, self.count, self.report = name, number, count, report
        self.form, self.keep = form, keep
        # Of the events that were taken, positions increasing; arrays, since there may be millions.
        self.commits, self.places = array("Q"), array("Q")  # a place is ordinal and part
        self.xids, self.offsets, self.digests = array("Q"), array("q"), array("q")
        self.index = None if form.drops_by_position else {}  # position -> index, where positions may go back
        self.replay_at = None  # index of the repeat seen last, while one runs

    def __len__(self):
        return len(self.commits)

    def position(self, index):
        return self.commits[index], self.places[index]

    def _find(self, position):
        """The index of the event that was taken at this position, or None."""
        if self.index is not None:
            return self.index.get(position)
        if not len(self) or position > self.position(len(self) - 1):
            return None
        index = bisect.bisect_left(range(len(self)), position, key=self.position)
        return index if self.position(index) == position else None

    def take(self, message):
        headers = dict(message.headers() or [])
        key, value = message.key(), message.value()
        where = f"{self.name}[{self.number}] offset {message.offset()}"
        if key is not None and (murmur2(key) & 0x7FFFFFFF) % self.count != self.number:
            self.report.wrong("partition of a key", where)
        value = value and json.loads(value)
        try:
            (commit, ordinal, part), xid = self.form.place((self.name, self.number), key, value, headers)
        except LookupError as error:
            self.report.wrong(error.args[0], where)
            return
        where += f" position {commit:X}-{ordinal:X}-{part}"
        position = commit, ordinal << 4 | part
        digest = self._digest(key, value)
        index = self._find(position)
        if index is not None:
            self._again(index, digest, where)
            return
        last = len(self) - 1
        if last >= 0 and position <= self.position(last):
            self.report.wrong("order", where)
            if self.form.drops_by_position:
                return  # a consumer that drops repeats drops this one too, though it is none
        if self.form.drops_by_position and self.replay_at not in (None, last):
            self.report.wrong("hole in a replay", where)
        self.replay_at = None
        if self.index is not None:
            self.index[position] = len(self)
        self.commits.append(commit)
        self.places.append(position[1])
        self.xids.append(xid)
        self.offsets.append(message.offset())
        self.digests.append(digest)
        if value is not None:  # the rest is not needed any more
            value = {name: value[name] for name in ("op", "before", "after")}
        self.keep(Event((commit, ordinal, part), key and json.loads(key), value))

    def _again(self, index, digest, where):
        """A repeat is the same event, and part of a run that goes on until it meets the new ones."""
        self.report.duplicates += 1
        self.report.repeated[self.commits[index]] += 1
        if self.digests[index] != digest:
            self.report.wrong("changed repeat", where)
        if self.form.drops_by_position and self.replay_at is not None and index > self.replay_at + 1:
            self.report.wrong("hole in a replay", where)
        self.replay_at = index

    @staticmethod
    def _digest(key, value):
        """Of all that must be equal. The time of encoding (ts_ms …) need not, nor does source.sequence: its first
        part, the commit before, is null in the first transaction of a connection."""
        if value is not None:
            value = {name: part for name, part in value.items() if not name.startswith("ts_")}
            value["source"] = {name: part for name, part in value["source"].items() if name != "sequence"}
        return hash((key, json.dumps(value)))


class Checker:
    """`form`: whose events they are, see forms.py."""

    def __init__(self, bootstrap, prefix, tables, form=MillraceForm()):
        self.form = form
        self.report = Report(unjudged=form.unjudged)
        self.tables = tables
        self.partitions = defaultdict(list)  # table -> Partitions
        self.kept = defaultdict(list)        # table -> events; not of `ledger`, which has nearly all
        self.rows_seen = Counter()           # of ledger: (writer, txno) -> rows
        self._read(bootstrap, prefix)
        self.report.events = sum(len(p) for table in tables for p in self.partitions[table])

    def _read(self, bootstrap, prefix):
        known = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0}).list_topics(timeout=30).topics
        by_number = {}
        for table in self.tables:
            topic = f"{prefix}.public.{table}"
            count = len(known[topic].partitions)
            for number in range(count):
                partition = Partition(topic, number, count, self.report, self.form, self.keep_of(table))
                self.partitions[table].append(partition)
                by_number[topic, number] = partition
        for message in up_to_now(by_number, bootstrap):
            by_number[message.topic(), message.partition()].take(message)

    def keep_of(self, table):
        """What becomes of a table's events."""
        return self._count_row if table == "ledger" else self.kept[table].append

    def events(self, table):
        """The deduplicated events of a table that is kept, in commit order."""
        return sorted(self.kept[table], key=lambda event: event.position)

    def _count_row(self, event):
        """A row of ledger: it is written once, and says of which transaction it is."""
        row = event.value and event.value["after"]
        if not row or event.value["op"] != "c" or row["opno"] < 1 or row["payload"].startswith(ROLLED_BACK):
            self.report.wrong("phantom", f"ledger {event.position} {event.key}")
        if row:
            self.rows_seen[row["writer"], row["txno"]] += 1

    # ---- properties ----

    def check_rows(self, rows, journals):
        """Complete and no phantom: `rows` is what table ledger holds, {(writer, txno): count}."""
        seen = self.rows_seen
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
        if "ordinals of transactions" in self.report.unjudged:
            return
        partitions = [partition for table in self.tables for partition in self.partitions[table]]
        merged = heapq.merge(*(zip(partition.commits, partition.places, partition.xids, itertools.repeat(number),
                                   partition.offsets) for number, partition in enumerate(partitions)))
        for commit, changes in itertools.groupby(merged, key=lambda change: change[0]):
            ordinals, xids = {}, set()
            for _, place, xid, number, offset in changes:
                ordinals[place >> 4] = number, offset
                xids.add(xid)
            if len(ordinals) != max(ordinals) or min(ordinals) != 1:
                self.report.wrong("transaction with a gap", f"commit {commit:X} {self._gaps(ordinals, partitions)}",
                                  max(ordinals) - len(ordinals))
            if len(xids) != 1:
                self.report.wrong("mixed transactions", f"commit {commit:X}")

    @staticmethod
    def _gaps(ordinals, partitions):
        """What is missing between which records; `ordinals`: ordinal -> number of the partition, and offset."""
        def where(ordinal):
            number, offset = ordinals[ordinal]
            return f"{partitions[number].name}[{partitions[number].number}] offset {offset}"

        there, gaps = sorted(ordinals), []
        for before, after in zip([0, *there], there):
            if after != before + 1:
                gaps.append(f"{before + 1} to {after - 1} between {before and where(before)} and {where(after)}")
        return f"of {there[-1]}: {'; '.join(gaps[:10])}"

    def check_parts(self):
        """A delete is followed by its tombstone; a changed key is delete, tombstone, create of one position."""
        for table, events in self.kept.items():
            values = {event.position + (json.dumps(event.key),): event for event in events}
            for (commit, ordinal, part, key), event in values.items():
                if event.value is not None and event.value["op"] == "d":
                    tombstone = values.get((commit, ordinal, part + 1, key))
                    if tombstone is None or tombstone.value is not None:
                        self.report.wrong("tombstone missing", f"{table} {commit:X}/{ordinal}")

    def check_versions(self):
        """Each account's changes come one after the other, and at each commit the money is all there."""
        versions, balances, commit, total = defaultdict(int), {}, None, MONEY
        for event in self.events("acct"):
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
        for event in self.events(table):
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
                offsets = partition.offsets
                for confirmed, ends in samples:
                    end = ends.get((partition.name, partition.number))
                    place = len(offsets) if end is None else bisect.bisect_left(offsets, end)
                    if place < len(offsets) and partition.commits[place] < confirmed:
                        self.report.wrong("early confirm", f"{partition.name} offset {offsets[place]}")
