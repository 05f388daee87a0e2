"""May a stream begin at a new slot? The lines of the table in docs/reliability.md ("May a new slot begin here?"): exit code 10,
a copy, or a word of the user; and the remedies that are printed, followed to the letter."""

import json
import re
import signal
import subprocess

import psycopg
import pytest

from kit import BINARY, check, dsn, eventually, expect
from test_snapshot import Stored, read_until, slots
from test_state import EXACTLY_ONCE

SINKS = {"at-least-once": {}, "exactly-once": EXACTLY_ONCE, "no-state": {"sink__kafka__state_topic": '""'},
         "file": {"sink__kafka__brokers": None, "sink__file__path": '"/dev/null"'}}
STORING = ["at-least-once", "exactly-once"]


class Scene:
    """One pipeline of the table t, and how it is started. z is there to hold a copy up."""

    def __init__(self, database, millrace, topic, sink):
        self.database, self.topic, self.sink = database, topic, SINKS[sink]
        self.stores = sink in STORING
        database.run("CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE z (id int PRIMARY KEY);"
                     "INSERT INTO t SELECT i FROM generate_series(1, 3000) i")
        self.process = millrace(tables=("t", "z"))
        self.configure()

    def configure(self, mode=None, **options):
        self.options = {**self.sink, "pipeline__batch_size": '"64KiB"', "snapshot__mode": mode and json.dumps(mode), **options}
        self.process.configure(**self.options)

    def insert(self):
        return self.database.run("INSERT INTO t SELECT coalesce(max(id), 0) + 1 FROM t RETURNING id")[0][0]

    def stream_once(self):
        """A position is stored, where positions are."""
        self.process.start().streaming()
        self.insert()
        self.database.all_confirmed()
        assert self.process.stop() == 0

    def make_slot(self, name=None):
        self.database.run("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", [name or self.database.slot])

    def drop(self, name=None):
        def dropped():
            try:
                self.database.run("SELECT pg_drop_replication_slot(%s)", [name or self.database.slot])
            except psycopg.errors.ObjectInUse:
                return False
            return True
        eventually(dropped, what="the slot's end")

    def drop_copies(self):
        for name in slots(self.database):
            if "_snapshot_" in name:
                self.drop(name)

    def break_a_copy_off(self, mode):
        """Killed within a copy; how far it came is stored, where positions are."""
        if not self.database.run("SELECT 1 FROM pg_publication WHERE pubname = %s", [self.database.publication]):
            self.database.run(f"CREATE PUBLICATION {self.database.publication} FOR TABLE t, z")
        if not any("_snapshot_" in name for name in slots(self.database)):
            self.make_slot(f"{self.database.slot}_snapshot_1")  # no slot is made while somebody has a table locked
        self.configure(mode)
        with psycopg.connect(dsn(self.database.name)) as holder:
            holder.execute("LOCK TABLE z IN ACCESS EXCLUSIVE MODE")
            self.process.start().wait_for("snapshot_begun")
            if self.stores:
                eventually(Stored(self.database, self.topic).copy, what="the state of the copy")
            self.process.kill()
        assert [name for name in slots(self.database) if "_snapshot_" in name]

    def refused(self, *parts):
        """Exit code 10, as `check` says, and no slot is made."""
        before = slots(self.database)
        code, text = self.process.run_to_end()
        text = text.replace('\\"', '"')
        assert code == 10 and all(part in text for part in parts), text
        checked, told = check(self.process)
        assert checked == 10 and all(part in told for part in parts), told
        assert slots(self.database) == before
        return json.loads(next(line for line in self.process.lines if '"level":"error"' in line))["message"]

    def copied(self):
        """All rows come, and the stream behind them."""
        expect(check(self.process), 0)
        self.process.start().streaming()
        assert self.process.log("snapshot_done")
        if "sink__file__path" not in self.sink:
            last = self.insert()
            rows = read_until(self.topic(self.process_topic()), f'{{"id":{last}}}')
            assert {row.json["after"]["id"] for row in rows} >= set(range(1, last + 1))
        assert self.process.stop() == 0
        assert slots(self.database) == [self.database.slot]

    def process_topic(self):
        prefix = self.options.get("topic_prefix")
        return self.database.topic("t") if prefix is None else f"{json.loads(prefix)}.public.t"

    def follow(self, message, alternative=0):
        """What the message lists as "1. …; 2. …", step by step. Whoever is to choose a value chooses one."""
        steps = [re.split(r"; \d\. ", part) for part in re.split(r"\b1\. ", message)[1:]][alternative]
        options = dict(self.options)
        for step in steps:
            if found := re.search(r"set (another )?([a-z_.]+)(?: and another ([a-z_.]+))?(?: = (\"\w+\"))?", step):
                another, name, second, value = found.groups()
                for one in filter(None, (name, second)):
                    options[one.replace(".", "__")] = f'"{self.database.prefix}-again"' if another else value
                mode = options.pop("snapshot__mode")
                self.configure(mode and json.loads(mode), **options)
                options = dict(self.options)
            elif found := re.search(r"run (SELECT .*\))", step):
                self.database.run(found.group(1))
            elif step.startswith("run millrace recover --config FILE"):
                self.process.configure(**options, http__address=json.dumps(f"unix:{self.process.folder}/http"))
                subprocess.run([BINARY, "recover", "--choose", "everything", "--yes", "--config", self.process.path],
                               env=self.process.environment, check=True, timeout=240)
            elif found := re.match(r"run it as the owner of the tables: (CREATE PUBLICATION .*)", step):
                self.database.run(found.group(1))
            elif not step.startswith("if it had a row filter or a list of columns, add them to the statement"):
                assert step.startswith("start millrace"), steps
        assert steps[-1].startswith(("start millrace", "run millrace recover")), steps


