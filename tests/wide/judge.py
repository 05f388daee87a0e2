"""The judge: what the topics make of the tables, beside what PostgreSQL said the tables were.

It knows docs/events.md, and nothing of millrace. It replays the events by key, in the order of their positions. Where a
picture was taken (execute.py) the rows must be those of the picture; a change of a table's form brings a new picture, from
which the replay goes on, since PostgreSQL sends no events for what ALTER TABLE does to rows.

A second witness is a slot of test_decoding: which tables, which operations, in which order, in each transaction."""

import base64
import dataclasses
import json
import re
from collections import Counter, defaultdict

from consume import murmur2

UNAVAILABLE = "__debezium_unavailable_value"
NUMBERS, FLOATS, BOOL = {"20", "21", "23", "26"}, {"700", "701"}, "16"
MARKER = ("w", "marker")
POSITION = re.compile(rb"([0-9A-Fa-f]{16})-([0-9A-Fa-f]{10})-([0-9A-Fa-f])")


class Number(str):
    """A number as it stands in the JSON text."""


def parse(text):
    return json.loads(text, parse_float=Number, parse_int=Number, parse_constant=Number)


def as_text(value):
    """A value as PostgreSQL's output function writes it."""
    if isinstance(value, bool):
        return "t" if value else "f"
    return None if value is None else str(value)


def folded(text):
    """Runs of U+FFFD count as one: how many stand for some bytes that are not UTF-8 is not promised."""
    return text if text is None or "\ufffd" not in text else re.sub("\ufffd+", "\ufffd", text)


@dataclasses.dataclass
class Event:
    position: tuple
    record: object
    key: object     # list of (name, value), text of others
    value: dict     # None: a tombstone


class State:
    """One table as the events make it."""

    def __init__(self, info):
        self.info = info
        self.rows = {}     # key as texts -> row
        self.loose = []    # rows without key
        self.bytes_of = {}  # key as texts -> bytes
        self.touched = set()  # keys whose rows events have changed
        self.emptied = False  # by TRUNCATE
        self.before = None  # the same table, when its form was another; its rows went into `rows` without events

    def all_rows(self):
        return [*self.rows.values(), *self.loose]


