"""`millrace recover`: exit code 10, what it says, and each way out of it; the topics are compared by the witness."""

import json
import os
import pty
import re
import shlex
import shutil
import signal
import subprocess

import psycopg
import pytest
from confluent_kafka import TopicPartition

import witness
from faults.servers import OtherServer, Proxy
from kit import BINARY, Millrace, check, dsn, eventually, expect
from prometheus import free_port
from test_docs import read
from test_repair import repairs_in
from test_verify import copied, produce

PAGE = re.sub(r"`|\*\*|\[([^]]+)\]\([^)]+\)", r"\1", read("docs/runbook.md"))


class Scene:
    """A pipeline whose slot was lost while rows came, changed and went."""

    def __init__(self, database, millrace):
        self.database = database
        database.run("CREATE TABLE t (id int PRIMARY KEY, v int); CREATE TABLE u (id int PRIMARY KEY, v text)")
        self.state = database.create_topic(f"{database.name}-state", config={"cleanup.policy": "compact"})
        self.options = {"sink__kafka__state_topic": f'"{self.state}"'}
        self.process = millrace(("t", "u"))
        self.options["http__address"] = json.dumps(f"unix:{self.process.folder}/http")
        self.process.configure(**self.options)
        self.process.start().streaming()
        database.run("INSERT INTO t SELECT n, 0 FROM generate_series(1, 200) n; INSERT INTO u VALUES (1, 'x')")
        database.all_confirmed()

    def lose(self, how, more=0):
        """`more` rows come besides."""
        assert self.process.stop() == 0
        database = self.database
        if how == "gone":
            database.run("SELECT pg_drop_replication_slot(%s)", [database.slot])
        database.run("INSERT INTO t VALUES (701, 0); UPDATE t SET v = 1 WHERE id <= 3; DELETE FROM t WHERE id BETWEEN 10 AND 12;"
                     f"INSERT INTO t SELECT n, 5 FROM generate_series(1001, 1000 + {more}) n")
        if how == "moved":
            database.run("SELECT pg_replication_slot_advance(%s, pg_current_wal_lsn())", [database.slot])
        if how == "lost":
            self.database.lose_slot()
        return self

    def command(self, *arguments):
        return [BINARY, "recover", "--config", self.process.path, *arguments]

    def recover(self, *arguments):
        done = subprocess.run(self.command(*arguments), env=self.process.environment, capture_output=True, text=True, timeout=240, check=False,
                              stdin=subprocess.DEVNULL)
        return done.returncode, " ".join(done.stdout.split()), done.stderr

    def gap(self):
        return copied(self.state, lambda record: True)[-1][0].json.get("gap")

    def differences(self, table="t"):
        return {(kind, dict(key)["id"]) for kind, key in witness.look(self.database, table).differences}

    def goes_on(self, differing):
        """As usual, and without a word of a gap; in t differs what is to."""
        self.process.configure(**self.options)
        self.process.start().streaming()
        assert self.differences() == differing and self.differences("u") == set()
        self.database.run("UPDATE t SET v = 9 WHERE id = 20")
        assert self.differences() == differing
        assert self.process.stop() == 0 and not self.process.log("gap_accepted")


@pytest.fixture
def scene(database, millrace):
    return Scene(database, millrace)


GONE = {("phantom", str(n)) for n in (10, 11, 12)}
LEFT = GONE | {("missing", "701")} | {("value", str(n)) for n in (1, 2, 3)}
SEEN = {"gone": "is gone, and with it the rows since", "moved": "but only what ends at or before", "lost": "is lost: the server has removed WAL"}
SECTIONS = {"gone": "E-slot-gone", "moved": "E-slot-moved", "lost": "E-slot-lost"}
WAYS = ("differing", "everything", "gap")


def item(way):
    """What the page says of a way."""
    return " ".join(re.search(rf"^- {way}: ((?:.+\n)+?)(?=- |\n)", PAGE, re.MULTILINE).group(1).split())


