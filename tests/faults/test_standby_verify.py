"""Rows that are proved on a standby: one that is streamed from, or one beside the primary. The witness looks at the primary, whose snapshots
say by numbers what they see, so each knows by another rule what counts."""

import contextlib
import json
import random
import subprocess

import psycopg
import pytest

from endless import Endless
from kit import BINARY, Database, check, dsn, eventually
from pair import Pair
from test_repair import NAMED, plant, repair
from test_standby_source import EXACTLY_ONCE, first_start, found, reads_from, servers
from test_verify import DIFFERENT, EQUAL, IN_PART, NO_VERDICT, after, copied, kinds, of_t, produce

TABLE = "CREATE TABLE t (id int PRIMARY KEY, v text, n int)"
HELD = ("SELECT count(*) FROM pg_stat_activity WHERE datname = '{}' AND query LIKE 'COPY (SELECT xmin%' AND state <> 'idle'")


def streamed_by(server, database):
    """The witness asks whether the stream has come to its moment; the slot is there."""
    def slot_row(column):
        rows = server.run(f"SELECT {column} FROM pg_replication_slots WHERE slot_name = '{database.slot}'")
        return rows[0][0] if rows else None
    database.slot_row = slot_row
    return database


@pytest.fixture
def read_from(millrace_for):
    """A pair whose standby is streamed from, and a table that was there before."""
    with contextlib.ExitStack() as stack:
        def make(rows, settings=None, **options):
            pair = stack.enter_context(servers(found(), **(settings or {})))
            database = streamed_by(pair.standby, Database(port=pair.primary.port))
            database.run(f"{TABLE}; INSERT INTO t SELECT n, 'v' || n, 0 FROM generate_series(1, {rows}) n")
            process = reads_from(pair, database, millrace_for, **{"snapshot__mode": '"initial"', "skipped_operations": "[]", **options})
            return pair, database, first_start(pair, process)
        yield make


def written(database, keys):
    """Rows that come, change, go, and roll back, in short transactions and long ones, waited for and not, by three who go on."""
    def write(connection, seed):
        chance = random.Random(seed)
        if seed == 1:
            connection.execute("SET synchronous_commit = off")
        while True:
            key = chance.randrange(1, keys) * 3 + seed
            many = chance.choice((1, 1, 1, 20))
            with contextlib.suppress(psycopg.errors.DeadlockDetected), connection.transaction() as transaction:
                connection.execute("INSERT INTO t SELECT n, repeat(md5(random()::text), %s), 0 FROM generate_series(%s::int, %s::int, 3) n"
                                   " ON CONFLICT (id) DO UPDATE SET v = excluded.v, n = t.n + 1", [chance.choice((1, 200)), key, key + 3 * many - 3])
                connection.execute("UPDATE t SET n = n + 1 WHERE id = %s", [key])
                if chance.random() < 0.4:
                    connection.execute("DELETE FROM t WHERE id = %s", [key])
                if chance.random() < 0.1:
                    raise psycopg.Rollback(transaction)
            yield chance.choice((0, 0, 0.001, 0.01))
    return Endless(database, write, 3)


def is_proved(code, said):
    """Equal, or all but rows that came after their part of the table was read."""
    return not said["differences"] and (code == EQUAL or code == IN_PART and "came while the table was read" in said["reason"])


@pytest.mark.parametrize("mode", [{}, EXACTLY_ONCE], ids=["at-least-once", "exactly-once"])
def test_a_standby_is_proved_while_its_primary_is_written(read_from, mode):
    pair, database, process = read_from(4000, **mode)
    with written(database, 1000):
        for _ in range(3):
            code, said = of_t(process)
            assert is_proved(code, said), said
        run = subprocess.run([BINARY, "verify", "--rate", "800", "--json", "--config", process.path], env=process.environment,
                             capture_output=True, text=True, timeout=120, check=False)
        assert is_proved(run.returncode, json.loads(run.stdout)), run.stdout
    code, said = of_t(process)  # of a primary that has become quiet
    assert code == EQUAL and said["rows"] == database.run("SELECT count(*) FROM t")[0][0]
    pair.promote()
    assert of_t(process)[0] == EQUAL  # by what a primary's snapshot says
    assert process.stop() == 0


