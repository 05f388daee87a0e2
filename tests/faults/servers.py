"""Servers that the fault tests own: a broker nobody else uses, and the proxies between millrace and servers.

What is broken here can't hurt the tests behind: a broker's storage, ports and process are its own, and `close`
leaves nothing. Ports come from below the range that the kernel gives to outgoing connections, so that a port stays
free while its server is down."""

import base64
import contextlib
import ctypes
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from kit import STAND, eventually

HERE = os.path.dirname(os.path.abspath(__file__))
LOG4J = os.path.join(HERE, "..", "..", "scripts", "kafka", "log4j2.properties")
LIBC = ctypes.CDLL(None, use_errno=True)
CLUSTER_ID = "bWlsbHJhY2UtZmF1bHRzLQ"


def end_with_parent():
    """In a child before its program starts: it is killed when the test is, however that ends."""
    LIBC.prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


@contextlib.contextmanager
def frozen(pid, name):
    """One thread of a process, which runs with MILLRACE_DUMPABLE=1, stands still meanwhile (ptrace(2): SEIZE, INTERRUPT, DETACH)."""
    def ask(request):
        if LIBC.ptrace(ctypes.c_long(request), ctypes.c_long(thread), None, None) != 0:
            raise PermissionError(f"ptrace: {os.strerror(ctypes.get_errno())}")

    def name_of(task):
        with open(f"/proc/{pid}/task/{task}/comm", encoding="ascii") as file:
            return file.read().strip()
    thread = next(int(task) for task in os.listdir(f"/proc/{pid}/task") if name_of(task) == name)
    ask(0x4206)
    ask(0x4207)
    os.waitpid(thread, 0x40000000)  # __WALL: threads, too
    try:
        yield
    finally:
        ask(17)


def port_open(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def free_port(taken=set()):  # pylint: disable=dangerous-default-value # remembers on purpose
    """A port below 32768 that nobody listens on, a new one with each call. Workers don't share any."""
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:])
    while True:
        port = random.SystemRandom().randrange(20000 + worker, 32000, workers)
        if port not in taken and not port_open(port):
            taken.add(port)
            return port


