"""Three agents and sixty real pipelines over two PostgreSQL clusters, under load: an agent that is killed, one that stands still for a minute, a host
that is cut off, a node that is drained for an upgrade, a broker that restarts. Each pipeline is served again in time, and every row arrives once."""

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
IN_TIME_S = SESSION_S + 15
SENDER_TIMEOUT_S = 10  # a host that has vanished keeps its locks so long


class Place:
    """Hosts: this machine, and a network of its own, which reaches servers and broker here and can be cut off."""

    def __init__(self):
        self.network = self.broker = None
        self.servers = []
        try:
            self.network = Network()
            self.broker = Broker(address=self.network.here)
            for mark in "12":
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


@pytest.fixture
def place():
    try:
        place = Place()
    except PermissionError as error:
        if required():
            raise
        cannot_try(error)
    yield place
    place.close()


@pytest.fixture
def fleet(place):
    fleet = Fleet(PIPELINES, ports=[server.port for server in place.servers], bootstrap=place.broker.direct, inner=place.broker.proxied,
                  host=place.network.here, session_s=SESSION_S, options="source.postgres.insecure_tls = true\npipeline.memory = \"64MiB\"\n")
    yield fleet
    place.network.mend()
    fleet.close()


def processes(*agents):
    return sum(len(agent.children()) for agent in agents)


@pytest.mark.timeout(900)
def test_sixty_pipelines(place, fleet):
    fleet.apply()
    a, b, c = fleet.agent("a").start(), fleet.agent("b").start(), fleet.agent("c", inside=place.network.inside).start()
    fleet.shared(a, b, c, limit_s=120)
    with fleet.load(0.2):
        a.kill()
        eventually(lambda: processes(b, c) == PIPELINES, IN_TIME_S, "the others' processes")
        fleet.all_served(IN_TIME_S)
        a.start()
        eventually(lambda: a.children() and processes(a, b, c) == PIPELINES, 60, "a share for the one that is back")
        fleet.all_served(IN_TIME_S)

        b.send(signal.SIGSTOP)
        eventually(lambda: processes(a, c) == PIPELINES, IN_TIME_S, "processes that stand by for the frozen one's")
        time.sleep(60)  # how long it stands still: its processes stream on
        assert b.children()
        fleet.all_served(1)
        b.send(signal.SIGCONT)
        eventually(lambda: processes(a, b, c) == PIPELINES, 60, "one process of each pipeline")
        fleet.all_served(IN_TIME_S)

        place.cut()
        eventually(lambda: processes(a, b) == PIPELINES, IN_TIME_S, "processes for those of the host that is away")
        fleet.all_served(SENDER_TIMEOUT_S + IN_TIME_S)
        place.network.mend()
        eventually(lambda: processes(a, b, c) == PIPELINES, 120, "one process of each pipeline")
        fleet.all_served(IN_TIME_S)

        for node, agent in (("a", a), ("b", b), ("c", c)):  # as an upgrade is rolled out
            fleet.command("drain", node)
            eventually(lambda agent=agent: not agent.children(), 120, f"node {node} without processes")
            fleet.all_served(IN_TIME_S)
            assert agent.stop() == 0
            fleet.command("undrain", node)
            agent.start()
            eventually(lambda agent=agent: agent.children() and processes(a, b, c) == PIPELINES, 60, f"a share for {node} again")

        place.broker.stop(signal.SIGTERM)
        place.broker.start()
        fleet.all_served(60)
        eventually(lambda: processes(a, b, c) == PIPELINES, 60, "one process of each pipeline")
    fleet.all_arrived(120)
    for agent in (a, b, c):
        assert agent.stop(90) == 0