@pytest.fixture
def scene(database, millrace, topic):
    return lambda sink: Scene(database, millrace, topic, sink)


@pytest.mark.parametrize("sink", STORING)
def test_an_unfinished_repair_opens_no_gap(scene, sink):
    """Slot dropped, a copy begun in its place and broken off, the first file again: in whatever order."""
    here = scene(sink)
    here.stream_once()
    here.drop()
    here.refused("is gone", "1. set snapshot.mode")
    here.break_a_copy_off("when_needed")
    here.insert()
    here.configure()
    here.refused("is gone")
    here.make_slot()  # by somebody's hand
    here.refused("rows between are missing")
    here.drop()
    here.drop_copies()
    here.refused("is gone")
    here.configure("initial")
    here.refused("is gone")
    here.break_a_copy_off("always")
    here.configure()
    message = here.refused("is gone")
    here.follow(message)
    here.copied()
    here.configure()
    here.stream_once()
    assert slots(here.database) == [here.database.slot]


@pytest.mark.parametrize("sink", STORING)
def test_a_row_too_large_breaks_the_repair_off(scene, sink):
    """What was seen: exit 65 within the copy, and then a new slot without a word."""
    here = scene(sink)
    here.database.run("ALTER TABLE z ADD large text; ALTER TABLE z ALTER large SET STORAGE EXTERNAL;"
                      "INSERT INTO z VALUES (1, repeat('x', 100000))")
    here.stream_once()
    here.drop()
    assert here.process.run_to_end()[0] == 10
    here.configure("when_needed", sink__kafka__message_max='"20KiB"')
    assert here.process.run_to_end()[0] == 65
    here.insert()
    here.configure()
    here.refused("is gone")
    here.configure("when_needed")
    here.copied()


@pytest.mark.parametrize("sink", SINKS)
def test_a_first_copy_that_was_broken_off(scene, sink):
    """No stream was there before; but what was copied may have changed."""
    here = scene(sink)
    here.break_a_copy_off("initial")
    here.configure()
    message = here.refused("is not complete")
    if here.stores:
        here.drop_copies()
        here.refused("is not complete", "its slot is gone")
        here.configure("initial")
        here.copied()
    else:
        here.follow(message)
        here.copied()
    assert slots(here.database) == [here.database.slot]


@pytest.mark.parametrize("sink", ["at-least-once", "file"])
def test_a_first_copy_is_given_up(scene, sink):
    here = scene(sink)
    here.break_a_copy_off("initial")
    here.configure()
    here.follow(here.refused("is not complete"), alternative=1)
    assert check(here.process)[0] == 0
    here.process.start().streaming()
    assert here.process.log("slot_created") and here.process.stop() == 0


