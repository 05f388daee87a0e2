"""Three brokers that hold each record three times, two of which must have it before it is acknowledged.

Looks like a `servers.Broker` to what only sends faults and asks for positions: `proxy`, `direct`, `proxied`, `admin`,
`client`, `started`, `close`; the faults of single nodes take one of `nodes`."""

import time

from confluent_kafka.admin import AdminClient

from kit import eventually
from servers import Broker

NODES = 3


class AllProxies:
    """The proxies of all brokers, set together."""

    def __init__(self, nodes):
        self.nodes = nodes

    def set(self, mode):
        for node in self.nodes:
            node.proxy.set(mode)


class Cluster:
    def __init__(self, **settings):
        # Three virtual machines on few cores: a pause of some seconds is no death.
        settings = {"broker_session_timeout_ms": 5000, "replica_lag_time_max_ms": 10000, **settings}
        self.nodes = [Broker.of_cluster(number, settings) for number in range(1, NODES + 1)]
        self.proxy = AllProxies(self.nodes)
        self.direct = ",".join(node.direct for node in self.nodes)
        self.proxied = ",".join(node.proxied for node in self.nodes)
        try:
            for node in self.nodes:
                node.configure(self.nodes)
            for node, process in [(node, node.format()) for node in self.nodes]:
                node.formatted(process)
            self.start(*self.nodes)
            self.admin = self.client()
        except BaseException:
            self.close()
            raise

    @property
    def started(self):
        return max(node.started for node in self.nodes)

    def client(self):
        return AdminClient({"bootstrap.servers": self.direct, "log_level": 0, "reconnect.backoff.ms": 50,
                            "reconnect.backoff.max.ms": 500})

    @staticmethod
    def start(*nodes):
        """All together: a lone controller elects nobody."""
        for node in nodes:
            node.launch()
        for node in nodes:
            node.wait_until_it_serves()

    def in_sync(self, limit_s=240):
        """Waits until every broker says that every partition has all its replicas."""
        clients = [node.client() for node in self.nodes]

        def whole():
            time.sleep(0.2)
            return all(p.leader > 0 and len(p.isrs) == NODES for client in clients
                       for topic in client.list_topics(timeout=5).topics.values() for p in topic.partitions.values())
        eventually(whole, limit_s, "all replicas in sync")

    def leader(self, topic, partition=0):
        client = self.client()

        def found():
            number = client.list_topics(timeout=5).topics[topic].partitions[partition].leader
            return next((node for node in self.nodes if node.number == number), None)
        return eventually(found, 60, f"a leader of {topic}")

    def coordinator(self):
        """Where transactions are kept; their topic has one partition."""
        return self.leader("__transaction_state")

    def log_end(self):
        return "\n".join(node.log_end() for node in self.nodes)

    def close(self):
        for node in self.nodes:
            node.close()
