"""What the slot costs the server, and which part is named as the one that holds the flow, or keeps WAL: a fault placed for each."""

import os
import subprocess
import time

import psycopg
import pytest

from faults.servers import OtherServer, Proxy
from endless import Endless
from kit import BINARY, Database, dsn, eventually, figures

QUICK = {"metrics__interval": '"200ms"'}
ORDER = ("server", "sent", "received", "acknowledged", "stored", "confirmed")


@pytest.fixture
def tables(database):
    database.run("CREATE TABLE t (id bigserial PRIMARY KEY, v text); CREATE TABLE other (v text)")


def status(process):
    return process.get("/status").json


def why(process, part, limit_s=60):
    """The sentence, once it has that part."""
    seen = []

    def there():
        seen.append(status(process)["why"])
        return part in seen[-1] and seen[-1]
    try:
        return eventually(there, limit_s, f"the sentence with {part!r}")
    except AssertionError as error:
        raise AssertionError(f"{error}: {sorted(set(seen))}") from error


def shown(process):
    return subprocess.run([BINARY, "status", "--address", process.address()], capture_output=True, text=True, timeout=60,
                          check=True).stdout


def lsn(text):
    high, low = text.split("/")
    return (int(high, 16) << 32) + int(low, 16)


def test_positions_in_their_order(database, millrace, tables):
    process = millrace(**QUICK).start().streaming()
    database.run("INSERT INTO t (v) SELECT 'x' FROM generate_series(1, 1000)")
    written = lsn(database.run("SELECT pg_current_wal_lsn()")[0][0])

    def all_there():
        found = {name: lsn(text) for name, text in status(process)["positions"].items()}
        return found["confirmed"] >= written and found["sent"] >= written and found
    found = eventually(all_there, what="the positions")
    places = [found[name] for name in ORDER[2:]]
    assert places == sorted(places, reverse=True) and places[-1] >= written
    samples = process.figure
    assert all(samples(f"millrace_{name}_lsn") >= written for name in ORDER)
    assert "positions  server " in shown(process) and "   stored" not in shown(process)
    assert status(process)["why"] == ""


def test_cpu_of_the_walsender(database, millrace, tables):
    """It is a process of this machine, so /proc has it; not that of a server elsewhere."""
    process = millrace(**QUICK).start().streaming()
    database.run("INSERT INTO t (v) SELECT repeat('x', 100) FROM generate_series(1, 100000)")
    used = eventually(lambda: process.figure("millrace_walsender_cpu_seconds_total"), what="CPU time", not_yet=KeyError)
    pid = database.slot_row("active_pid")
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        ticks = sum(map(int, file.read().split()[13:15]))
    assert 0 < used <= ticks / os.sysconf("SC_CLK_TCK")


def test_an_open_transaction_keeps_the_slot(database, millrace, tables):
    process = millrace(**QUICK).start().streaming()
    with psycopg.connect(dsn(database.name)) as idle:
        idle.execute("INSERT INTO other VALUES ('open')")
        pid = idle.info.backend_pid
        for _ in range(6):
            database.run("INSERT INTO t (v) SELECT repeat('x', 1000) FROM generate_series(1, 1000)")
            database.run("CHECKPOINT")  # with a record of running transactions, by which the slot could move
        said = why(process, f"process {pid}")
        assert "of WAL that is confirmed" in said and ", since 20" in said
        cost = eventually(lambda: [cost for cost in (status(process)["slot"]["cost"],) if cost["catalog_xmin_age"] >= 6], what="a look after all six")[0]
        assert cost["held_bytes"] > 1 << 20 and str(pid) in cost["holder"]
        assert f"process {pid}" in shown(process)
    database.run("INSERT INTO t (v) VALUES ('after it'); CHECKPOINT")

    def gone():
        database.run("SELECT pg_log_standby_snapshot()" if database.run("SHOW server_version_num")[0][0] >= "160000" else "CHECKPOINT")
        return status(process)["why"] == "" and status(process)["slot"]["cost"]["holder"] == ""
    eventually(gone, what="the slot moving")


def test_a_large_transaction_is_spilled(database, millrace, tables):
    process = millrace(**QUICK)
    process.environment["TEST_URL"] = dsn(database.name) + "?options=-c%20logical_decoding_work_mem%3D64kB"
    process.start().streaming()
    database.run("INSERT INTO t (v) SELECT repeat('x', 1000) FROM generate_series(1, 5000)")
    # Before the first look at the slot there is no such figure.
    eventually(lambda: figures(process.get("/metrics").body).get("millrace_slot_spilled_transactions_total", 0) >= 1, what="the count of it")
    eventually(lambda: process.figure("millrace_slot_spilled_bytes_total") > 1 << 20, what="the bytes of it")
    eventually(lambda: process.figure("millrace_slot_decoded_bytes_total") >= process.figure("millrace_slot_spilled_bytes_total"),
               what="the count of all")


@pytest.fixture
def far():
    """The way to the stand's broker that a proxy stands in: a fifth of a second there, and as much back."""
    proxy = Proxy(int(os.environ["KAFKA_PROXIED_PORT"]), int(os.environ["KAFKA_PROXY_PORT"]))
    proxy.set("delay 200")
    yield proxy
    proxy.close()


