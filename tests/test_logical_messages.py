"""pg_logical_emit_message outside transactions: its LSN is where the next record begins, a commit record perhaps."""

import os
import threading

import psycopg
import pytest

from kit import connect, dsn
from ledger import peak_rss_mb

WRITERS = 4
ROWS_EACH = 300
EXACTLY_ONCE = {"sink__kafka__delivery": '"exactly-once"'}


def write(database, number):
    with connect(database.name, port=database.port) as connection:
        for row in range(ROWS_EACH):
            with connection.transaction():
                connection.execute("INSERT INTO t VALUES (%s, %s)", [number, row])
                connection.execute("SELECT pg_logical_emit_message(false, 'x', 'hello')")


def shout(database, role, stop, told):
    with psycopg.connect(dsn(database.name, database.port), user=role, password=role, autocommit=True) as connection:
        while not stop.is_set():
            connection.execute("SELECT pg_logical_emit_message(false, 'x', 'hello')")
            told.append(1)


def ids(reader, count):
    return sorted((record.json["after"]["w"], record.json["after"]["n"]) for record in reader.take(count, 120))


@pytest.mark.parametrize("options", [{}, EXACTLY_ONCE], ids=["at-least-once", "exactly-once"])
def test_rows_between_messages_arrive(database, millrace, topic, options):
    database.run("CREATE TABLE t (w int, n int, PRIMARY KEY (w, n))")
    process = millrace(messages__prefixes='["x"]', **options).start().streaming()
    writers = [threading.Thread(target=write, args=(database, number)) for number in range(WRITERS)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    wanted = [(w, n) for w in range(WRITERS) for n in range(ROWS_EACH)]
    assert ids(topic(database.topic("t")), len(wanted)) == wanted
    assert not process.log("source_lost")


def test_messages_of_a_stranger_cost_no_row(database, millrace, topic):
    """Two loops of messages by a role that may do nothing but connect, while others write."""
    database.run("CREATE TABLE t (w int, n int, PRIMARY KEY (w, n))")
    role = database.name + "_stranger"
    database.run(f"CREATE ROLE {role} LOGIN PASSWORD '{role}'")
    try:
        process = millrace(messages__prefixes='["x"]').start().streaming()
        stop, told = threading.Event(), []
        strangers = [threading.Thread(target=shout, args=(database, role, stop, told)) for _ in range(2)]
        for stranger in strangers:
            stranger.start()
        try:
            with connect(database.name, port=database.port) as connection:
                for row in range(ROWS_EACH):
                    connection.execute("INSERT INTO t VALUES (0, %s)", [row])
            assert ids(topic(database.topic("t")), ROWS_EACH) == [(0, n) for n in range(ROWS_EACH)]
        finally:
            stop.set()
            for stranger in strangers:
                stranger.join()
        assert len(told) > ROWS_EACH / 10 and not process.log("source_lost")
        database.all_confirmed()
        assert process.stop() == 0
    finally:
        database.run(f"DROP ROLE {role}")


@pytest.mark.parametrize("transactional", ["true", "false"])
@pytest.mark.parametrize("size", [5_000_000, 400_000_000])
def test_a_large_message_costs_nothing(database, millrace, topic, transactional, size):
    """Off by default, and then the server does not send it."""
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    process = millrace().start().streaming()
    database.run(f"SELECT pg_logical_emit_message({transactional}, 'x', repeat('y', {size}))")
    database.run(f"SELECT pg_logical_emit_message({transactional}, repeat('p', 3000000), 'x'); INSERT INTO t VALUES (1)")
    topic(database.topic("t")).take(1)
    peak = peak_rss_mb(process)
    assert "MILLRACE_TEST_SANITIZED" in os.environ or peak < 64, f"{peak} MiB"


def test_a_large_message_of_a_wanted_prefix_is_dropped(database, millrace, topic):
    """It is larger than sink.kafka.message_max, and stops nothing."""
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    process = millrace(messages__prefixes='["x", "*"]').start().streaming()
    for transactional in ("true", "false"):
        database.run(f"SELECT pg_logical_emit_message({transactional}, 'x', repeat('y', 5000000))")
        database.run(f"SELECT pg_logical_emit_message({transactional}, repeat('p', 3000000), 'y')")
        database.run(f"SELECT pg_logical_emit_message({transactional}, 'x', 'small')")
    small = topic(f"{database.prefix}.message").take(2)
    assert {record.key for record in small} == {'{"prefix":"x"}'}
    assert process.wait_for("message_dropped")["bytes"] >= 3000000
