"""What millrace serves over HTTP, to whom, and under attack; and the commands that ask it."""

import concurrent.futures
import fcntl
import http.client
import itertools
import json
import os
import pty
import re
import signal
import socket
import ssl
import stat
import struct
import subprocess
import termios
import time

import pytest

from kit import BINARY, eventually, expect, figures, http_get, is_linked_with

NOBODY = "127.0.0.1:1"  # a port where nobody listens


@pytest.fixture
def streaming(database, millrace):
    """Makes a millrace that streams table t."""
    database.run("CREATE TABLE IF NOT EXISTS t (id serial PRIMARY KEY, v text)")

    def make(**options):
        return millrace(**options).start().streaming()
    return make


def acknowledged(process, count):
    eventually(lambda: process.figure("millrace_records_acknowledged_total") >= count, 60, f"{count} records")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def run_command(*arguments, environment=None):
    return subprocess.run([BINARY, *arguments], capture_output=True, text=True, timeout=60, check=False,
                          env={**os.environ, **(environment or {})})


# ---- what is served ----

def test_each_endpoint_answers(database, streaming):
    process = streaming()
    database.run("INSERT INTO t (v) SELECT 'x' FROM generate_series(1, 500)")
    acknowledged(process, 500)
    assert (process.get("/healthz").status, process.get("/healthz").json) == (200, {"alive": True})
    ready = eventually(lambda: (answer := process.get("/readyz")).status == 200 and answer.json, what="ready")
    assert (ready["ready"], ready["state"], ready["reason"]) == (True, "streaming", "")

    metrics = process.get("/metrics")
    assert metrics.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    assert figures(metrics.body)['millrace_events_total{table="public.t",operation="insert"}'] == 500

    status = process.get("/status").json
    assert (status["state"], status["slot"]["name"]) == ("streaming", database.slot)
    assert (status["totals"]["changes"], status["totals"]["acknowledged"]) == (500, 500)
    assert [(t["table"], t["insert"]) for t in status["tables"]] == [("public.t", 500)]
    assert "source_connected" in [event["event"] for event in status["events"]]
    assert status["configuration"]["topic_prefix"] == database.prefix
    assert {"path": "/metrics", "title": "Metrics"} in status["links"]
    assert process.get("/status?tables=0").json["tables"] == []
    for part, found in (("LIC.T", 1), ("%54", 1), ("nobody", 0)):
        answer = process.get(f"/status?filter={part}").json
        assert len(answer["tables"]) == answer["table_found"] == found and answer["table_count"] == 1


def test_history_goes_on(streaming):
    process = streaming()
    first = eventually(lambda: process.get("/api/history").json["rows"], what="a first second")
    column = process.get("/api/history").json["columns"].index("time_ms")
    last = first[-1][column]
    later = eventually(lambda: process.get(f"/api/history?after={last}").json["rows"], what="another second")
    assert all(row[column] > last for row in later)
    assert process.get("/api/history?after=x").status == 400


def test_pages_carry_their_protection(streaming):
    process = streaming()
    page = process.get("/")
    assert page.status == 200 and page.headers["Content-Type"].startswith("text/html")
    assert "default-src 'none'" in page.headers["Content-Security-Policy"]
    for part in ("/live_page.css", "/live_page.js"):
        assert process.get(part).status == 200
    for path in ("/", "/metrics", "/status", "/nothing"):
        headers = process.get(path).headers
        assert headers["X-Content-Type-Options"] == "nosniff" and headers["Cache-Control"] == "no-store"
        assert "Access-Control-Allow-Origin" not in headers
    assert process.get("/nothing").status == 404
    for guessed, meant in (("/health", "/healthz"), ("/ready", "/readyz")):
        answer = process.get(guessed)
        assert answer.status == 404 and f"did you mean {meant}?" in answer.json["error"], answer.json
        assert all(path in answer.json["error"] for path in ("there are /, ", "/metrics", "/status", "/healthz", "/readyz"))
    assert process.get("/metrics", method="POST").status == 405
    assert process.get("/metrics", method="HEAD").body == ""
    # A page elsewhere whose name resolves to 127.0.0.1 is not let in.
    assert process.get("/status", headers={"Host": "evil.example"}).status == 403
    assert process.get("/status", headers={"Host": "localhost"}).status == 200


