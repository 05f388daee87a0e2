"""The programs that are compared: how each is started and followed, and whether what it wrote is right."""

import collections
import concurrent.futures
import contextlib
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time

from confluent_kafka import Consumer, KafkaException, TopicPartition

from bench_stand import dsn, end, program
from consume import up_to_now
from open_loop import Follower, Writer, id_called
from processes import Account, peak_rss, threads

HERE = os.path.dirname(os.path.abspath(__file__))
LIMIT_S = 600
QUIET_S = 0.2
LOOK_S = 0.05  # each look costs a millisecond of CPU, which a busy machine takes from the program
DELETE = re.compile(rb'"op"\s*:\s*"[dD]')  # Debezium's "d", Outboxx' "DELETE"
WRITES = "WalSenderWriteData"  # a walsender waits for its reader to take what it has (WalSndWriteData in walsender.c)

# Larger batches and requests, and no wait for a timer: by Debezium's and Kafka Connect's documents, on a machine with memory to spare.
TUNED = """poll.interval.ms=5
max.batch.size=16384
max.queue.size=65536
snapshot.fetch.size=16384
producer.override.linger.ms=5
producer.override.batch.size=524288
producer.override.buffer.memory=134217728
producer.override.compression.type=lz4"""
# name: (script, its variables)
KNOWN = {
    "pg_recvlogical": ("start-pg_recvlogical.sh", {}),
    "millrace": ("start-millrace.sh", {}),
    "millrace-exactly-once": ("start-millrace.sh", {"PEER_DELIVERY": "exactly-once"}),
    "millrace-typed": ("start-millrace.sh", {"PEER_OPTIONS": 'types = "debezium"'}),
    "millrace-profiled": ("start-millrace.sh", {"PEER_PROFILED": "yes"}),
    "millrace-4-threads": ("start-millrace.sh", {"PEER_OPTIONS": "snapshot.max.threads = 4"}),
    "librdkafka": ("start-floor.sh", {}),
    "librdkafka-exactly-once": ("start-floor.sh", {"PEER_DELIVERY": "exactly-once"}),
    "debezium": ("start-debezium.sh", {}),
    "debezium-tuned": ("start-debezium.sh", {"PEER_OPTIONS": TUNED})}


class Failed(RuntimeError):
    """A program did not do what it is measured by. It has no figure."""


class Topics:
    """How many committed records a mix's topics hold; the end of a transaction counts as one."""

    def __init__(self, prefix, mix):
        names = [f"{prefix}.public.{table}" for table in mix.tables]
        self.ids = {name: id_called(mix.keys.get(table, "id")) for name, table in zip(names, mix.tables)}
        self.partitions = [TopicPartition(name, number) for name in names for number in range(mix.partitions)]
        self.consumer = Consumer({"bootstrap.servers": os.environ["KAFKA_BOOTSTRAP"], "group.id": "none"})
        # Asked for the ends of a topic that it does not know yet, librdkafka may sleep for half a second: that would be counted as
        # the program's.
        for name in names:
            self.consumer.list_topics(name, timeout=10)

    def count(self):
        try:
            return sum(self.consumer.get_watermark_offsets(partition, timeout=5)[1] for partition in self.partitions)
        except KafkaException:
            return 0  # a topic this young is not known everywhere yet

    def rows(self):
        """The records' number, and (table, id) of the rows that are there after the last record of each."""
        there, number = set(), 0
        for number, message in enumerate(up_to_now([(p.topic, p.partition) for p in self.partitions]), 1):
            key, value = message.key() or b"", message.value() or b""
            pattern, table = self.ids[message.topic()], message.topic().rpartition(".")[2]
            found = pattern.search(key) or pattern.search(value)
            if found and value and DELETE.search(value) is None:
                there.add((table, int(found[1])))
            elif found:
                there.discard((table, int(found[1])))
        return number, there