def test_state_topic_made_again(scene):
    """Looked for under another name: nothing is stored, as where the topic is gone. A copy that was begun is seen by its slot."""
    here = scene("at-least-once")
    here.stream_once()
    here.break_a_copy_off("always")
    other = {"sink__kafka__state_name": f'"{here.database.prefix}-lost"'}
    here.configure(**other)
    here.refused("is not complete")
    here.configure("initial", **other)
    here.copied()
    assert slots(here.database) == [here.database.slot]


def test_the_slot_goes_while_a_pair_runs_and_reloads(scene, millrace):
    """Whoever takes over, or opens the stream again with other tables, makes none."""
    here = scene("at-least-once")
    here.process.start().streaming()
    # Something is stored, so something was begun.
    place = here.database.run("SELECT pg_logical_emit_message(true, 'other', 'x')")[0][0]
    eventually(lambda: here.database.slot_row(f"confirmed_flush_lsn >= '{place}'"), what="a position that is stored")
    second = millrace(tables=("t", "z")).start()
    second.wait_for("standby")
    here.process.process.send_signal(signal.SIGSTOP)

    def is_gone():
        here.database.run("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = %s",
                          [here.database.slot])
        try:
            here.database.run("SELECT pg_drop_replication_slot(%s)", [here.database.slot])
        except psycopg.errors.ObjectInUse:
            return False
        return True
    eventually(is_gone, what="the end of the slot")
    assert second.ended(60) == 10, "".join(second.lines)
    here.process.process.send_signal(signal.SIGCONT)
    assert here.process.ended(60) == 10
    assert slots(here.database) == []


def offset_file(tmp_path, lsn, commit):
    path = tmp_path / "offset.json"
    path.write_text(json.dumps({"lsn": lsn, "txId": 1, **({"lsn_commit": commit} if commit else {})}))
    return str(path)


def number(database, what="pg_current_wal_lsn()"):
    return int(database.run(f"SELECT {what} - '0/0'::pg_lsn")[0][0])


@pytest.mark.parametrize("commit", [True, False], ids=["commit", "no-commit"])
def test_a_slot_behind_an_offset_is_not_made(scene, tmp_path, commit):
    """--after-offset: another program has delivered what is before, and nobody has what is behind."""
    here = scene("at-least-once")
    here.database.run(f"CREATE PUBLICATION {here.database.publication} FOR TABLE t, z")
    at = number(here.database)
    here.insert()
    path = offset_file(tmp_path, at, at if commit else 0)
    code = here.process.start("--after-offset", path).ended(30)
    assert code == 10 and slots(here.database) == [], here.process.lines
    here.configure("initial")  # what `convert` makes of Debezium's default: a slot's name that is wrong does not send all rows again
    assert here.process.start("--after-offset", path).ended(30) == 10 and slots(here.database) == [], here.process.lines
    here.configure("when_needed")
    here.process.start("--after-offset", path).streaming()
    assert here.process.log("snapshot_done") and here.process.stop() == 0


def test_a_slot_that_was_moved_past_an_offset(scene, tmp_path):
    here = scene("at-least-once")
    here.database.run(f"CREATE PUBLICATION {here.database.publication} FOR TABLE t, z")
    at = number(here.database)
    here.insert()
    here.make_slot()
    path = offset_file(tmp_path, at, at)
    assert here.process.start("--after-offset", path).ended(30) == 10
    assert any("the rows between are missing" in line for line in here.process.lines)
    at = number(here.database)
    path = offset_file(tmp_path, at, at)
    here.process.start("--after-offset", path).streaming()


def test_where_nothing_is_stored_the_slot_counts(scene, tmp_path):
    """A file for --after-offset may stay where it is."""
    here = scene("file")
    here.database.run(f"CREATE PUBLICATION {here.database.publication} FOR TABLE t, z")
    at = number(here.database)
    path = offset_file(tmp_path, at, at)
    assert here.process.start("--after-offset", path).ended(30) == 10 and slots(here.database) == []
    here.make_slot()
    for _ in range(2):
        here.process.start("--after-offset", path).streaming()
        here.insert()
        here.database.all_confirmed()
        assert here.process.stop() == 0


