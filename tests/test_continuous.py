"""`verify.continuous`: the daemon proves its tables by itself, says what differs without row data, and gives way to the stream."""

import json
import os
import signal
import subprocess

from kit import BINARY, connect, eventually, figures
from processes import broker_pid
from test_verify import after, copied, produce

COPY = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'COPY (SELECT xmin%'"


def of(samples, name, table="public.t"):
    return samples[f'millrace_verify_{name}{{table="{table}"}}']


def when(process, check, limit_s=30, what="the metrics"):
    """The samples, once check(samples) is true."""
    def seen():
        samples = figures(process.get("/metrics").body)
        return samples if check(samples) else None
    return eventually(seen, limit_s, what, not_yet=(KeyError,))


def proved(samples, *tables):
    return all(of(samples, "proved_lsn", table) > 0 for table in tables)


def proved_again(process, *tables):
    """As of a later moment than now."""
    before = figures(process.get("/metrics").body)
    return when(process, lambda s: all(of(s, "proved_lsn", table) > of(before, "proved_lsn", table) for table in tables),
                what="another proof")


def children(pid):
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
        return [int(child) for child in file.read().split()]


def field(pid, name):
    with open(f"/proc/{pid}/status", encoding="ascii") as file:
        return next(line.split(":", 1)[1].strip() for line in file if line.startswith(name + ":"))


def keeper(process):
    """It is forked before, and has no other name than its thread's."""
    return [child for child in children(process.process.pid) if field(child, "Name") == "mr-keeper"]


def prover(process):
    """The helper, which the keeper forks."""
    return [child for one in keeper(process) for child in children(one) if field(child, "Name") == "mr-prover"]


def confinement(pid):
    return field(pid, "Seccomp"), field(pid, "NoNewPrivs")


def opened(pid):
    """Names of what it has open besides standard input, output and error."""
    return [os.readlink(f"/proc/{pid}/fd/{number}") for number in os.listdir(f"/proc/{pid}/fd") if int(number) > 2]


def said(process):
    done = subprocess.run([BINARY, "status", "--config", process.path, "--address", process.address()], capture_output=True, text=True,
                          env=process.environment, timeout=60, check=True)
    return next((line for line in done.stdout.splitlines() if line.startswith("proofs")), "")


def test_tables_are_proved_again_and_again_and_what_differs_is_said(database, millrace):
    """A planted fault is counted and placed, without the row."""
    database.run("CREATE TABLE t (id int PRIMARY KEY, v text); CREATE TABLE u (id int PRIMARY KEY)")
    options = {"skipped_operations": "[]", "verify__continuous": '"2s"', "verify__lag_max": '"30s"'}
    process = millrace(("t", "u"), **options).start().streaming()
    database.run("INSERT INTO t SELECT n, 'v' || n FROM generate_series(1, 50) n; INSERT INTO u VALUES (1)")
    samples = when(process, lambda s: proved(s, "public.t", "public.u") and s["millrace_verify_rows_proved_ratio"] == 1)
    assert of(samples, "differences") == of(samples, "differences", "public.u") == 0
    assert of(samples, "age_seconds") <= samples["millrace_verify_interval_seconds"] == 2
    eventually(lambda: said(process) == "proofs     100.0 % of rows proved within 2.0 s   2 of 2 tables   0 differ   0 could not be",
               what="all rows proved")
    status = process.get("/status").json["verify"]
    assert (status["tables"], status["interval"], status["different"], status["paused"]) == (2, 2, 0, False)
    assert not process.log("verify_different")

    # A record that somebody else wrote over a row.
    topic = database.topic("t")
    records = [record for record, _ in copied(topic, lambda record: True)]
    place = after(records[-1])
    produce(topic, '{"id":7}', json.dumps({"op": "u", "before": None, "after": {"id": 7, "v": "canary"}, "source": {}}), place)
    found = process.wait_for("verify_difference")
    assert (found["table"], found["kind"], found["partition"], found["offset"], found["position"]) == (
        "public.t", "altered", 0, len(records), place[0][1])
    assert "0 missing, 0 phantom, 0 stale, 1 altered" in process.log("verify_different")[0]["reason"]
    samples = when(process, lambda s: of(s, "differences") == 1)
    assert of(samples, "differences", "public.u") == 0 and samples["millrace_verify_rows_proved_ratio"] < 1
    assert "1 differ" in said(process)
    database.run("UPDATE t SET v = 'w' WHERE id = 7")
    assert process.wait_for("verify_equal")["table"] == "public.t"
    assert of(when(process, lambda s: of(s, "differences") == 0), "differences") == 0
    assert not any("canary" in line or '"id"' in line or "{\\\"id" in line for line in process.lines)

    own = confinement(process.process.pid)
    assert own[1] == "1" and all(confinement(pid) == own for pid in (*keeper(process), *prover(process)))
    helper, = prover(process)
    assert [name.split(":")[0] for name in opened(helper)] == ["socket"], opened(helper)
    assert process.stop() == 0
    eventually(lambda: not os.path.exists(f"/proc/{helper}"), what="the end of the helper")


