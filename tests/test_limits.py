"""What surrounds millrace is used up or stands still: descriptors, the reader of its log, the log's disk."""

import json
import os
import resource
import socket
import subprocess
import time

import pytest

from faults.servers import Disk
from kit import BINARY, Millrace, cannot_try, eventually, http_get
from processes import cpu_seconds


def descriptors(process):
    return len(os.listdir(f"/proc/{process.process.pid}/fd"))


def idle_share(process, seconds=2):
    """Part of a CPU that it takes while there is nothing to do."""
    cpu, begun = cpu_seconds(process.process.pid), time.monotonic()
    time.sleep(seconds)
    return (cpu_seconds(process.process.pid) - cpu) / (time.monotonic() - begun)


def rows_arrive(database, reader, count=1000):
    database.run(f"INSERT INTO t (v) SELECT 'x' FROM generate_series(1, {count})")
    reader.take(count)


# ---- descriptors ----

@pytest.mark.parametrize("which, limit, words", [
    (resource.RLIMIT_NOFILE, 20, "20 files and sockets (ulimit -n)"), (resource.RLIMIT_NOFILE, 35, "35 files"), (resource.RLIMIT_NOFILE, 64, None),
    (resource.RLIMIT_AS, 120 << 20, "120 MiB of addresses (ulimit -v), and needs 192"), (resource.RLIMIT_AS, 192 << 20, None)])
def test_low_limits_at_the_start(database, millrace, topic, which, limit, words):
    """What can't run says so at once; what may start runs."""
    if "MILLRACE_TEST_SANITIZED" in os.environ and which == resource.RLIMIT_AS:
        cannot_try("a sanitizer needs more addresses")
    database.run("CREATE TABLE t (id bigserial PRIMARY KEY, v text)")
    database.make_topic("t")
    process = millrace(pipeline__memory='"64MiB"').start(preexec_fn=lambda: resource.setrlimit(which, (limit, limit)))
    if words is not None:
        assert process.ended(60) == 71
        assert words in process.log("stopped")[-1]["message"]
        return
    process.streaming()
    rows_arrive(database, topic(database.topic("t")))


@pytest.mark.parametrize("spare", [2, 24])
def test_descriptors_run_out(database, millrace, topic, spare):
    """A crowd of silent clients, few descriptors, and connections that are lost meanwhile: rows flow, nothing spins,
    and afterwards HTTP answers again."""
    database.run("CREATE TABLE t (id bigserial PRIMARY KEY, v text)")
    name = database.make_topic("t")
    process = millrace().start().streaming()
    address = process.address()
    reader = topic(name)
    rows_arrive(database, reader)
    limit = descriptors(process) + spare
    _, hard = resource.prlimit(process.process.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(process.process.pid, resource.RLIMIT_NOFILE, (limit, hard))
    host, port = address.rsplit(":", 1)
    crowd = []
    try:
        for times in range(2, 5):
            crowd += [socket.create_connection((host, int(port)), timeout=30) for _ in range(100)]
            rows_arrive(database, reader)
            database.run("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = %s "
                         "AND active", [database.slot], database="postgres")
            process.wait_for("source_connected", times=times)
            rows_arrive(database, reader)
        assert idle_share(process) < 0.5
        assert descriptors(process) <= limit
    finally:
        for connection in crowd:
            connection.close()
    resource.prlimit(process.process.pid, resource.RLIMIT_NOFILE, (hard, hard))
    eventually(lambda: http_get(address, "/healthz", limit_s=5).status == 200, 60, "an answer", OSError)
    rows_arrive(database, reader)


# ---- the log ----

class Unread(Millrace):
    """Its standard error goes where the test says; nothing is collected."""

    def start_with(self, stderr, *prefix):
        self.process = subprocess.Popen([*prefix, BINARY, "--config", self.path], env=self.environment,
                                        stdout=subprocess.DEVNULL, stderr=stderr)
        return self


@pytest.fixture
def unread(database, tmp_path):
    """With an HTTP socket, because the address would be in the log, and all that librdkafka has to say."""
    database.run("CREATE TABLE t (id bigserial PRIMARY KEY, v text)")
    address = f"unix:{tmp_path}/http.sock"
    process = Unread(database, tmp_path, log__level='"debug"', http__address=f'"{address}"')
    with open(process.path, "a", encoding="utf-8") as file:
        file.write('sink.kafka.properties.debug = "msg,protocol"\n')
    process.address = lambda: address
    yield process
    if process.process is not None and process.process.poll() is None:
        process.kill()


def dropped(process):
    return process.figure("millrace_log_dropped_total")


def flow_until_dropped(database, process, reader):
    """Rows flow on, however many lines are lost."""
    def lost():
        rows_arrive(database, reader, 200)
        return dropped(process) > 0
    eventually(lost, 120, "lines are dropped", OSError)
    rows_arrive(database, reader, 5000)


def test_nobody_reads_the_log(database, unread, topic):
    """A pipe that is full: rows flow, lines are dropped, counted, and told of once somebody reads."""
    name = database.make_topic("t")
    reader = topic(name)
    read_end, write_end = os.pipe()
    with os.fdopen(read_end, "rb") as pipe:
        unread.start_with(write_end)
        os.close(write_end)
        eventually(lambda: database.is_streamed(database.slot), 30, "the stream")
        flow_until_dropped(database, unread, reader)
        missing = 0
        for line in pipe:
            record = json.loads(line)  # whole lines only
            if record["event"] == "log_dropped":
                missing = record["lines"]
                break
        assert missing > 0
        os.set_blocking(read_end, False)
        unread.process.terminate()

        def ended():
            pipe.read()  # go on, so that its last words don't wait
            return unread.process.poll() is not None
        eventually(ended, 60, "the end")
        assert unread.process.returncode == 0


def test_stop_while_nobody_reads_the_log(database, unread, topic):
    """An orderly stop does not wait for the reader for more than a moment."""
    name = database.make_topic("t")
    reader = topic(name)
    read_end, write_end = os.pipe()
    try:
        unread.start_with(write_end)
        eventually(lambda: database.is_streamed(database.slot), 30, "the stream")
        flow_until_dropped(database, unread, reader)
        unread.process.terminate()
        assert unread.process.wait(60) == 0
    finally:
        os.close(read_end)
        os.close(write_end)


def test_full_disk_under_the_log(database, unread, topic, tmp_path):
    name = database.make_topic("t")
    reader = topic(name)
    try:
        disk = Disk(str(tmp_path / "disk"), 1)
    except PermissionError as error:
        cannot_try(error)
    try:
        # Some lines of the log still fit.
        subprocess.run([*disk.inside, "sh", "-c", 'head -c 900000 /dev/zero > "$1"', "sh", f"{disk.folder}/others"], check=True, timeout=30)
        unread.start_with(subprocess.DEVNULL, *disk.inside, "sh", "-c", 'log=$1; shift; exec "$@" 2> "$log"', "sh",
                          f"{disk.folder}/log")
        eventually(lambda: database.is_streamed(database.slot), 30, "the stream")
        flow_until_dropped(database, unread, reader)
        disk.resize(64)
        before = dropped(unread)
        rows_arrive(database, reader, 200)

        def told():
            rows_arrive(database, reader, 10)
            log = subprocess.run([*disk.inside, "cat", f"{disk.folder}/log"], check=True, capture_output=True,
                                 text=True).stdout
            return "log_dropped" in log
        eventually(told, 30, "the line that tells of it")
        assert dropped(unread) >= before
        unread.process.terminate()
        assert unread.process.wait(60) == 0
    finally:
        disk.close()
