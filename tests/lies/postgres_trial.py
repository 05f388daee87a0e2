"""A lie of PostgreSQL's, and what comes of it: rows go to standard output, so each that is passed on is seen."""

from kafka_trial import STATE_RECORD, options
from lying_kafka import LyingKafka
from lying_postgres import END, FIRST, LyingPostgres, all_lies  # noqa: F401 (run.py asks for them)
from trial import QUIET_S, WAIT_S, Trial, wait_until

OPTIONS = {"sink.type": '"stdout"'}
BY_STATE = {
    "copy": {"snapshot.mode": '"initial"'}, "copy again": {"snapshot.mode": '"initial"'},
    "signals": {"snapshot.signal_table": '"public.signals"'},
    "drafted": {"publication.where": '["public.t: id > 0"]', "publication.columns": '["public.t:id,name"]', "publication.alter": "true",
                "columns.mask": '["public.*:other.*=5"]'},
    "heartbeat": {"heartbeat.interval": '"20ms"', "heartbeat.query": '"SELECT heartbeat"'},
}
TOLD_ON_STDOUT = ("", "fresh", "signals", "drafted", "heartbeat", "detached")
# What is asked on connections beside the stream's, which may be at its end by then.
BESIDE_THE_STREAM = {"signals": ("names of", "table found", "transaction number", "chunk", "reader", "signal"), "heartbeat": ("heartbeat",)}
INVENTED = ("chunk row", "signal")  # such a lie is about the rows themselves
# libpq forgets the result at hand when parameters are described, which nobody asks it for (getParamDescriptions in
# src/interfaces/libpq/fe-protocol3.c sets conn->result, whatever it was).
LIBPQ_LEAKS = ("another type 't'",)
AT_THE_END = ("stream done", "stream end", "stream ready")


def row_names(events):
    found = set()
    for event in events:
        after = (event.get("value") or {}).get("after") if isinstance(event.get("value"), dict) else None
        if after:
            found.add(after.get("name"))
    return found


def attempt(lie, state=""):
    state = lie.state if lie else state
    server = LyingPostgres(lie, state=state)
    kafka = LyingKafka() if state == "resumed" else None
    if kafka:
        kafka.has_state(*STATE_RECORD)
    wanted = options(kafka, "at least once") if kafka else {**OPTIONS, **BY_STATE.get(state, {})}
    trial = Trial(lie.name if lie else "none", server.dsn(), wanted,
                  ["check"] if state == "check" else [], leaks=not (lie and lie.how in LIBPQ_LEAKS))
    try:
        at_end = lie is None or lie.target in AT_THE_END
        beside = lie is not None and lie.target.startswith(BESIDE_THE_STREAM.get(state, "\n"))
        wait_until(lambda: trial.ended() or (server.finished.is_set() and not beside)
                   or (server.told.is_set() and not at_end), WAIT_S)
        wait_until(lambda: trial.ended() or (server.finished.is_set() and not beside), QUIET_S)
        trial.stop()
        names = row_names(trial.events()) if state in TOLD_ON_STDOUT else {"row-1"}
        honest = lie is None or not lie.target.startswith("first")
        if honest and server.confirmed >= FIRST[0] and "row-1" not in names:
            trial.verdict.faults.append(f"confirmed {server.confirmed:X}, and the first row is not passed on")
        copied = state == "signals" and "incremental_done" in Trial.text(trial.said) and lie and not lie.target.startswith(INVENTED)
        if copied and "row-2" not in names:
            trial.verdict.faults.append("a copied row is not passed on, and the copy counts as done")
        trial.verdict.faults += server.faults
        trial.verdict.told = lie is None or server.told.is_set()
        return trial.judge()
    finally:
        server.close()
        if kafka:
            kafka.close()