class Proxy:
    """What millrace reaches a server through; see proxy.py for what it can do."""

    def __init__(self, target_port, port=None):
        self.port = port or free_port()
        self.process = subprocess.Popen([sys.executable, os.path.join(HERE, "proxy.py"), str(self.port),
                                         str(target_port)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout.readline() == "listening\n", f"port {self.port} can't be listened on"

    def set(self, mode):
        self.process.stdin.write(mode + "\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "done\n"

    def close(self):
        self.process.stdin.close()
        self.process.wait(10)
        self.process.stdout.close()


class Broker:
    """A Kafka of one node. `direct` is for the test, `proxied` is the way through `proxy`, for millrace; with
    `address` it is reached there instead, without a proxy. `another`: not of the cluster that all others say they are.

    As a node of a cluster it gets its number and the controllers of all of them; the cluster formats and starts it."""

    cluster_id = CLUSTER_ID

    def __init__(self, disk_mb=None, address=None, another=False, **settings):
        self.disk = None
        if another:
            self.cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        self._prepare(1, None, settings, address)
        try:
            if disk_mb is not None:
                self.disk = Disk(os.path.join(self.folder, "logs"), disk_mb)
            self.configure([self])
            self.formatted(self.format())
            self.start()
            self.admin = self.client()
        except BaseException:
            self.close()
            raise

    @classmethod
    def of_cluster(cls, number, settings):
        """Neither configured nor started yet."""
        broker = cls.__new__(cls)
        broker.disk = None
        broker._prepare(number, "256m", settings)  # pylint: disable=protected-access
        return broker

    def _prepare(self, number, heap, settings, address=None):
        self.number, self.heap = number, heap or "512m"
        self.folder = tempfile.mkdtemp(prefix="millrace-broker-")
        self.settings = settings
        self.direct_port, self.inner_port, self.controller_port = free_port(), free_port(), free_port()
        self.proxy = Proxy(self.inner_port) if address is None else None
        self.inner = f"{address or '127.0.0.1'}:{self.inner_port}"
        self.direct, self.proxied = f"127.0.0.1:{self.direct_port}", self.inner
        if self.proxy:
            self.proxied = f"127.0.0.1:{self.proxy.port}"
        self.process = None
        self.keep_in = None  # a folder that gets its files in the end
        self.started = 0.0  # when it began to serve, monotonic

    def configure(self, nodes):
        """`nodes`: all brokers of its cluster, each a controller, too."""
        self.conf = os.path.join(self.folder, "server.properties")
        copies, enough = len(nodes), min(2, len(nodes))
        values = {
            "process.roles": "broker,controller", "node.id": self.number,
            "controller.quorum.voters": ",".join(f"{n.number}@127.0.0.1:{n.controller_port}" for n in nodes),
            "listeners": f"DIRECT://{self.direct},PROXIED://{self.inner},"
                         f"CONTROLLER://127.0.0.1:{self.controller_port}",
            "advertised.listeners": f"DIRECT://{self.direct},PROXIED://{self.proxied}",
            "controller.listener.names": "CONTROLLER", "inter.broker.listener.name": "DIRECT",
            "listener.security.protocol.map": "DIRECT:PLAINTEXT,PROXIED:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": os.path.join(self.folder, "logs"), "auto.create.topics.enable": "false",
            "default.replication.factor": copies, "min.insync.replicas": enough,
            # After a kill the controller holds the old registration this long.
            "broker.session.timeout.ms": 2000, "broker.heartbeat.interval.ms": 250,
            "group.initial.rebalance.delay.ms": 0, "group.min.session.timeout.ms": 1000,
            "offsets.topic.replication.factor": copies, "offsets.topic.num.partitions": 1,
            "transaction.state.log.replication.factor": copies, "transaction.state.log.min.isr": enough,
            "transaction.state.log.num.partitions": 1, "share.coordinator.state.topic.replication.factor": copies,
            "share.coordinator.state.topic.min.isr": enough, "log.cleaner.dedupe.buffer.size": 16777216,
            "num.network.threads": 1, "num.io.threads": 3,
        }
        values.update({key.replace("_", "."): value for key, value in self.settings.items()})
        with open(self.conf, "w", encoding="ascii") as file:
            file.writelines(f"{key}={value}\n" for key, value in values.items())

    def _java(self, *options):
        classes = os.path.join(os.environ["MILLRACE_TOOLS_DIR"], "kafka", "libs", "*")
        inside = self.disk.inside if self.disk else []
        archive = os.path.join(os.environ["MILLRACE_TOOLS_DIR"], "cds", "kafka.jsa")
        share = [f"-XX:SharedArchiveFile={archive}"] if os.path.exists(archive) else []
        # Compiled quickly rather than well: these live for a minute.
        return [*inside, "java", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", *share, f"-Dlog4j2.configurationFile={os.path.abspath(LOG4J)}",
                "-cp", classes, *options]

    def format(self):
        """The process that formats the storage; `formatted` waits for it. What scripts/stand.sh keeps spares a Java."""
        kept = os.path.join(os.environ["MILLRACE_TOOLS_DIR"], "cds", "storage", "bootstrap.checkpoint")
        command = self._java("-Xmx128m", "kafka.tools.StorageTool", "format", "-t", self.cluster_id, "-c", self.conf)
        if os.path.exists(kept):
            folder = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
            identity = f"version=1\ncluster.id={self.cluster_id}\nnode.id={self.number}\ndirectory.id={folder}\n"
            command = [*(self.disk.inside if self.disk else []), "sh", "-c",
                       'mkdir -p "$1" && cp "$2" "$1" && printf %s "$3" >"$1/meta.properties"', "sh",
                       os.path.join(self.folder, "logs"), kept, identity]
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, preexec_fn=end_with_parent)

    @staticmethod
    def formatted(process):
        assert process.wait(120) == 0, "Kafka's storage can't be formatted"

    def launch(self):
        with open(os.path.join(self.folder, "log"), "ab") as log:
            # pylint: disable-next=consider-using-with # outlives this function
            self.process = subprocess.Popen(self._java("-Xms128m", f"-Xmx{self.heap}", "kafka.Kafka", self.conf),
                                            stdout=log, stderr=log, start_new_session=True,
                                            preexec_fn=end_with_parent)

    def wait_until_it_serves(self):
        """Launches it once more if it ended at once (a port may be held for a moment)."""
        for attempt in (1, 2, 3):
            eventually(lambda: self.process.poll() is not None or self.serves(), 300, "the broker")
            if self.process.poll() is None:
                self.started = time.monotonic()
                return
            assert attempt < 3, f"the broker does not start:\n{self.log_end()}"
            self.launch()

    def start(self):
        self.launch()
        self.wait_until_it_serves()

    def client(self):
        return AdminClient({"bootstrap.servers": self.direct, "log_level": 0})

    def configure_clients(self, quota):
        """A quota of each client: "producer_byte_rate=20000"."""
        done = subprocess.run(self._java("kafka.admin.ConfigCommand", "--bootstrap-server", self.direct, "--alter", "--entity-type", "clients",
                                         "--entity-default", "--add-config", quota), capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stdout + done.stderr

    def serves(self):
        if not port_open(self.direct_port):
            return False
        try:
            return self.number in self.client().list_topics(timeout=3).brokers
        except KafkaException:
            return False

    def log_end(self):
        with open(os.path.join(self.folder, "log"), encoding="utf-8", errors="replace") as file:
            return "".join(file.readlines()[-15:])

    def running(self):
        return self.process is not None and self.process.poll() is None

    def send(self, number):
        self.process.send_signal(number)

    def stop(self, number=signal.SIGKILL):
        """Until the process is gone; a broker that does not end in order within 30 s is killed."""
        if not self.running():
            return
        self.send(number)
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.send(signal.SIGKILL)
            self.process.wait(30)

    def close(self):
        if self.running():
            self.send(signal.SIGCONT)
        self.stop()
        if self.proxy:
            self.proxy.close()
        if self.disk:
            self.disk.close()
        if self.keep_in:
            shutil.copytree(self.folder, os.path.join(self.keep_in, f"broker-{self.number}"), dirs_exist_ok=True)
        shutil.rmtree(self.folder, ignore_errors=True)


class OtherServer:
    """A second PostgreSQL, fresh and small, that nobody else uses; `mark` tells several apart."""

    def __init__(self, mark=""):
        self.port = free_port()
        self.folder = os.environ["MILLRACE_STAND_DIR"] + "-other" + mark
        self.environment = {**os.environ, "MILLRACE_STAND_DIR": self.folder, "MILLRACE_STAND_PG_PORT": str(self.port)}

    def stand(self, *command):
        subprocess.run([STAND, *command], env=self.environment, check=True, stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL)

    def close(self):
        self.stand("wipe")
        shutil.rmtree(self.folder, ignore_errors=True)


class Disk:
    """A small file system on a folder, seen only by commands prefixed with `inside`.

    It is mounted in a mount namespace that a process of ours keeps. Nothing has to be unmounted: when the keeper and
    what ran inside are gone, the kernel takes it away."""

    def __init__(self, folder, size_mb):
        os.makedirs(folder, exist_ok=True)
        self.folder = folder
        unshare = ["unshare", "--mount", "--propagation", "private"]
        if os.geteuid() != 0:
            unshare += ["--user", "--map-root-user"]
        self.keeper = subprocess.Popen(
            [*unshare, "sh", "-c", 'mount -t tmpfs -o size="$1"m tmpfs "$2" && echo mounted && exec sleep infinity',
             "sh", str(size_mb), folder], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            preexec_fn=end_with_parent)
        if self.keeper.stdout.readline() != "mounted\n":
            reason = self.keeper.stderr.read().strip()
            self.close()
            raise PermissionError(f"no file system can be mounted here: {reason}")
        user = ["--user", "--preserve-credentials"] if os.geteuid() != 0 else []
        self.inside = ["nsenter", "--target", str(self.keeper.pid), "--mount", *user]

    def resize(self, size_mb):
        subprocess.run([*self.inside, "mount", "-o", f"remount,size={size_mb}m", self.folder], check=True)

    def close(self):
        self.keeper.kill()
        self.keeper.wait(30)
        self.keeper.stdout.close()
        self.keeper.stderr.close()
