"""Servers that the fault tests own: a broker nobody else uses, and the proxies between millrace and servers.

What is broken here can't hurt the tests behind: a broker's storage, ports and process are its own, and `close`
leaves nothing. Ports come from below the range that the kernel gives to outgoing connections, so that a port stays
free while its server is down."""

import ctypes
import glob
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from kit import eventually

HERE = os.path.dirname(os.path.abspath(__file__))
LOG4J = os.path.join(HERE, "..", "..", "scripts", "kafka", "log4j2.properties")
LIBC = ctypes.CDLL(None)
CLUSTER_ID = "bWlsbHJhY2UtZmF1bHRzLQ"


def end_with_parent():
    """In a child before its program starts: it is killed when the test is, however that ends."""
    LIBC.prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def port_open(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def free_port(taken=set()):  # pylint: disable=dangerous-default-value # remembers on purpose
    """A port below 32768 that nobody listens on, a new one with each call."""
    while True:
        port = random.SystemRandom().randrange(20000, 32000)
        if port not in taken and not port_open(port):
            taken.add(port)
            return port


class Proxy:
    """What millrace reaches a server through; see proxy.py for what it can do."""

    def __init__(self, target_port):
        self.port = free_port()
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
    """A Kafka of one node. `direct` is for the test, `proxied` is the way through `proxy`, for millrace."""

    def __init__(self, disk_mb=None, **settings):
        self.folder = tempfile.mkdtemp(prefix="millrace-broker-")
        self.settings = settings
        self.direct_port, self.inner_port, self.controller_port = free_port(), free_port(), free_port()
        self.proxy = Proxy(self.inner_port)
        self.direct, self.proxied = f"127.0.0.1:{self.direct_port}", f"127.0.0.1:{self.proxy.port}"
        self.process = self.disk = None
        self.started = 0.0  # when it began to serve, monotonic
        try:
            if disk_mb is not None:
                self.disk = Disk(os.path.join(self.folder, "logs"), disk_mb)
            self._configure()
            self._run_tool("kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", self.conf)
            self.start()
            self.admin = self.client()
        except BaseException:
            self.close()
            raise

    def _configure(self):
        self.conf = os.path.join(self.folder, "server.properties")
        values = {
            "process.roles": "broker,controller", "node.id": 1,
            "controller.quorum.voters": f"1@127.0.0.1:{self.controller_port}",
            "listeners": f"DIRECT://{self.direct},PROXIED://127.0.0.1:{self.inner_port},"
                         f"CONTROLLER://127.0.0.1:{self.controller_port}",
            "advertised.listeners": f"DIRECT://{self.direct},PROXIED://{self.proxied}",
            "controller.listener.names": "CONTROLLER", "inter.broker.listener.name": "DIRECT",
            "listener.security.protocol.map": "DIRECT:PLAINTEXT,PROXIED:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": os.path.join(self.folder, "logs"), "auto.create.topics.enable": "false",
            # After a kill the controller holds the old registration this long.
            "broker.session.timeout.ms": 2000, "broker.heartbeat.interval.ms": 250,
            "offsets.topic.replication.factor": 1, "offsets.topic.num.partitions": 1,
            "transaction.state.log.replication.factor": 1, "transaction.state.log.min.isr": 1,
            "transaction.state.log.num.partitions": 1, "share.coordinator.state.topic.replication.factor": 1,
            "share.coordinator.state.topic.min.isr": 1, "log.cleaner.dedupe.buffer.size": 16777216,
        }
        values.update({key.replace("_", "."): value for key, value in self.settings.items()})
        with open(self.conf, "w", encoding="ascii") as file:
            file.writelines(f"{key}={value}\n" for key, value in values.items())

    def _java(self, *options):
        classes = os.path.join(os.environ["MILLRACE_TOOLS_DIR"], "kafka", "libs", "*")
        inside = self.disk.inside if self.disk else []
        archive = glob.glob(os.path.join(os.environ["MILLRACE_STAND_DIR"], "cds", "*.jsa"))
        share = [f"-XX:SharedArchiveFile={archive[0]}"] if archive else []
        return [*inside, "java", "-XX:+UseSerialGC", *share, f"-Dlog4j2.configurationFile={os.path.abspath(LOG4J)}",
                "-cp", classes, *options]

    def _run_tool(self, *arguments):
        subprocess.run(self._java("-Xmx128m", *arguments), check=True, stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL, timeout=120)

    def start(self):
        """Until it serves; once more if it ends at once (a port may be held for a moment)."""
        for attempt in (1, 2, 3):
            with open(os.path.join(self.folder, "log"), "ab") as log:
                # pylint: disable-next=consider-using-with # outlives this function
                self.process = subprocess.Popen(self._java("-Xms128m", "-Xmx512m", "kafka.Kafka", self.conf),
                                                stdout=log, stderr=log, start_new_session=True,
                                                preexec_fn=end_with_parent)
            eventually(lambda: self.process.poll() is not None or self.serves(), 300, "the broker")
            if self.process.poll() is None:
                self.started = time.monotonic()
                return
            assert attempt < 3, f"the broker does not start:\n{self.log_end()}"

    def client(self):
        return AdminClient({"bootstrap.servers": self.direct, "log_level": 0})

    def serves(self):
        if not port_open(self.direct_port):
            return False
        try:
            metadata = self.client().list_topics(timeout=3)
            return len(metadata.brokers) > 0
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
        self.proxy.close()
        if self.disk:
            self.disk.close()
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

    def free_mb(self):
        out = subprocess.run([*self.inside, "df", "-m", "--output=avail", self.folder], check=True,
                             capture_output=True, text=True).stdout
        return int(out.split()[-1])

    def close(self):
        self.keeper.kill()
        self.keeper.wait(30)
        self.keeper.stdout.close()
        self.keeper.stderr.close()
