"""The programs that are compared: how each is started, and how its topic is followed."""

import concurrent.futures
import contextlib
import os
import platform
import re
import shutil
import signal
import subprocess
import tempfile
import time

from confluent_kafka import Consumer, KafkaException, TopicPartition

from bench_stand import dsn, end, program
from consume import as_they_come, consumer_of
from open_loop import ID, Writer, follow_ids, waits_ms
from processes import broker_pid, cpu_seconds, family_cpu, machine_ticks, peak_rss, postmaster, threads

HERE = os.path.dirname(os.path.abspath(__file__))
KNOWN = ("millrace", "millrace-exactly-once", "debezium", "pg_recvlogical")
LIMIT_S = 600


class Watermark:
    """How many records a topic holds."""

    def __init__(self, topic):
        self.partition = TopicPartition(topic, 0)
        self.consumer = Consumer({"bootstrap.servers": os.environ["KAFKA_BOOTSTRAP"], "group.id": topic})
        # Asked for the ends of a topic that it does not know yet, librdkafka may sleep for half a second: that would be counted as
        # the program's.
        self.consumer.list_topics(topic, timeout=10)

    def count(self):
        try:
            return self.consumer.get_watermark_offsets(self.partition, timeout=5)[1]
        except KafkaException:
            return 0  # a topic this young is not known everywhere yet

    def close(self):
        self.consumer.close()


class Failed(SystemExit):
    """A program that did not do what it is measured by. It has no figure."""


class Peer:
    def __init__(self, text, binary=None):
        """`text` as --peer has it; `binary` is another build of millrace."""
        self.name, _, script = text.partition("=")
        if not script and binary is None and self.name not in KNOWN:
            raise SystemExit(f"--peer {self.name}: not one of {', '.join(KNOWN)}; "
                             f"for a program of your own say --peer {self.name}=SCRIPT")
        self.environment = {"MILLRACE_BIN": binary} if binary else {}
        known = "millrace" if binary else self.name
        if known == "millrace-exactly-once":
            known, self.environment["PEER_DELIVERY"] = "millrace", "exactly-once"
        self.script = program(script) if script else os.path.join(HERE, f"start-{known}.sh")
        self.drains, self.latencies, self.failed = [], [], None

    @contextlib.contextmanager
    def running(self, bench, slot):
        """The program, on that slot, until the end of the block."""
        folder = tempfile.mkdtemp(prefix=f"peer-{self.name}-")
        environment = {**os.environ, **self.environment, "PEER_PG_URL": dsn(bench.name), "PEER_SLOT": slot,
                       "PEER_PUBLICATION": "bench", "PEER_TABLE": "public.benchmark_records",
                       "PEER_BOOTSTRAP": os.environ["KAFKA_BOOTSTRAP"], "PEER_TOPIC_PREFIX": slot,
                       "PEER_FOLDER": folder, "PEER_END_LSN": getattr(bench, "end_lsn", "")}
        with open(os.path.join(folder, "log"), "wb") as log:
            process = subprocess.Popen([self.script], env=environment, stdout=log, stderr=log, start_new_session=True)
        failed = True
        try:
            yield process
        except RuntimeError as error:
            raise Failed(f"{self.name}: {error}; what it said is in {folder}/log") from None
        else:
            failed = False
        finally:
            end(process)
            with contextlib.suppress(ProcessLookupError):  # what it started and left
                os.killpg(process.pid, signal.SIGKILL)
            if not failed:
                shutil.rmtree(folder, ignore_errors=True)

    @property
    def writes_no_topic(self):
        return self.name == "pg_recvlogical"


def wait_for_records(process, watermark, count):
    deadline = time.monotonic() + LIMIT_S
    while watermark.count() < count:
        if process.poll() is not None:
            raise RuntimeError(f"it ended with {process.returncode} before {count} records were there")
        if time.monotonic() > deadline:
            raise RuntimeError(f"{count} records were not there within {LIMIT_S} s")
        time.sleep(0.01)


def busy_since(before):
    """Share of the machine that all programs together kept busy: a copy can't be faster where it is all."""
    ticks, idle = (now - then for now, then in zip(machine_ticks(), before))
    return 1 - idle / max(ticks, 1)


def spent(pid):
    """CPU seconds so far: of the server, the program, the broker and the benchmark itself; and of each of the program's threads."""
    return ({"server": family_cpu(postmaster()), "own": cpu_seconds(pid), "broker": cpu_seconds(broker_pid()), "benchmark": time.process_time()},
            {name: thread["cpu"] / 1e9 for name, thread in threads(pid).items()})


