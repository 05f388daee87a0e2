"""The ledger (docs/verify.md), read by a reader that knows the topics alone: it proves what was delivered under kills, takeovers, copies and
changes of tables and partitions, and names each fault that is placed, in the topics, in the ledger or in both."""

import json
import os
import subprocess
import sys
import time

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import NewPartitions

import ledger_reader
from kit import BOOTSTRAP, CLIENT, eventually, expect
from test_reload import Writer, reload, with_tables
from test_resolved import DELIVERIES, QUICK, TABLE, TABLES, Writers, number

AUDIT = "audit"
SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "ledger_reader.py")


class Log:
    """What topics hold: of the ledger, and by partition. Faults are placed in copies of it."""

    def __init__(self, database, *tables, exactly_once=False):
        self.exactly_once = exactly_once
        self.consumer = Consumer({**ledger_reader.CONSUMER, **CLIENT})
        self.ledger_topic = f"{database.prefix}.{AUDIT}"
        self.topics = [database.topic(table) for table in tables]
        self.read()

    def read(self):
        self.ledger, self.partitions, self.lows = [], {}, {}
        ledger_reader.read(self.consumer, self.ledger_topic, self.ledger.append)
        for topic in self.topics:
            ledger_reader.read(self.consumer, topic, lambda one: self.partitions.setdefault((one.topic, one.partition), []).append(one), self.lows)
        return self

    def copy(self):
        copy = object.__new__(Log)
        copy.__dict__.update(self.__dict__, ledger=list(self.ledger), partitions={place: list(held) for place, held in self.partitions.items()},
                             lows=dict(self.lows))
        return copy

    def prove(self, **places):
        proof = ledger_reader.Proof(self.exactly_once)
        proof.lows = self.lows
        for message in self.ledger:
            proof.take_range(message)
        for held in self.partitions.values():
            for message in held:
                proof.take(message)
        proof.prove(**places)
        return proof

    def ranges(self):
        return [ledger_reader.Range(message.value) for message in self.ledger if b'"pipeline"' in (message.value or b"")]

    def end(self):
        return max((one.end for one in self.ranges()), default="")

    def highest(self):
        return max((position(message) for held in self.partitions.values() for message in held), default="")


def position(message):
    return dict(message.headers)["mr-pos"].decode()


def sealed(log, limit_s=30):
    """The log, once all that it holds is in ranges."""
    eventually(lambda: log.read().end() + "-9" >= log.highest() != "", limit_s, "ranges of all records")
    return log


def delivered(database):
    """All that is written by now."""
    end = number(database.run("SELECT pg_current_wal_lsn()::text")[0][0])
    eventually(lambda: number(database.slot_row("confirmed_flush_lsn::text") or "0/0") >= end, what="the end of what was written")


def assert_proved(log, changes):
    proof = log.prove()
    assert proof.findings == []
    assert proof.proved >= changes
    return proof


@DELIVERIES
def test_all_that_was_delivered_is_proved(database, pair, delivery):
    """Under load: kills, takeovers by a second instance, added partitions, a new table, a copy before the stream and one beside it."""
    database.run(TABLES + "; INSERT INTO b SELECT n, nextval('ns') FROM generate_series(1, 50) n; INSERT INTO q VALUES (1, 0);"
                 f"CREATE PUBLICATION {database.publication} FOR ALL TABLES")
    database.make_topic("a", partitions=3)
    database.make_topic("b")
    instances = pair(ledger__topic=json.dumps(f"{database.prefix}.{AUDIT}"), snapshot__mode='"initial"',
                     sink__kafka__delivery=f'"{delivery}"', sink__kafka__properties=QUICK)
    instances[0].start().streaming()
    writers = Writers(database)
    for kill in range(5):
        active, standby = instances[kill % 2], instances[(kill + 1) % 2]
        writers.more(300)
        if kill == 1:
            database.run(TABLE.format("c"))
            writers.tables.append("c")
        if kill == 2:
            new = database.admin.create_partitions([NewPartitions(database.topic("b"), 4)])
            eventually(lambda new=new: new[database.topic("b")].result(10) is None, 30, "more partitions")
            assert active.get("/api/snapshot", method="POST", body='{"type":"start","tables":["public.b"]}').status == 200
            writers.more(300)
        if kill == 3:
            time.sleep(1.5)  # a range of a second
        standby.start()
        active.kill()
        standby.streaming()
    active = instances[1]
    writers.more(300)
    writers.finish()
    delivered(database)
    exactly_once = delivery == "exactly-once"
    log = sealed(Log(database, "a", "b", "c", "q", exactly_once=exactly_once))
    proof = assert_proved(log, writers.written)
    held = sum(map(len, log.partitions.values()))
    assert proof.proved == held if exactly_once else proof.proved <= held
    assert len(log.ranges()) > 5 and len({place for one in log.ranges() for place in one.parts}) == 3 + 4 + 1 + 1
    assert active.stop() == 0
    for fault in FAULTS:
        names(fault, log)
    only_between_two_places(log)
    log.consumer.close()


