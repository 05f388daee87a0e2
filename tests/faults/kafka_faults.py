"""What the director does to Kafka: one broker, or three, and a topic that refuses records."""

import signal
import time

from confluent_kafka import Producer
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from cluster import Cluster
from kit import eventually

TOO_LARGE = 65  # millrace's exit code
# Less than any event takes, more than what ends a transaction does.
REFUSING_BYTES = "100"


class KafkaFaults:
    """Part of director.Scene."""

    def clustered(self):
        return isinstance(self.broker, Cluster)

    def node(self):
        """The broker, or one of several: then all have everything, so that one more fault takes no copy too many."""
        if not self.clustered():
            return self.broker
        self.broker.in_sync()
        return self.chance.choice(self.broker.nodes)

    def broker_kill(self, node=None):
        node = node or self.node()
        node.stop(signal.SIGKILL)
        time.sleep(self.chance.uniform(0, 1))
        node.start()
        self.counts["broker crashes"] += 1

    def broker_restart(self):
        node = self.node()
        node.stop(signal.SIGTERM)
        node.start()
        self.counts["broker restarts"] += 1

    def broker_freeze(self):
        node = self.node()
        node.send(signal.SIGSTOP)
        try:
            time.sleep(self.chance.uniform(0.5, 4))
        finally:
            node.send(signal.SIGCONT)
        self.counts["freezes"] += 1

    # ---- three brokers ----

    def rolling_restart(self):
        """As an upgrade does it: one after the other, each has caught up before the next one goes."""
        self.broker.in_sync()
        for node in self.broker.nodes:
            node.stop(signal.SIGTERM)
            node.start()
            self.broker.in_sync()
        self.counts["rolling restarts"] += 1

    def leader_kill(self):
        self.broker.in_sync()
        topic = self.chance.choice(self.topics)
        self.broker_kill(self.broker.leader(topic, self.chance.randrange(self.partitions)))

    def coordinator_kill(self):
        """Of transactions: their end, and so their outcome, is what is lost."""
        self.broker.in_sync()
        self.broker_kill(self.broker.coordinator())

    def two_brokers_away(self):
        """Fewer copies than a record must have: nothing can be acknowledged until one is back."""
        self.broker.in_sync()
        away = self.chance.sample(self.broker.nodes, 2)
        for node in away:
            node.stop(signal.SIGTERM)
        time.sleep(self.chance.uniform(1, 5))
        self.broker.start(*away)
        self.counts["minorities"] += 1

    # ---- millrace's alone ----

    def fenced(self):
        """Somebody else takes millrace's transactional id for a moment: its session is over."""
        name = f"{self.database.prefix}/{self.database.slot}"

        def taken():
            other = Producer({"bootstrap.servers": self.broker.direct, "transactional.id": name, "log_level": 0})
            other.init_transactions(20)
            return True
        eventually(taken, 60, f"transactional id {name}")
        self.counts["fencings"] += 1

    def record_refused(self):
        """A topic takes no record for a moment. Requests of several are tried in halves, what is refused alone is tried
        three times, and that ends millrace; somebody who has mended the topic starts it."""
        self.revive()
        entry = ConfigEntry("max.message.bytes", REFUSING_BYTES, incremental_operation=AlterConfigOpType.SET)
        self._configure_topic(entry)
        try:
            code = self.subject.ended(300)
            assert code == TOO_LARGE, f"millrace ended with {code}:\n{self.subject.said()}"
        finally:
            entry.incremental_operation = AlterConfigOpType.DELETE
            self._configure_topic(entry)
        self.subject.start()
        end = self.database.run("SELECT pg_current_wal_insert_lsn()")[0][0]

        def delivered():
            if self.subject.millrace.process.poll() == TOO_LARGE:  # the brokers hear of it a little later
                self.subject.ended()
                self.subject.start()
            self.revive()
            return self.database.slot_row(f"confirmed_flush_lsn >= '{end}'")
        eventually(delivered, 180, "delivery of what was refused")
        self.counts["refusals"] += 1

    def _configure_topic(self, entry):
        def done():
            resource = ConfigResource(ResourceType.TOPIC, self.topics[0], incremental_configs=[entry])
            self.broker.admin.incremental_alter_configs([resource], request_timeout=10)[resource].result()
            return True
        eventually(done, 60, "the topic's configuration")
