"""A lie of a schema registry's, and what comes of it: Avro from an honest PostgreSQL into an honest broker. What is confirmed must
have been acknowledged, and no record may name a number that the registry has told for two schemas."""

import json

from kafka_trial import PATIENCE_S, QUIET_S, STREAM, Witness, options
from lying_kafka import STATE_TOPIC, LyingKafka
from lying_postgres import LyingPostgres
from lying_registry import LyingRegistry, all_lies  # noqa: F401 (run.py asks for it)
from trial import WAIT_S, Trial, wait_until


def avro(registry):
    return {"format": '"avro"', "types": '"debezium"', "schema_registry.url": json.dumps([registry.url]),
            "schema_registry.username": '"someone"', "schema_registry.password": '"env:KAFKA_PASSWORD"', "messages.prefixes": "[]"}


def confused(kafka, registry):
    """Numbers that records have, and that stand for more than one schema."""
    with kafka.lock, registry.lock:
        used = {int.from_bytes(part[1:5], "big") for topic, records in kafka.acknowledged.items() if topic != STATE_TOPIC
                for record in records for part in record if part}
        return sorted(number for number in used if len(registry.texts.get(number, {None})) != 1)


def attempt(lie):
    registry, kafka, source = LyingRegistry(lie), LyingKafka(), LyingPostgres(stream=STREAM, patience_s=PATIENCE_S)
    witness = Witness(kafka)
    source.on_confirm = witness.confirmed
    tried = Trial(lie.name if lie else "none", source.dsn(), {**options(kafka, "at least once"), **avro(registry)})
    try:
        wait_until(lambda: tried.ended() or registry.told.is_set() or source.finished.is_set(), WAIT_S)
        wait_until(lambda: tried.ended() or source.finished.is_set(), QUIET_S)
        if lie and lie.how.startswith("redirect"):
            wait_until(lambda: "it redirects to http" in tried.text(tried.said), WAIT_S)
            tried.verdict.faults += ["does not tell of the redirect"] * ("it redirects to http" not in tried.text(tried.said))
        tried.stop()
        tried.verdict.faults += source.faults + witness.faults[:3]
        tried.verdict.faults += [f"records name schema {number}, which is two" for number in confused(kafka, registry)]
        tried.verdict.told = lie is None or registry.told.is_set()
        tried.verdict.finished = source.finished.is_set()
        tried.verdict.faults += ["went where a redirect leads"] * registry.visited + ["no login"] * (registry.logins == 0)
        return tried.judge()
    finally:
        for server in (registry, kafka, source):
            server.close()
