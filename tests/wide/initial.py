"""A run in which existing rows are copied first, while the workload goes on: when millrace begins, what holds it up, and the judge."""

import threading

import psycopg

from judge import MARKER, UNAVAILABLE, Judge, as_text
from kit import dsn

# Keys that nobody knows, what may not be done to a table while it is copied (docs/snapshots.md), what the making of a slot waits for,
# and messages of before the stream.
WITHOUT = ("no-key", "nothing", "ddl", "key-ddl", "identity-ddl", "publication-ddl", "rename", "drop", "drop-full", "prepared", "messages")
HELD = ("w", "held")
GATE = 7  # an advisory lock: while it is held, the copy waits at that table
SETUP = "CREATE TABLE w.held (id int PRIMARY KEY); INSERT INTO w.held SELECT generate_series(1, 3)"
WHERE = [f"w.held: (SELECT true FROM pg_advisory_xact_lock_shared({GATE}))"]


def publish(database):
    """The table of the gate, where the publication does not mean it already."""
    there = database.run("SELECT 1 FROM pg_publication_tables WHERE pubname = %s AND schemaname = 'w' AND tablename = 'held'", [database.publication])
    if not there:
        database.run(f"ALTER PUBLICATION {database.publication} ADD TABLE w.held")


class Opening(threading.Thread):
    """Starts millrace when a third of the workload is done, and lets the copy end when two thirds are."""

    def __init__(self, run):
        super().__init__(daemon=True)
        self.run_, self.failure = run, None
        self.over, self.begun = threading.Event(), threading.Event()
        self.steps = sum(step.kind != "moment" for phase in run.plan.phases for step in phase)

    def passed(self, share):
        while len(self.run_.executor.done) < share * self.steps and not self.over.wait(0.002):
            pass

    def run(self):
        try:
            with psycopg.connect(dsn(self.run_.database.name), autocommit=True) as gate:
                gate.execute(f"SELECT pg_advisory_lock({GATE})")
                self.passed(1 / 3)
                with self.run_.lock:
                    self.run_.start_millrace()
                self.begun.set()
                self.passed(2 / 3)
        except Exception as error:  # pylint: disable=broad-except # told by Run
            self.failure = error
        self.begun.set()

    def finish(self):
        self.over.set()
        self.join(120)


class InitialJudge(Judge):
    """What was copied is where the replay begins. A copy that was broken off is read on under a later snapshot, and then events of
    what it has already come behind it: in that case only what is left of each key at the end counts."""

    def __init__(self, *given, attempts):
        super().__init__(*given)
        self.is_strict = attempts == 1

    def judge(self):
        self.events = self.accepted()
        self.check_ordinals()
        self.replay(self.marker_positions())
        return self.problems

    def marker_positions(self):
        """Of those that the stream has; all others are among the copied rows."""
        copied = {int(event.value["after"]["n"]) for event in self.events if self.is_read(event) and self.table_of(event) == MARKER}
        streamed = {int(event.value["after"]["n"]) for event in self.events
                    if not self.is_read(event) and event.value is not None and self.table_of(event) == MARKER}
        for number in sorted(self.committed.keys() - copied - streamed):
            self.wrong("lost", f"marker {number}, transaction {self.committed[number]}")
        if self.is_strict and copied & streamed:
            self.wrong("copied and streamed", f"markers {sorted(copied & streamed)[:5]}")
        committed, self.committed = self.committed, {n: xid for n, xid in self.committed.items() if n in streamed}
        found = super().marker_positions()
        self.committed = committed
        return found

    def replay(self, markers):
        self.begin()
        super().replay(markers if self.is_strict else [])

    def begin(self):
        """Only the tables' forms are known from the first picture."""
        moment = self.moments[0]
        for info in moment.infos:
            info.rows = None

    def take_read(self, state, name, group):
        self.reads += 1
        event = group[0]
        if len(group) > 1 or event.value["before"] is not None or event.value["source"]["snapshot"] in ("false", "incremental"):
            self.wrong("form of a copied row", f"{name}: {len(group)} records, {event.value['source']['snapshot']}")
        if name == HELD:
            return
        if state is None or not state.info.published:
            self.wrong("copied row of a table that is not published", name)
            return
        after = event.value["after"]
        self.check_columns(state.info, after)
        row = {column: as_text(value) for column, value in after.items()}
        key = self.key_of(state, event)
        self.check_key_values(state.info, key, row)
        if key is None:
            state.loose.append(row)
        elif self.is_strict and key in state.rows:
            self.wrong("copied twice", f"{name}: {key}")
        else:
            state.rows[key] = row

    def take(self, group):
        if group[0].value is not None and self.table_of(group[0]) == HELD and not self.is_read(group[0]):
            self.wrong("event of the table that nobody writes to", group[0].value["op"])
            return
        if group[0].value is None and not self.is_strict:
            return
        super().take(group)

    def take_event(self, state, event, old):
        if self.is_strict:
            return super().take_event(state, event, old)
        operation = event.value["op"]
        if operation == "t":
            state.rows = {}
            return None
        key = self.key_of(state, event)
        there = state.rows.pop(key, None)
        if operation == "d":
            return there
        row = {column: as_text(value) for column, value in event.value["after"].items()}
        for column, value in row.items():
            if value == UNAVAILABLE:
                row[column] = (there or old or {}).get(column)
        state.rows[key] = row
        return None

    def compare_last(self, moment):
        """What is left at the end, of tables that have a key."""
        for info in map(self.as_streamed, moment.infos):
            state = self.states.get(info.oid)
            if state is not None and info.rows is not None and self.wanted_keys(info):
                self.compare(state, info)
