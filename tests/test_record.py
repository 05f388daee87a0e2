"""`millrace record`: what the server sends is in the file, nothing is confirmed, no data where none is wanted."""

import os
import signal
import subprocess

import pytest

from kit import BINARY, eventually, expect
from recordings.recording import events, frames, lsn_text, properties


class Recorder:
    def __init__(self, process, folder, *arguments):
        self.path = str(folder / "stream.rec")
        self.process = subprocess.Popen([BINARY, "record", self.path, *arguments, "--config", process.path],
                                        env=process.environment, stderr=subprocess.PIPE, text=True)

    def data(self):
        with open(self.path, "rb") as file:
            return file.read()

    def events(self):
        return events(self.data()) if os.path.exists(self.path) else []

    def until(self, kind, count=1):
        eventually(lambda: len([event for event in self.events() if event.kind == kind]) >= count, what=f"{kind} in the file")
        return self

    def end(self):
        said = self.process.communicate(timeout=30)[1]
        return self.process.returncode, said


@pytest.fixture
def recorder(tmp_path):
    made = []

    def make(process, *arguments):
        made.append(Recorder(process, tmp_path, *arguments))
        return made[-1]
    yield make
    for one in made:
        one.process.kill()


def prepare(database, millrace):
    database.run("CREATE TABLE t (id int PRIMARY KEY, secret text)")
    database.run(f"CREATE PUBLICATION {database.publication} FOR TABLE t")
    return millrace(messages__prefixes='["*"]')


def test_own_slot(database, millrace, recorder):
    """A temporary slot: gone afterwards; SIGINT ends it in order."""
    one = recorder(prepare(database, millrace))
    one.until("keepalive")
    database.run("INSERT INTO t VALUES (1, 'canary'); UPDATE t SET secret = 'other'; DELETE FROM t")
    one.until("delete")
    one.process.send_signal(signal.SIGINT)
    expect(one.end(), 0)
    assert [event.kind for event in one.events() if event.kind in ("insert", "update", "delete")] == \
        ["insert", "update", "delete"]
    all_frames = list(frames(one.data()))
    assert properties(all_frames[0])["temporary"] == "yes" and properties(all_frames[-1])["reason"] == "stopped"
    assert os.stat(one.path).st_mode & 0o777 == 0o600
    assert not database.run("SELECT FROM pg_replication_slots WHERE database = %s", [database.name])


def test_a_slot_is_read_and_not_moved(database, millrace, recorder, tmp_path):
    """The same WAL twice, the second time from a position in it; the slot stands where it stood."""
    process = prepare(database, millrace)
    database.run("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", [database.slot])
    before = database.slot_row("confirmed_flush_lsn")
    for number in range(4):
        database.run("INSERT INTO t VALUES (%s, 'canary')", [number])
    end = str(database.run("SELECT pg_current_wal_lsn()")[0][0])
    one = recorder(process, "--slot", database.slot, "--end", end)
    assert one.end()[0] == 0
    first = one.events()
    assert b"canary" in one.data()
    # What it told the server: written, and never flushed or applied.
    sent = [frame.data for frame in frames(one.data()) if frame.kind == "S"]
    assert all(data[9:25] == bytes(16) for data in sent)
    assert database.slot_row("confirmed_flush_lsn") == before
    commits = [event.end_lsn for event in first if event.kind == "commit"]
    assert len(commits) == 4
    os.remove(one.path)
    again = recorder(process, "--slot", database.slot, "--start", lsn_text(commits[1]), "--end", end)
    assert again.end()[0] == 0
    assert [event.end_lsn for event in again.events() if event.kind == "commit"] == commits[2:]


def test_a_blanked_recording_holds_no_value(database, millrace, recorder):
    process = prepare(database, millrace)
    one = recorder(process, "--blank-names")
    one.until("keepalive")
    database.run("INSERT INTO t VALUES (1, 'canary'); SELECT pg_logical_emit_message(true, 'canary', 'canary')")
    one.until("commit")
    one.process.send_signal(signal.SIGTERM)
    assert one.end()[0] == 0
    for part in (b"canary", b"secret", b"public\0", database.name.encode()):
        assert part not in one.data()
    insert = next(event for event in one.events() if event.kind == "insert")
    assert insert.new == [("t", b"1"), ("t", b"xxxxxx")]


def test_the_server_ends_it(database, millrace, recorder):
    """A file that ends with the reason, whatever it is."""
    one = recorder(prepare(database, millrace))
    one.until("keepalive")
    database.run("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE database = %s", [database.name])
    expect(one.end(), 69, "terminat")
    assert "terminat" in properties(list(frames(one.data()))[-1])["reason"]


@pytest.mark.parametrize("arguments, parts", [
    (["--slot", "absent"], ['slot "absent" does not exist', "without --slot"]),
    (["--slot", "active"], ["is being read", "leave --slot out"]),
    (["--slot", "other"], ["with pgoutput"]),
])
def test_slots_that_can_not_be_read(database, millrace, recorder, arguments, parts):
    process = prepare(database, millrace)
    name = f"{database.slot}_{arguments[1]}"
    if arguments[1] == "other":
        database.run("SELECT pg_create_logical_replication_slot(%s, 'test_decoding')", [name])
        arguments = ["--slot", name]
    if arguments[1] == "active":
        process.start().streaming()
        arguments = ["--slot", database.slot]
    one = recorder(process, *arguments)
    said = expect(one.end(), 78)
    for part in parts:
        assert part in said, said
    assert not os.path.exists(one.path)


def test_record_refuses_what_it_can_not_write(database, millrace, recorder, tmp_path):
    process = millrace()
    one = recorder(process)
    expect(one.end(), 78, "publication", "does not exist")
    prepare(database, lambda **options: None)
    (tmp_path / "stream.rec").write_text("something")
    expect(recorder(process).end(), 64, "exists already")
    done = subprocess.run([BINARY, "record", "--config", process.path], env=process.environment, capture_output=True,
                          text=True, timeout=30, check=False)
    assert done.returncode == 64 and "wants a file" in done.stderr
