"""Servers that tell one lie each, hundreds of them: run.py runs them, trial.py judges, and here it is shown that the judge
can say no."""

import os
import subprocess
import sys

import pytest

import kafka_trial
import postgres_trial
import registry_trial
import trial
from launcher import Launcher
from lying_kafka import Lie, turn_fields

LIES = os.environ.get("MILLRACE_TEST_LIES", "500")
HERE = os.path.dirname(os.path.abspath(__file__))


@pytest.mark.timeout(7200 if LIES == "all" else 1200)
@pytest.mark.parametrize("side", ["postgres", "kafka", "registry"])
def test_lies_are_borne(side):
    done = subprocess.run([sys.executable, os.path.join(HERE, "run.py"), side, "--lies", LIES], capture_output=True,
                          text=True, check=False)
    print(done.stdout)
    assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]


@pytest.fixture
def judged(monkeypatch, tmp_path):
    """The verdict about a shell script that stands for millrace, on an honest server."""
    monkeypatch.setattr(trial, "LAUNCHER", Launcher())

    def judge(script):
        path = tmp_path / "impostor"
        path.write_text("#!/bin/sh\n" + script)
        path.chmod(0o755)
        monkeypatch.setattr(trial, "BINARY", str(path))
        return postgres_trial.attempt(None)
    yield judge


@pytest.mark.parametrize("script,fault", [
    ("kill -SEGV $$", "ended by signal 11"),
    ("exit 42", "exit code 42"),
    ("echo fake-secret >&2", "tells a secret"),
    ("echo 'ERROR: AddressSanitizer: heap-use-after-free' >&2; exit 1", "says 'sanitizer'"),
    ("echo '{\"value\": 1,}'", "passed on what is no JSON"),
    ("exec python3 -c 'x = b\"x\" * 200_000_000'", "took "),
])
def test_the_judge_says_no(judged, script, fault):
    if fault == "took " and trial.SANITIZED:
        pytest.skip("memory is not judged under sanitizers")
    assert any(found.startswith(fault) for found in judged(script).faults)


def test_the_judge_waits_for_nobody(judged, monkeypatch):
    monkeypatch.setattr(postgres_trial, "WAIT_S", 1)
    monkeypatch.setattr(trial, "LEAVE_MS", 0)
    monkeypatch.setattr(trial, "SLACK_S", 0)
    assert "SIGTERM is not obeyed" in judged("trap '' TERM\nwhile :; do read x < /dev/zero; done").faults


def test_an_honest_server_is_streamed_from_to_its_end(monkeypatch):
    monkeypatch.setattr(trial, "LAUNCHER", Launcher())
    verdict = postgres_trial.attempt(None)
    assert verdict.code == 0 and verdict.told, verdict.said


@pytest.mark.parametrize("name", [
    "copies row | value 0: ones", "copy ready | length: 3", "chunk order row | column 0: letter",
    "table found row | column 2: empty | always", "copy tables row | column 0: 0", "copy columns row | column 1: 100 KB",
    "limits row | column 3: highest", "snapshot row | column 2: highest", "copy out | twice", "chunk copy out | twice | always",
    "chunk order row | column 2: null", "chunk order row | column 5: null", "chunk no data | late", "chunk copy end | withheld, goes on"])
def test_lies_that_ended_it_once(monkeypatch, name):
    """The name of a copy's slot without a number; a server that forgets that a copy was begun at that very position; the order
    of a key by a column that the table does not have; a partition without a schema; a table without an OID; the name of a column that no identifier can be; limits and
    a time at the end of all numbers; a copy within the copy; a null in the order of a key; a message out of place, after which libpq drops
    a copy's rows; a copy without its end."""
    monkeypatch.setattr(trial, "LAUNCHER", Launcher())
    stem = name.removesuffix(" | always")  # which lies are told always, or in a second answer, shifts with the number of columns
    lie = next(lie for lie in postgres_trial.all_lies()
               if lie.name.removesuffix(" | always").removesuffix(" | number 2") == stem)
    lie.always = name != stem
    verdict = postgres_trial.attempt(lie)
    assert verdict.good and verdict.told, (verdict.faults, verdict.said)


@pytest.mark.parametrize("state,said", [
    ("signals", "incremental_done"), ("drafted", "publication_altered"), ("heartbeat", "source_connected"), ("detached", "partition_gone")])
def test_honest_servers_of_other_states(monkeypatch, state, said):
    """What is lied about there is asked for, and no other question is left without an answer."""
    monkeypatch.setattr(trial, "LAUNCHER", Launcher())
    monkeypatch.setattr(trial.Trial, "stop", lambda self, stop=trial.Trial.stop: (
        trial.wait_until(lambda: said in self.text(self.said), trial.WAIT_S), stop(self)))
    verdict = postgres_trial.attempt(None, state)
    assert verdict.good and verdict.code == 0 and said in verdict.said, (verdict.faults, verdict.said)


def test_a_stored_position_with_a_turned_bit(monkeypatch):
    """Behind which the server's WAL ends: it is read again, since the batch's sum is wrong."""
    def turn(message):
        data = message.encode()
        return data.replace(b'"0/1000"', b'"0/5000"') if b'"0/1000"' in data else None
    monkeypatch.setattr(trial, "LAUNCHER", Launcher())
    monkeypatch.setattr(trial.Trial, "stop", lambda self, stop=trial.Trial.stop: (
        trial.wait_until(lambda: self.ended() or "failed CRC32C check" in self.text(self.said), trial.WAIT_S), stop(self)))
    verdict = kafka_trial.attempt(Lie("fetch", "a bit of the position", turn, "exactly once"))
    assert verdict.good and verdict.told and verdict.code != 10 and "failed CRC32C check" in verdict.said, (verdict.faults, verdict.said)


@pytest.mark.parametrize("kind,target", [("at least once", "produce rows"), ("exactly once", "produce state")])
def test_an_answer_that_names_no_topic(monkeypatch, kind, target):
    """The partition is one of the request's, and so the name is looked at (scripts/librdkafka.patch)."""
    monkeypatch.setattr(trial, "LAUNCHER", Launcher())
    verdict = kafka_trial.attempt(Lie(target, "topic: null", lambda message: turn_fields(message, "topic", "null"), kind))
    assert verdict.good and verdict.told, (verdict.faults, verdict.said)


def test_an_honest_registry(monkeypatch):
    monkeypatch.setattr(trial, "LAUNCHER", Launcher())
    monkeypatch.setattr(registry_trial, "QUIET_S", trial.WAIT_S)
    verdict = registry_trial.attempt(None)
    assert verdict.good and verdict.code == 0 and verdict.finished, (verdict.faults, verdict.said)


def test_a_claim_too_much_is_seen():
    server = postgres_trial.LyingPostgres()
    server.note(postgres_trial.FIRST[1][-1].encode())
    server.take_status(postgres_trial.FIRST[0])
    assert not server.faults
    server.take_status(postgres_trial.END)
    server.close()
    assert server.faults == [f"confirmed {postgres_trial.END:X}, which was never told"]