def test_nothing_tells_a_secret_or_a_row(database, streaming):
    process = streaming()
    database.run("INSERT INTO t (v) VALUES ('canary-of-a-row')")
    acknowledged(process, 1)
    password = process.environment["TEST_URL"].split(":")[2].split("@")[0]
    for path in ("/metrics", "/status", "/readyz", "/api/history", "/"):
        body = process.get(path).body
        assert "canary" not in body and password not in body


# ---- readiness ----

def test_readyz_says_what_is_missing(database, millrace):
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    process = millrace(sink__kafka__brokers=f'["{NOBODY}"]').start()

    def sink_is_away():
        answer = process.get("/readyz")
        return answer.status == 503 and answer.json["state"] == "waiting_for_sink" and answer.json
    assert eventually(sink_is_away, 60, "readyz names the sink")["reason"]
    assert process.get("/healthz").status == 200
    process.kill()

    process = millrace()
    process.environment["TEST_URL"] = f"postgresql://nobody@{NOBODY}/none"
    process.start()
    answer = process.get("/readyz")
    assert answer.status == 503 and answer.json["state"] in ("starting", "waiting_for_source")
    eventually(lambda: process.get("/readyz").json["reason"], what="a reason")


def test_readyz_while_draining(database, millrace):
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    process = millrace(sink__kafka__brokers=f'["{NOBODY}"]', sink__kafka__state_topic='""',
                       pipeline__shutdown_deadline='"60s"').start().streaming()
    database.run("INSERT INTO t VALUES (1)")
    eventually(lambda: process.figure("millrace_changes_total") == 1, what="the row")
    process.process.send_signal(signal.SIGTERM)
    eventually(lambda: process.get("/readyz").json["state"] == "stopping", what="readyz says stopping")
    assert process.get("/readyz").status == 503 and process.get("/healthz").status == 200
    process.process.send_signal(signal.SIGTERM)
    assert process.ended(30) == 3


# ---- to whom ----

def test_pages_want_the_password(streaming, tmp_path):
    secret = tmp_path / "password"
    secret.write_text("open sesame\n")
    secret.chmod(0o600)
    process = streaming(http__username='"ann"', http__password=f'"file:{secret}"')
    for path in ("/", "/metrics", "/status", "/api/history", "/live_page.js", "/nothing"):
        assert process.get(path).status == 401
        assert process.get(path, user="ann:open").status == 401
        assert process.get(path, user="ann:open sesame").status == (404 if path == "/nothing" else 200)
    assert process.get("/healthz").status == 200
    assert process.get("/readyz").status in (200, 503)
    assert process.get("/status", user="ann:open sesame", headers={"Host": "proxy.example"}).status == 200
    assert run_command("status", "--address", process.address()).returncode == 77


def self_signed(folder):
    certificate, key = folder / "cert.pem", folder / "key.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
                    "-nodes", "-days", "2", "-subj", "/CN=millrace.test", "-keyout", key, "-out", certificate],
                   check=True, capture_output=True)
    key.chmod(0o600)
    return certificate, key


def test_pages_over_tls(streaming, tmp_path):
    certificate, key = self_signed(tmp_path)
    port = free_port()
    process = streaming(http__address=f'"127.0.0.1:{port}"', http__tls_certificate=f'"{certificate}"',
                        http__tls_key=f'"{key}"', http__required="true")
    assert process.wait_for("http_listening")["scheme"] == "https"
    trusting = ssl.create_default_context(cafile=certificate)
    trusting.check_hostname = False
    assert process.get("/healthz", tls=trusting).json == {"alive": True}
    with pytest.raises(ssl.SSLError):
        process.get("/healthz", tls=ssl.create_default_context())
    with pytest.raises((http.client.HTTPException, OSError)):
        process.get("/healthz")  # no TLS at all
    # The commands trust this one certificate and no other.
    assert run_command("health", "--config", process.path).returncode == 0
    stranger = tmp_path / "stranger"
    stranger.mkdir()
    other, _ = self_signed(stranger)
    certificate.write_bytes(other.read_bytes())
    assert run_command("health", "--config", process.path).returncode == 1


