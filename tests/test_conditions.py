"""Conditions in SQL, by each way in: one expression is taken, and nothing gets out of its parentheses."""

import json
import random
import subprocess
import urllib.error
import urllib.request

import psycopg
import pytest

from kit import BINARY, check, connect, dsn, eventually, expect
from test_incremental import command, copies, copy, is_done
from test_hostile_role import PASSWORD
from test_signals import EXECUTE, TABLE, send, snapshot

REFUSED = "the condition is not one SQL expression: "
ESCAPES = ["false) UNION ALL SELECT 1000 + id, v FROM public.payroll WHERE (true", "false) UNION ALL SELECT 2, 'invented' WHERE (true",
           "true) GROUP BY (id", "true) OR (1=1", "true) TO STDOUT; DELETE FROM payroll; COPY (SELECT 1", "v = E'\\\\') UNION SELECT 1, ('",
           "v = '\\') UNION SELECT 1, (' --", "v = E'a'\n'\\'') UNION ALL SELECT 7, v FROM public.payroll WHERE (v <> '", "true /*", "$$", "true; COMMIT"]
# Each hides a parenthesis, or ends with a comment, and is true of the rows with id > 90.
TAKEN = ["id > 90 --", "id > 90 AND v <> ')' -- )", "(id > 90) AND v <> E'\\')'", "id > 90 /* ) /* ( */ */", "id > $$90$$::int AND v <> $a$)$a$",
         "id IN (SELECT i FROM generate_series(91, 100) i)", "\"id\" > 90 AND '\\' = '\\'"]


@pytest.fixture(name="payroll")
def fixture_payroll(database):
    database.run(TABLE + "CREATE TABLE t (id int PRIMARY KEY, v text); INSERT INTO t SELECT i, 'x' FROM generate_series(1, 100) i;"
                         "CREATE TABLE payroll (id int, v text); INSERT INTO payroll VALUES (1, 'secret')")
    return database


