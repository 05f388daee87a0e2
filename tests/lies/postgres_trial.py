"""A lie of PostgreSQL's, and what comes of it: rows go to standard output, so each that is passed on is seen."""

from lying_postgres import END, FIRST, LyingPostgres, all_lies  # noqa: F401 (run.py asks for them)
from trial import QUIET_S, WAIT_S, Trial, wait_until

OPTIONS = {"sink.type": '"stdout"'}
AT_THE_END = ("stream done", "stream end", "stream ready")


def row_names(events):
    found = set()
    for event in events:
        after = (event.get("value") or {}).get("after") if isinstance(event.get("value"), dict) else None
        if after:
            found.add(after.get("name"))
    return found


def attempt(lie):
    server = LyingPostgres(lie)
    trial = Trial(lie.name if lie else "none", server.dsn(), OPTIONS)
    try:
        at_end = lie is None or lie.target in AT_THE_END
        wait_until(lambda: trial.ended() or server.finished.is_set() or (server.told.is_set() and not at_end), WAIT_S)
        wait_until(lambda: trial.ended() or server.finished.is_set(), QUIET_S)
        trial.stop()
        names = row_names(trial.events())
        honest = lie is None or not lie.target.startswith("first")
        if honest and server.confirmed >= FIRST[0] and "row-1" not in names:
            trial.verdict.faults.append(f"confirmed {server.confirmed:X}, and the first row is not passed on")
        trial.verdict.faults += server.faults
        if "left behind" in trial.text(trial.said):
            trial.verdict.faults.append("a thread did not end")
        trial.verdict.told = lie is None or server.told.is_set()
        return trial.judge()
    finally:
        server.close()