def test_a_truncated_table_is_void_and_then_proved(database, millrace):
    """By a truncate that commits after the proof has its snapshot."""
    database.run("CREATE TABLE t (id int PRIMARY KEY, v text)")
    process = millrace(skipped_operations="[]", verify__continuous='"2s"', verify__lag_max='"30s"').start().streaming()
    when(process, lambda s: proved(s, "public.t"))
    with connect(database.name) as connection:
        connection.execute("BEGIN; TRUNCATE t")
        eventually(lambda: database.run(COPY + " AND wait_event_type = 'Lock'")[0][0] == 1, what="its wait for the lock")
        helper, = prover(process)
        proof, = children(helper)
        assert confinement(proof) == confinement(process.process.pid)
        with open(f"/proc/{proof}/limits", encoding="ascii") as limits:
            assert f"Max data size             {1 << 30}" in limits.read()
        connection.execute("INSERT INTO t VALUES (7, 'x'); COMMIT")
    assert process.wait_for("verify_void")["cause"] == "truncated"
    when(process, lambda s: s.get('millrace_verify_void{table="public.t",reason="truncated"}') == 1)
    process.wait_for("verify_equal")
    assert when(process, lambda s: 'millrace_verify_void{table="public.t",reason="truncated"}' not in s)
    assert process.get("/status").json["verify"]["void"] == 0 and process.stop() == 0


def test_after_a_restart_all_is_proved_anew_and_off_there_is_nothing_of_it(database, millrace):
    """No process, no connection and no metric."""
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    process = millrace(verify__continuous='"1h"')
    for _ in range(2):
        process.start().streaming()
        when(process, lambda s: proved(s, "public.t"))
        assert process.stop() == 0
    process.configure()
    process.start().streaming()
    assert not keeper(process) and "millrace_verify" not in process.get("/metrics").body and "verify" not in process.get("/status").json
    assert database.run(COPY)[0][0] == 0


def test_the_proof_gives_way_to_the_stream(database, millrace):
    """Between two chunks it waits, without a transaction, as long as the stream lags."""
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    process = millrace(verify__continuous='"10m"', verify__rate="40", verify__lag_max='"500ms"').start().streaming()
    database.run("INSERT INTO t SELECT generate_series(1, 300)")
    eventually(lambda: database.run(COPY)[0][0] == 1, what="the first chunk")
    broker = broker_pid()
    os.kill(broker, signal.SIGSTOP)
    try:
        database.run("INSERT INTO t VALUES (1000)")
        assert process.wait_for("verify_paused")["lag_ms"] > 500
        assert when(process, lambda s: s["millrace_verify_paused"] == 1)
        idle = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE '%%millrace-verify%%' AND state = 'idle'"
        eventually(lambda: database.run(idle)[0][0] == 1, what="the end of the chunk")
        begun = process.figure("millrace_lag_seconds")
        when(process, lambda s: s["millrace_lag_seconds"] > begun + 2)
        assert database.run(COPY)[0][0] == 0 and "paused" in said(process)
    finally:
        os.kill(broker, signal.SIGCONT)
    process.wait_for("verify_resumed")
    eventually(lambda: database.run(COPY)[0][0] == 1, what="the second chunk")
    samples = when(process, lambda s: proved(s, "public.t"), 60)
    assert of(samples, "differences") == 0


def test_a_table_that_a_reload_adds_is_proved_and_one_that_is_gone_is_forgotten(database, millrace):
    database.run("CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE u (id int PRIMARY KEY); INSERT INTO t VALUES (1)")
    options = {"verify__continuous": '"5s"', "snapshot__mode": '"initial"'}
    process = millrace(("t", "u"), **options)
    process.write(process.native(("t",), options))
    process.start().streaming()
    samples = when(process, lambda s: proved(s, "public.t"))
    assert 'millrace_verify_age_seconds{table="public.u"}' not in samples
    # Until the reload, the file of the start counts.
    process.write(process.native(("t", "u"), options))
    proved_again(process, "public.t")
    database.run(f"ALTER PUBLICATION {database.publication} ADD TABLE u")
    process.process.send_signal(signal.SIGHUP)
    process.wait_for("reloaded")
    database.run("INSERT INTO u VALUES (1)")
    samples = when(process, lambda s: proved(s, "public.t", "public.u"))
    assert of(samples, "differences", "public.u") == 0
    process.write(process.native(("t", "u"), {**options, "tombstones": "false"}))
    assert "another file than the one in effect" in process.wait_for("verify_failed")["reason"]
    process.write(process.native(("t", "u"), options))
    proved_again(process, "public.t")
    database.run("DROP TABLE u")
    when(process, lambda s: 'millrace_verify_age_seconds{table="public.u"}' not in s)
    proved_again(process, "public.t")


def test_a_proof_that_is_killed_touches_nothing_else(database, millrace):
    """The next try follows, with another helper too; without the keeper there is no proof, and a stream."""
    database.run("CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t SELECT generate_series(1, 400)")
    process = millrace(verify__continuous='"5s"', verify__rate="200", snapshot__mode='"initial"').start().streaming()
    helper, = eventually(lambda: prover(process), what="the helper")
    eventually(lambda: database.run(COPY)[0][0] == 1, what="a proof")
    os.kill(children(helper)[0], signal.SIGKILL)
    assert "signal 9" in process.wait_for("verify_failed")["reason"]
    samples = when(process, lambda s: proved(s, "public.t"))
    assert samples["millrace_verify_up"] == 1 and samples["millrace_verify_restarts_total"] == 0
    os.kill(helper, signal.SIGKILL)
    proved_again(process, "public.t")
    assert process.figure("millrace_verify_restarts_total") == 1 and prover(process) != [helper]
    assert "signal 9" in process.log("verify_failed")[-1]["reason"]
    one, = keeper(process)
    os.kill(one, signal.SIGKILL)
    eventually(lambda: any("are gone" in one["message"] for one in process.log("verify_failed")), what="its end")
    assert when(process, lambda s: s["millrace_verify_up"] == 0) and "the process is gone" in said(process)
    eventually(lambda: not os.path.exists(f"/proc/{one}"), what="its parent's look at it")
    database.run("INSERT INTO t VALUES (1000)")
    when(process, lambda s: s["millrace_lag_bytes"] == 0)
    assert process.stop() == 0
