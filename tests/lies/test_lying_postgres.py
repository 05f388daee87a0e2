"""What a start of millrace makes of a PostgreSQL that lies: whole answers of another shape, floods that have no end, logins, and who gets
the password. Nothing that it says crashes millrace, makes it grow, or keeps it from stopping."""

import re
import resource
import signal
import socket
import struct
import threading

import pytest

from kit import Millrace, eventually, expect
from lying_postgres import COPY_BOTH, NOTICE, NOTIFICATION, PASSWORD, QUESTIONS, TEXT, Lie, LyingPostgres, data_row, error, framed
from processes import cpu_seconds, peak_rss
from trial import SANITIZED

BUDGET = 256 * 2**20
ANSWER = 128 * 2**20  # 24 MiB of its own, 20 of one answer in libpq's buffer and as rows
# Each way to spoil an answer: rows from rows.
SHAPES = {
    "no rows": lambda rows: [],
    "a row too many": lambda rows: rows + rows,
    "a column less": lambda rows: [row[:-1] for row in rows],
    "a column more": lambda rows: [row + ["x"] for row in rows],
    "nulls": lambda rows: [[None] * len(row) for row in rows],
    "wrong types": lambda rows: [["¿?".encode()] * len(row) for row in rows],
    "long values": lambda rows: [["9" * 100_000] * len(row) for row in rows],
    "bytes that are not text": lambda rows: [[b"\xff\xfe\x80"] * len(row) for row in rows],
}
NOTICES, NOTIFICATIONS = framed(b"N")(NOTICE) * 100, framed(b"A")(NOTIFICATION) * 100
OTHERS = {"copy": (framed(b"H")(b"\0\0\0") + framed(b"d")(b"x" * 100) * 10, "silence"), "error": (error("XX000", "no") + framed(b"Z")(b"I"), "silence"),
          "nonsense": (b"\x00\xff" * 5000, "silence"), "hang_up": (b"", "close")}


