"""A new slot takes the place of one that holds changes: that they are left out is known whenever it is killed, and nothing is
called left out that was delivered, or that nobody streams."""

import json

import psycopg
import pytest

from kit import dsn, eventually
from test_snapshot import MODES, folded, read_until, slot_of_a_second_copy, slots, table_rows, as_rows
from test_verify import copied

KILLED = ("made", "gone")


def stopped(database, millrace, tables, rows=200, **options):
    """A pipeline with a state topic of its own that has delivered all of t and has ended; its process and that topic."""
    database.run("CREATE TABLE t (id int PRIMARY KEY, v text)")
    database.run("INSERT INTO t SELECT i, repeat('x', 100) FROM generate_series(1, %s) i", [rows])
    state = database.create_topic(f"{database.name}-state", config={"cleanup.policy": "compact"})
    process = millrace(tables, **{"sink__kafka__state_topic": f'"{state}"', "snapshot__mode": '"initial"', **options}).start().streaming()
    database.run("INSERT INTO t VALUES (50000, 'new')")
    database.all_confirmed()
    assert process.stop() == 0
    eventually(lambda: not database.run("SELECT FROM pg_replication_slots WHERE active"), what="the slot's rest")
    return process, state


def gap_of(state):
    return copied(state, lambda record: True)[-1][0].json.get("gap")


@pytest.mark.parametrize("killed", KILLED)
@pytest.mark.parametrize("delivery", MODES)
@pytest.mark.parametrize("mode", ("when_needed", "always"))
def test_a_gap_outlives_the_process_that_made_it(database, millrace, mode, delivery, killed):
    """Without a stored position; killed once the new slot is there, or once the old one is gone."""
    database.run("CREATE TABLE z (id int PRIMARY KEY); INSERT INTO z VALUES (1)")
    process, _ = stopped(database, millrace, ("t", "z"), 20000, **MODES[delivery])
    database.run("DELETE FROM t WHERE id <= 20")
    confirmed = database.slot_row("confirmed_flush_lsn")
    state = database.create_topic(f"{database.name}-other", config={"cleanup.policy": "compact"})
    process.configure(**{"sink__kafka__state_topic": f'"{state}"', "snapshot__mode": json.dumps(mode), **MODES[delivery]})
    if killed == "made":
        slot_of_a_second_copy(database)  # one is not made as long as somebody has a table locked
        with psycopg.connect(dsn(database.name)) as holder:
            holder.execute("LOCK TABLE t, z IN ACCESS EXCLUSIVE MODE")
            process.start().wait_for("snapshot_begun")
            process.kill()
            assert database.slot in slots(database)
    else:
        process.start()
        eventually(lambda: database.slot not in slots(database), what="the end of the old slot")
        process.kill()
    eventually(lambda: not database.run("SELECT FROM pg_replication_slots WHERE active"), what="the slots' rest")
    process.start().streaming()
    gap = gap_of(state)  # whoever ended the copy
    assert gap is not None and (gap["from"], gap["settled"]) == (str(confirmed), "everything"), gap
    assert process.stop() == 0 and slots(database) == [database.slot]


@pytest.mark.parametrize("delivery", MODES)
def test_a_gap_is_stored_before_the_old_slot_goes(database, millrace, topic, delivery):
    """Rows are with the sink, and the copy is not at its end; the rest comes once, and the gap stays the same."""
    database.run("CREATE TABLE z (id int PRIMARY KEY); INSERT INTO z VALUES (1)")
    process, _ = stopped(database, millrace, ("t", "z"), 20000, **MODES[delivery])
    database.run("DELETE FROM t WHERE id <= 20")
    state = database.create_topic(f"{database.name}-other", config={"cleanup.policy": "compact"})
    process.configure(**{"sink__kafka__state_topic": f'"{state}"', "snapshot__mode": '"always"', **MODES[delivery]})
    slot_of_a_second_copy(database)
    with psycopg.connect(dsn(database.name)) as holder:
        holder.execute("LOCK TABLE z IN ACCESS EXCLUSIVE MODE")
        process.start()
        eventually(lambda: slots(database) == [f"{database.slot}_snapshot_2"], what="the end of the old slot")
        gap = gap_of(state)
        process.kill()
    process.start().streaming()
    told, = process.log("gap_copied")
    assert gap["to"] == told["to"] and "settled" not in gap and gap_of(state)["settled"] == "everything"
    rows, kept = folded(read_until(topic(database.topic("z")), '{"id":1}'))
    assert as_rows(rows) == table_rows(database, "z") and kept
    assert process.stop() == 0 and slots(database) == [database.slot]