class Peer:
    def __init__(self, text, binary=None):
        """`text`: a known name, NAME=SCRIPT or NAME=BINARY,TEMPLATE; `binary` is another build of millrace."""
        self.name, _, script = text.partition("=")
        script, _, template = script.partition(",")
        known = "millrace" if binary else self.name
        self.tombstones = True
        if template:
            self.script = os.path.join(HERE, "start-template.py")
            self.environment = {"PEER_BINARY": program(script), "PEER_TEMPLATE": os.path.abspath(template)}
            if not os.path.isfile(template):
                raise SystemExit(f"{template} is not a file")
            with open(template, encoding="utf-8") as file:
                self.tombstones = "# tombstones: no\n" not in file.readlines()
        elif script:
            self.script, self.environment = program(script), {}
        elif known in KNOWN:
            self.script, self.environment = os.path.join(HERE, KNOWN[known][0]), dict(KNOWN[known][1])
        else:
            raise SystemExit(f"{self.name}: not one of {', '.join(KNOWN)}; for a program of your own say --peer {self.name}=SCRIPT "
                             f"or {self.name}=BINARY,TEMPLATE")
        if binary:
            self.environment["MILLRACE_BIN"] = program(binary)

    @contextlib.contextmanager
    def running(self, bench, slot, **more):
        """The program, on that slot, until the end of the block; its process."""
        folder = tempfile.mkdtemp(prefix=f"peer-{self.name}-")
        environment = {**os.environ, **self.environment, "PEER_PG_URL": dsn(bench.name), "PEER_SLOT": slot,
                       "PEER_PUBLICATION": "bench", "PEER_TABLE": ",".join(f"public.{table}" for table in bench.mix.tables),
                       "PEER_BOOTSTRAP": os.environ["KAFKA_BOOTSTRAP"], "PEER_TOPIC_PREFIX": slot,
                       "PEER_FOLDER": folder, "PEER_END_LSN": bench.end_lsn, **more}
        with open(os.path.join(folder, "log"), "ab") as log:  # there are programs that write standard output from position 0 on
            process = subprocess.Popen([self.script], env=environment, stdout=log, stderr=log, start_new_session=True)
        failed = True
        try:
            yield process
            failed = False
        except Failed as error:
            raise Failed(f"{self.name}: {error}; what it said is in {folder}/log") from None
        finally:
            end(process)
            with contextlib.suppress(ProcessLookupError):  # what it started and left
                os.killpg(process.pid, signal.SIGKILL)
            if not failed:
                shutil.rmtree(folder, ignore_errors=True)

    @property
    def reads_nothing(self):
        """In a steady load: it makes up what it writes."""
        return self.name.startswith("librdkafka")

    @property
    def writes_no_topic(self):
        return self.name == "pg_recvlogical"

    @property
    def takes_the_tail(self):
        """Of a backlog that lasts for the others, it drains the last tenth."""
        return self.name.startswith("debezium")


class Waits:
    """What the walsenders wait for, one sample a look."""

    def __init__(self, bench):
        self.connection, self.seen = bench.connected(), collections.Counter()

    def look(self, pids):
        for pid in pids:
            for (event,) in self.connection.execute("SELECT coalesce(wait_event, '') FROM pg_stat_get_activity(%s)", [pid], prepare=True):
                self.seen[event or "runs"] += 1

    def shares(self):
        self.connection.close()
        return {event: count / self.seen.total() for event, count in self.seen.most_common()}


def has_ended(process):
    """Without a wait for it: what it has used can be read still."""
    return process.returncode is not None or bool(os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT))


