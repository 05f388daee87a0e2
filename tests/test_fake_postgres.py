"""A server that lies: nothing it says crashes millrace, makes it grow, or keeps it from stopping."""

import os
import re
import resource
import signal
import socket
import threading

import pytest

from fake_postgres import QUESTIONS, SHAPES, FakePostgres
from kit import Millrace, eventually, expect
from processes import cpu_seconds, peak_rss

FLOODS = ("endless_rows", "one_endless_row", "notifications", "notices", "results_without_end")
OTHERS = ("copy", "error", "nonsense", "hang_up")
BUDGET = 256 * 2**20
ANSWER = 128 * 2**20  # 24 MiB of its own, 20 of one answer in libpq's buffer and as rows
SANITIZED = "MILLRACE_TEST_SANITIZED" in os.environ


class Shop:
    """Stands for a database, which there is none of."""

    name = slot = publication = "shop"
    prefix = "millrace"
    port = None


def start(server, folder, **options):
    process = Millrace(Shop, folder, sink__kafka__brokers=None, sink__type='"discard"',
                       pipeline__shutdown_deadline='"1s"', pipeline__reconnect_max='"100ms"',
                       metrics__interval='"0ms"', **options)
    process.environment["TEST_URL"] = server.dsn() + "?connect_timeout=5"
    return process.start()


def ends(process, limit_s=20):
    """By itself, or by SIGTERM; by no other signal."""
    if process.process.poll() is None:
        process.process.send_signal(signal.SIGTERM)
    code = process.ended(limit_s)
    text = "".join(process.lines)
    assert code >= 0, f"ended by signal {-code}: {text}"
    assert "fake-secret" not in text and "assert" not in text.lower(), text
    return code, text


def test_an_honest_one_is_streamed_from(tmp_path):
    with FakePostgres() as server:
        process = start(server, tmp_path).streaming()
        assert ends(process)[0] == 0
        assert all(any(re.search(pattern, asked) for asked in server.asked)
                   for pattern, _ in QUESTIONS.values()), "each question is one that millrace asks"
        # What it looked up of a table before, a sender takes for what the table was in a backlog (docs/dev/protocol.md).
        assert not [text for text in server.asked_of_sender if re.search("pg_class|pg_publication|pg_attribute|pg_index|pg_type", text)]
        assert len(server.asked_of_sender) >= 3
        assert "quote_all_identifiers=off" in " ".join(server.start_up[0])


@pytest.mark.parametrize("how", SHAPES)
@pytest.mark.parametrize("question", QUESTIONS)
def test_answers_of_another_shape(tmp_path, question, how):
    with FakePostgres(question, how) as server:
        process = start(server, tmp_path)
        assert server.lied.wait(20)
        eventually(lambda: process.process.poll() is not None or process.log("source_connected")
                   or process.log("source_lost") or process.log("standby"), 20, "what becomes of the lie")
        code, text = ends(process)
        assert code in (0, 3, 10, 70, 77, 78), text


@pytest.mark.parametrize("how", OTHERS)
@pytest.mark.parametrize("question", ["lock", "state", "captured"])
def test_no_answer_at_all(tmp_path, question, how):
    with FakePostgres(question, how) as server:
        process = start(server, tmp_path)
        assert server.lied.wait(20)
        code, text = ends(process)
        assert code in (0, 3, 70, 78), text


@pytest.mark.parametrize("how", FLOODS)
@pytest.mark.parametrize("question", ["identity", "keys"])
def test_floods_stay_within_the_budget(tmp_path, question, how):
    with FakePostgres(question, how) as server:
        process = start(server, tmp_path)
        assert server.lied.wait(20)
        peak = 0

        def over():
            nonlocal peak
            peak = max(peak, peak_rss(process.process.pid))
            return process.process.poll() is not None or process.log("source_lost")
        eventually(over, 60, "the end of the flood")
        ends(process)
        assert SANITIZED or 0 < peak < ANSWER, f"{peak} bytes"


@pytest.mark.parametrize("how", ["notifications", "notices"])
def test_floods_in_the_stream(tmp_path, how):
    with FakePostgres("stream", how) as server:
        process = start(server, tmp_path).streaming()
        eventually(lambda: server.flooded > 500_000_000, 60, "half a gigabyte of it")
        peak = peak_rss(process.process.pid)
        code, text = ends(process)
        assert code in (0, 3), text
        assert SANITIZED or 0 < peak < BUDGET, f"{peak} bytes"


