"""A source that is restored from a backup (docs/upgrading-postgresql.md): what was delivered and is not on it any more ends a start, in
words, and the printed steps bring the topic to the table."""

import os
import re
import shutil
import signal
import subprocess

import pytest

from kit import Database, check, eventually, expect
from pair import Pair

RECOVERY = {"restore_command": "'false'", "recovery_target_action": "'promote'"}


class Source:
    """A server with a backup of an earlier moment. It has a new timeline after a recovery only."""

    def __init__(self, pair):
        self.pair, self.server = pair, pair.start_primary().primary
        self.copy = self.server.folder + "-copy"

    def back_up(self, way):
        """`base`: pg_basebackup, which leaves slots out; `files`: a snapshot of the volume, with slots."""
        if way == "base":
            # pylint: disable-next=protected-access
            self.pair._run("pg_basebackup", "-d", f"host=127.0.0.1 port={self.server.port} user=postgres dbname=postgres",
                           "-D", self.copy, "-X", "stream", "-c", "fast", "--no-sync")
            return
        self.server.kill()
        subprocess.run(["cp", "-a", self.server.folder, self.copy], check=True)
        self.start()

    def restore(self, is_recovered):
        self.server.kill()
        shutil.rmtree(self.server.folder)
        os.rename(self.copy, self.server.folder)
        if is_recovered:
            self.server.configure(**RECOVERY)
            with open(os.path.join(self.server.folder, "recovery.signal"), "wb"):
                pass
        self.start()
        eventually(lambda: not self.server.run("SELECT pg_is_in_recovery()")[0][0], 60, "the end of the recovery")

    def start(self):
        pid = os.path.join(self.server.folder, "postmaster.pid")
        if os.path.exists(pid):
            os.remove(pid)
        self.server.start()


@pytest.fixture
def source():
    pair = Pair()
    try:
        yield Source(pair)
    finally:
        pair.close()


def write(database, first, count=1000):
    database.run(f"INSERT INTO t SELECT generate_series({first}, {first + count - 1})")


def deliver(database, first, count=1000):
    """Until the server has the confirmation."""
    write(database, first, count)
    database.all_confirmed()


def restored(source, millrace_for, way, is_recovered, written, **settings):
    """A millrace that has delivered 2,000 rows, of which the server has 1,000, and the rows that were `written` since."""
    database = Database(port=source.server.port)
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    process = millrace_for(database, pipeline__reconnect_max='"1s"', **settings).start().streaming()
    deliver(database, 1)
    source.back_up(way)
    eventually(lambda: database.is_streamed(database.slot), 60, "the stream")
    deliver(database, 1001)
    assert process.stop() == 0
    source.restore(is_recovered)
    if written:
        write(database, 5001, written)
    return process, database


def start_is_refused(process):
    """By check, with the same text, and by a start."""
    expect(check(process), 10)
    process.start()
    assert process.ended(30) == 10
    return process.log("stopped")[-1]["message"]


@pytest.mark.parametrize("written", [0, 3000], ids=["at-once", "after-writes"])
@pytest.mark.parametrize("way, is_recovered", [("base", False), ("base", True), ("files", True)],
                         ids=["base-backup", "base-backup-recovered", "volume-recovered"])
def test_a_restored_server_is_refused_and_the_steps_help(source, millrace_for, topic, way, is_recovered, written):
    process, database = restored(source, millrace_for, way, is_recovered, written)
    said = start_is_refused(process)
    assert ("slot" in said and "gone" in said) or "restored to an earlier point" in said, said
    # The printed steps, in their order.
    for slot in re.findall(r"pg_drop_replication_slot\('(\w+)'\)", said):
        database.run("SELECT pg_drop_replication_slot(%s)", [slot])
    if "topic_prefix" in said:
        database.prefix += "_restored"
    else:
        assert "when_needed" in said, said
    process.configure(pipeline__reconnect_max='"1s"', snapshot__mode='"initial"' if "topic_prefix" in said else '"when_needed"',
                      sink__kafka__state_name=f'"{database.prefix}"' if "topic_prefix" in said else None).start().streaming()
    write(database, 9001, 1)
    reader = topic(database.topic("t"))
    wanted = {*range(1, 1001), *range(5001, 5001 + written), 9001}
    found = set()
    eventually(lambda: found.update(record.json_key["id"] for record in reader.read()) or wanted <= found, 60, "all rows")
    assert process.stop() == 0