def followed(process, watermark, rows):
    """Between the first and the last record: the start is told apart. A first look that is late sees more than one row."""
    begin = time.monotonic()
    wait_for_records(process, watermark, 1)
    first, before, early = time.monotonic(), spent(process.pid), watermark.count()
    ticks = machine_ticks()
    wait_for_records(process, watermark, rows)
    seconds, after, drained = time.monotonic() - first, spent(process.pid), max(rows - early, 1)
    cpu, by_thread = ({name: (now - was.get(name, 0)) / drained * 1e6 for name, now in found.items()} for was, found in zip(before, after))
    by_thread["ended"] = cpu["own"] - sum(by_thread.values())
    return {"start_s": first - begin, "rows_per_s": drained / seconds, "cpu_us": cpu.pop("own"), "threads_us": by_thread,
            **{f"{name}_us": us for name, us in cpu.items()},
            "rss_mb": peak_rss(process.pid) / 1e6, "machine_busy": busy_since(ticks)}


def wait_for_rows(topic, rows):
    """Until a consumer has so many records: they must be one for each of the rows 1 to `rows`. What loses rows is fast, and so
    is what writes two records for one, as long as records are counted."""
    consumer, left, records = consumer_of([(topic, 0)]), set(range(1, rows + 1)), 0
    for message, _ in as_they_come(consumer, LIMIT_S):
        records += 1
        found = ID.search(message.key() or b"") or ID.search(message.value() or b"")
        left.discard(int(found[1]) if found else None)
        if records == rows:
            break
    consumer.close()
    if left:
        raise RuntimeError(f"{len(left)} of {rows} rows are not among its first {records} records; one is row {min(left)}")


def machine(bench):
    with open("/proc/cpuinfo", encoding="ascii") as file:
        model = re.search(r"model name\s*:\s*(.*)", file.read())
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    server = bench.sql("SHOW server_version")[0][0].split()[0]
    return (f"{os.cpu_count()} cores ({model[1].strip() if model else platform.machine()}), {memory:.0f} GiB, "
            f"Linux {platform.release().split('-')[0]}, PostgreSQL {server}; server, broker, programs and "
            f"consumer share it; load when the run began: {os.getloadavg()[0]:.1f}")


@contextlib.contextmanager
def reading(bench, peer):
    """The same for a program that writes to no topic, once it holds its slot."""
    slot = bench.make_slot()
    with peer.running(bench, slot) as process:
        deadline = time.monotonic() + LIMIT_S
        while not bench.sql("SELECT active FROM pg_replication_slots WHERE slot_name = %s", [slot])[0][0]:
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError("it does not read its slot")
            time.sleep(0.01)
        yield process, None
    bench.drop_slot(slot)


@contextlib.contextmanager
def streaming(bench, peer):
    """The program on a slot and a topic of its own, once a first row has come through: its process and the topic."""
    if peer.writes_no_topic:
        with reading(bench, peer) as found:
            yield found
        return
    slot = bench.make_slot()
    topic = bench.make_topic(slot)
    watermark = Watermark(topic)
    with peer.running(bench, slot) as process:
        bench.add_rows(0, 1)
        wait_for_records(process, watermark, 1)
        yield process, topic
    watermark.close()
    bench.drop_slot(slot)
    bench.drop_topic(topic)


def at_rate(bench, peer, rate, seconds, size, watch=None):
    """Rows at a fixed rate through that program, in transactions of `size` rows: the sorted waits in ms, none where it writes to
    no topic. `watch(process, writer)` is called once the writer has begun, and gives back what it saw when the writer has ended."""
    with streaming(bench, peer) as (process, topic):
        before = bench.sql("SELECT max(id) FROM benchmark_records")[0][0]
        writer = Writer(bench, rate, seconds, size)
        writer.start()
        if topic is None:
            return [], watch(process, writer)
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            seen = pool.submit(watch, process, writer) if watch else None
            arrivals = follow_ids(topic, before, before + writer.rows, seconds + 60)
            writer.join()
            seen = seen.result() if watch else None
        if len(arrivals) < writer.rows:
            code = process.poll()
            raise RuntimeError(f"only {len(arrivals)} of {writer.rows} rows arrived"
                               + (f"; it ended with {code}" if code is not None else ""))
        waits = waits_ms(writer, arrivals, before)
        if not waits:
            raise RuntimeError("no row was written behind the warm-up")
    return waits, seen