@pytest.mark.parametrize("how, way", [("lost", "differing"), ("gone", "everything"), ("moved", "gap"), ("gone", "differing"), ("moved", "everything"),
                                      ("lost", "gap")])
def test_each_way_after_each_loss(database, scene, how, way):
    scene.lose(how)
    assert scene.process.run_to_end()[0] == 10
    slot = database.slot_row("confirmed_flush_lsn")
    code, said, _ = scene.recover()
    assert code == 10 and SEEN[how] in said and f"See millrace help {SECTIONS[how]}." in said and "Nothing was changed." in said, said
    assert "2 that are streamed: public.t, public.u" in said and re.search(r"after \w+/\w+ \(20\d\d-.* UTC\), up to \w+/\w+ \(now\)", said), said
    for one in WAYS:
        assert f"{one} {item(one)}" in said, said
    assert " ".join(re.search(rf"### {SECTIONS[how]}\n\n((?:.+\n)+)", PAGE).group(1).split()) in said
    assert scene.gap() is None and database.slot_row("confirmed_flush_lsn") == slot
    assert scene.recover("--choose", way)[0] == 10 and scene.gap() is None
    code, said, log = scene.recover("--choose", way, "--yes")
    assert code == 0 and "Done, and kept in the state topic" in said, (said, log)
    gap = scene.gap()
    assert (gap["settled"], gap["tables"]) == (way, {"public.t": 7 if way == "differing" else 0, "public.u": 0}), gap
    assert gap["from_ms"] <= gap["at_ms"] <= gap["settled_ms"]
    assert database.run("SELECT %s::pg_lsn < %s::pg_lsn", [gap["from"], gap["to"]])[0][0]
    if way == "differing":
        assert len([why for why, op, _ in repairs_in(database) if op is not None]) == 7
    code, said, _ = scene.recover()
    assert code == 0 and "Nothing is seen to be missing" in said, said
    scene.goes_on({"differing": set(), "everything": GONE, "gap": LEFT}[way])
    assert scene.gap() == gap


def begun(scene, way):
    """The command, once it has begun with it: the first thousand of many rows are to be sent, or the first of them is copied."""
    with open(f"{scene.process.folder}/said", "w", encoding="utf-8") as said:  # a pipe would not hold so many names
        run = subprocess.Popen(scene.command("--choose", way, "--yes"), env=scene.process.environment, stdout=said, stderr=subprocess.PIPE, text=True)
    wanted = "repair_asked" if way == "differing" else "snapshot_begun"
    for line in run.stderr:
        if f'"{wanted}"' in line:
            return run
    raise AssertionError(f"no {wanted}: {run.communicate()}")


@pytest.mark.parametrize("how, way", [("gone", "differing"), ("gone", "everything")])
def test_a_kill_in_the_middle(database, scene, how, way):
    """Of the command, whose millrace stops with it; then it is asked again, and goes on."""
    scene.lose(how, more=5000)
    with begun(scene, way) as run:
        run.kill()
        run.communicate(timeout=60)
    eventually(lambda: not database.run("SELECT 1 FROM pg_stat_activity WHERE application_name LIKE 'millrace%' AND datname = current_database()"),
               what="the end of its millrace")
    code, said, _ = scene.recover()
    gap = scene.gap()
    assert gap is None or "settled" not in gap
    if way == "differing":
        assert code == 10 and f"between {gap['from']} and {gap['to']}" in said, said
        assert f"everything {item('everything')}" in said
    code, said, log = scene.recover("--choose", way, "--yes")
    assert code == 0, (said, log)
    assert scene.gap()["settled"] == way
    scene.goes_on(set() if way == "differing" else GONE)


def test_an_interrupt_says_so_and_stops_in_order(scene):
    scene.lose("gone", more=5000)
    with begun(scene, "differing") as run:
        run.send_signal(signal.SIGINT)
        _, log = run.communicate(timeout=60)
    said = read(f"{scene.process.folder}/said")
    assert run.returncode == 10 and "Interrupted. Run it again" in said and '"exit_code":0' in log, (said, log)
    assert scene.recover("--choose", "differing", "--yes")[0] == 0
    scene.goes_on(set())


