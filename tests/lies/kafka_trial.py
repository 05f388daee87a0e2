"""A lie of Kafka's, and what comes of it: an honest PostgreSQL hears what is confirmed, and each row of it must have been
acknowledged. What the broker acknowledged and lost is its own lie; what it never acknowledged may not count as safe."""

import json

import trial
from lying_kafka import STATE_TOPIC, LyingKafka, lies_about, row_name
from lying_postgres import SLOT_AT, LyingPostgres, small
from trial import WAIT_S, Trial, wait_until

STREAM = tuple(small(f"transaction {i}", 0x3000 + 0x1000 * i, i) for i in range(1, 5))
STATE = {"version": 1, "system_id": "7000000000000000001", "timeline": 1, "slot": "shop", "publication": "shop",
         "end_lsn": "0/1000"}
STATE_RECORD = (b"millrace/shop", json.dumps(STATE).encode())
PATIENCE_S = 0.3
QUIET_S = 1
KINDS = {
    "exactly once": {"sink.kafka.delivery": '"exactly-once"'},
    "at least once": {},
    "sasl": {"sink.kafka.sasl.mechanism": '"PLAIN"', "sink.kafka.sasl.username": '"someone"',
             "sink.kafka.sasl.password": '"env:KAFKA_PASSWORD"'},
    "check": {},
}


def options(kafka, kind):
    return {"sink.type": '"kafka"', "sink.kafka.brokers": f'["{kafka.address()}"]', "sink.kafka.compression": '"none"',
            "metrics.interval": '"0ms"', **KINDS[kind]}
# What ends librdkafka itself, as seen with 2.0.2 and 2.15.1: texts without a length, counts below 0, batches of zeros; and answers about a transaction's
# partitions that break off, after which a topic stays locked and rd_kafka_destroy waits for ever (mr_kafka_client_end). Nothing is lost:
# who starts it again goes on from the slot.
LIBRDKAFKA = {"metadata": ("topic: null", "host: null", "partitions: minus 1", "brokers: minus 1"), "fetch": ("topic: null", "records: zeros"),
              "add partitions": ("topic: null", "partitions: highest", "a byte less", "half a body", "length: 1 less")}


class Witness:
    """Compares each confirmation, as it comes, with what the broker has acknowledged until then."""

    def __init__(self, kafka):
        self.kafka, self.faults = kafka, []

    def confirmed(self, lsn):
        with self.kafka.lock:
            rows = {row_name(value) for topic, records in self.kafka.acknowledged.items() if topic != STATE_TOPIC
                    for _, value in records}
            stored = [json.loads(value)["end_lsn"] for _, value in self.kafka.acknowledged.get(STATE_TOPIC, []) if value]
        for number, (end, _) in enumerate(STREAM, 1):
            if lsn >= end and f"row-{number}" not in rows:
                self.faults.append(f"confirmed {lsn:X}, and row {number} was never acknowledged")
        furthest = max((int(high, 16) << 32 | int(low, 16) for high, low in (text.split("/") for text in stored)), default=0)
        if lsn > max(SLOT_AT, furthest):
            self.faults.append(f"confirmed {lsn:X}, and {furthest:X} is stored")


def attempt(lie, kind=None):
    kind = lie.kind if lie else kind
    kafka, source = LyingKafka(lie), LyingPostgres(stream=STREAM, patience_s=PATIENCE_S)
    if kind in ("exactly once", "check"):
        kafka.has_state(*STATE_RECORD)
    witness = Witness(kafka)
    source.on_confirm = witness.confirmed
    tried = Trial(lie.name if lie else kind, source.dsn(), options(kafka, kind), ["check"] if kind == "check" else [])
    try:
        wait_until(lambda: tried.ended() or kafka.told.is_set() or source.finished.is_set(), WAIT_S)
        wait_until(lambda: tried.ended() or source.finished.is_set(), QUIET_S)
        tried.stop()
        tried.verdict.faults += source.faults + witness.faults[:3]
        tried.verdict.told = lie is None or kafka.told.is_set()
        tried.seen = kafka.seen
        tried.verdict.of_library = lie is not None and lie.how in LIBRDKAFKA.get(lie.target, ())
        return tried.judge() if lie else (tried.judge(), kafka, source)
    finally:
        kafka.close()
        source.close()


def all_lies():
    """About each message that an honest run of each kind has; what several have, is lied about in one."""
    known = {}
    for kind in KINDS:
        verdict, kafka, _ = attempt(None, kind)
        assert verdict.good and verdict.code == 0, (verdict, verdict.said)
        again = {name for name in known if not (kind == "at least once" and name.startswith("produce"))}
        yield from lies_about(kafka.seen, kind, again)
        known.update(kafka.seen)


__all__ = ["all_lies", "attempt", "trial"]