class Judge:
    """`promise`: what the run was configured for: exactly_once, via_root, leaves (of the partitioned), replaced_bytes …"""

    def __init__(self, capture, moments, committed, messages, promise, witness=None):
        self.capture, self.moments, self.committed = capture, moments, committed
        self.messages, self.promise, self.witness = messages, promise, witness
        self.problems = []  # (kind, text)
        self.repeats = self.reads = 0
        self.states = {}    # oid -> State
        self.by_name = {}   # (schema, name) -> oid
        self.former = {}    # (schema, name) -> State of the table that had the name before
        self.known = set()  # (schema, name) of all that were published at some time
        self.moved = set()  # topics' tables that were not published all the time
        self.pictures = 0
        self.is_strict = True
        self.events = []
        self.at = None

    def wrong(self, kind, text):
        self.problems.append((kind, f"{text}" + (f" at {self.at}" if self.at else "")))

    # ---- reading ----

    def judge(self):
        self.events = self.accepted()
        self.check_ordinals()
        self.check_messages()
        markers = self.marker_positions()
        self.replay(markers)
        if self.witness is not None:
            self.check_witness()
        return self.problems

    def accepted(self):
        """The events that a consumer takes which drops repeats by position, in the order of the stream."""
        highest, seen, events = {}, {}, []
        # A table that was dropped: the process that sends a record again may not know its key, and takes any partition.
        keyed = {self.of_any_key(record) for record in self.capture.records if record.key is not None} if self.promise["keys_unknown"] else ()
        for record in self.capture.records:
            where = record.topic, record.partition
            self.at = f"{record.topic}[{record.partition}] offset {record.offset}"
            header = record.headers.get("mr-pos", b"")
            found = POSITION.fullmatch(header)
            if not found:
                self.wrong("position missing", header)
                continue
            position = tuple(int(part, 16) for part in found.groups())
            if record.key is None and self.of_any_key(record) in keyed:
                self.repeats += 1
                continue
            place = (where, position, record.key, record.value is None)
            digest = self.digest(record)
            if header <= highest.get(where, b""):
                if seen.get(place) != digest:
                    self.wrong("order", f"{header} after {highest[where]}, and not a repeat")
                self.repeats += 1
                continue
            highest[where] = header
            seen[place] = digest
            self.check_partition(record)
            event = self.parsed(record, position)
            if event:
                events.append(event)
        self.at = None
        if self.promise["exactly_once"] and self.repeats:
            self.wrong("repeat in exactly-once", f"{self.repeats} records")
        events.sort(key=lambda event: event.position)
        for one, two in zip(events, events[1:]):
            if one.position == two.position:
                self.wrong("two records of one position", f"{one.record.topic} and {two.record.topic} {one.position}")
        return events

    def digest(self, record):
        """Of what a repeat has in common with the first, which an older build may have sent. What is read again may have changed."""
        value = record.value
        if value is not None and self.promise["reselects"]:
            value = json.dumps({**json.loads(value), "after": None}).replace(" ", "").encode()
        if value is not None:
            value = re.sub(rb'"(version":"[^"]*"|sequence":"(?:[^"\\]|\\.)*"|ts_[mun]s":\d+)', b"", value)
        return hash(value)

    def of_any_key(self, record):
        return record.topic, record.headers.get("mr-pos"), self.digest(record)

    def check_partition(self, record):
        count = self.capture.partitions[record.topic]
        if record.key is not None and (murmur2(record.key) & 0x7FFFFFFF) % count != record.partition:
            self.wrong("partition of a key", record.key)

    def parsed(self, record, position):
        try:
            value = parse(record.value) if record.value is not None else None
            key = None
            if record.key is not None:
                key = json.loads(record.key, parse_float=Number, parse_int=Number, parse_constant=Number, object_pairs_hook=list)
        except (ValueError, UnicodeDecodeError) as error:
            self.wrong("not JSON", str(error))
            return None
        for name in json.loads(record.headers.get("mr-reselected-columns", b"[]")):
            value["after"][name] = UNAVAILABLE  # perhaps of a later change: what it was then is not told
        if value is not None:
            self.check_source(record, value, position)
        return Event(position, record, key, value)

    def check_source(self, record, value, position):
        source = value["source"]
        if source["txId"] is not None and source["txId"].encode() != record.headers.get("mr-xid"):
            self.wrong("transaction id", f"{source['txId']} and {record.headers.get('mr-xid')}")
        behind = value.get("op") == "r"  # of a copied row it is the place that the stream has come to, right behind its position
        if source["lsn"] is not None and int(source["lsn"]) > position[0] + behind:
            self.wrong("LSN behind the commit", f"{source['lsn']} {position}")
        if source["db"] != self.promise["database"]:
            self.wrong("database", source["db"])
        stamp = source["ts_ms"]
        low, high = self.promise["times_ms"]
        if stamp is not None and low <= int(stamp) <= high:
            if value["ts_ms"] is not None and int(value["ts_ms"]) < int(stamp):
                self.wrong("ts_ms before source.ts_ms", f"{value['ts_ms']} {stamp}")
            if record.timestamp != int(stamp):
                self.wrong("timestamp of the record", f"{record.timestamp} {stamp}")
        elif not self.promise["origin"]:
            self.wrong("commit time", stamp)

    # ---- positions ----

    def check_ordinals(self):
        """Of each transaction all ordinals from 1 on; where something is published but not passed on, that has ordinals, too. Whoever
        took a change out before it was numbered is not seen here, but by the witness."""
        if any(message.transactional and not self.wanted_message(message) for message in self.messages) or \
                any(info.published and not self.listed(info) for moment in self.moments.values() for info in moment.infos):
            return
        found = defaultdict(set)
        parts = defaultdict(set)
        for event in self.events:
            if self.is_read(event):
                continue
            found[event.position[0]].add(event.position[1])
            parts[event.position[:2]].add(event.position[2])
        for commit, ordinals in found.items():
            missing = set(range(1, max(ordinals))) - ordinals
            if missing and 0 not in ordinals:
                self.wrong("gap in a transaction", f"commit {commit:X}: {sorted(missing)[:10]} of {max(ordinals)}")

    def table_of(self, event):
        source = event.value["source"]
        return source["schema"], source["table"]

    def is_message(self, event):
        if event.value is None:
            return False
        return event.value.get("op") == "m"

    @staticmethod
    def is_read(event):
        """A row of a copy."""
        return event.value is not None and event.value.get("op") == "r"

    def marker_positions(self):
        """[(position, number)] of the markers that arrived, in the stream's order."""
        found = []
        for event in self.events:
            if event.value is None or self.is_message(event) or self.table_of(event) != MARKER or event.value["op"] != "c":
                continue
            number = int(event.value["after"]["n"])
            found.append((event.position, number))
            if self.committed.get(number) != int(event.record.headers["mr-xid"]):
                self.wrong("marker of another transaction", f"{number}: {self.committed.get(number)}")
        there = {number for _, number in found}
        for number in sorted(self.committed.keys() - there):
            self.wrong("lost", f"marker {number}, transaction {self.committed[number]}")
        return sorted(found)

    # ---- the replay ----

    def replay(self, markers):
        self.apply_moment(self.moments[0])
        waiting = list(markers)
        at = 0
        while at < len(self.events):
            group = [self.events[at]]
            while at + len(group) < len(self.events) and self.events[at + len(group)].position[:2] == group[0].position[:2] and \
                    self.events[at + len(group)].record.topic == group[0].record.topic:
                group.append(self.events[at + len(group)])
            at += len(group)
            self.at = f"{group[0].record.topic} {group[0].position[0]:X}-{group[0].position[1]:X}"
            if not self.is_message(group[0]):
                self.take(group)
            while waiting and waiting[0][0] <= group[-1].position:
                self.apply_moment(self.moments[waiting.pop(0)[1]])
        self.at = None

    def take(self, group):
        """The records of one change in one topic."""
        if group[0].value is None:
            self.wrong("tombstone without its delete", group[0].record.key)
            return
        name = self.table_of(group[0])
        if name == MARKER:
            return
        oid = self.by_name.get(name)
        state = self.states.get(oid)
        if self.is_read(group[0]):
            self.take_read(state, name, group)
            return
        if state is None or not state.info.published:
            # Of a table that is gone millrace may take it for a partition of one that is gone, too, and says so (docs/capture.md).
            if name not in self.promise["taken_for_partitions"]:
                self.wrong("event of a table that is not published", name)
            return
        operations = [event.value["op"] if event.value is not None else "tombstone" for event in group]
        if operations not in (["c"], ["u"], ["d", "tombstone"], ["d", "tombstone", "c"], ["t"]) and \
                not (operations == ["d"] and group[0].record.key is None):
            self.wrong("form of a change", operations)
        if operations == ["d"] and group[0].record.key is not None:
            self.wrong("tombstone missing", group[0].record.key)
        old = None
        for event in group:
            if event.value is None:
                if event.record.key != group[0].record.key or event.record.partition != group[0].record.partition or event.record.key is None:
                    self.wrong("tombstone missing", f"{event.record.key} is not of {group[0].record.key}")
                continue
            old = self.take_event(state, event, old)

    def take_read(self, state, name, group):
        """A copied row is the row as the events have it at that place (docs/snapshots.md): it goes out in
        its newer form or not at all. Where only the table's form has changed since it was read, it may have the former one; and where the
        name is another table's by now, which has had no event of that key, be the former table's."""
        self.reads += 1
        event, source = group[0], group[0].value["source"]
        if len(group) > 1 or event.value["before"] is not None or source["snapshot"] != "incremental":
            self.wrong("form of a copied row", f"{name}: {len(group)} records, {source['snapshot']}")
        if state is None or not state.info.published:
            if name not in self.known:
                self.wrong("copied row of a table that is not published", name)
            return
        row = {column: folded(as_text(value)) for column, value in event.value["after"].items()}
        for state in self.forms(state, name):
            values = dict(event.key or ()) if self.promise["replaced_bytes"] else row
            key = tuple(as_text(values.get(column)) for column in self.wanted_keys(state.info))
            there = state.rows.get(key)
            if there is not None and {column: folded(value) for column, value in there.items()} == row:
                self.key_of(state, event)
                return
            if key in state.touched or state.emptied:
                break
        self.wrong("copied row is not the stream's", f"{name}: {short(row)}, the events have {short(there)}")

    def forms(self, state, name):
        """The table as it is and was, and the one that had its name before."""
        for one in (state, self.former.get(name)):
            while one is not None:
                yield one
                one = one.before

    def take_event(self, state, event, old):
        value, info = event.value, state.info
        operation = value["op"]
        if operation == "t":
            state.rows, state.loose, state.emptied = {}, [], True
            return None
        key = self.key_of(state, event)
        state.touched.add(key)
        before, after = value["before"], value["after"]
        for row in (before, after):
            if row is not None:
                self.check_columns(info, row)
        if operation == "d":
            return self.delete(state, key, before)
        if operation == "u" and key is None:
            old = self.take_loose(state, before)
        elif operation == "u":
            # Without its key, an event that changes that is an update.
            old = state.rows.get(key) if event.key is not None else state.rows.pop(self.key_in(info, before), None)
            if old is None:
                self.wrong("update of a row that is not there", key)
        if operation == "u":
            self.check_before(info, before, old)
        elif before is not None:
            self.wrong("before of an insert", info.name)
        row = self.completed(info, after, old, operation)
        self.check_key_values(info, key, row)
        if key is None:
            state.loose.append(row)
            return None
        if operation == "c" and key in state.rows and info.key_immediate:
            self.wrong("insert of a row that is there", key)
        state.rows[key] = row
        return None

    def delete(self, state, key, before):
        info = state.info
        if before is None:
            self.wrong("before of a delete", "is missing")
            return None
        if key is None:
            return self.take_loose(state, before)
        old = state.rows.pop(key, None)
        if old is None:
            self.wrong("delete of a row that is not there", key)
            return None
        self.check_before(info, before, old)
        return old

    def take_loose(self, state, before):
        """Of a table without key: the row that is as `before` says goes."""
        if before is None:
            self.wrong("before image", f"{state.info.name}: an update without key and before")
            return None
        wanted = {name: folded(as_text(value)) for name, value in before.items()}
        for at, row in enumerate(state.loose):
            if {name: folded(value) for name, value in row.items()} == wanted:
                return state.loose.pop(at)
        self.wrong("change of a row that is not there", f"{state.info.name}: {short(before)}")
        return None

    def check_before(self, info, before, old):
        """FULL: the whole old row. Else what a delete and some updates carry (logicalrep_write_update and _delete, proto.c;
        ExtractReplicaIdentity, heapam.c): the identity's columns, the others null."""
        if before is None:
            if info.identity == "f":
                self.wrong("before image", f"{info.name}: is missing")
            return
        identity = {"f": old, "d": info.key}.get(info.identity, info.index)
        for name, value in before.items() if old is not None else ():
            wanted = old.get(name) if name in identity else None
            if folded(as_text(value)) != folded(wanted):
                self.wrong("before image", f"{info.name}.{name}: {short(value)}, was {short(wanted)}")

    def completed(self, info, after, old, operation):
        """The row with what an update did not touch."""
        row = {}
        for name, value in after.items():
            text = as_text(value)
            if text == UNAVAILABLE:
                if info.identity == "f":
                    self.wrong("value unavailable", f"{info.name}.{name}, though the identity is FULL")
                if old is None:
                    self.wrong("value unavailable", f"{info.name}.{name} in {operation} without an earlier row")
                text = (old or {}).get(name)
            row[name] = text
        return row

    # ---- keys ----

    def wanted_keys(self, info):
        """Which columns make the key, in the order of the table (docs/keys.md)."""
        columns = info.index if info.identity == "i" else info.key
        return [name for name in info.names if name in columns]

    def key_of(self, state, event):
        """The key as texts; None for a table without one."""
        info, key = state.info, event.key
        wanted = self.wanted_keys(info)
        if not wanted:
            if key is not None:
                self.wrong("key of a table that has none", f"{info.name}: {event.record.key}")
                return tuple(as_text(value) for _, value in key)
            return None
        if key is None and self.may_be_unknown(info):
            return self.key_in(info, event.value["after"] or event.value["before"])
        if key is None:
            self.wrong("null key", f"{info.name}, whose key is {wanted}")
            return None
        names = [name for name, _ in key]
        if names != wanted:
            kind = "order of the key's columns" if sorted(names) == sorted(wanted) else "columns of the key"
            self.wrong(kind, f"{info.name}: {names}, the key is {wanted}")
        values = dict(key)
        texts = tuple(as_text(values.get(name)) for name in wanted)
        if None in texts:
            self.wrong("null in a key", f"{info.name}: {short(event.record.key)}")
        if UNAVAILABLE in texts:
            self.wrong("placeholder in a key", f"{info.name}: {short(event.record.key)}")
        self.check_kinds(info, values)
        known = state.bytes_of.setdefault(texts, event.record.key)
        if known != event.record.key:
            self.wrong("one row has two keys", f"{info.name}: {short(known)} and {short(event.record.key)}")
        return texts

    def key_in(self, info, row):
        return tuple(as_text(row.get(name)) for name in self.wanted_keys(info))

    def may_be_unknown(self, info):
        """Of a table that was dropped, if the stream does not flag its key and the log has said so."""
        is_gone = all(info.oid != other.oid for other in self.moments[max(self.moments)].infos)
        return is_gone and info.identity != "i" and (info.identity != "d" or not info.key_immediate) and \
            (info.schema, info.name) in self.promise["keys_unknown"]

    def check_key_values(self, info, key, row):
        if key is None or self.promise["replaced_bytes"]:
            return
        there = tuple(row.get(name) for name in self.wanted_keys(info))
        if key != there and self.wanted_keys(info):
            self.wrong("key is not the row's", f"{info.name}: {short(key)}, row has {short(there)}")

    def check_columns(self, info, row):
        if list(row) != info.names:
            self.wrong("columns of a row", f"{info.name}: {list(row)}, the table has {info.names}")
        self.check_kinds(info, row)

    def check_kinds(self, info, row):
        """Numbers as numbers, truth as true and false, all else as strings."""
        types = dict(info.columns)
        for name, value in row.items():
            if value is None or value == UNAVAILABLE or name not in types:
                continue
            oid = types[name]
            if isinstance(value, list) and self.promise["replaced_bytes"] and [part for part, _ in value] == ["hex"]:
                continue  # a key's bytes that are not UTF-8
            special = oid in FLOATS and value in ("NaN", "Infinity", "-Infinity")
            wanted = bool if oid == BOOL else Number if oid in NUMBERS | FLOATS and not special else str
            if type(value) is not wanted:
                self.wrong("kind of a value", f"{info.name}.{name}: {short(value)}")

    # ---- pictures ----

    def apply_moment(self, moment):
        """The catalog's news, and the rows."""
        for name in moment.gone:
            if moment.changed:
                self.leave(name)
        for info in map(self.as_streamed, moment.infos):
            if (info.schema, info.name) == MARKER:
                continue
            state = self.states.get(info.oid)
            if not moment.changed:
                if state is not None and info.rows is not None:
                    self.compare(state, info)
                continue
            if state is not None:
                self.by_name.pop((state.info.schema, state.info.name), None)
                if (state.info.schema, state.info.name) != (info.schema, info.name):
                    self.former[state.info.schema, state.info.name] = state
                if state.info.published != info.published:
                    self.moved.add((info.schema, info.name))
            elif moment.number:
                self.moved.add((info.schema, info.name))
            if self.by_name.get((info.schema, info.name), info.oid) != info.oid:
                self.former[info.schema, info.name] = self.states.get(self.by_name[info.schema, info.name])
            self.states[info.oid] = self.new_state(info)
            self.states[info.oid].before = state
            self.by_name[info.schema, info.name] = info.oid
            if info.published:
                self.known.add((info.schema, info.name))

    def leave(self, name):
        """The table is gone."""
        state = self.states.pop(self.by_name.pop(name, None), None)
        self.former[name] = state or self.former.get(name)

    def as_streamed(self, info):
        """What is not in the option `tables`, nor a partition of what is, is as good as not published."""
        return info if self.listed(info) else dataclasses.replace(info, published=False, rows=None)

    def listed(self, info):
        name = info.schema, info.name
        return name in self.promise["tables"] or self.promise["parents"].get(name) in self.promise["tables"]

    def new_state(self, info):
        state = State(dataclasses.replace(info, rows=None))
        wanted = self.wanted_keys(info)
        for values in info.rows or ():
            row = dict(zip(info.names, values))
            if wanted:
                state.rows[tuple(row[name] for name in wanted)] = row
            else:
                state.loose.append(row)
        return state

    def compare(self, state, info):
        self.pictures += 1
        ours = Counter(tuple(folded(row.get(name)) for name in info.names) for row in state.all_rows())
        theirs = Counter(tuple(folded(value) for value in row) for row in info.rows)
        for row, count in list((theirs - ours).items())[:3]:
            self.wrong("rows differ", f"{info.schema}.{info.name}: the table has {count} of {short(row)}")
        for row, count in list((ours - theirs).items())[:3]:
            self.wrong("rows differ", f"{info.schema}.{info.name}: the replay has {count} of {short(row)}")

    def final_rows(self, info):
        """Rows in the order of the table's columns, as replayed."""
        state = self.states.get(info.oid)
        return [tuple(row.get(name) for name in info.names) for row in state.all_rows()] if state else []

    # ---- messages ----

    def wanted_message(self, message):
        """What the options messages.prefixes and sink.kafka.message_max let through."""
        prefixes = self.promise["prefixes"]
        prefix = len(message.prefix.encode())
        return (prefixes == ["*"] or message.prefix in prefixes) and prefix + len(message.content) <= (1000000 - 8192) // 4 * 3 and prefix <= 255

    def check_messages(self):
        def identity(prefix, content, transactional):
            return prefix, content, transactional
        wanted, possible = Counter(), Counter()
        for message in filter(self.wanted_message, self.messages):
            counter = wanted if message.certain else possible
            counter[identity(message.prefix, message.content, message.transactional)] += 1
        found = Counter()
        for event in self.events:
            if not self.is_message(event) or event.value["message"]["prefix"] == "millrace-verify":
                continue
            message = event.value["message"]
            outside = event.record.headers["mr-xid"] == b"0"
            found[identity(message["prefix"], base64.b64decode(message["content"]), not outside)] += 1
            if dict(event.key or ()).get("prefix") != message["prefix"]:
                self.wrong("key of a message", short(event.record.key))
        for identity, count in (wanted - found).items():
            self.wrong("lost", f"message {count} times: {short(identity)}")
        for identity, count in (found - wanted - possible).items():
            self.wrong("message that nobody sent or wants", f"{count} times: {short(identity)}")

    # ---- the witness ----

    WITNESSED = re.compile(r'table ((?:"(?:[^"]|"")*"|[^".: ]+)\.(?:"(?:[^"]|"")*"|[^".: ]+)): (INSERT|UPDATE|DELETE|TRUNCATE)')
    LETTER = {"INSERT": "c", "UPDATE": "u", "DELETE": "d"}

    def check_witness(self):
        """`witness`: (xid, text) of test_decoding. Tables that joined, left or were renamed are left to the pictures, and so are
        TRUNCATE (several in one line) and row filters (which turn updates into inserts and deletes)."""
        names = {(info.schema, info.name) for info in map(self.as_streamed, self.moments[0].infos) if info.published and not info.filter} - self.moved
        names -= {name for moment in self.moments.values() for name in moment.gone} | {
            (i.schema, i.name) for m in self.moments.values() if m.changed and m.number for i in m.infos}
        roots = self.promise["roots"]
        theirs, ours = defaultdict(list), defaultdict(list)
        for xid, text in self.witness:
            found = self.WITNESSED.match(text)
            if found and found[2] in self.LETTER:
                name = tuple(part[1:-1].replace('""', '"') if part.startswith('"') else part
                             for part in re.findall(r'"(?:[^"]|"")*"|[^".]+', found[1]))
                name = roots.get(name, name)
                if name in names:
                    theirs[xid].append((name, self.LETTER[found[2]]))
        last = None
        for event in self.events:
            if event.value is None or self.is_message(event) or event.value["op"] in "tr":
                continue
            name = self.table_of(event)
            xid = int(event.record.headers["mr-xid"])
            if name not in names:
                continue
            if last == (event.position[:2], name):  # the insert of a changed key
                ours[xid][-1] = name, "u"
            else:
                ours[xid].append((name, event.value["op"]))
            last = event.position[:2], name
        for xid in theirs.keys() | ours.keys():
            if theirs.get(xid) != ours.get(xid):
                one, two = theirs.get(xid, []), ours.get(xid, [])
                at = next((i for i, (a, b) in enumerate(zip(one, two)) if a != b), min(len(one), len(two)))
                self.wrong("not what test_decoding saw", f"transaction {xid}: {len(one)} changes there, {len(two)} here; first difference "
                           f"{at}: {one[at:at + 2]} there, {two[at:at + 2]} here")


def short(value):
    text = repr(value)
    return text if len(text) < 300 else f"{text[:140]} … {text[-140:]}"