def test_wide_relations_without_end(tmp_path):
    with FakePostgres("stream", "wide_relations") as server:
        process = start(server, tmp_path)
        peak = 0

        def over():
            nonlocal peak
            peak = max(peak, peak_rss(process.process.pid))
            return process.process.poll() is not None
        eventually(over, 60, "the end of the flood")
        expect(ends(process), 78, "raise pipeline.memory")
        assert SANITIZED or 0 < peak < BUDGET, f"{peak} bytes"


@pytest.mark.parametrize("login", ["scram", "silence", "talk"])
def test_a_login_without_end_and_sigterm(tmp_path, login):
    """Two thousand million iterations of SCRAM: libpq counts them all, and millrace leaves without it."""
    with FakePostgres(login=login) as server:
        process = start(server, tmp_path)
        assert server.lied.wait(20)
        if login == "scram":
            eventually(lambda: cpu_seconds(process.process.pid) > 0.5, 60, "the iterations")
            with open(f"/proc/{process.process.pid}/statm", encoding="ascii") as file:
                used = int(file.read().split()[0]) * resource.getpagesize()
            if not SANITIZED:  # there is no room for a thread that would end it
                resource.prlimit(process.process.pid, resource.RLIMIT_AS, (used + 2**20, used + 2**20))
        code, text = ends(process)
        assert code in ((3,) if login == "scram" else (0, 3, 70)), text
        if login == "scram":
            assert "a thread did not end" in text


def test_silence_and_sigterm(tmp_path):
    with FakePostgres("state", "silence") as server:
        process = start(server, tmp_path)
        assert server.lied.wait(20)
        assert ends(process)[0] in (0, 3)


# ---- the password ----

def other_address():
    """An address of this machine that is not loopback: for millrace, another machine."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
            return probe.getsockname()[0]
        except OSError:
            return None


@pytest.fixture
def thief():
    """Says no to TLS and asks for the password in the clear."""
    address = other_address()
    if address is None or address.startswith("127."):
        pytest.skip("this machine has no address but loopback")
    with FakePostgres(login="cleartext") as server:
        server.server.close()
        server.server = socket.create_server((address, server.port))
        threading.Thread(target=server._accept, daemon=True).start()
        server.address = address
        yield server


@pytest.mark.parametrize("words,remedy", [("", "switch TLS on"), ("?sslmode=require", "switch TLS on"),
                                          ("?sslmode=prefer", "insecure_tls = true"),
                                          ("?sslmode=disable", "insecure_tls = true"),
                                          ("?sslmode=require&channel_binding=disable", "insecure_tls = true")])
def test_the_password_stays_here(tmp_path, thief, words, remedy):
    process = start(thief, tmp_path)
    process.kill()
    process.environment["TEST_URL"] = thief.dsn(thief.address) + words
    thief.passwords.clear()
    text = expect(process.run_to_end(), 78, remedy)
    assert thief.passwords == [] and "fake-secret" not in text


def test_in_plain_words_it_goes_out(tmp_path, thief):
    process = start(thief, tmp_path, source__postgres__insecure_tls="true")
    process.kill()
    process.environment["TEST_URL"] = thief.dsn(thief.address)
    process.start().streaming()
    assert thief.passwords and process.stop() == 0
    assert "need not prove who it is" in "".join(process.lines)


def test_on_this_machine_nothing_is_asked_for(tmp_path):
    with FakePostgres(login="cleartext") as server:
        process = start(server, tmp_path).streaming()
        assert process.stop() == 0 and server.passwords


def test_a_refusal_by_pg_hba(tmp_path):
    text = 'pg_hba.conf rejects connection for host "127.0.0.1", user "someone", database "shop", no encryption'
    with FakePostgres(login=("28000", text)) as server:
        process = start(server, tmp_path)
        assert process.ended(20) == 77
        said = "".join(process.lines)
        assert "database name" not in said and "reject is before" in said, said


def test_a_server_that_speaks_german(tmp_path):
    with FakePostgres(login=("28P01", "Passwort-Authentifizierung fehlgeschlagen")) as server:
        assert start(server, tmp_path).ended(20) == 77