def test_what_differs_is_named_and_repaired(read_from):
    _, database, process = read_from(40)
    database.run("UPDATE t SET v = v")
    assert of_t(process)[0] == EQUAL
    plant(database, database.topic("t"))
    code, said = of_t(process)
    assert code == DIFFERENT and kinds(said) == NAMED
    code, first, done, second = repair(process)
    assert code == EQUAL and kinds(first) == NAMED and done["sent"] == 4 and second["verdict"] == "equal"
    assert of_t(process)[0] == EQUAL and process.stop() == 0


def test_what_is_replayed_goes_before_who_reads(read_from):
    """TRUNCATE takes a lock that the standby replays, and a reader is cancelled: the table is read again. Paused, there is no verdict."""
    pair, database, process = read_from(3000, settings={"max_standby_streaming_delay": "0"})
    run = subprocess.Popen([BINARY, "verify", "--rate", "1000", "--json", "--config", process.path], env=process.environment,
                           stdout=subprocess.PIPE, text=True)
    eventually(lambda: pair.standby.run(HELD.format(database.name))[0][0] == 1, what="its reading")
    database.run("TRUNCATE t; INSERT INTO t VALUES (7, 'v', 0)")
    said = json.loads(run.communicate(timeout=120)[0])
    assert (run.returncode, said["rows"], said["differences"]) == (EQUAL, 1, []), said
    assert "conflict with recovery" in open(pair.standby.log, encoding="utf-8").read()
    pair.standby.run("SELECT pg_wal_replay_pause()")
    database.run("INSERT INTO t VALUES (8, 'v', 0)")
    eventually(lambda: pair.standby.run("SELECT pg_last_wal_receive_lsn() > pg_last_wal_replay_lsn()")[0][0], what="what is not replayed")
    done = subprocess.run([BINARY, "verify", "--json", "--config", process.path], env=process.environment, capture_output=True, text=True, timeout=120,
                          check=False)
    said = json.loads(done.stdout)
    assert done.returncode == NO_VERDICT and said["cause"] == "standby" and "paused" in said["reason"], said
    pair.standby.run("SELECT pg_wal_replay_resume()")
    assert of_t(process)[0] == EQUAL and process.stop() == 0


def test_a_standby_beside_the_primary_is_read(millrace_for):
    """`verify.standby`: the primary is streamed from, and reads no rows for the proof."""
    pair = Pair(found())
    try:
        pair.start_to_read_from()
        database = Database(port=pair.primary.port)
        database.run(f"{TABLE}; INSERT INTO t SELECT n, 'v' || n, 0 FROM generate_series(1, 4000) n")
        process = millrace_for(database, snapshot__mode='"initial"', verify__standby="true")
        process.environment["TEST_URL"] = pair.dsn(database.name)
        code, text = check(process)
        assert code == 0, text
        process.start().streaming()
        database.run("ALTER SYSTEM SET log_statement = 'all'", database="postgres")
        database.run("SELECT pg_reload_conf()", database="postgres")
        with written(database, 1000):
            for _ in range(3):
                code, said = of_t(process)
                assert is_proved(code, said), said
        last = copied(database.topic("t"), lambda record: True)[-1][0]
        produce(database.topic("t"), '{"id":0}', json.dumps({"op": "c", "before": None, "after": {"id": 0, "v": "x", "n": 0}}), after(last))
        code, said = of_t(process)
        assert code == DIFFERENT and kinds(said) == [("phantom", '{"id":0}')], said
        assert "COPY (SELECT xmin" not in open(pair.primary.log, encoding="utf-8").read()
        pair.standby.kill()
        done = subprocess.run([BINARY, "verify", "--config", process.path], env=process.environment, capture_output=True, text=True, timeout=120,
                              check=False)
        assert done.returncode == 69 and "none of the connection string's hosts is a standby" in done.stderr, done
        assert process.stop() == 0
    finally:
        pair.close()
