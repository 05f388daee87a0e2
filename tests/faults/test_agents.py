"""Three agents and sixty real pipelines over two PostgreSQL clusters, under load: an agent that is killed, one that stands still for a minute, a host
that is cut off, a node that is drained for an upgrade, a broker that restarts. Each pipeline is served again in time, and every row arrives once.

In time is what this machine gives: behind the session's timeout a loss may cost no more than a few times what it takes the same agents to start the same
pipelines while nothing is lost, in the same run. What is promised (15 s, on a machine that is not loaded) is printed beside it."""

import contextlib
import os
import signal
import time

import pytest

from agents import Fleet
from kit import Database, cannot_try, eventually
from network import Network, required
from servers import Broker, OtherServer

PIPELINES = int(os.environ.get("MILLRACE_TEST_PIPELINES", "60"))
SESSION_S = 6
SENDER_TIMEOUT_S = 10  # a host that has vanished keeps its locks so long
PROMISED_S = 15
TIMES = 2
HANGS_S = 240  # no step takes so long, whatever the load


class Place:
    """Hosts: this machine, and a network of its own, which reaches servers and broker here and can be cut off."""

    def __init__(self, marks):
        self.network = self.broker = None
        self.servers = []
        try:
            self.network = Network()
            self.broker = Broker(address=self.network.here)
            for mark in marks:
                self.servers.append(OtherServer(mark))
                self._open(self.servers[-1])
        except BaseException:
            self.close()
            raise

    def _open(self, server):
        server.stand("pg-start")
        database = Database(port=server.port)
        with open(database.run("SHOW hba_file")[0][0], "a", encoding="ascii") as file:
            file.write(f"host all all {self.network.here}/30 scram-sha-256\n")
        for name, value in (("listen_addresses", f"127.0.0.1,{self.network.here}"), ("wal_sender_timeout", f"{SENDER_TIMEOUT_S}s"),
                            ("max_wal_senders", 100), ("max_replication_slots", 100), ("max_connections", 300)):
            database.run(f"ALTER SYSTEM SET {name} = '{value}'")
        database.drop()
        server.stand("pg-restart")

    def cut(self):
        for port in (self.broker.inner_port, *(server.port for server in self.servers)):
            self.network.cut(port, "both")

    def close(self):
        for made in (*self.servers, self.broker, self.network):
            if made is not None:
                made.close()


@contextlib.contextmanager
def made_place(marks="12"):
    try:
        made = Place(marks)
    except PermissionError as error:
        if required():
            raise
        cannot_try(error)
    yield made
    made.close()


@pytest.fixture
def place():
    with made_place() as made:
        yield made


@pytest.fixture
def fleet(place):
    fleet = Fleet(PIPELINES, ports=[server.port for server in place.servers], bootstrap=place.broker.direct, inner=place.broker.proxied,
                  host=place.network.here, session_s=SESSION_S, options="source.postgres.insecure_tls = true\npipeline.memory = \"64MiB\"\n")
    yield fleet
    place.network.mend()
    fleet.close()


def processes(*agents):
    return sum(len(agent.children()) for agent in agents)


class Took:
    """How long it took until each pipeline had its process and its stream: where nothing was lost, and behind what makes a loss known."""

    def __init__(self, fleet):
        self.fleet, self.whole, self.lost = fleet, {}, {}

    def until_served(self, step, agents, known_s=None):
        """`known_s`: how long a loss is known to nobody; None: nothing is lost, and each of the agents gets a share."""
        begin = time.monotonic()
        eventually(lambda: processes(*agents) == PIPELINES and (known_s is not None or all(agent.children() for agent in agents)), HANGS_S,
                   f"{step}: one process of each pipeline")
        self.fleet.all_served(HANGS_S)
        took = time.monotonic() - begin
        (self.whole if known_s is None else self.lost)[step] = took - (known_s or 0)

    def judge(self):
        limit = TIMES * max(self.whole.values())
        for kind, steps in (("nothing lost", self.whole), ("behind the timeout", self.lost)):
            print(f"{kind}:", *(f"{step} {took:.1f} s," for step, took in steps.items()), f"load {os.getloadavg()[0]:.0f}")
        kept = [step for step, took in self.lost.items() if took <= PROMISED_S]
        print(f"within the {PROMISED_S} s that are promised: {len(kept)} of {len(self.lost)}")
        assert all(took <= limit for took in self.lost.values()), f"{self.lost}, and not within {limit:.1f} s"


@pytest.mark.timeout(1800)
def test_sixty_pipelines(place, fleet):
    fleet.apply()
    took = Took(fleet)
    a, b, c = fleet.agent("a").start(), fleet.agent("b").start(), fleet.agent("c", inside=place.network.inside).start()
    took.until_served("first start", (a, b, c))
    with fleet.load(0.2):
        a.kill()
        took.until_served("killed", (b, c), SESSION_S)
        a.start()
        took.until_served("back", (a, b, c))

        b.send(signal.SIGSTOP)
        took.until_served("frozen", (a, c), SESSION_S)
        time.sleep(60)  # how long it stands still: its processes stream on
        assert b.children()
        fleet.all_served(HANGS_S)
        b.send(signal.SIGCONT)
        took.until_served("goes on", (a, b, c))

        place.cut()
        took.until_served("cut off", (a, b), SESSION_S + SENDER_TIMEOUT_S)
        place.network.mend()
        took.until_served("mended", (a, b, c))

        for node, agent in (("a", a), ("b", b), ("c", c)):  # as an upgrade is rolled out
            fleet.command("drain", node)
            eventually(lambda agent=agent: not agent.children(), HANGS_S, f"node {node} without processes")
            fleet.all_served(HANGS_S)
            assert agent.stop() == 0
            fleet.command("undrain", node)
            agent.start()
            took.until_served(f"{node} upgraded", (a, b, c))

        place.broker.stop(signal.SIGTERM)
        place.broker.start()
        took.until_served("broker restarted", (a, b, c))
    fleet.all_arrived(HANGS_S)
    for agent in (a, b, c):
        assert agent.stop(HANGS_S) == 0
    took.judge()