# -- faults that are placed

def longest(log):
    """The partition with most records of transactions, by their places in it: those of the middle."""
    place = max(log.partitions, key=lambda place: len(log.partitions[place]))
    held = log.partitions[place]
    rows = [i for i, message in enumerate(held) if int(position(message)[17:27], 16) < ledger_reader.COPIED]
    counts = {}
    for i in rows:
        counts[position(held[i])] = counts.get(position(held[i]), 0) + 1
    once = [i for i in rows if counts[position(held[i])] == 1]
    return place, held, once[len(once) // 2:]


def left_out(log):
    _, held, rows = longest(log)
    del held[rows[0]]
    return "missing"


def many_left_out(log):
    _, held, rows = longest(log)
    del held[rows[0]:rows[0] + 20]
    return "missing"


def at_the_end(log):
    _, held, rows = longest(log)
    del held[rows[-3]:]
    return "missing"


def cut_head(log):
    place, held, _ = longest(log)
    del held[:10]
    log.lows[place] = held[0].offset
    return "cut"


def one_bit_of_a_value(log):
    _, held, rows = longest(log)
    message = held[rows[0]]
    value = bytearray(message.value)
    value[len(value) // 2] ^= 1
    held[rows[0]] = message._replace(value=bytes(value))
    return "changed"


def one_bit_of_a_key(log):
    _, held, rows = longest(log)
    held[rows[0]] = held[rows[0]]._replace(key=held[rows[0]].key[:-2] + bytes([held[rows[0]].key[-2] ^ 1]) + held[rows[0]].key[-1:])
    return "changed"


def no_key(log):
    _, held, rows = longest(log)
    held[rows[0]] = held[rows[0]]._replace(key=None)
    return "changed"


def another_time(log):
    _, held, rows = longest(log)
    message = held[rows[0]]
    held[rows[0]] = message._replace(headers=message.headers[:-1] + [("mr-ts", b"1")])
    return "changed"


def an_old_value(log):
    _, held, rows = longest(log)
    held[rows[1]] = held[rows[1]]._replace(value=held[rows[0]].value)
    return "changed"


def an_old_record_again(log):
    _, held, rows = longest(log)
    held.insert(rows[5], held[rows[0]]._replace(offset=held[rows[5]].offset - 0.5))
    return "order"


def a_hole_among_repeats(log):
    """Of what is sent again, one record is not."""
    _, held, rows = longest(log)
    again = [one for i, one in enumerate(held[rows[0]:]) if i != rows[2] - rows[0]]
    held += [one._replace(offset=held[-1].offset + 1 + i) for i, one in enumerate(again)]
    return "order"


def an_old_record_again_at_the_end(log):
    _, held, rows = longest(log)
    held.append(held[rows[0]]._replace(offset=held[-1].offset + 1))
    return "order"


def an_old_record_with_another_value_again(log):
    _, held, rows = longest(log)
    held.append(held[rows[0]]._replace(offset=held[-1].offset + 1, value=held[rows[1]].value))
    return "changed"


def a_phantom(log):
    _, held, rows = longest(log)
    message = held[rows[0]]
    place = position(message)
    headers = [*message.headers[:-3], ("mr-pos", (place[:22] + "FFFFF" + place[27:]).encode()), *message.headers[-2:]]
    held.insert(rows[0] + 1, message._replace(offset=message.offset + 0.5, headers=headers))
    return "extra"


def two_swapped(log):
    _, held, rows = longest(log)
    one, two = held[rows[0]], held[rows[1]]
    held[rows[0]], held[rows[1]] = two._replace(offset=one.offset), one._replace(offset=two.offset)
    return "order"


def a_stranger(log):
    _, held, rows = longest(log)
    held[rows[0]] = held[rows[0]]._replace(headers=[])
    return "extra"


def middle(log):
    """Where the record of a range in the middle is, which is there once."""
    once = [i for i, message in enumerate(log.ledger) if [one.value for one in log.ledger].count(message.value) == 1]
    return once[len(once) // 2]


def change_range(log, at, **fields):
    changed = json.dumps({**json.loads(log.ledger[at].value), **fields}, separators=(",", ":")).encode()
    log.ledger = [one._replace(value=changed) if one.value == log.ledger[at].value else one for one in log.ledger]


def range_left_out(log):
    del log.ledger[middle(log)]
    return "ledger"


def range_with_another_sum(log):
    at = middle(log)
    (*place, count, total), *others = json.loads(log.ledger[at].value)["parts"]
    change_range(log, at, parts=[[*place, count, f"{int(total, 16) ^ 1:032x}"], *others])
    return "changed"


def range_that_is_none(log):
    at = middle(log)
    log.ledger[at] = log.ledger[at]._replace(value=log.ledger[at].value[:-9])
    return "ledger"


def ranges_swapped(log):
    """Each with the other's parts."""
    at = middle(log)
    one, two = (json.loads(log.ledger[i].value)["parts"] for i in (at, at + 1))
    change_range(log, at, parts=two)
    change_range(log, at + 1, parts=one)
    return "ledger"


def an_old_range_again(log):
    at = middle(log)
    old = json.loads(log.ledger[at].value)
    log.ledger.append(log.ledger[at]._replace(value=json.dumps({**old, "n": old["n"] + 1}).encode()))
    return "ledger"


def of(log, message):
    """Where the range that counts the message is."""
    return next(i for i, one in enumerate(log.ranges()) if one.begin + "-9" < position(message) <= one.end + "-9")


def left_out_of_both(log):
    _, held, rows = longest(log)
    value = log.ledger[of(log, held.pop(rows[0]))].value
    log.ledger = [one for one in log.ledger if one.value != value]
    return "ledger"


def forged_in_both(log):
    """A value, and the sum with it: the next range follows another."""
    place, held, rows = longest(log)
    message, forged = held[rows[0]], held[rows[0]]._replace(value=held[rows[1]].value)
    held[rows[0]] = forged
    at = of(log, message)
    parts = json.loads(log.ledger[at].value)["parts"]
    for part in parts:
        if tuple(part[:2]) == place:
            part[3] = f"{(int(part[3], 16) - ledger_reader.digest(message) + ledger_reader.digest(forged)) % ledger_reader.MODULUS:032x}"
    change_range(log, at, parts=parts)
    return "ledger"


FAULTS = [left_out, many_left_out, at_the_end, cut_head, one_bit_of_a_value, one_bit_of_a_key, no_key, another_time, an_old_value,
          an_old_record_again, a_hole_among_repeats, an_old_record_again_at_the_end, an_old_record_with_another_value_again, a_phantom, two_swapped, a_stranger, range_left_out, range_with_another_sum,
          range_that_is_none, ranges_swapped, an_old_range_again, left_out_of_both, forged_in_both]


def names(fault, log):
    faulty = log.copy()
    kind = fault(faulty)
    kinds = {finding.kind for finding in faulty.prove().findings}
    wanted = {kind, "twice", "order"} if kind in ("order", "changed") and log.exactly_once else {kind}
    assert kinds & wanted, f"{fault.__name__}: {kind} wanted, {kinds} found"


def only_between_two_places(log):
    """What is wrong with ranges that are not asked for is not said, and of those that are, it is."""
    faulty, at = log.copy(), middle(log)
    one = ledger_reader.Range(log.ledger[at].value)
    del faulty.ledger[at]
    assert not faulty.prove(end=one.begin).findings and not faulty.prove(begin=max(other.end for other in log.ranges() if other.n == one.n + 1)).findings
    assert [finding.kind for finding in faulty.prove(begin=one.end).findings] == ["ledger"]
    an_old_record_again_at_the_end(faulty)
    assert not faulty.prove(end=min(other.end for other in log.ranges())).findings


# -- one thing at a time

def test_a_quiet_stream_is_sealed_and_then_says_nothing(database, millrace):
    """The last record is in a range though nothing comes after it."""
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    process = millrace(ledger__topic=json.dumps(f"{database.prefix}.{AUDIT}")).start().streaming()
    database.run("INSERT INTO t SELECT generate_series(1, 10)")
    eventually(lambda: database.topic("t") in database.topics() and f"{database.prefix}.{AUDIT}" in database.topics(), what="topics")
    log = sealed(Log(database, "t"), 10)
    assert_proved(log, 10)
    count = len(log.ledger)
    time.sleep(3)
    assert len(log.read().ledger) == count == 1
    log.consumer.close()


def test_nothing_without_the_option_and_only_for_kafka(database, millrace):
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    process = millrace().start().streaming()
    database.run("INSERT INTO t VALUES (1)")
    eventually(lambda: database.topic("t") in database.topics(), what="the topic")
    assert process.stop() == 0
    process.configure(ledger__topic='"audit"', sink__kafka__brokers=None, sink__type='"discard"')
    expect(process.run_to_end(), 78, "ledger.topic")


@DELIVERIES
def test_a_ledger_begins_where_the_stored_position_is(database, millrace, delivery):
    """With a state topic from before; and again, after it was off: what no range tells of, the reader says."""
    ledger = {"ledger__topic": json.dumps(f"{database.prefix}.{AUDIT}")}
    options = {"sink__kafka__delivery": f'"{delivery}"'}
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    process = millrace(**options).start().streaming()
    database.run("INSERT INTO t VALUES (1), (2)")
    eventually(lambda: database.topic("t") in database.topics(), what="the topic")
    assert process.stop() == 0
    for rows in ("(3), (4), (5)", "(6)"):
        process.configure(**options, **ledger).start().streaming()
        database.run(f"INSERT INTO t VALUES {rows}")
        eventually(lambda: f"{database.prefix}.{AUDIT}" in database.topics(), what="the ledger")
        log = sealed(Log(database, "t", exactly_once=delivery == "exactly-once"))
        proof = assert_proved(log, len(rows.split(", ")))
        assert "2 records are before the ranges" in "".join(proof.notes)
        log.consumer.close()
        assert process.stop() == 0
        process.configure(**options).start().streaming()
        database.run(f"INSERT INTO t VALUES (1{rows[1]})")
        delivered(database)
        assert process.stop() == 0
    assert "no range says anything of" in "".join(proof.notes)


def test_a_reload_in_the_middle(database, millrace):
    """The stream is opened again, with another table, while what was sent before is on its way."""
    options = {"ledger__topic": json.dumps(f"{database.prefix}.{AUDIT}"), "pipeline__batch_size": "4096"}
    database.run("CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE u (id int PRIMARY KEY);"
                 f"CREATE PUBLICATION {database.publication} FOR ALL TABLES")
    process = millrace(tables=("t",), **options).start().streaming()
    writer = Writer(database, ["t", "u"])
    writer.advance()
    with_tables(process, "t", "u", **options)
    assert reload(process)[0] == 0
    writer.advance()
    with_tables(process, "t", **options)
    assert reload(process)[0] == 0
    writer.advance()
    last = writer.finish()
    log = Log(database, "t", "u")
    eventually(lambda: len(log.read().partitions[database.topic("t"), 0]) == last, what="all rows")
    proof = assert_proved(sealed(log), last)
    assert proof.proved == sum(map(len, log.partitions.values())) > last
    log.consumer.close()


@DELIVERIES
def test_a_first_copy_that_is_killed(database, millrace, delivery):
    """Rows that were copied are counted when the stream has begun. Those that a killed process had sent and not stored are in no range."""
    rows = 60000
    database.run("CREATE TABLE t (id int PRIMARY KEY, pad text); ALTER TABLE t ALTER pad SET STORAGE plain;"
                 f"INSERT INTO t SELECT n, repeat('x', 200) FROM generate_series(1, {rows}) n")
    process = millrace(ledger__topic=json.dumps(f"{database.prefix}.{AUDIT}"), snapshot__mode='"initial"', snapshot__max__threads="2",
                       sink__kafka__delivery=f'"{delivery}"').start()
    eventually(lambda: process.figure("millrace_snapshot_rows") > rows // 4, what="a part of the copy")
    process.kill().start().streaming()
    database.run("INSERT INTO t VALUES (0, '')")
    eventually(lambda: f"{database.prefix}.{AUDIT}" in database.topics(), what="the ledger")
    log = sealed(Log(database, "t", exactly_once=delivery == "exactly-once"), 60)
    proof = assert_proved(log, rows * 3 // 4)
    held = len(log.partitions[database.topic("t"), 0])
    assert proof.proved == held if delivery == "exactly-once" else proof.proved > rows // 2
    log.consumer.close()


def test_a_person_proves_topics_and_finds_what_was_cut(database, millrace):
    """The script itself, on topics of which a broker has cut a head, and which somebody else has written to."""
    database.run("CREATE TABLE t (id int PRIMARY KEY, v text)")
    audit = f"{database.prefix}.{AUDIT}"
    process = millrace(ledger__topic=json.dumps(audit)).start().streaming()
    database.run("INSERT INTO t SELECT n, 'x' FROM generate_series(1, 50) n")
    eventually(lambda: database.topic("t") in database.topics() and audit in database.topics(), what="topics")
    log = sealed(Log(database, "t"))

    def run(*arguments):
        done = subprocess.run([sys.executable, SCRIPT, BOOTSTRAP, audit, *arguments], capture_output=True, text=True, timeout=120)
        return done.returncode, done.stdout
    assert run("--exactly-once") == (0, "1 ranges, 50 records proved, 0 findings\n")
    database.admin.delete_records([TopicPartition(database.topic("t"), 0, 10)])[TopicPartition(database.topic("t"), 0, 10)].result(30)
    expect(run(), 1, f"CUT: {database.topic('t')}, partition 0", "begins at offset 10")
    database.produce(database.topic("t"), b'{"id":1}', b"{}")
    expect(run(), 1, "EXTRA")
    assert "1 ranges, 0 records proved" in run("--to", log.ranges()[0].begin)[1]
    log.consumer.close()