def moved(here):
    here.drop()
    here.insert()
    here.make_slot()


def elsewhere(here):
    """As a connection string by mistake looks like, or a server that was restored."""
    name = f"{here.database.prefix}/{here.database.slot}"
    record = {"version": 1, "system_id": "1", "timeline": 1, "slot": here.database.slot,
              "publication": here.database.publication, "end_lsn": "0/1"}
    here.database.produce("__millrace_state", name, json.dumps(record))


def without_publication(here):
    here.database.run(f"DROP PUBLICATION {here.database.publication}")


@pytest.mark.parametrize("fault", [Scene.drop, moved, elsewhere, without_publication])
def test_what_exit_code_10_prints_works(scene, fault):
    """Followed to the letter, once, it ends in a stream behind a copy of all rows."""
    here = scene("at-least-once")
    here.stream_once()
    if fault is not without_publication:
        here.insert()
    fault(here)
    if fault is without_publication:
        here.insert()  # which can't be read
        here.follow(here.refused("1. if it had a row filter"))
    here.follow(here.refused("1. "))
    here.copied()
    assert slots(here.database) == [here.database.slot]


@pytest.fixture
def little_wal(database):
    """A limit on what slots retain; yields what makes a slot pass it."""
    def use(slot):
        database.run("CREATE TABLE IF NOT EXISTS filler (v text)")
        database.run("INSERT INTO filler SELECT repeat('x', 1000) FROM generate_series(1, 1000)")
        database.run("SELECT pg_switch_wal()")
        database.run("CHECKPOINT")
        return database.run("SELECT 1 FROM pg_replication_slots WHERE slot_name = %s AND wal_status = 'lost'", [slot])
    with database.setting("max_slot_wal_keep_size", "'1MB'"):
        yield use


@pytest.mark.parametrize("mode", ["initial", "when_needed"])
def test_a_slot_that_is_lost_within_a_copy(scene, little_wal, mode):
    """Noticed while the copy runs. It begins again by itself where the mode says so, else at the next start."""
    here = scene("at-least-once")
    name = f"{here.database.slot}_snapshot_2"
    here.break_a_copy_off(mode)
    with psycopg.connect(dsn(here.database.name)) as holder:
        holder.execute("SET lock_timeout = '10s'; LOCK TABLE z IN ACCESS EXCLUSIVE MODE")
        here.process.start().wait_for("snapshot_begun")
        name = next(one for one in slots(here.database) if "_snapshot_" in one)
        eventually(lambda: little_wal(name), 60, "the loss of the slot")
        if mode == "initial":
            assert here.process.ended(60) == 10, "".join(here.process.lines)
        else:
            here.process.wait_for("source_lost")
        assert any("was lost or dropped while existing rows were copied" in line and name in line and
                   "max_slot_wal_keep_size" in line for line in here.process.lines)
    if mode == "initial":
        here.configure()
        here.refused("is not complete")
        here.configure(mode)
        here.copied()
    else:
        here.process.streaming()
        assert slots(here.database) == [here.database.slot]
        assert here.process.log("snapshot_begun")[-1]["attempt"] == 1
        assert here.process.stop() == 0


def test_a_slot_that_is_lost_and_that_nobody_reads(scene, little_wal):
    """Of a copy that no stream follows: it goes on to its end."""
    here = scene("at-least-once")
    here.break_a_copy_off("initial_only")
    with psycopg.connect(dsn(here.database.name)) as holder:
        holder.execute("SET lock_timeout = '10s'; LOCK TABLE z IN ACCESS EXCLUSIVE MODE")
        here.process.start().wait_for("snapshot_begun")
        name = next(one for one in slots(here.database) if "_snapshot_" in one)
        eventually(lambda: little_wal(name), 60, "the loss of the slot")
    assert here.process.ended(60) == 0, "".join(here.process.lines)
    assert here.process.log("snapshot_done") and slots(here.database) == []


def test_another_cluster_is_no_reason_to_copy(scene):
    here = scene("at-least-once")
    here.stream_once()
    elsewhere(here)
    here.configure("when_needed")
    assert here.refused("another PostgreSQL cluster")