def parts(run, name):
    """The processes that a command has started, of that program."""
    with open(f"/proc/{run.pid}/task/{run.pid}/children", encoding="ascii") as file:
        return [int(pid) for pid in file.read().split() if os.path.basename(os.readlink(f"/proc/{pid}/exe")) == name]


@pytest.mark.parametrize("way, program, number, code", [("everything", "millrace", signal.SIGTERM, 10), ("differing", "millrace-verify", signal.SIGKILL, 137)])
def test_a_part_of_it_is_stopped_by_somebody(scene, way, program, number, code):
    """Its millrace, in order, with exit code 0, and its verifier: nothing is done, and nothing is known to differ."""
    scene.lose("gone", more=5000)
    with begun(scene, way) as run:
        os.kill(*parts(run, program), number)
        run.communicate(timeout=60)
    said = " ".join(read(f"{scene.process.folder}/said").split())
    assert run.returncode == code and re.search(r"[Rr]un it again(: it goes on where it was)?\.$", said) and "Done" not in said, said
    assert "settled" not in (scene.gap() or {})
    assert scene.recover("--choose", way, "--yes")[0] == 0
    scene.goes_on(set() if way == "differing" else GONE)


def test_the_stream_goes_on_while_the_person_thinks(scene):
    """By somebody who accepts the gap: the copy that was chosen does not come of itself, and is not called done."""
    scene.lose("gone")
    leader, follower = pty.openpty()
    with subprocess.Popen(scene.command("--choose", "everything"), env=scene.process.environment, stdin=follower, stdout=follower,
                          stderr=subprocess.PIPE, text=True) as run:
        os.close(follower)
        said = b""
        while b"Do it?" not in said:
            said += os.read(leader, 4096)
        scene.process.configure(**scene.options, snapshot__mode='"accept_gap"').start().streaming()
        assert scene.process.stop() == 0
        scene.process.configure(**scene.options)
        os.write(leader, b"yes\n")
        assert "nothing was copied" in run.communicate(timeout=120)[1] and run.returncode == 69
    os.close(leader)
    assert "settled" not in scene.gap()
    assert scene.recover("--choose", "everything", "--yes")[0] == 0
    scene.goes_on(GONE)


def test_refused_beside_a_running_one(scene):
    """And without a stored position, with a word that is none, without HTTP."""
    code, said, errors = scene.recover("--choose", "differing", "--yes")
    assert code == 78 and "a millrace streams from slot" in errors and not said, errors
    assert scene.recover("--choose", "all")[0] == 64
    scene.lose("gone")
    for option, part in (({"http__address": '""'}, "http is off"), ({"http__address": '"127.0.0.1:0"'}, "http.address has port 0"),
                         ({"sink__kafka__state_topic": '""'}, "recover goes by the stored position")):
        scene.process.configure(**{**scene.options, **option})
        code, said, errors = scene.recover("--choose", "gap", "--yes")
        assert code == 78 and part in errors, errors
    scene.process.configure(**scene.options, format='"flat"')
    code, said, _ = scene.recover("--choose", "differing", "--yes")
    assert code == 10 and "differing Not now: its format is none of" in said and scene.gap() is None, said