def test_unix_socket(streaming, tmp_path):
    path = tmp_path / "http.sock"
    process = streaming(http__address=f'"unix:{path}"')
    assert process.get("/healthz").status == 200
    assert stat.S_IMODE(path.stat().st_mode) == 0o660
    assert "streaming" in run_command("status", "--config", process.path).stdout
    process.kill()
    assert path.exists()
    process = streaming(http__address=f'"unix:{path}"')  # takes the place of the dead one's
    assert process.get("/healthz").status == 200
    assert process.stop() == 0
    assert not path.exists()


def test_what_is_not_a_dead_socket_stays(database, millrace, tmp_path):
    """A file in the socket's place is somebody's; a socket that is listened on as well."""
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    file = tmp_path / "precious"
    file.write_text("data")
    code, said = millrace(http__address=f'"unix:{file}"', http__required="true").run_to_end()
    assert code == 71 and "can't be listened on" in said and file.read_text() == "data"
    path = tmp_path / "http.sock"
    first = millrace(http__address=f'"unix:{path}"').start().streaming()
    second = millrace(http__address=f'"unix:{path}"', http__required="true")
    code, said = second.run_to_end()
    assert code == 71 and first.get("/healthz").status == 200
    # Another's socket in the place of its own stays at its end, too.
    path.unlink()
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(path))
        other.listen()
        assert first.stop() == 0
        assert path.exists()


def test_last_event_is_for_those_who_have_the_password(database, streaming, tmp_path):
    """Off by default; on, one event of each table, and nothing of it in the log or elsewhere."""
    process = streaming()
    assert process.get("/api/last-event?table=public.t").status == 404
    assert process.get("/status").json["last_events"] is False
    assert process.stop() == 0
    secret = tmp_path / "password"
    secret.write_text("open sesame\n")
    secret.chmod(0o600)
    process = streaming(http__username='"ann"', http__password=f'"file:{secret}"', http__last_events="true")

    def last(user="ann:open sesame"):
        return process.get("/api/last-event?table=public.t", user=user)
    assert (last("ann:no").status, last().status, last().json) == (401, 404, {"event": None})
    database.run("INSERT INTO t (v) VALUES ('canary-one'); UPDATE t SET v = 'canary-two'; DELETE FROM t")
    event = eventually(lambda: (found := last()).status == 200 and '"op":"d"' in found.json["event"]["value"]
                       and found.json["event"], what="the delete, not its tombstone")
    assert (event["key"], event["cut"]) == ('{"id":1}', False)
    database.run("INSERT INTO t (v) VALUES (repeat('canary', 5000))")
    event = eventually(lambda: (found := last().json["event"])["cut"] and found, what="the large one")
    assert len(event["value"]) == 8192 and event["bytes"] > 30000
    status = process.get("/status", user="ann:open sesame")
    assert status.json["last_events"] is True
    assert process.stop() == 0
    for text in ("".join(process.lines), status.body):
        assert "canary" not in text


def test_status_says_where_options_were_set_and_names_what_events_are_about(streaming):
    process = streaming()
    status = process.get("/status").json
    origins = status["configuration_origins"]
    assert re.fullmatch(r"line \d+ of .*config.toml", origins["topic_prefix"])
    assert "log.level" not in origins and set(origins) <= set(status["configuration"])
    made = next(event for event in status["events"] if event["event"] == "publication_created")
    assert f"publication {process.database.publication}" in made["about"]


# ---- top ----