def another(database, millrace):
    """Of the schema of t, published with it and not streamed."""
    database.run("CREATE TABLE u (id int); CREATE TABLE p (id int) PARTITION BY RANGE (id); CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (100); ALTER TABLE p1 REPLICA IDENTITY FULL;"
                 f"CREATE PUBLICATION {database.publication} FOR ALL TABLES")
    return stopped(database, millrace, ("t",), snapshot__mode='"always"')


def started_again(process, state):
    process.start().streaming()
    told = process.log("gap_copied")
    assert process.stop() == 0
    return told, gap_of(state)


def test_tables_that_are_not_streamed_leave_no_gap(database, millrace):
    process, state = another(database, millrace)
    for written in ("INSERT INTO u VALUES (1)", "TRUNCATE u", "INSERT INTO p VALUES (1); DELETE FROM p",
                    "CREATE TABLE made (id int); INSERT INTO made VALUES (1)"):
        database.run(written)
        assert started_again(process, state) == ([], None), written
    database.run("INSERT INTO u VALUES (2); DELETE FROM t WHERE id = 1; INSERT INTO u VALUES (3)")
    assert len(started_again(process, state)[0]) == 1


@pytest.mark.parametrize("how", ("renamed", "dropped", "partition", "truncated"))
def test_what_may_have_been_streamed_is_a_gap(database, millrace, how):
    """It had the name then, is gone, or was attached to a table that is streamed."""
    database.run("CREATE TABLE r (id int, v text) PARTITION BY RANGE (id); CREATE TABLE r0 PARTITION OF r FOR VALUES FROM (-9) TO (0);"
                 "ALTER TABLE r REPLICA IDENTITY FULL; ALTER TABLE r0 REPLICA IDENTITY FULL;"
                 "CREATE TABLE r1 (id int, v text); CREATE TABLE d (id int)")
    tables = {"partition": ("t", "r"), "dropped": ("t", "public.d.*")}.get(how, ("t",))
    database.run(f"CREATE PUBLICATION {database.publication} FOR ALL TABLES")
    process, state = stopped(database, millrace, tables, snapshot__mode='"always"')
    database.run({"renamed": "DELETE FROM t WHERE id = 1; ALTER TABLE t RENAME TO was_t; CREATE TABLE t (id int PRIMARY KEY, v text)",
                  "dropped": "INSERT INTO d VALUES (1); DROP TABLE d; CREATE TABLE d2 (id int)",
                  "partition": "ALTER TABLE r ATTACH PARTITION r1 FOR VALUES FROM (0) TO (100); INSERT INTO r VALUES (1, 'x');"
                               "ALTER TABLE r DETACH PARTITION r1",
                  "truncated": "TRUNCATE d, t"}[how])
    assert len(started_again(process, state)[0]) == 1


def test_what_was_delivered_is_no_gap(database, millrace, topic):
    """Exactly once: it is stored, and PostgreSQL has not heard of it yet."""
    process, state = stopped(database, millrace, ("t",), snapshot__mode='"always"', **MODES["exactly-once"])
    options = {"sink__kafka__state_topic": f'"{state}"', "snapshot__mode": '"always"', **MODES["exactly-once"]}
    source = topic(database.topic("t"))
    for more in ("", "DELETE FROM t WHERE id = 1"):
        process.configure(pipeline__status_interval='"20s"', **options).start().streaming()
        confirmed = database.slot_row("confirmed_flush_lsn")
        database.run("INSERT INTO t SELECT max(id) + 1 FROM t")
        read_until(source, f'{{"id":{database.run("SELECT max(id) FROM t")[0][0]}}}')
        eventually(lambda: copied(state, lambda record: True)[-1][0].json["end_lsn"] > str(confirmed), what="the stored position")
        process.kill()
        assert database.slot_row("confirmed_flush_lsn") == confirmed
        database.run(more or "SELECT")
        process.configure(**options)
        eventually(lambda: not database.run("SELECT FROM pg_replication_slots WHERE active"), what="the slot's rest")
        told, _ = started_again(process, state)
        assert len(told) == (1 if more else 0)