def test_deletes_whose_last_event_is_gone_are_not_called_sent(database, scene):
    """Retention took the topic's head: rows of it that were deleted in the gap are in no topic, and no proof finds them. Said before, and at the end;
    everything is still there to be chosen. Likewise a table without a key, of which nothing can be sent."""
    scene.lose("gone")
    for done in database.admin.delete_records([TopicPartition(database.topic("t"), 0, 150)]).values():
        done.result(30)
    told = "Not for public.t: the first records of its topic are gone (retention)"
    code, said, _ = scene.recover()
    assert code == 10 and told in said and "Not for public.u" not in said, said
    code, said, log = scene.recover("--choose", "differing", "--yes")
    assert code in (4, 5) and "Not certainly equal" in said and "--choose everything --yes" in said and "Done" not in said, (said, log)
    assert "settled" not in scene.gap()
    database.run("ALTER TABLE u DROP CONSTRAINT u_pkey; ALTER TABLE u REPLICA IDENTITY FULL")
    code, said, _ = scene.recover()
    assert code == 10 and "Not for public.u: it has no key." in said and "everything All rows are copied." in said, said
    code, said, log = scene.recover("--choose", "everything", "--yes")
    assert code == 0 and scene.gap()["settled"] == "everything", (said, log)
    assert len(copied(database.topic("u"), lambda record: True)) > 1
    scene.process.configure(**scene.options)
    scene.process.start().streaming()
    assert scene.process.stop() == 0 and not scene.process.log("gap_accepted")


def test_an_address_that_somebody_else_has(scene, tmp_path):
    """Of two pipelines with one http.address: nothing is sent for the other one. And the failed millrace itself, which stays up."""
    taken = {**scene.options, "http__address": f'"127.0.0.1:{free_port()}"'}
    scene.lose("gone")
    scene.process.configure(**taken, pipeline__stay_up="true")
    scene.process.start().wait_for("stays_up")
    code, _, errors = scene.recover("--choose", "differing", "--yes")
    assert code == 78 and "pipeline.stay_up" in errors and "stop it" in errors, errors
    scene.process.stop()

    (tmp_path / "other").mkdir()
    other = Millrace(scene.database, tmp_path / "other", ("t", "u"),
                     **{**taken, "topic_prefix": '"other"', "sink__kafka__state_topic": '""', "source__postgres__slot_name": '"other"'})
    try:
        other.start().streaming()
        code, _, errors = scene.recover("--choose", "differing", "--yes")
        assert code == 78 and "somebody else answers at http.address" in errors and scene.gap() is None, errors
        done = subprocess.run([BINARY, "verify", "t", "--repair", "--yes", "--config", scene.process.path], env=scene.process.environment,
                              capture_output=True, text=True, timeout=240, check=False)
        assert done.returncode != 0 and not other.log("repair_asked"), done
    finally:
        other.stop()
        scene.database.run("SELECT pg_drop_replication_slot('other')")
    scene.process.configure(**taken)
    assert scene.recover("--choose", "differing", "--yes")[0] == 0
    scene.goes_on(set())


def test_a_way_that_is_refused_names_who_knows_the_remedy(database, scene):
    scene.lose("gone")
    database.run(f"ALTER PUBLICATION {database.publication} DROP TABLE u")
    code, said, _ = scene.recover("--choose", "differing", "--yes")
    assert code == 10 and "millrace check --config" in said and "--choose WHAT" not in said, said
    _, told = check(scene.process)
    database.run(re.search(r"run (ALTER PUBLICATION .* ADD TABLE ONLY [^,]*),", told)[1])
    assert scene.recover("--choose", "differing", "--yes")[0] == 0
    scene.goes_on(set())


def test_nothing_is_missing(scene):
    assert scene.process.stop() == 0
    code, said, _ = scene.recover()
    assert code == 0 and "nothing that keeps the stream from going on" in said and "Nothing is seen to be missing" in said, said
    # An address that others reach takes no commands; as a pod's, it is this machine's meanwhile.
    scene.process.configure(**{**scene.options, "http__address": f'":{free_port()}"'})
    code, said, _ = scene.recover("--choose", "differing", "--yes")
    assert code == 0 and "there is no gap to keep" in said and scene.gap() is None, said
    scene.goes_on(set())