class Screen:
    """`millrace top` in a terminal of a size."""

    def __init__(self, address, rows=24, columns=80):
        self.here, there = pty.openpty()
        fcntl.ioctl(there, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.process = subprocess.Popen([BINARY, "top", "--address", address], stdin=there, stdout=there, stderr=there)
        os.close(there)
        os.set_blocking(self.here, False)
        self.text = ""

    def lines(self):
        """Those of the last whole drawing, or None."""
        try:
            self.text += os.read(self.here, 1 << 16).decode()
        except BlockingIOError:
            pass
        drawings = self.text.split("\x1b[H")
        whole = [drawing for drawing in drawings if drawing.rstrip("\r\n").endswith("\x1b[J")]
        return re.sub(r"\x1b\[[KJ]", "", whole[-1]).replace("\r", "").splitlines() if whole else None

    def type(self, key):
        self.text = ""
        os.write(self.here, key.encode())


def test_top_fits_and_sorts(database, millrace):
    for name, rows in (("few", 1), ("many", 300), ("a_table_whose_name_is_longer_than_its_column", 20)):
        database.run(f"CREATE TABLE {name} (id serial PRIMARY KEY)")
    process = millrace(("few", "many", "a_table_whose_name_is_longer_than_its_column")).start().streaming()
    for name, rows in (("few", 1), ("many", 300), ("a_table_whose_name_is_longer_than_its_column", 20)):
        database.run(f"INSERT INTO {name} SELECT FROM generate_series(1, {rows})")
    acknowledged(process, 321)
    screen = Screen(process.address())

    def tables():
        lines = screen.lines() or []
        heading = next((i for i, line in enumerate(lines) if line.startswith("table ")), None)
        return heading is not None and [line.split()[0] for line in itertools.takewhile(bool, lines[heading + 1:])]
    try:
        eventually(lambda: len(tables() or []) == 3, what="three tables")
        screen.type("i")
        eventually(lambda: (tables() or [""])[0] == "public.many", what="sorted by inserts")
        screen.type("n")
        eventually(lambda: (tables() or [""])[-1] == "public.many", what="sorted by name")
        eventually(lambda: any("█" in line for line in screen.lines() or []), what="bars of the history")
        shown = screen.lines()
        assert len(shown) <= 24 and max(map(len, shown)) <= 80
        assert "q quit" in shown[-1] and "[n] name" in shown[-1]
        for name, rest in (("/", "/_  3 of 3 tables"), ("FEq", "/FEq_  0 of 3 tables"), ("\x7f\x1b[A\x1bOP", "/FE_  1 of 3 tables"),
                           ("\r", "/FE  1 of 3 tables")):
            screen.type(name)
            eventually(lambda said=rest: said in (screen.lines() or []), what=rest)
        shown = screen.lines()
        assert tables() == ["public.few"] and len(shown) <= 24 and max(map(len, shown)) <= 80 and "/ filter" in shown[-1]
        screen.type("\x1b")
        eventually(lambda: len(tables() or []) == 3, what="all tables again")
        screen.type("q")
        assert screen.process.wait(30) == 0
    finally:
        screen.process.kill()
        os.close(screen.here)
    small = Screen(process.address(), rows=10, columns=40)
    try:
        shown = eventually(small.lines, what="a drawing")
        assert len(shown) <= 10 and max(map(len, shown)) <= 40 and "q quit" in shown[-1]
    finally:
        small.process.kill()
        os.close(small.here)


def test_guessing_a_password_takes_time(streaming, tmp_path):
    secret = tmp_path / "password"
    secret.write_text("open sesame\n")
    secret.chmod(0o600)
    process = streaming(http__username='"ann"', http__password=f'"file:{secret}"')
    answers = [process.get("/status", user="ann:wrong").status for _ in range(40)]
    assert answers[:5] == [401] * 5 and answers.count(429) >= 30, answers
    told = process.wait_for("http_login_failed")
    assert told["from"] == "127.0.0.1" and "wrong" not in json.dumps({**told, "message": ""})
    assert process.get("/healthz").status == 200  # probes send no password
    eventually(lambda: process.get("/status", user="ann:open sesame").status == 200, 10, "the right one in its turn")
    assert process.get("/status", user="ann:open sesame").status == 200


def test_pages_of_others_start_nothing(streaming):
    """A link or a picture on a page of another site, and a name that a stranger points at this machine."""
    process = streaming(profiling__endpoints="true")
    path = "/pprof/profile/folded?seconds=1"
    for site, status in (("cross-site", 403), ("same-site", 403), ("same-origin", 200), ("none", 200)):
        assert process.get(path, headers={"Sec-Fetch-Site": site}).status == status
    assert process.get("/status", headers={"Sec-Fetch-Site": "cross-site"}).status == 200  # nobody can read it there
    assert process.get("/pprof/heap/reset", method="POST", headers={"Sec-Fetch-Site": "cross-site"}).status == 403


@pytest.mark.skipif(not is_linked_with("jemalloc"), reason="CPU profiles are taken one at a time; others are of the heap")
def test_long_profiles_leave_a_place(streaming):
    process = streaming(profiling__endpoints="true", profiling__heap="true")
    asked = [socket.create_connection(process.address().split(":")) for _ in range(2)]
    for client in asked:
        client.sendall(b"GET /pprof/heap/folded?seconds=600 HTTP/1.1\r\nHost: localhost\r\n\r\n")
    # The server reads what has come in the order it came in; both run before a third is asked for.
    eventually(lambda: process.get("/pprof/heap/folded?seconds=1").status == 200, what="a short one beside them")
    answer = process.get("/pprof/heap/folded?seconds=61")
    assert answer.status == 429 and "one place is kept" in answer.body
    for client in asked:
        client.close()


def test_an_open_address_is_warned_of(streaming):
    process = streaming(http__address='":0"')
    assert "http.username" in process.wait_for("http_exposed")["message"]
    port = process.address().rsplit(":", 1)[1]
    assert http_get(f"127.0.0.1:{port}", "/healthz", headers={"Host": "anything"}).status == 200
    assert http_get(f"127.0.0.1:{port}", "/status", headers={"Host": "evil.example"}).status == 403


def test_port_taken(database, streaming, millrace):
    port = free_port()
    first = streaming(http__address=f'"127.0.0.1:{port}"', http__required="true")
    second = millrace(http__address=f'"127.0.0.1:{port}"').start()
    assert "http.address" in second.wait_for("http_unavailable")["message"]
    required = millrace(http__address=f'"127.0.0.1:{port}"', http__required="true")
    expect(required.run_to_end(), 71, "http.address")
    assert first.stop() == 0
    # The one that waited streams, and now answers.
    second.streaming()
    database.run("INSERT INTO t (v) VALUES ('x')")
    acknowledged(second, 1)
    assert len(second.log("http_unavailable")) == 1


def test_switched_off(streaming):
    process = streaming(http__address='""')
    assert not process.log("http_listening")


# ---- under attack ----

def open_descriptors(process):
    return len(os.listdir(f"/proc/{process.process.pid}/fd"))


def resident_kib(process):
    with open(f"/proc/{process.process.pid}/status", encoding="ascii") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS:"))


def dial(address):
    host, port = address.rsplit(":", 1)
    connection = socket.create_connection((host, int(port)), timeout=30)
    connection.setblocking(False)
    return connection


def is_over(connection):
    try:
        return connection.recv(1) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


def test_slow_clients_hold_up_nobody(database, streaming):
    """300 connections that never finish a request: probes get through, rows flow, and the crowd is put out."""
    process = streaming()
    address, before = process.address(), open_descriptors(process)
    crowd = [dial(address) for _ in range(300)]
    for round_number in range(3):
        for connection in crowd:
            try:
                connection.send(b"GET /healthz HTTP/1.1\r\n"[round_number:round_number + 1])
            except OSError:
                pass  # put out already
        assert process.get("/healthz").status == 200
        database.run("INSERT INTO t (v) SELECT 'x' FROM generate_series(1, 100)")
    acknowledged(process, 300)
    assert open_descriptors(process) <= before + 64 + 16
    eventually(lambda: all(is_over(c) for c in crowd), 30, "the silent ones are put out")
    for connection in crowd:
        connection.close()
    eventually(lambda: open_descriptors(process) <= before + 2, 30, "their descriptors are closed")


def test_readers_that_take_nothing(streaming):
    """Clients that ask and never read hold a bounded amount of memory, and others are served."""
    process = streaming()
    address = process.address()
    crowd = [dial(address) for _ in range(100)]
    for connection in crowd:
        try:
            connection.send(b"GET /live_page.js HTTP/1.1\r\nHost: localhost\r\n\r\n" * 4)
        except OSError:
            pass
    assert process.get("/healthz").status == 200
    assert process.get("/metrics").status == 200
    for connection in crowd:
        connection.close()


def test_more_clients_than_places(database, streaming):
    """Requests as fast as sixteen clients can: rows flow, memory and descriptors stay bounded."""
    process = streaming()
    address = process.address()
    assert process.get("/metrics").status == 200
    before_kib, before = resident_kib(process), open_descriptors(process)
    ends = time.monotonic() + 3

    def hammer(path):
        answered = 0
        while time.monotonic() < ends:
            try:
                answered += http_get(address, path).status == 200
            except (OSError, http.client.HTTPException):
                pass  # made room for another
        return answered

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        counts = [pool.submit(hammer, path) for path in ("/metrics", "/status", "/api/history", "/") * 4]
        database.run("INSERT INTO t (v) SELECT 'x' FROM generate_series(1, 5000)")
        assert sum(count.result() for count in counts) > 16
    acknowledged(process, 5000)
    assert process.get("/healthz").status == 200
    eventually(lambda: open_descriptors(process) <= before + 2, 30, "descriptors are closed")
    if "MILLRACE_TEST_SANITIZED" not in os.environ:
        assert resident_kib(process) - before_kib < 16 * 1024


def test_malformed_requests(streaming):
    process = streaming()
    host, port = process.address().rsplit(":", 1)
    for request in (b"\0" * 100 + b"\r\n\r\n", b"GET\r\n\r\n", b"GET /metrics HTTP/9.9\r\n\r\n", b"A" * 100000,
                    b"GET /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
                    b"GET /metrics HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
                    b"GET /status?tables=1e9 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
                    b"GET /status?" + b"a=1&" * 50 + b" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"):
        with socket.create_connection((host, int(port)), timeout=30) as connection:
            try:
                connection.sendall(request)
                connection.shutdown(socket.SHUT_WR)
                answer = connection.recv(4096)
            except OSError:
                answer = b""
            assert not answer.startswith(b"HTTP/1.1 200")
    assert process.get("/healthz").status == 200


# ---- the commands ----

def test_status_top_and_health_ask_a_running_millrace(database, streaming):
    process = streaming()
    database.run("INSERT INTO t (v) SELECT 'x' FROM generate_series(1, 1234)")
    acknowledged(process, 1234)
    address = process.address()
    assert run_command("health", "--address", address).returncode == 0
    eventually(lambda: run_command("health", "--ready", "--address", address).returncode == 0, what="ready")
    status = run_command("status", "--address", address)
    assert status.returncode == 0 and status.stderr == ""
    assert "streaming for" in status.stdout and f"slot       {database.slot}" in status.stdout
    assert "public.t" in status.stdout and "1,234" in status.stdout and "source_connected" in status.stdout
    told = json.loads(run_command("status", "--json", "--address", address).stdout)
    assert (told["state"], told["slot"]["name"], told["totals"]["changes"]) == ("streaming", database.slot, 1234)

    top = subprocess.Popen([BINARY, "top", "--address", address], stdout=subprocess.PIPE, text=True,
                           stdin=subprocess.DEVNULL)
    pages = 0
    while pages < 2:
        line = top.stdout.readline()
        assert line, "top ended"
        pages += "streaming for" in line
    process.stop()
    while "no answer" not in top.stdout.readline():
        assert top.poll() is None
    top.send_signal(signal.SIGINT)
    top.stdout.close()
    assert top.wait(30) == 0


def test_commands_when_nobody_is_there():
    health = run_command("health", "--address", NOBODY)
    assert health.returncode == 1 and "is millrace running" in health.stdout
    status = run_command("status", "--address", NOBODY)
    assert status.returncode == 69 and "is millrace running" in status.stderr
    assert run_command("status", "--address", "nonsense").returncode == 78