def ask(process, **wish):
    request = urllib.request.Request(f"http://{process.address()}/api/snapshot", data=json.dumps(wish).encode(), method="POST",
                                     headers={"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def filtered(condition):
    return snapshot("public.t", **{"additional-conditions": [{"data-collection": "public.t", "filter": condition}]})


def test_while_the_stream_runs(payroll, millrace, topic):
    """A signal is ignored, HTTP says 400, and the command ends with 78; each with the reason. What is refused asks for nothing."""
    process = millrace(("t",), snapshot__signal_table='"public.signal"').start().streaming()
    for condition in ESCAPES:
        send(payroll, EXECUTE, filtered(condition))
        status, said = ask(process, type="start", tables=["public.t"], where=condition)
        assert status == 400 and REFUSED in said, (condition, said)
        code, said = command(process, "t", "--where", condition)
        assert code == 78 and REFUSED in said, (condition, said)
    eventually(lambda: len(process.log("signal_ignored")) == len(ESCAPES), what="the signals")
    assert all(REFUSED in line["message"] and "public.t" in line["message"] for line in process.log("signal_ignored"))
    assert not copies(process)
    for condition in TAKEN:
        assert copy(process, "t", "--where", condition)["rows"] == 10, condition
    records = topic(payroll.topic("t")).take(10 * len(TAKEN))
    assert {record.json["after"]["id"] for record in records} == set(range(91, 101)) and {record.json["after"]["v"] for record in records} == {"x"}
    assert payroll.run("SELECT v FROM payroll") == [("secret",)]


@pytest.mark.parametrize("option", ["snapshot__where", "publication__where"])
def test_in_the_file(payroll, millrace, option):
    """By a start and by `check`; nothing is made."""
    for condition in ESCAPES:
        process = millrace(("t",), snapshot__mode='"initial"', **{option: json.dumps([f"public.t: {condition}"])})
        code, said = process.run_to_end()
        assert code == 78 and REFUSED in said, (condition, said)
    assert check(process)[0] == 78
    assert payroll.run("SELECT pubname FROM pg_publication") == [] and payroll.slot_row("1") is None


def test_in_the_file_and_taken(payroll, millrace, topic):
    for number, condition in enumerate(TAKEN):
        process = millrace(("t",), snapshot__mode='"initial_only"', snapshot__where=json.dumps([f"public.t: {condition}"]), topic_prefix=f'"{payroll.prefix}_{number}"')
        expect(process.run_to_end(), 0)
        assert len(topic(f"{payroll.prefix}_{number}.public.t").take(10)) == 10


def test_one_that_takes_too_long(payroll, millrace, topic):
    """Its copy has failed, with the reason and the remedy; the next one goes on, and so does the stream."""
    process = millrace(("t",), snapshot__signal_table='"public.signal"', snapshot__chunk_timeout='"1s"').start().streaming()
    assert command(process, "t", "--where", "pg_sleep(100000) IS NOT NULL")[0] == 0
    eventually(lambda: copies(process)["public.t"]["state"] == "failed", 30, "the end of the copy")
    error = copies(process)["public.t"]["error"]
    assert "public.t" in error and "within 1 s" in error and "raise snapshot.chunk_timeout, or ask with a condition" in error, error
    assert copy(process, "t", "--where", "id > 90")["rows"] == 10
    payroll.run("INSERT INTO t VALUES (101, 'x')")
    assert topic(payroll.topic("t")).take(11)[-1].json["after"]["id"] == 101
    assert payroll.run("SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%%pg_sleep(100000)%%' AND state = 'active' AND pid <> pg_backend_pid()") == [(0,)]


def state_of(process, state):
    """The copy of t, once it has come to that."""
    one = copies(process).get("public.t", {"state": "unseen"})
    return one["state"] == state and one


DROPS = ("(SELECT count(pg_terminate_backend(active_pid)) FROM pg_replication_slots WHERE database = current_database()) >= 0 AND pg_sleep(0.3) IS NOT NULL"
         " AND (SELECT count(pg_drop_replication_slot(slot_name)) FROM pg_replication_slots WHERE database = current_database() AND NOT active) >= 0")


@pytest.mark.parametrize("delivery", ["at-least-once", "exactly-once"])
def test_signals_by_a_role_that_may_replicate(payroll, millrace, delivery):
    """Refused, also where it waited for its turn over a kill; without a condition, and by an operator, the rows are copied."""
    process = millrace(("t",), snapshot__signal_table='"public.signal"', sink__kafka__delivery=json.dumps(delivery)).start().streaming()
    expect(check(process), 0, 'refused, because role "postgres", which copies, may do more than read')
    for condition in (DROPS, "id > 90"):
        send(payroll, EXECUTE, filtered(condition))
        failed = eventually(lambda: state_of(process, "failed"), 60, "the refusal")
        assert all(word in failed["error"] for word in ("public.t", '"postgres"', "snapshot.connection", "any_role")), failed
        assert copy(process, "t")["rows"] == 100
    send(payroll, "pause-snapshot", {"type": "incremental"})
    send(payroll, EXECUTE, filtered(DROPS))
    eventually(lambda: state_of(process, "waiting") and process.get("/api/snapshot/outcome").json["stored"], 60, "one that is stored")
    process.kill().start().streaming()
    send(payroll, "resume-snapshot", {"type": "incremental"})
    eventually(lambda: state_of(process, "failed"), 60, "the refusal")
    send(payroll, EXECUTE, snapshot("public.t"))
    eventually(lambda: state_of(process, "done"), 60, "the copy")
    assert copy(process, "t", "--where", "id > 90")["rows"] == 10
    assert len(payroll.run("SELECT slot_name FROM pg_replication_slots WHERE database = current_database()")) == 1


def test_signals_by_a_role_that_may_only_read(payroll, millrace):
    """By default a condition needs one; nothing that it calls can drop the slot."""
    copier = f"copier_{payroll.name}"
    payroll.run(f"CREATE ROLE {copier} LOGIN PASSWORD '{PASSWORD}'; GRANT SELECT ON t TO {copier}")
    process = millrace(("t",), snapshot__signal_table='"public.signal"', snapshot__connection='"env:COPY_URL"')
    process.environment["COPY_URL"] = dsn(payroll.name).replace("postgres:" + PASSWORD, f"{copier}:{PASSWORD}")
    try:
        expect(check(process), 0, 'conditions of signals', f'by role "{copier}", which may only read')
        process.start().streaming()
        send(payroll, EXECUTE, filtered("id > 90"))
        assert eventually(lambda: "public.t" in copies(process) and is_done(process, "public.t"), 60, "the copy")["rows"] == 10
        for condition in (DROPS, "id IN (SELECT id FROM public.payroll)"):
            send(payroll, EXECUTE, filtered(condition))
            eventually(lambda: state_of(process, "failed"), 60, "the refusal")
            assert "42501" in copies(process)["public.t"]["error"], copies(process)
            assert copy(process, "t")["rows"] == 100
        assert len(payroll.run("SELECT slot_name FROM pg_replication_slots WHERE database = current_database()")) == 1
        assert process.stop() == 0
    finally:
        process.kill()
        payroll.run(f"DROP OWNED BY {copier}; DROP ROLE {copier}")


def test_signals_by_any_role(payroll, millrace):
    """Who allows it knows: `check` warns, and the condition is read."""
    process = millrace(("t",), snapshot__signal_table='"public.signal"', snapshot__signal_conditions='"any_role"')
    expect(check(process), 0, "everyone who may write the table of signals", "set snapshot.connection")
    process.start().streaming()
    send(payroll, EXECUTE, filtered("id > 90"))
    assert eventually(lambda: "public.t" in copies(process) and is_done(process, "public.t"), 60, "the copy")["rows"] == 10


PIECES = ["'", "'", "\"", "$$", "$t$", "--", "\n", "\r", "/*", "*/", "E'", "e'", "U&'", "B'", "N'", "\\", "''", "'x'", " ", " ", "id", "1", "1e", "0x1", "_a", "=", "-", "true", " AND ", "||", "(", ")"]


def is_taken(text):
    """By the command, which looks before it asks anybody."""
    done = subprocess.run([BINARY, "snapshot", "t", "--where", text, "--address", "127.0.0.1:1"], capture_output=True, text=True, timeout=30, check=False)
    return REFUSED not in done.stderr


def test_what_is_taken_is_one_expression_to_the_server_too(payroll):
    """What the server takes behind WHERE it takes as a part of another expression, too, unless it gets out of its parentheses."""
    chance = random.Random(43)
    escapes, taken = [], []
    with connect(payroll.name) as server:

        def parses(before, text, behind):
            try:
                server.execute((before + text + behind).encode())
            except psycopg.errors.SyntaxError:
                return False
            except psycopg.Error:
                pass
            return True

        for _ in range(2000):
            before, behind = ("".join(chance.choice(PIECES) for _ in range(chance.randint(0, 4))) for _ in range(2))
            text = chance.choice(["true", "v = ", "v <> E'\\\\' || ", ""]) + before + ") UNION ALL SELECT 7 WHERE (" + behind + chance.choice(["true", "'", "", "*/"])
            if parses("SELECT 1 FROM t WHERE (", text, "\n)"):
                out = not parses("SELECT CASE WHEN (", text, "\n) THEN 1 END FROM t")
                (escapes if out else taken).append(text)
    assert len(escapes) > 2 and len(taken) > 20, (escapes, taken)
    assert not [text for text in escapes if is_taken(text)]
    assert len([text for text in taken if is_taken(text)]) > 20