def test_a_gap_that_is_open_is_said_until_all_of_it_is_settled(database, scene):
    """Two gaps, of which nothing is forgotten; a table of which not all can be compared, which leaves them open until somebody settles it."""
    accepts = {**scene.options, "snapshot__mode": '"accept_gap"'}
    process = scene.lose("gone").process
    process.configure(**accepts).start().streaming()
    first = process.log("gap_accepted")[0]
    assert not process.log("gap_open") and process.stop() == 0
    database.run("SELECT pg_drop_replication_slot(%s)", [database.slot])
    database.run("INSERT INTO t VALUES (702, 0)")
    for done in database.admin.delete_records([TopicPartition(database.topic("u"), 0, 1)]).values():
        done.result(30)
    process.start().streaming()
    second = process.log("gap_accepted")[-1]
    told, = process.log("gap_open")
    assert (told["from"], told["to"]) == (first["from"], first["to"]) != (second["from"], second["to"])
    status = process.get("/status").json["gap"]
    assert status == {"open": True, "from": first["from"], "to": second["to"]} and process.figure("millrace_gap_open") == 1
    said = subprocess.run([BINARY, "status", "--config", process.path], env=process.environment, capture_output=True, text=True, check=True).stdout
    assert f"what committed between {first['from']} and {second['to']} is left out: millrace recover" in said
    expect(check(process), 0, f"warning  gap: is open: what committed between {first['from']} and {second['to']}")
    assert process.stop() == 0 and "settled" not in scene.gap()

    process.configure(**scene.options)
    assert f"between {first['from']} and {second['to']}" in scene.recover()[1]
    code, said, log = scene.recover("--choose", "differing", "--yes")
    assert code == 5 and "public.u: equal in part" in said and "the gap stays open" in said and "--choose gap --yes" in said, (said, log)
    gap = scene.gap()
    assert "settled" not in gap and (gap["from"], gap["to"], gap["tables"]["public.t"]) == (first["from"], second["to"], 8), gap
    code, said, _ = scene.recover("--choose", "gap", "--yes")
    assert code == 0 and "kept in the state topic" in said, said
    assert scene.gap()["settled"] == "gap" and "Nothing is seen to be missing" in scene.recover()[1]
    process.start().streaming()
    assert process.figure("millrace_gap_open") == 0 and "gap: is open" not in check(process)[1] and not process.log("gap_open")


def test_a_look_at_the_old_slot_is_no_stream_yet(database, scene):
    """The server shows a slot as active also while somebody looks for long what it holds, before the copy has begun."""
    scene.lose("gone")
    with begun(scene, "differing") as run:
        run.send_signal(signal.SIGINT)
        run.communicate(timeout=60)
    database.run("INSERT INTO t VALUES (1001, 5); CREATE TABLE unstreamed AS SELECT n FROM generate_series(1, 1000000) n")
    code, said, log = scene.recover("--choose", "everything", "--yes")
    assert code == 0 and "Done, and kept" in said and '"snapshot_done"' in log, (said, log)
    assert scene.gap()["settled"] == "everything"
    scene.goes_on(GONE)


def test_a_copy_that_leaves_rows_out_closes_no_gap(scene):
    """The stream has no condition, and rows that snapshot.where does not select may have changed in the gap."""
    conditions = {**scene.options, "snapshot__where": '["public.t: id > 1000"]'}
    scene.lose("gone").process.configure(**conditions)
    code, said, log = scene.recover("--choose", "everything", "--yes")
    assert code == 10 and "snapshot.where leaves rows out" in said + log, (code, said, log)
    scene.process.configure(**conditions, snapshot__mode='"when_needed"')
    process = scene.process.start().streaming()
    assert process.log("snapshot_done") and not process.log("gap_copied")
    assert process.stop() == 0
    assert "settled" not in scene.gap()
    expect(check(process), 0, "is in no topic, and nothing was done about it")
    scene.process.configure(**scene.options)
    code, said, _ = scene.recover("--choose", "everything", "--yes")
    assert code == 0 and "Done, and kept" in said, (code, said)
    assert scene.gap()["settled"] == "everything"
    scene.goes_on(GONE)


