"""How long it takes from a fault's end until something new comes. It reads table ledger's topic as a consumer does."""

import json
import threading
import time

from confluent_kafka import Consumer, KafkaException, TopicPartition


class Recovery(threading.Thread):
    """`longest`: (seconds, fault). When a fault ends before anything new has come since the one before, the time runs
    on from the earlier one."""

    def __init__(self, bootstrap, topic, partitions):
        super().__init__(daemon=True)
        self.stopping = threading.Event()
        self.seen = {}       # writer -> the highest (txno, opno)
        self.pending = None  # (when the fault ended, its name)
        self.longest = (0.0, "none")
        self.lock = threading.Lock()
        self.consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "recovery", "log_level": 0,
                                  "reconnect.backoff.max.ms": 200, "fetch.wait.max.ms": 50})
        self.consumer.assign([TopicPartition(topic, p, 0) for p in range(partitions)])

    def fault_ended(self, name):
        with self.lock:
            self.pending = self.pending or (time.monotonic(), name)

    def run(self):
        while not self.stopping.is_set():
            try:
                messages = self.consumer.consume(1000, timeout=0.1)
            except KafkaException:
                continue
            rows = [json.loads(m.value())["after"] for m in messages if m.error() is None]
            if any([self._is_new(row) for row in rows]):  # a list: each is noted
                self._came()
        self.consumer.close()

    def _is_new(self, row):
        """A writer's rows come in the order in which it wrote them, whatever repeats are between."""
        place = row["txno"], row["opno"]
        if place <= self.seen.get(row["writer"], (0, 0)):
            return False
        self.seen[row["writer"]] = place
        return True

    def _came(self):
        with self.lock:
            if self.pending is not None:
                ended, name = self.pending
                self.longest = max(self.longest, (time.monotonic() - ended, name))
                self.pending = None

    def finish(self):
        """After everything was delivered: what is still pending then had no new row to wait for."""
        self.stopping.set()
        self.join(30)
        return self.longest
