"""What the slot has confirmed beside how far the topics go, over and over."""

import threading
import time

import psycopg
from confluent_kafka import IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec

from kit import dsn

# Of log that is not confirmed. On a busy machine the writers are quicker than the rest; then they rest, so that the end
# of the storm, and a server that is to stop, have a bounded rest to deliver.
BACKLOG_MAX = 64 << 20


def ends(client, topics, partitions):
    """Where each partition ends: {(topic, partition): offset}."""
    asked = {TopicPartition(topic, p): OffsetSpec.latest() for topic in topics for p in range(partitions)}
    # Also where it is told apart: the ends of committed records come a moment after the commit's answer.
    answers = client.list_offsets(asked, request_timeout=5, isolation_level=IsolationLevel.READ_UNCOMMITTED)
    return {(where.topic, where.partition): answer.result().offset for where, answer in answers.items()}


class Sampler(threading.Thread):
    """Notes what the slot has confirmed, and then how far the topics go. It reaches both servers directly. And it tells
    the workload to rest while the backlog is large."""

    def __init__(self, database, broker, topics, partitions, workload):
        super().__init__(daemon=True)
        self.database, self.broker, self.workload = database, broker, workload
        self.topics, self.partitions = topics, partitions
        self.stopping = threading.Event()
        self.samples = []

    def run(self):
        connection = client = None
        while not self.stopping.wait(0.1):
            try:
                if connection is None:
                    connection = psycopg.connect(dsn("postgres"), autocommit=True, connect_timeout=5)
                row = connection.execute("SELECT confirmed_flush_lsn - '0/0', pg_current_wal_lsn() - "
                                         "confirmed_flush_lsn FROM pg_replication_slots WHERE slot_name = %s",
                                         [self.database.slot]).fetchone()
                started = self.broker.started
                client = client or self.broker.client()
                if row is not None and row[0] is not None:
                    self.workload.rest(row[1] > BACKLOG_MAX)
                    found = ends(client, self.topics, self.partitions)
                    # A broker that just started may answer with ends older than its log.
                    if started == self.broker.started and time.monotonic() - started > 2:
                        self.samples.append((int(row[0]), found))
            except psycopg.OperationalError:
                connection = None
            except KafkaException:
                client = None  # it would keep the leader epochs of before a broker's restart

    def finish(self):
        self.stopping.set()
        self.join(30)
        return self.samples
