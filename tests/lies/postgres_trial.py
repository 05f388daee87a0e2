"""A lie of PostgreSQL's, and what comes of it: rows go to standard output, so each that is passed on is seen."""

from kafka_trial import STATE_RECORD, options
from lying_kafka import LyingKafka
from lying_postgres import END, FIRST, LyingPostgres, all_lies  # noqa: F401 (run.py asks for them)
from trial import QUIET_S, WAIT_S, Trial, wait_until

OPTIONS = {"sink.type": '"stdout"'}
COPY = {**OPTIONS, "snapshot.mode": '"initial"'}
AT_THE_END = ("stream done", "stream end", "stream ready")


def row_names(events):
    found = set()
    for event in events:
        after = (event.get("value") or {}).get("after") if isinstance(event.get("value"), dict) else None
        if after:
            found.add(after.get("name"))
    return found


def attempt(lie):
    state = lie.state if lie else ""
    server = LyingPostgres(lie)
    kafka = LyingKafka() if state == "resumed" else None
    if kafka:
        kafka.has_state(*STATE_RECORD)
    wanted = options(kafka, "at least once") if kafka else COPY if state.startswith("copy") else OPTIONS
    trial = Trial(lie.name if lie else "none", server.dsn(), wanted,
                  ["check"] if state == "check" else [])
    try:
        at_end = lie is None or lie.target in AT_THE_END
        wait_until(lambda: trial.ended() or server.finished.is_set() or (server.told.is_set() and not at_end), WAIT_S)
        wait_until(lambda: trial.ended() or server.finished.is_set(), QUIET_S)
        trial.stop()
        names = row_names(trial.events()) if state in ("", "fresh") else {"row-1"}
        honest = lie is None or not lie.target.startswith("first")
        if honest and server.confirmed >= FIRST[0] and "row-1" not in names:
            trial.verdict.faults.append(f"confirmed {server.confirmed:X}, and the first row is not passed on")
        trial.verdict.faults += server.faults
        trial.verdict.told = lie is None or server.told.is_set()
        return trial.judge()
    finally:
        server.close()
        if kafka:
            kafka.close()