def drained(process, topics, rows, records, watch, waits, copies=False):
    """Figures of the time from the server's START_REPLICATION, or where rows are copied from the first record, to the moment in
    which the topics grew for the last time. A program without topics ends by itself."""
    begin = Account(process.pid, watch)
    first = start = last = None
    before = {}
    count = early = rss = 0
    while True:
        now, ended = time.monotonic(), has_ended(process)
        watch.sender_cpu()
        watch.cpu(process.pid)
        rss = max(rss, peak_rss(process.pid))
        grown = topics.count() if topics else 0
        if grown > count and first is None:
            first, early = now, grown
        if start is None and (first if copies and topics else copies or watch.sent):
            start, before = Account(process.pid, watch), threads(process.pid)
        if grown > count and grown >= records or topics is None and ended:
            last = Account(process.pid, watch)
        count = max(count, grown)
        waits.look(watch.senders() if start and not copies else ())
        if ended and (topics or process.wait()) or now - begin.time > LIMIT_S:
            said = f"ended with {process.wait()}" if ended else "was not done"
            raise Failed(f"it {said} after {now - begin.time:.0f} s, with {count} of {records} records")
        if last and (topics is None or now - last.time > QUIET_S):
            break
        time.sleep(0.01 if start is None else LOOK_S)
    rows = rows - early if copies else rows
    shares = waits.shares()
    by_thread = {name: (thread["cpu"] - before.get(name, {"cpu": 0})["cpu"]) / 1000 / max(1, rows)
                 for name, thread in threads(process.pid).items()}
    return {**(start or begin).until(last, rows), "rows": rows, "rss_mb": rss / 1e6,
            **({"sender_waits": shares.get(WRITES, 0.0), "waits": shares} if shares else {}),
            "threads_us": {name: us for name, us in by_thread.items() if us >= 0.01},
            **({"start_s": first - begin.time} if first else {})}


def check(topics, records, expected):
    """What loses rows is fast, and so is what writes two records for one, as long as records are counted."""
    number, there = topics.rows()
    wrong = there ^ expected
    if wrong or number < records:
        raise Failed(f"{number} of {records} records; after them {len(wrong)} of {len(expected)} rows are not as in the tables"
                     + (f"; one is row {min(wrong)[1]}" if wrong else ""))


@contextlib.contextmanager
def reading(bench, peer):
    """A program that writes to no topic, once it holds its slot."""
    slot = bench.make_slot()
    with peer.running(bench, slot, PEER_END_LSN="") as process:
        deadline = time.monotonic() + LIMIT_S
        while not bench.sql("SELECT active FROM pg_replication_slots WHERE slot_name = %s", [slot])[0][0]:
            if process.poll() is not None or time.monotonic() > deadline:
                raise Failed("it does not read its slot")
            time.sleep(0.01)
        yield process, None
    bench.drop_slot(slot)


@contextlib.contextmanager
def streaming(bench, peer, **more):
    """The program on a slot and a topic of its own, once a first row has come through: its process and the topic, or none where it
    is not to be followed."""
    if peer.writes_no_topic:
        with reading(bench, peer) as found:
            yield found
        return
    slot = bench.make_slot()
    topic = bench.make_topic(slot)
    topics = Topics(slot, bench.mix)
    with peer.running(bench, slot, **more) as process:
        bench.touch()
        deadline = time.monotonic() + LIMIT_S
        while topics.count() == 0:
            if process.poll() is not None or time.monotonic() > deadline:
                raise Failed("no row came through")
            time.sleep(0.01)
        yield process, None if peer.reads_nothing else topic
    bench.drop_slot(slot)
    bench.drop_topic(topic)


def at_rate(bench, running, rate, seconds, size, watch):
    """Rows at a fixed rate through that program, in transactions of `size` rows: (commit, arrival) of each, none where it writes to
    no topic. `watch(writer)` is called once the writer has begun; the second result is what it gives back."""
    process, topic = running
    before = bench.sql("SELECT max(id) FROM benchmark_records")[0][0] or 0
    writer = Writer(bench, rate, seconds, size)
    writer.start()
    if topic is None:
        return [], watch(writer)
    follower = Follower(topic, before, writer.rows)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        seen = pool.submit(watch, writer)
        follower.follow(seconds + 60)
        writer.join()
        seen = seen.result()
    if follower.left:
        ended = process.poll()
        raise Failed(f"only {writer.rows - follower.left} of {writer.rows} rows arrived at {rate} rows/s"
                     + (f"; it ended with {ended}" if ended is not None else ""))
    pairs = follower.pairs(writer)
    if not pairs:
        raise Failed("no row was written after the warm-up")
    return pairs, seen