def test_a_volume_that_was_put_back_is_refused_at_once(source, millrace_for):
    process, _ = restored(source, millrace_for, "files", False, 0)
    assert "the server's WAL ends at" in start_is_refused(process)


def names_the_last_transaction(said):
    assert "the last rows by transaction" in said and "was written to since" in said, said


@pytest.mark.parametrize("delivery", ["at-least-once", "exactly-once"])
def test_a_volume_that_was_put_back_and_written_to_is_refused(source, millrace_for, topic, delivery):
    """One timeline, one system identifier, one slot, and WAL past what was delivered: only what comes again tells the two histories apart."""
    process, database = restored(source, millrace_for, "files", False, 3000, sink__kafka__delivery=f'"{delivery}"')
    stood = database.slot_row("confirmed_flush_lsn")
    for _ in range(2):  # a refusal moves nothing
        process.start()
        assert process.ended(60) == 10
        names_the_last_transaction(process.log("stopped")[-1]["message"])
        assert database.slot_row("confirmed_flush_lsn") == stood
    # The printed steps: existing rows are copied.
    process.configure(pipeline__reconnect_max='"1s"', snapshot__mode='"when_needed"', sink__kafka__delivery=f'"{delivery}"').start().streaming()
    write(database, 9001, 1)
    reader = topic(database.topic("t"))
    wanted = {*range(1, 1001), *range(5001, 8001), 9001}
    found = set()
    eventually(lambda: found.update(record.json_key["id"] for record in reader.read()) or wanted <= found, 60, "all rows")
    assert process.stop() == 0
    # Nothing more is to be compared.
    process.start().streaming()
    write(database, 9002, 1)
    eventually(lambda: found.update(record.json_key["id"] for record in reader.read()) or 9002 in found, 60, "the stream")


def test_a_volume_that_is_put_back_under_a_running_millrace_is_refused(source, millrace_for):
    database = Database(port=source.server.port)
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    process = millrace_for(database, pipeline__reconnect_max='"1s"').start().streaming()
    deliver(database, 1)
    source.back_up("files")
    eventually(lambda: database.slot_row("active"), 60, "the stream")
    deliver(database, 1001)
    process.process.send_signal(signal.SIGSTOP)
    source.restore(False)
    write(database, 5001, 3000)
    process.process.send_signal(signal.SIGCONT)
    assert process.ended(60) == 10
    names_the_last_transaction(process.log("stopped")[-1]["message"])


def test_one_row_written_at_the_same_place_is_told_apart(source, millrace_for):
    """The other history has a transaction of the same size where the delivered one is: same place, other number or time."""
    process, database = restored(source, millrace_for, "files", False, 0)
    write(database, 5001, 1000)
    database.run("SELECT pg_switch_wal()")
    write(database, 6001, 1)
    process.start()
    assert process.ended(60) == 10
    names_the_last_transaction(process.log("stopped")[-1]["message"])


@pytest.mark.parametrize("delivery", ["at-least-once", "exactly-once"])
@pytest.mark.parametrize("millrace_dies", [True, False])
def test_a_server_whose_slot_is_behind_goes_on(source, millrace_for, topic, delivery, millrace_dies):
    """The same comparison with the history that was delivered: a server that crashes has its slot where it was last saved. Nothing is
    refused, and what is compared does not come twice."""
    database = Database(port=source.server.port)
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    process = millrace_for(database, pipeline__reconnect_max='"1s"', sink__kafka__delivery=f'"{delivery}"').start().streaming()
    deliver(database, 1, 100)
    database.run("CHECKPOINT")  # the next confirmation is saved with it, and the one after that is not
    deliver(database, 101, 50)
    deliver(database, 151, 50)
    delivered = database.run("SELECT pg_current_wal_lsn()")[0][0]
    if millrace_dies:
        process.kill()
    source.server.kill()
    source.start()
    if millrace_dies:
        assert database.slot_row(f"confirmed_flush_lsn < '{delivered}'")
        process.start()
    write(database, 201, 100)
    reader, found = topic(database.topic("t")), []
    eventually(lambda: found.extend(record.json_key["id"] for record in reader.read()) or 300 in found, 60, "what came after")
    assert sorted(found) == list(range(1, 301))
    eventually(lambda: database.slot_row(f"confirmed_flush_lsn > '{delivered}'"), what="the confirmation")
    assert process.stop() == 0
