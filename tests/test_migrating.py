"""docs/migrating-from-debezium.md: millrace goes on where Debezium's connector was stopped, on its slot, its publication and its
topics, while others write. Every update of a row counts it up, so that a gap or a repeat shows in the topic."""

import json
import os
import random
import sys
import threading

import psycopg
import pytest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "debezium"))
import connect  # noqa: E402
from kit import Topic, dsn, eventually  # noqa: E402

ROWS = 4


class Writers:
    """One for each row; transactions of one to a few hundred updates, so that a stop falls into one."""

    def __init__(self, database):
        self.database, self.over = database, threading.Event()
        self.threads = [threading.Thread(target=self._write, args=(row,)) for row in range(ROWS)]

    def _write(self, row):
        chance = random.Random(row)
        with psycopg.connect(dsn(self.database.name)) as connection:
            while not self.over.wait(0.01):
                for _ in range(chance.choice([1, 3, 20, 200])):
                    connection.execute("UPDATE t SET n = n + 1 WHERE id = %s", [row])
                connection.commit()

    def written(self):
        return self.database.run("SELECT sum(n) FROM t")[0][0]

    def until_more(self, count):
        enough = self.written() + count
        eventually(lambda: self.written() >= enough, 120, f"{count} more updates")

    def stop(self):
        self.over.set()
        for thread in self.threads:
            thread.join()


@pytest.fixture
def taken(database, tmp_path, request):
    """A connector that streams, with the options that the test asks for, and those who write."""
    database.run(f"CREATE TABLE t (id int PRIMARY KEY, n int); CREATE PUBLICATION {database.publication} FOR TABLE t")
    worker = connect.Connect(database, tmp_path, database.prefix, {"max.batch.size": 50, "poll.interval.ms": 10, **getattr(request, "param", {})})
    writers = Writers(database)
    worker.start()
    try:
        eventually(worker.streams, 180, "Debezium reads")
        database.run(f"INSERT INTO t SELECT i, 0 FROM generate_series(0, {ROWS - 1}) i")
        for thread in writers.threads:
            thread.start()
        yield worker, writers
    finally:
        writers.stop()
        worker.stop()


def until_free(worker):
    """The task gives the slot back after it has stored its last offset (AbstractWorkerSourceTask: execute, then close)."""
    eventually(lambda: not worker.database.run("SELECT 1 FROM pg_replication_slots WHERE slot_name = %s AND active",
                                               [worker.slot]), 60, "the slot is free")


def until_stored(worker):
    eventually(worker.kept_offset, 60, "an offset", (IndexError, FileNotFoundError))


def stopped(worker):
    """The offset as Connect tells it, once the connector is stopped."""
    path = f"/connectors/{worker.slot}"
    until_stored(worker)
    assert worker.ask("PUT", path + "/stop")[0] == 204
    eventually(lambda: '"STOPPED"' in worker.ask("GET", path + "/status")[1], 60, "the connector is stopped")
    until_free(worker)
    return worker.ask("GET", path + "/offsets")[1]


def killed(worker):
    until_stored(worker)
    worker.stop()
    return worker.kept_offset()


def events(database):
    """All events, in the order of the topic: row, count, LSN."""
    found = []
    topic = Topic(database.topic("t"))
    ends = {p.partition: topic.consumer.get_watermark_offsets(p, timeout=30)[1] for p in topic.consumer.assignment()}
    for record in topic.take(sum(ends.values())):
        value = json.loads(record.value)
        found.append((value["after"]["id"], value["after"]["n"], value["source"]["lsn"]))
    topic.close()
    return found


def position(offset):
    offsets = json.loads(offset)
    return offsets["offsets"][0]["offset"]["lsn"] if "offsets" in offsets else offsets["lsn"]


def take_over(database, worker, writers, millrace, offset, slot):
    """millrace on that slot, until it has delivered all. Answers what Connect had sent behind its offset."""
    worker.stop()
    until_free(worker)
    sent = events(database)
    behind = sent[[lsn for _, _, lsn in sent].index(position(offset)) + 1:]
    path = os.path.join(worker.folder, "offset.json")
    with open(path, "w", encoding="utf-8") as file:
        file.write(offset)
    process = millrace(tables=("t",), types='"debezium"', source__postgres__slot_name=json.dumps(slot))
    process.start("--after-offset", path).streaming()
    writers.until_more(500)
    writers.stop()
    end = database.run("SELECT pg_current_wal_flush_lsn()")[0][0]
    eventually(lambda: database.run("SELECT confirmed_flush_lsn >= %s::pg_lsn FROM pg_replication_slots WHERE slot_name = %s",
                                    [end, slot])[0][0], 120, "all is confirmed")
    process.stop()
    assert process.log("offset_taken") and not process.log("offset_ignored")
    return behind


@pytest.mark.parametrize("ended, own, taken", [(stopped, False, {}), (killed, False, {}), (stopped, True, {"slot.drop.on.stop": True})],
                         ids=["stopped", "killed", "own-slot"], indirect=["taken"])
def test_millrace_goes_on_where_debezium_stopped(database, millrace, taken, ended, own):
    """No gap. What comes again is what Connect had sent behind the offset that it stored last, and nothing else. On the connector's slot, or on
    one that was made while the connector streamed, as where its plugin is another one, or it drops its slot when it stops."""
    worker, writers = taken
    if own:
        database.run("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", [database.slot])
    writers.until_more(random.randrange(300, 3000))
    if own:  # the connector confirms what its stored offset is past
        eventually(lambda: database.run("SELECT theirs.confirmed_flush_lsn > ours.confirmed_flush_lsn FROM pg_replication_slots theirs, pg_replication_slots ours "
                                        "WHERE theirs.slot_name = %s AND ours.slot_name = %s", [worker.slot, database.slot])[0][0], 90, "an offset past the slot")
    offset = ended(worker)
    assert own == (database.run("SELECT 1 FROM pg_replication_slots WHERE slot_name = %s", [worker.slot]) == [])
    behind = take_over(database, worker, writers, millrace, offset, database.slot if own else worker.slot)
    found = events(database)
    repeats = []
    next_count = [0] * ROWS
    for event in found:
        row, count, _ = event
        if count < next_count[row]:
            repeats.append(event)
        else:
            assert count == next_count[row], event
            next_count[row] += 1
    assert dict(database.run("SELECT id, n + 1 FROM t")) == dict(enumerate(next_count))
    assert repeats == behind
