"""The judge is shown to be able to fail: a clean run's records, altered in one place each time, must be found wrong, and in the
way that the alteration is wrong; unaltered they must be clean."""

import copy
import json
import random

from judge import MARKER, UNAVAILABLE, Judge
from plan import Generator
from run import Run
from topics import Record

# Of what a build may have open faults in.
SAFE = ("messages", "origin", "encoding", "settings", "ddl", "toast-key", "composite-order", "index-with-key", "swap", "no-key", "nothing", "filter",
        "partitions")


class Alterations:
    """Each takes a list of records and answers the kinds of which one must be found; None if there is no place for it."""

    def __init__(self, seed):
        self.chance = random.Random(seed)

    @staticmethod
    def value(record):
        return None if record.value is None else json.loads(record.value)

    def place(self, records, wanted):
        """Index of a record, not a marker, whose value suits."""
        found = []
        for at, record in enumerate(records):
            value = self.value(record)
            if value is not None and (value["source"]["schema"], value["source"]["table"]) != MARKER and wanted(record, value):
                found.append(at)
        return self.chance.choice(found) if found else None

    def written(self, records, at, value):
        records[at] = copy.copy(records[at])
        records[at].value = json.dumps(value).encode()

    def dropped_row(self, records):
        at = self.place(records, lambda record, value: value["op"] in "cu")
        del records[at]
        return {"gap in a transaction", "not what test_decoding saw"}

    def dropped_transaction(self, records):
        """With its marker, as a stream that begins behind it would."""
        at = self.place(records, lambda record, value: value["op"] == "c")
        commit = records[at].headers["mr-pos"][:16]
        records[:] = [record for record in records if record.headers["mr-pos"][:16] != commit]
        return {"not what test_decoding saw"}

    def dropped_marker(self, records):
        at = next(at for at, record in enumerate(records) if b'"table":"marker"' in (record.value or b""))
        del records[at]
        return {"lost"}

    def swapped_order(self, records):
        for at in range(len(records) - 1):
            one, two = records[at], records[at + 1]
            if (one.topic, one.partition) == (two.topic, two.partition) and one.key != two.key:
                records[at], records[at + 1] = two, one
                return {"order"}
        return None

    def null_key(self, records):
        at = self.place(records, lambda record, value: record.key is not None and value["op"] in "cu")
        records[at] = copy.copy(records[at])
        records[at].key = None
        return {"null key"}

    def null_in_key(self, records):
        at = self.place(records, lambda record, value: record.key is not None and value["op"] in "cu")
        records[at] = copy.copy(records[at])
        records[at].key = json.dumps({name: None for name in json.loads(records[at].key)}).encode()
        return {"null in a key"}

    def placeholder_in_key(self, records):
        at = self.place(records, lambda record, value: record.key is not None and value["op"] in "cu")
        records[at] = copy.copy(records[at])
        records[at].key = json.dumps({name: UNAVAILABLE for name in json.loads(records[at].key)}).encode()
        return {"placeholder in a key"}

    def other_key_bytes(self, records):
        at = self.place(records, lambda record, value: record.key is not None and value["op"] == "u")
        if at is None:
            return None
        records[at] = copy.copy(records[at])
        records[at].key = b" " + records[at].key
        return {"one row has two keys", "partition of a key"}

    def missing_tombstone(self, records):
        found = [at for at, record in enumerate(records) if record.value is None]
        if not found:
            return None
        del records[self.chance.choice(found)]
        return {"tombstone missing", "form of a change"}

    def wrong_before(self, records):
        at = self.place(records, lambda record, value: value["before"] and value["op"] in "ud" and any(
            isinstance(v, str) for v in value["before"].values()))
        if at is None:
            return None
        value = self.value(records[at])
        name = next(name for name, v in value["before"].items() if isinstance(v, str))
        value["before"][name] += "?"
        self.written(records, at, value)
        return {"before image"}

    def wrong_value(self, records):
        """Of a row that stays so: what a later event or another form of the table replaces before a picture is nobody's to see."""
        last = {(record.topic, record.key): record for record in records}
        at = self.place(records, lambda record, value: value["op"] in "cu" and value["after"].get("n") is not None
                        and last[record.topic, record.key] is record)
        value = self.value(records[at])
        value["after"]["n"] += 100
        self.written(records, at, value)
        return {"rows differ", "before image"}

    def number_as_string(self, records):
        at = self.place(records, lambda record, value: value["op"] in "cu" and value["after"].get("n") is not None)
        value = self.value(records[at])
        value["after"]["n"] = str(value["after"]["n"])
        self.written(records, at, value)
        return {"kind of a value"}

    def phantom(self, records):
        """A row that nobody wrote, at a position of its own."""
        at = self.place(records, lambda record, value: value["op"] == "c")
        old = records[at]
        commit, ordinal, part = old.headers["mr-pos"].split(b"-")
        last = [r for r in records if (r.topic, r.partition) == (old.topic, old.partition)][-1]
        position = b"%s-%010X-%s" % (last.headers["mr-pos"][:16], int(last.headers["mr-pos"].split(b"-")[1], 16) + 1, part)
        records.append(Record(old.topic, old.partition, 10 ** 9, old.key, old.value, {**last.headers, "mr-pos": position}, old.timestamp))
        return {"not what test_decoding saw", "insert of a row that is there", "rows differ", "gap in a transaction"}

    def changed_repeat(self, records):
        at = self.place(records, lambda record, value: value["op"] in "cu")
        again = copy.copy(records[at])
        again.value = again.value.replace(b'"after":{', b'"after":{"more":1,', 1)
        records.insert(at + 1, again)
        return {"order"}

    def repeat(self, records):
        at = self.place(records, lambda record, value: value["op"] in "cu")
        records.insert(at + 1, records[at])
        return {"repeat in exactly-once"}

    def other_partition(self, records):
        at = self.place(records, lambda record, value: record.key is not None)
        records[at] = copy.copy(records[at])
        records[at].partition = (records[at].partition + 1) % 3
        return {"partition of a key", "order"}

    def other_copy(self, records):
        """A copied row that is not as the stream has left it."""
        at = self.place(records, lambda record, value: value["op"] == "r")
        if at is None:
            return None
        value = self.value(records[at])
        value["after"] = {name: None for name in value["after"]}
        self.written(records, at, value)
        return {"copied row is not the stream's"}

    def late_transaction_id(self, records):
        at = self.place(records, lambda record, value: True)
        records[at] = copy.copy(records[at])
        records[at].headers = {**records[at].headers, "mr-xid": b"7"}
        return {"transaction id"}


def self_test(first_seed=1000, wanted_runs=3):
    """The number of failures."""
    failures = runs = tried = 0
    seed = first_seed
    while runs < wanted_runs:
        plan = Generator(seed, 12, SAFE).plan()
        plan.options["partitions"] = 3
        result = Run(plan, "exactly-once").run()
        seed += 1
        if result.problems or result.events < 200:
            print(f"seed {seed - 1}: {result.events} events, {sorted(result.kinds())}: not used")
            assert seed < first_seed + 10 * wanted_runs, "no clean run to alter"
            continue
        runs += 1
        capture, *others = result.judged
        alterations = Alterations(seed)
        for name in [name for name in vars(Alterations) if not name.startswith("_") and name not in ("value", "place", "written")]:
            altered = copy.copy(capture)
            altered.records = list(capture.records)
            expected = getattr(alterations, name)(altered.records)
            if expected is None:
                continue
            tried += 1
            kinds = {kind for kind, _ in Judge(altered, *others).judge()}
            if not kinds & expected:
                failures += 1
                print(f"seed {seed - 1}: {name}: not found; the judge says {sorted(kinds) or 'all is well'}")
    print(f"self-test: {tried} alterations of {runs} clean runs, {failures} not found")
    return 1 if failures else 0