@pytest.mark.parametrize("mode", ["always", "when_needed"])
def test_a_new_slot_leaves_out_what_waited_in_the_old_one(database, scene, mode):
    """Also without exit code 10: with `always`, and where the stored position is lost; not where nothing waited."""
    process = scene.process
    assert process.stop() == 0
    other = {"sink__kafka__state_name": json.dumps(f"{database.prefix}-lost")} if mode == "when_needed" else {}
    copies = {**scene.options, "snapshot__mode": json.dumps(mode), **other}
    for waited in (True, False):
        if waited:
            database.run("INSERT INTO t VALUES (701, 0); DELETE FROM t WHERE id BETWEEN 10 AND 12")
            confirmed = database.slot_row("confirmed_flush_lsn")
        elif mode == "when_needed":
            copies["sink__kafka__state_name"] = json.dumps(f"{database.prefix}-quiet")
        process.configure(**copies)
        expect(check(process), 0, "deletes that wait in it never come")
        process.start().streaming()
        assert process.log("snapshot_done") and bool(process.log("snapshot_needed")) == (mode == "when_needed")
        told = process.log("gap_copied")
        assert scene.differences() == GONE
        assert process.stop() == 0
        former, gap = None if waited else gap, scene.gap()
        if waited:
            assert (gap["settled"], gap["to"]) == ("everything", told[0]["to"]), (gap, told)
            assert database.run("SELECT %s::pg_lsn = %s::pg_lsn", [gap["from"], confirmed])[0][0] or mode == "always"
        else:
            assert gap == (former if mode == "always" else None) and not told
    process.configure(**{**copies, "snapshot__mode": '"no_data"'}).start().streaming()
    done = subprocess.run([BINARY, "verify", "--repair", "--yes", "--config", process.path], env=process.environment, capture_output=True, text=True,
                          timeout=240, check=False)
    assert done.returncode == 0 and scene.differences() == set(), done


def test_addresses_that_nobody_listens_at():
    """Port 0 is none to ask; a zone of IPv6 has an escape of its own in a URL."""
    for address, part in (("127.0.0.1:0", "http.address has port 0"), ("[fe80::1%251]:1", "http://[fe80::1%251]:1/status")):
        done = subprocess.run([BINARY, "status", "--address", address.replace("%25", "%")], capture_output=True, text=True, timeout=60, check=False)
        assert part in done.stderr and (done.returncode == 78) == ("port 0" in part), done


