"""`millrace verify --every`: tables are proved again and again, what differs is named, and a file has metrics for node_exporter."""

import json
import os
import signal
import subprocess

import pytest
from kit import BINARY, connect, eventually, figures
from test_verify import after, copied, produce

COPY = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'COPY (SELECT xmin%'"


class Prover:
    def __init__(self, process, folder, interval):
        self.path, self.output = folder / "millrace.prom", open(folder / "output", "w+", encoding="utf-8")  # pylint: disable=consider-using-with
        self.slot = process.database.slot
        self.process = subprocess.Popen([BINARY, "verify", "--every", interval, "--json", "--figures", str(self.path), "--config", process.path],
                                        env=process.environment, stdout=self.output, stderr=subprocess.STDOUT)

    def said(self):
        self.output.seek(0)
        return [json.loads(line) for line in self.output.read().splitlines() if line.startswith("{")]

    def samples(self):
        return figures(self.path.read_text(encoding="utf-8"))

    def of(self, name, table="public.t", more=""):
        return self.samples()[f'millrace_verify_{name}{{slot="{self.slot}",table="{table}"{more}}}']

    def when(self, check, what):
        return eventually(check, 60, what, not_yet=(KeyError, FileNotFoundError))

    def end(self, number=signal.SIGTERM):
        self.process.send_signal(number)
        assert self.process.wait(20) == 0
        self.output.close()


@pytest.fixture
def every(tmp_path):
    provers = []

    def start(process, interval="2s"):
        provers.append(Prover(process, tmp_path, interval))
        return provers[-1]
    yield start
    for prover in provers:
        if prover.process.poll() is None:
            prover.process.kill()
            prover.process.wait()


def test_tables_are_proved_again_and_again_and_what_differs_is_named(database, millrace, every):
    database.run("CREATE TABLE t (id int PRIMARY KEY, v text); CREATE TABLE u (id int PRIMARY KEY)")
    process = millrace(("t", "u"), skipped_operations="[]").start().streaming()
    database.run("INSERT INTO t SELECT n, 'v' || n FROM generate_series(1, 50) n; INSERT INTO u VALUES (1)")
    prover = every(process)
    prover.when(lambda: prover.of("proved_lsn") > 0 and prover.of("proved_lsn", "public.u") > 0, "the first proofs")
    assert prover.of("differences") == prover.of("differences", "public.u") == 0 and prover.of("rows") == 50
    first = prover.of("proved_timestamp_seconds")
    assert prover.samples()[f'millrace_verify_interval_seconds{{slot="{prover.slot}"}}'] == 2
    prover.when(lambda: prover.of("proved_timestamp_seconds") > first, "another proof")
    assert os.stat(prover.path).st_mode & 0o777 == 0o644 and os.listdir(prover.path.parent).count("millrace.prom.new") == 0

    topic = database.topic("t")
    records = [record for record, _ in copied(topic, lambda record: True)]
    produce(topic, '{"id":7}', json.dumps({"op": "u", "before": None, "after": {"id": 7, "v": "canary"}, "source": {}}), after(records[-1]))
    prover.when(lambda: prover.of("differences") == 1, "the difference")
    found = next(line["differences"] for line in prover.said() if line["verdict"] == "different")
    assert [(one["kind"], one["key"], one["partition"], one["offset"]) for one in found] == [("altered", '{"id":7}', 0, len(records))]
    assert prover.of("differences", "public.u") == 0
    database.run("UPDATE t SET v = 'w' WHERE id = 7; DROP TABLE u")
    prover.when(lambda: prover.of("differences") == 0 and 'table="public.u"' not in prover.path.read_text(encoding="utf-8"), "no difference")
    with open(f"/proc/{prover.process.pid}/status", encoding="ascii") as status:
        assert "NoNewPrivs:\t1" in status.read()
    prover.end()
    assert process.stop() == 0


def test_what_came_to_nothing_is_tried_again_and_a_connection_may_be_lost(database, millrace, every):
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    process = millrace().start().streaming()
    database.run("INSERT INTO t VALUES (1)")
    database.run(f"ALTER PUBLICATION {database.publication} DROP TABLE t")
    prover = every(process, "3m")
    prover.when(lambda: prover.of("void", more=',reason="unpublished"') == 1, "no verdict")
    database.run(f"ALTER PUBLICATION {database.publication} ADD TABLE t")
    prover.when(lambda: prover.of("proved_lsn") > 0 and "millrace_verify_void{" not in prover.path.read_text(encoding="utf-8"),
                "a verdict, long before the next round of all tables")
    prover.end()
    prover.path.unlink()
    prover = every(process)
    prover.when(lambda: prover.of("proved_lsn") > 0, "the first proof")
    with connect(database.name) as connection:  # its connection is lost in the middle of a proof
        connection.execute("BEGIN; LOCK t IN ACCESS EXCLUSIVE MODE")
        eventually(lambda: database.run(COPY + " AND wait_event_type = 'Lock'")[0][0] == 1, what="its wait for the lock")
        database.run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'COPY (SELECT xmin%%'")
        eventually(lambda: "millrace: " in (prover.output.seek(0), prover.output.read())[1], what="that it is lost")
        proved = prover.of("proved_timestamp_seconds")
        connection.execute("COMMIT")
    prover.when(lambda: prover.of("proved_timestamp_seconds") > proved, "another proof")
    prover.end(signal.SIGINT)


@pytest.mark.parametrize("options, what", [
    (("--every", "0s"), "--every wants a time"), (("--every", "x"), "--every wants a time"), (("--every", "24h", "--repair"), "repairs nothing"),
    (("--figures", "x.prom"), "--figures wants --every")])
def test_options_that_are_refused(options, what):
    done = subprocess.run([BINARY, "verify", *options], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 64 and what in done.stderr


@pytest.mark.parametrize("option", ["continuous", "rate", "lag_max"])
def test_options_of_the_daemons_own_proof_say_what_took_their_place(millrace, database, option):
    process = millrace(**{f"verify__{option}": '"1h"'})
    done = subprocess.run([BINARY, "check", "--config", process.path], env=process.environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 78 and f'"verify.{option}" is gone' in done.stderr and "millrace verify --every" in done.stderr
    assert database.name