def test_seconds_beside_the_positions(database, millrace, tables, far):
    """Kafka is silent for a while: what it has to acknowledge gets older, and says how old; what was received does not."""
    far.set("pass")
    process = millrace(sink__kafka__brokers=f'["127.0.0.1:{far.port}"]', **QUICK).start().streaming()
    database.run("INSERT INTO t (v) VALUES ('x')")
    eventually(lambda: process.figure("millrace_records_acknowledged_total") >= 1, what="the first row")
    far.set("hold")
    database.run("INSERT INTO t (v) VALUES ('y')")

    def older():
        behind = status(process)["behind"]  # null before the first look at the slot
        known = all(behind[place] is not None for place in ("confirmed", "acknowledged", "received"))
        return known and behind["confirmed"] >= 2 and behind["acknowledged"] >= 2 and behind["received"] < 2
    eventually(older, what="seconds of what Kafka has not acknowledged")
    assert process.figure('millrace_behind_seconds{position="confirmed"}') >= 2
    assert " s)" in shown(process)
    process.kill()


def test_rest_ends_when_the_stream_moves_or_breaks(millrace_for):
    """Nobody else uses that server, so the slot comes to rest: two looks are further apart than the interval, but not once something happens."""
    interval_s, server = 4, OtherServer()
    try:
        server.stand("pg-start")
        database = Database(port=server.port)
        database.run("CREATE TABLE t (id bigserial PRIMARY KEY, v text)")
        process = millrace_for(database, metrics__interval=f'"{interval_s}s"').start().streaming()

        def looked():
            return time.monotonic() - status(process)["slot"]["age_seconds"]
        eventually(lambda: time.monotonic() - looked() > interval_s + 0.5, what="rest")
        before = looked()
        database.run("INSERT INTO t (v) VALUES ('x')")
        eventually(lambda: looked() > before + 1, what="a look")
        assert looked() - before < 2 * interval_s - 0.5  # when the next one would have come
        eventually(lambda: time.monotonic() - looked() > interval_s + 0.5, what="rest again")
        before = looked()
        server.stand("pg-stop")
        eventually(lambda: process.figure("millrace_slot_errors_total") > 0, what="a look that fails")
        assert time.monotonic() - before < 2 * interval_s - 0.5
        process.kill()
    finally:
        server.close()


def writing(database, statement):
    """Somebody runs that statement all the time."""
    def write(connection, _):
        while True:
            connection.execute(statement)
            yield
    return Endless(database, write)


def test_a_slow_broker(database, millrace, tables, far):
    process = millrace(sink__kafka__brokers=f'["127.0.0.1:{far.port}"]', pipeline__batch_size='"4KiB"', **QUICK).start().streaming()
    with writing(database, "INSERT INTO t (v) SELECT repeat('x', 200) FROM generate_series(1, 2000)"):
        said = why(process, "the sink acknowledges no faster")
    assert "records in flight" in said and "ms (p99)" in said
    assert "why        the sink acknowledges" in shown(process) or status(process)["why"] == ""
    process.kill()


@pytest.fixture
def narrow():
    """The way to the stand's PostgreSQL that a proxy stands in."""
    proxy = Proxy(int(os.environ["PGPORT"]))
    yield proxy
    proxy.close()


def test_a_slow_consumer_and_a_hot_table(database, millrace, narrow):
    """What the walsender sends is taken slowly; most of it is of one table of two."""
    database.run("CREATE TABLE t (id bigserial PRIMARY KEY, v text); CREATE TABLE cold (id bigserial PRIMARY KEY, v text)")
    process = millrace(tables=("t", "cold"), **QUICK)
    process.environment["TEST_URL"] = dsn(database.name, narrow.port)
    process.start().streaming()
    narrow.set("rate 500")
    with writing(database, "INSERT INTO t (v) SELECT repeat('x', 500) FROM generate_series(1, 900)"), \
            writing(database, "INSERT INTO cold (v) VALUES ('x')"):
        said = why(process, "waits for its bytes to be taken: the network is the limit, or this machine (Client/WalSenderWriteData", 120)
        assert "of the looks" in said
        assert "% of the changes are of table public.t" in why(process, "% of the changes are of table", 120)
    narrow.set("pass")
    process.kill()


def test_a_server_that_decodes_no_faster(database, millrace, tables):
    """Most of what it decodes is of a table that nobody asked for."""
    process = millrace(**QUICK).start().streaming()
    database.run("INSERT INTO t (v) VALUES ('one')")
    # More dead rows than other tests leave in the shared catalogs: three are named.
    columns = ", ".join(f"c{i} int" for i in range(1000))
    for _ in range(3):
        database.run(f"CREATE TABLE gone ({columns}); DROP TABLE gone")
    with writing(database, "INSERT INTO other SELECT repeat('x', 20) FROM generate_series(1, 200000)"), \
            writing(database, "INSERT INTO other SELECT repeat('y', 20) FROM generate_series(1, 200000)"):
        said = why(process, "PostgreSQL's walsender", 120)
        assert "of the looks" in said
        assert "% of the WAL that it reads is not of captured rows" in why(process, "(others that change most: public.other)", 120)
        eventually(lambda: "pg_attribute (" in status(process)["slot"]["cost"]["dead_catalogs"], what="a catalog with rows to remove")
    process.kill()