class Flood:
    """What a lie is made of that goes on until the other side has had enough, or to 3 GB; `piece`: or pieces that have an end."""

    def __init__(self, piece, before=b""):
        self.piece, self.before = piece, before
        self.begun, self.sent = threading.Event(), 0

    def __call__(self):
        return self.pieces(), "flood"

    def pieces(self):
        yield self.before
        self.begun.set()
        if not isinstance(self.piece, bytes):
            yield from self.piece
            return
        for _ in range(3_000_000_000 // len(self.piece)):
            yield self.piece
            self.sent += len(self.piece)


class Shop:
    """Stands for a database, which there is none of."""

    name = slot = publication = "shop"
    prefix = "millrace"
    port = None


@pytest.fixture
def server():
    made = []

    def make(target="", how=None, way_in="trust", **options):
        made.append(LyingPostgres(Lie(target, "of its own", how, way_in), **options))
        return made[-1]
    yield make
    for one in made:
        one.close()
        one.cut()


def start(server, folder, words="", **options):
    process = Millrace(Shop, folder, sink__kafka__brokers=None, sink__type='"discard"', pipeline__shutdown_deadline='"1s"',
                       pipeline__reconnect_max='"100ms"', metrics__interval='"0ms"', **options)
    process.environment["TEST_URL"] = server.dsn() + words
    return process.start()


def ends(process, limit_s=20):
    """By itself, or by SIGTERM; by no other signal."""
    if process.process.poll() is None:
        process.process.send_signal(signal.SIGTERM)
    code = process.ended(limit_s)
    text = "".join(process.lines)
    assert code >= 0, f"ended by signal {-code}: {text}"
    assert PASSWORD not in text and "assert" not in text.lower(), text
    return code, text


def peak_until(process, done, what):
    peak = 0

    def over():
        nonlocal peak
        peak = max(peak, peak_rss(process.process.pid))
        return process.process.poll() is not None or done()
    eventually(over, 60, what)
    return peak


def test_an_honest_one_is_streamed_from(tmp_path, server):
    honest = server()
    process = start(honest, tmp_path).streaming()
    assert ends(process)[0] == 0
    assert all(any(re.search(pattern, asked) for asked in honest.asked)
               for pattern, _ in QUESTIONS.values()), "each question is one that millrace asks"
    # What it looked up of a table before, a sender takes for what the table was in a backlog (docs/dev/protocol.md).
    assert not [text for text in honest.asked_of_sender if re.search("pg_class|pg_publication|pg_attribute|pg_index|pg_type", text)]
    assert len(honest.asked_of_sender) >= 3
    assert "quote_all_identifiers=off" in " ".join(honest.start_up[0])


@pytest.mark.parametrize("how", SHAPES)
@pytest.mark.parametrize("question", QUESTIONS)
def test_answers_of_another_shape(tmp_path, server, question, how):
    liar = server(f"{question} rows", SHAPES[how])
    process = start(liar, tmp_path)
    assert liar.told.wait(20)
    eventually(lambda: process.process.poll() is not None or process.log("source_connected")
               or process.log("source_lost") or process.log("standby"), 20, "what becomes of the lie")
    code, text = ends(process)
    assert code in (0, 3, 10, 70, 77, 78), text


@pytest.mark.parametrize("how", OTHERS)
@pytest.mark.parametrize("question", ["lock", "state", "captured"])
def test_no_answer_at_all(tmp_path, server, question, how):
    liar = server(f"{question} columns", lambda: OTHERS[how])
    process = start(liar, tmp_path)
    assert liar.told.wait(20)
    code, text = ends(process)
    assert code in (0, 3, 70, 78), text


@pytest.mark.parametrize("how", ["endless_rows", "one_endless_row", "notifications", "notices", "results_without_end"])
@pytest.mark.parametrize("question", ["identity", "keys"])
def test_floods_stay_within_the_budget(tmp_path, server, question, how):
    row = QUESTIONS[question][1][0]
    flood = Flood({"endless_rows": data_row(row) * 500, "one_endless_row": b"x" * 16_000_000, "notifications": NOTIFICATIONS,
                   "notices": NOTICES, "results_without_end": framed(b"C")(b"SELECT 0\0") * 1000}[how],
                  b"D" + struct.pack("!IHi", 1_500_000_000, len(row), 1_400_000_000) if how == "one_endless_row" else b"")
    liar = server(f"{question} row" if "row" in how else f"{question} columns", flood)
    process = start(liar, tmp_path)
    assert flood.begun.wait(20)
    peak = peak_until(process, lambda: process.log("source_lost"), "the end of the flood")
    ends(process)
    assert SANITIZED or 0 < peak < ANSWER, f"{peak} bytes"


@pytest.mark.parametrize("piece", [NOTIFICATIONS, NOTICES], ids=["notifications", "notices"])
def test_floods_in_the_stream(tmp_path, server, piece):
    flood = Flood(piece, COPY_BOTH.encode())
    process = start(server("copy both", flood), tmp_path).streaming()
    eventually(lambda: flood.sent > 500_000_000, 60, "half a gigabyte of it")
    peak = peak_rss(process.process.pid)
    code, text = ends(process)
    assert code in (0, 3), text
    assert SANITIZED or 0 < peak < BUDGET, f"{peak} bytes"


def wide_relations():
    def column(name, is_key):
        return struct.pack("!B63sBIi", is_key, name.encode().ljust(63, b"x"), 0, TEXT, -1)
    columns = b"".join(column(f"c{n:04}", False) for n in range(1, 1600))  # one more differs, or they would be shared
    relations = (struct.pack("!cI", b"R", 20000 + n) + b"public\0t\0d" + struct.pack("!H", 1600) + column(f"k{n:04}", True) + columns
                 for n in range(1500))
    for data in (struct.pack("!cQQI", b"B", 0x2000, 0, 4711), *relations):
        yield framed(b"d")(struct.pack("!cQQQ", b"w", 0x2000, 0x2000, 0) + data)


def test_wide_relations_without_end(tmp_path, server):
    process = start(server("copy both", Flood(wide_relations(), COPY_BOTH.encode())), tmp_path)
    peak = peak_until(process, lambda: False, "the end of the flood")
    expect(ends(process), 78, "raise pipeline.memory")
    assert SANITIZED or 0 < peak < BUDGET, f"{peak} bytes"


def test_two_thousand_million_iterations_and_sigterm(tmp_path, server):
    """libpq counts them all, and millrace leaves without it. An honest server names 4096."""
    liar = server("scram challenge", lambda challenge: (challenge.frame(challenge.body().replace(b"4096", b"2000000000")), "silence"), "scram")
    process = start(liar, tmp_path)
    assert liar.told.wait(20)
    eventually(lambda: cpu_seconds(process.process.pid) > 0.5, 60, "the iterations")
    with open(f"/proc/{process.process.pid}/statm", encoding="ascii") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    if not SANITIZED:  # there is no room for a thread that would end it
        resource.prlimit(process.process.pid, resource.RLIMIT_AS, (used + 2**20, used + 2**20))
    expect(ends(process), 3, "a thread did not end")


def test_a_login_that_talks_and_sigterm(tmp_path, server):
    flood = Flood(framed(b"S")(b"parameter\0" + b"v" * 4000 + b"\0"), framed(b"R")(b"\0\0\0\0"))
    process = start(server("authenticated", flood), tmp_path)
    assert flood.begun.wait(20)
    code, text = ends(process)
    assert code in (0, 3, 70), text


@pytest.mark.parametrize("target", ["authenticated", "state columns"])
def test_silence_and_sigterm(tmp_path, server, target):
    liar = server(target, lambda: (b"", "silence"))
    process = start(liar, tmp_path)
    assert liar.told.wait(20)
    code, text = ends(process)
    assert code in (0, 3, *((70,) if target == "authenticated" else ())), text


# ---- the password ----

@pytest.fixture
def thief(server):
    """Says no to TLS and asks for the password in the clear, at an address that is not loopback: for millrace, another machine."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            pass
        address = probe.getsockname()[0]
    if address.startswith(("127.", "0.")):
        pytest.skip("this machine has no address but loopback")
    return server(way_in="cleartext", host=address)


@pytest.mark.parametrize("words,remedy", [("", "switch TLS on"), ("&sslmode=require", "switch TLS on"),
                                          ("&sslmode=prefer", "insecure_tls = true"),
                                          ("&sslmode=disable", "insecure_tls = true"),
                                          ("&sslmode=require&channel_binding=disable", "insecure_tls = true")])
def test_the_password_stays_here(tmp_path, thief, words, remedy):
    process = start(thief, tmp_path, words)
    assert process.ended(60) == 78
    text = "".join(process.lines)
    assert remedy in text and thief.passwords == [] and PASSWORD not in text


def test_in_plain_words_it_goes_out(tmp_path, thief):
    process = start(thief, tmp_path, source__postgres__insecure_tls="true").streaming()
    assert thief.passwords and process.stop() == 0
    assert "need not prove who it is" in "".join(process.lines)


def test_on_this_machine_nothing_is_asked_for(tmp_path, server):
    asks = server(way_in="cleartext")
    process = start(asks, tmp_path).streaming()
    assert process.stop() == 0 and asks.passwords


@pytest.mark.parametrize("code,words,said,unsaid", [
    ("28000", 'pg_hba.conf rejects connection for host "127.0.0.1", user "someone", database "shop", no encryption', "reject is before", "database name"),
    ("28P01", "Passwort-Authentifizierung fehlgeschlagen", "", "\0")], ids=["pg_hba", "German"])
def test_a_login_that_is_refused(tmp_path, server, code, words, said, unsaid):
    process = start(server("authenticated", lambda: (error(code, words), "close")), tmp_path)
    expect((process.ended(20), "".join(process.lines)), 77, said, without=unsaid)