def test_another_cluster(database, scene):
    """There is no way but the right connection."""
    other, proxy = OtherServer(), Proxy(int(os.environ["PGPORT"]))
    try:
        other.stand("pg-start")
        assert scene.process.stop() == 0
        with psycopg.connect(dsn("postgres", other.port), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {database.name}")
        with psycopg.connect(dsn(database.name, other.port), autocommit=True) as connection:
            connection.execute("CREATE TABLE t (id int PRIMARY KEY, v int); CREATE TABLE u (id int PRIMARY KEY, v text)")
        scene.process.environment["TEST_URL"] = dsn(database.name, proxy.port)
        proxy.set(f"target {other.port}")
        code, said, errors = scene.recover("--choose", "everything", "--yes")
        assert code == 10 and "this is another PostgreSQL cluster" in said and "See millrace help E-other-cluster." in said, (said, errors)
        assert said.count("Not now: this is another PostgreSQL cluster") == 3, said
        with psycopg.connect(dsn(database.name, other.port)) as connection:
            assert not connection.execute("SELECT 1 FROM pg_replication_slots").fetchall()
    finally:
        proxy.close()
        other.close()


def test_a_path_is_printed_for_a_shell(scene):
    scene.lose("moved")
    path = f"{scene.process.folder}/a b'c.toml"
    shutil.copy(scene.process.path, path)
    done = subprocess.run([BINARY, "recover", "--config", path], env=scene.process.environment, capture_output=True, text=True, timeout=120,
                          check=False, stdin=subprocess.DEVNULL)
    assert shlex.split(done.stdout.splitlines()[-1])[:4] == ["millrace", "recover", "--config", path], done


@pytest.mark.parametrize("written_before", [0, 40])
def test_a_publication_that_was_made_again(database, scene, written_before):
    """What was written while it was gone can't be decoded: check and recover know it as the start does, also behind rows that were
    written while it was there, which the slot still holds where millrace was streaming."""
    assert scene.process.stop() == 0
    made = f"CREATE PUBLICATION {database.publication} FOR TABLE t, u"
    for i in range(written_before):
        database.run(f"UPDATE t SET v = {i} WHERE id = 4")
    database.run(f"DROP PUBLICATION {database.publication}")
    database.run("INSERT INTO t VALUES (701, 0); DELETE FROM t WHERE id = 10")
    database.run(made)
    database.run("UPDATE t SET v = 1 WHERE id = 3")
    expect(check(scene.process), 10, "the publication is younger than the slot's position", "E-publication-gone")
    assert scene.process.run_to_end()[0] == 10
    code, said, _ = scene.recover()
    assert code == 10 and "the publication is younger" in said and "See millrace help E-publication-gone." in said, said
    code, said, log = scene.recover("--choose", "differing", "--yes")
    assert code == 0 and "Done, and kept" in said, (said, log)
    database.run(f"ALTER PUBLICATION {database.publication} SET (publish = 'insert, update, delete, truncate')")
    scene.goes_on(set())  # younger than the slot is not yet gone


@pytest.mark.parametrize("writes", [False, True])
def test_a_publication_that_is_gone(database, scene, writes):
    """By the statement that the error prints, and recover, which drops the slot itself, if it must."""
    assert scene.process.stop() == 0
    database.run(f"DROP PUBLICATION {database.publication}")
    if writes:
        database.run("INSERT INTO t VALUES (701, 0); DELETE FROM t WHERE id = 10")
    expect(scene.process.run_to_end(), 10, without="pg_drop_replication_slot")
    code, said, _ = scene.recover()
    assert code == 10 and "--choose WHAT" not in said and "millrace check --config" in said, said
    _, told = check(scene.process)
    database.run(re.search(r"(CREATE PUBLICATION [^;]*); 3\. start millrace", told)[1])
    if writes:
        code, said, log = scene.recover("--choose", "differing", "--yes")
        assert code == 0 and "Done, and kept" in said, (said, log)
    scene.goes_on(set())


def test_a_server_that_ends_below_what_was_delivered(scene):
    """As after a restore: all ways would send what lies below. recover says what helps, as the start does, and nothing else."""
    assert scene.process.stop() == 0
    record, _ = copied(scene.state, lambda record: True)[-1]
    produce(scene.state, record.key, json.dumps(record.json | {"end_lsn": "FF/0"}), [])
    expect(scene.process.run_to_end(), 10, "set another topic_prefix")
    for arguments in ((), ("--choose", "differing", "--yes")):
        code, said, _ = scene.recover(*arguments)
        assert code == 10 and "new topics 1. run SELECT pg_drop_replication_slot" in said and "set another topic_prefix" in said, said
        assert "WHAT" not in said and "everything " not in said and "Nothing was changed." in said, said
    scene.process.configure(**scene.options, snapshot__mode='"when_needed"')
    expect(check(scene.process), 10, "set another topic_prefix")


def test_in_a_terminal_it_asks_twice(scene):
    scene.lose("moved")
    for answers, code, settled in ((("", ), 10, None), (("gap", "no"), 10, None), (("gap", "yes"), 0, "gap")):
        leader, follower = pty.openpty()
        with subprocess.Popen(scene.command(), env=scene.process.environment, stdin=follower, stdout=follower, stderr=subprocess.DEVNULL) as run:
            os.close(follower)
            said = b""
            for question, answer in zip((b"Choose one", b"Do it?"), answers):
                while question not in said:
                    said += os.read(leader, 4096)
                os.write(leader, answer.encode() + b"\n")
            try:
                while os.read(leader, 4096):
                    pass
            except OSError:
                pass  # the other end is closed
            assert run.wait(120) == code
        os.close(leader)
        gap = scene.gap()
        assert (gap and gap["settled"]) == settled
