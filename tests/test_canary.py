"""No row and no secret where people look: logs, metrics, pages, profiles, commands, error texts.

Every value and every secret here carries a canary. `Watch` collects what millrace says in any way, unpacked, and
looks for each of them, as it is and in the forms that something could have made of it."""

import base64
import gzip
import os
import subprocess

import psycopg
import pytest

from kit import BINARY, dsn, eventually, profile_command
from test_security import kafka_options

KEY, OLD, TEXT, JSON, BLOB, BATCH = (f"canary{name}{7919 * n}" for n, name in enumerate(
    ("Key", "Old", "Text", "Json", "Blob", "Copied"), 11))
COPIES = 2000  # rows
NUMBER = "73510486291.264801"
ROWS = (KEY, OLD, TEXT, JSON, BLOB, BATCH, NUMBER)
PG_SECRET, KAFKA_SECRET, HTTP_SECRET = "canarySecretPg31", "canarySecretKafka37", "canarySecretHttp41"
SECRETS = (PG_SECRET, KAFKA_SECRET, HTTP_SECRET)
NOBODY = "127.0.0.1:1"


def forms(canary):
    """As bytes: itself, as hexadecimal (bytea), and as base64 whatever stands before it."""
    raw = canary.encode()
    found = {raw, raw.hex().encode(), raw.hex().upper().encode()}
    for before in range(3):
        packed = base64.b64encode(b"\0" * before + raw + b"\0\0")
        found.add(packed[(8 * before + 5) // 6:8 * (before + len(raw)) // 6])
    return found


class Watch:
    """Every text that was seen, by where it stood."""

    def __init__(self):
        self.seen = {}

    def add(self, where, text):
        data = text.encode() if isinstance(text, str) else text
        if data[:2] == b"\x1f\x8b":
            data = gzip.decompress(data)
        self.seen[where] = self.seen.get(where, b"") + data

    def folder(self, path):
        for root, _, names in os.walk(path):
            for name in names:
                with open(os.path.join(root, name), "rb") as file:
                    self.add(f"file {name}", file.read())

    def expect_none(self, canaries=ROWS + SECRETS):
        wanted = {form: canary for canary in canaries for form in forms(canary)}
        for where, data in self.seen.items():
            for form, canary in wanted.items():
                at = data.find(form)
                assert at < 0, f"{canary} in {where}: {data[max(0, at - 100):at + 60]}"


def test_the_watch_sees_a_canary_in_each_form():
    """Else the tests below would prove nothing."""
    packed = [f"x{KEY}".encode(), f"\\x{KEY.encode().hex()}".encode(), gzip.compress(KEY.encode())]
    packed += [base64.b64encode(b"abc"[:n] + KEY.encode() + b"de") for n in range(3)]
    for data in packed:
        watch = Watch()
        watch.add("it", data)
        with pytest.raises(AssertionError, match=KEY):
            watch.expect_none()


TABLE = """CREATE TABLE t (k text PRIMARY KEY, v text, j json, jb jsonb, b bytea, n numeric, f float8, a text[]);
           ALTER TABLE t REPLICA IDENTITY FULL"""


def write_everything(database):
    """Each kind of change and of value, old ones too, and the server's word about some of them."""
    row = ("%s", f"'{TEXT}'", f"'{{\"{JSON}\": \"{JSON}\"}}'", f"'[\"{JSON}\"]'", f"'{BLOB}'::bytea", NUMBER, NUMBER,
           f"ARRAY['{TEXT}', '{TEXT}']")
    database.run(f"INSERT INTO t VALUES ({', '.join(row)})", [KEY])
    database.run(f"UPDATE t SET v = '{OLD}'")
    database.run(f"UPDATE t SET k = k || '2', v = repeat('{TEXT}', 5000)")
    database.run("UPDATE t SET n = n + 1")
    database.run("SELECT pg_logical_emit_message(true, %s, %s)", [TEXT, OLD])
    database.run(f"INSERT INTO t (k, v) SELECT '{BATCH}' || g, '{BATCH}' FROM generate_series(1, {COPIES}) g")
    with pytest.raises(psycopg.errors.UniqueViolation, match=BATCH):
        database.run(f"INSERT INTO t (k) VALUES ('{BATCH}1')")
    with pytest.raises(psycopg.errors.InvalidTextRepresentation, match=TEXT):
        database.run(f"UPDATE t SET n = '{TEXT}'::numeric")
    database.run(f"DELETE FROM t WHERE k LIKE '{BATCH}%'")
    database.run("TRUNCATE t")


@pytest.fixture
def secret_role(database):
    """A superuser with a password of its own, and how to log in as that."""
    name = "r" + database.name
    database.run(f"CREATE ROLE {name} SUPERUSER LOGIN PASSWORD '{PG_SECRET}'")
    yield dsn(database.name).replace("postgres:millrace-stand", f"{name}:{PG_SECRET}")
    database.run(f"DROP OWNED BY {name}; DROP ROLE {name}")


def run(arguments, environment):
    """All that a command says, whatever its exit code."""
    done = subprocess.run([BINARY, *arguments], env=environment, capture_output=True, timeout=120, check=False)
    return done.stdout + done.stderr


PAGES = ("/", "/live_page.js", "/live_page.css", "/metrics", "/status", "/healthz", "/readyz", "/api/history",
         "/no/such/page", "/pprof/", "/pprof/last-minute/folded", "/pprof/last-minute/flamegraph",
         "/pprof/profile/folded?seconds=1", "/pprof/profile/flamegraph?seconds=1",
         "/pprof/heap/folded")


@pytest.mark.timeout(240)
def test_nothing_that_runs_well_tells(database, millrace, topic, tmp_path, secret_role):
    database.run(TABLE)
    heap = "true" if b"jemalloc" in run(["--version"], os.environ) else "false"
    process = millrace(
        log__level='"debug"', skipped_operations="[]", messages__prefixes='["*"]', pipeline__batch_size='"32KiB"',
        http__username='"someone"', http__password='"env:HTTP_SECRET"',
        profiling__endpoints="true", profiling__heap=heap, profiling__path=f'"{tmp_path}/profiles"',
        profiling__interval='"1s"')
    process.environment |= {"HTTP_SECRET": HTTP_SECRET, "TEST_URL": secret_role}
    watch = Watch()
    watch.add("check", run(["check", "--config", process.path], process.environment))
    process.start().streaming()
    write_everything(database)
    database.run("SELECT pg_terminate_backend(%s)", [database.slot_row("active_pid")])
    process.wait_for("source_connected", times=2, limit_s=60)
    write_everything(database)
    records = topic(database.topic("t")).take(2 * (7 + 3 * COPIES), 120)
    assert any(KEY in (record.key or "") for record in records), "the canaries are not where they should be"
    user = f"someone:{HTTP_SECRET}"
    for page in PAGES:
        watch.add(f"GET {page}", process.get(page, user=user).body)
    watch.add("GET / with a wrong password", process.get("/", user=f"someone:{TEXT}").body)
    for command in ("status", "health"):
        watch.add(f"millrace {command}", run([command, "--config", process.path, "--address", process.address()],
                                             process.environment))
    said = profile_command("--config", process.path, "--address", process.address(), "--seconds", "1", "--out",
                           "taken", folder=tmp_path, environment=process.environment)
    watch.add("millrace profile", said.stdout + said.stderr)
    eventually(lambda: os.listdir(tmp_path / "profiles"), 60, "profiles", FileNotFoundError)
    assert process.stop() == 0
    watch.folder(tmp_path)
    del watch.seen["file config.toml"]
    watch.add("log", "".join(process.lines))
    print({where: len(data) for where, data in watch.seen.items()})
    assert any(where.endswith(".pb.gz") for where in watch.seen)
    watch.expect_none()


# ---- what goes wrong ----

def expect_none_of(process):
    watch = Watch()
    watch.add("log", "".join(process.lines))
    watch.add("check", run(["check", "--config", process.path], process.environment))
    assert len(watch.seen["log"]) > 0
    watch.expect_none()


@pytest.mark.parametrize("options,name", [
    ({"sink__kafka__message_max": "1000"}, "sink.kafka.message_max"),
    ({"pipeline__change_max": "65536"}, "pipeline.change_max"),
])
def test_a_row_that_is_too_large(database, millrace, options, name):
    database.run(TABLE)
    process = millrace(log__level='"debug"', **options).start().streaming()
    database.run(f"INSERT INTO t (k, v, j) VALUES ('{KEY}', repeat('{TEXT}', 20000), '\"{JSON}\"')")
    assert process.ended(60) == 65
    assert name in "".join(process.lines)
    expect_none_of(process)


def test_a_value_that_the_server_refuses(database, millrace):
    """A row filter's function says in its primary message what it was given."""
    database.run(TABLE)
    database.run(f"CREATE PUBLICATION {database.publication} FOR TABLE t WHERE (encode(b, v) <> 'x')")
    process = millrace(log__level='"debug"').start().streaming()
    database.run(f"INSERT INTO t (k, v, b) VALUES ('{KEY}', '{TEXT}', '{BLOB}')")
    assert eventually(lambda: any("22023" in line for line in process.lines), what="the server's refusal")
    process.kill()
    expect_none_of(process)


def test_notices_of_the_server(database, millrace, secret_role):
    """At its most talkative it sends them to whoever is connected."""
    database.run(TABLE)
    process = millrace(log__level='"debug"')
    process.environment["TEST_URL"] = secret_role + "?options=-c%20client_min_messages%3Ddebug5"
    process.start().streaming()
    database.run(f"INSERT INTO t (k, v) VALUES ('{KEY}', '{TEXT}')")
    eventually(lambda: process.figure("millrace_changes_total") == 1, what="the row")
    assert process.stop() == 0
    assert all(line.startswith("{") for line in process.lines), "".join(process.lines)
    expect_none_of(process)


@pytest.mark.parametrize("url", [
    f"postgresql://u:{PG_SECRET}@{NOBODY}/d",               # nobody listens
    f"postgresql://u:{PG_SECRET}%zz@{NOBODY}/d",            # no percent-encoding
    f"postgresql://u:{PG_SECRET}@127.0.0.1:{PG_SECRET}/d",  # no port
    f"postgresql://u:one@{PG_SECRET}@127.0.0.1/d",          # @ in a password
    f"postgresql://u:one/{PG_SECRET}@127.0.0.1/d",          # / in a password
    f"postgresql://u:{PG_SECRET}/two@127.0.0.1/d",
    f"host=127.0.0.1 password=one {PG_SECRET}",             # blank without quotes
    f"host=127.0.0.1 port=1 password='{PG_SECRET}",         # no second quote
])
def test_addresses_that_lead_nowhere(database, millrace, url):
    process = millrace(log__level='"debug"')
    process.environment["TEST_URL"] = url
    process.start()
    eventually(lambda: process.process.poll() is not None or len(process.lines) > 5, 60, "its word about that")
    if process.process.poll() is None:
        process.kill()
    assert process.ended(30) != 0
    expect_none_of(process)


def test_wrong_passwords(database, millrace, secret_role):
    database.run(TABLE)
    database.run(f"ALTER ROLE r{database.name} PASSWORD 'another'")
    process = millrace(log__level='"debug"')
    process.environment["TEST_URL"] = secret_role
    assert process.run_to_end()[0] == 77
    expect_none_of(process)

    process = millrace(log__level='"debug"', **kafka_options())
    process.environment["KAFKA_PASSWORD"] = KAFKA_SECRET
    assert process.run_to_end(60)[0] == 77
    expect_none_of(process)


@pytest.mark.parametrize("text", [
    f'[source.postgres]\nconnection = "host=x password={PG_SECRET}"\n',
    f'[source.postgres]\npassword = "{PG_SECRET}"\n',
    f'[source.postgres]\nconnection = "host=x password={PG_SECRET}\n',
    f'[sink.kafka]\nbrokers = ["{NOBODY}"]\n[sink.kafka.sasl]\npassword = "{KAFKA_SECRET}"\n',
    f'[sink.kafka]\nbrokers = ["{NOBODY}"]\n[sink.kafka.properties]\n"sasl.password" = "{KAFKA_SECRET}"\n',
    f'[http]\nusername = "u"\npassword = "{HTTP_SECRET}"\n',
])
def test_secrets_in_the_file(database, millrace, text):
    process = millrace(text='tables = ["t"]\n' + text)
    assert process.run_to_end()[0] == 78
    expect_none_of(process)


def test_a_publication_that_is_gone(database, millrace):
    database.run(TABLE)
    process = millrace(log__level='"debug"').start().streaming()
    assert process.stop() == 0
    database.run(f"INSERT INTO t (k, v) VALUES ('{KEY}', '{TEXT}')")
    database.run(f"DROP PUBLICATION {database.publication}")
    assert process.run_to_end()[0] == 10
    expect_none_of(process)
