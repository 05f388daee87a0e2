"""Nothing lost, nothing out of order, nothing twice where nothing failed."""

import os
import random
import time

import pytest

from faults.servers import Proxy
from kit import connect, dsn, eventually
from ledger import TABLE, Check, Writers, confirmed_past, peak_rss_mb, size
from processes import threads


def test_concurrent_writers_arrive_once_and_in_order(database, millrace, topic):
    database.run(TABLE)
    changes = size("MILLRACE_TEST_CHANGES", 100000)
    process = millrace().start().streaming()
    writers = Writers(database, count=8, rows_each=changes // 8).start()
    writers.finish()
    check = Check(topic(database.topic("t"))).expect_all(database, 300)
    assert check.repeats == 0 and check.total == changes // 8 * 8


@pytest.mark.parametrize("delivery", ["at-least-once", "exactly-once"])
def test_a_stop_does_not_wait_for_the_next_status_update(database, millrace, topic, delivery):
    """What is delivered is stored at once."""
    database.run(TABLE)
    process = millrace(sink__kafka__delivery=f'"{delivery}"', pipeline__status_interval='"30s"').start().streaming()
    database.run("INSERT INTO t SELECT 1, i FROM generate_series(1, 50) i")
    topic(database.topic("t")).take(50)
    assert process.stop(6) == 0  # of the 10 s after which a server is told of what is stored anyhow


def test_a_stop_whose_last_confirmation_nobody_answers(database, millrace):
    """Written to a socket is not heard; without a stored position the slot alone tells the next start where to go on."""
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    proxy = Proxy(int(os.environ["PGPORT"]))
    process = millrace(sink__kafka__state_topic='""', pipeline__shutdown_deadline='"3s"')
    process.environment["TEST_URL"] = dsn(database.name, proxy.port)
    process.start().streaming()
    database.run("INSERT INTO t VALUES (1)")
    eventually(lambda: process.figure("millrace_records_acknowledged_total") == 1, what="the record")
    proxy.set("hold")
    assert process.stop() == 3 and process.log("confirm_unanswered")
    assert "may come twice" in process.log("stopped")[0]["message"]
    proxy.close()


def test_sigterm_under_load_loses_and_repeats_nothing(database, millrace, topic):
    database.run(TABLE)
    process = millrace().start().streaming()
    writers = Writers(database).start()
    chance = random.Random(7)
    for _ in range(size("MILLRACE_TEST_CYCLES", 6)):
        time.sleep(chance.uniform(0.1, 0.6))
        assert process.stop() == 0
        process.start().streaming()
    writers.finish()
    assert Check(topic(database.topic("t"))).expect_all(database).repeats == 0


@pytest.mark.parametrize("delivery", ["at-least-once", "exactly-once"])
def test_kill_under_load_loses_nothing(database, millrace, topic, delivery):
    """With exactly-once a consumer of committed records sees each change once, whenever millrace died."""
    database.run(TABLE)
    process = millrace(sink__kafka__delivery=f'"{delivery}"').start().streaming()
    writers = Writers(database, seed=2).start()
    chance = random.Random(8)
    for _ in range(size("MILLRACE_TEST_CYCLES", 6)):
        time.sleep(chance.uniform(0.1, 0.8))
        process.kill().start().streaming()
    writers.finish()
    repeats = Check(topic(database.topic("t"))).expect_all(database).repeats
    assert delivery == "at-least-once" or repeats == 0


def test_large_transaction_in_bounded_memory(database, millrace, topic):
    """Also stopped in its middle: what is out of a transaction is followed by its rest."""
    rows = size("MILLRACE_TEST_BIGTX", 300000)
    database.run("CREATE TABLE t (writer int DEFAULT 0, n int, pad text, PRIMARY KEY (writer, n))")
    process = millrace(pipeline__shutdown_deadline='"240s"').start().streaming()
    database.run(f"INSERT INTO t SELECT 0, g, repeat('x', 100) FROM generate_series(1, {rows}) g")
    reader = topic(database.topic("t"))
    check = Check(reader)
    check.read_until(1000)
    peak = peak_rss_mb(process)
    assert process.stop(300) == 0
    check.expect_all(database)
    assert check.repeats == 0
    if "MILLRACE_TEST_SANITIZED" not in os.environ:  # a sanitizer's own memory would drown ours
        pool_mb = 16 * 128 / 1024
        assert peak < 40 + 4 * pool_mb, f"{peak} MB"


def test_large_value(database, millrace, topic):
    """A row far above a batch's size."""
    database.run("CREATE TABLE t (id int PRIMARY KEY, v text)")
    name = database.topic("t")
    process = millrace(sink__kafka__message_max="8000000").start().streaming()
    database.run("INSERT INTO t SELECT 1, string_agg(md5(g::text), '') FROM generate_series(1, 20000) g")
    database.run("INSERT INTO t VALUES (2, 'small')")
    large, small = topic(name).take(2)
    assert len(large.json["after"]["v"]) == 640000 and small.json["after"]["id"] == 2


def test_idle_database_lets_the_slot_advance(database, millrace):
    """WAL of tables that are not captured must not pile up behind the slot."""
    database.run("CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE other (id int)")
    process = millrace().start().streaming()
    database.run("INSERT INTO other SELECT generate_series(1, 50000)")
    database.all_confirmed()


def test_slot_is_not_confirmed_before_kafka_has_it(database, millrace, topic):
    """Without its topic a record can't be delivered; the slot must wait with it."""
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    process = millrace(sink__kafka__create_topics="false").start().streaming()
    database.run("INSERT INTO t VALUES (1)")
    commit = database.run("SELECT pg_current_wal_lsn()")[0][0]
    process.wait_for("topic_wait")
    eventually(lambda: database.run("SELECT reply_time > now() - interval '1 second' FROM pg_stat_replication "
                                    "WHERE application_name LIKE 'millrace %%' AND pid = %s",
                                    [database.slot_row("active_pid")])[0][0], 30, "a status update")
    assert not database.slot_row(f"confirmed_flush_lsn >= '{commit}'")
    database.make_topic("t")
    topic(database.topic("t")).take(1)
    confirmed_past(database, commit)


def test_no_allocation_per_row(database, millrace, topic):
    """Fifty thousand rows more cost no allocation of ours more. A stored position costs some, as does a topic's id, and how many are stored is a
    matter of time: none is stored here."""
    database.run("CREATE TABLE t (id int PRIMARY KEY, v text)")
    counts = []
    process = millrace(pipeline__batch_size='"32KiB"', pipeline__status_interval='"20s"', sink__kafka__state_topic='""')
    database.make_topic("t")
    first = 1
    reader = topic(database.topic("t"))
    for rows in (5000, 5000, 50000):
        process.start().streaming()
        database.run(f"INSERT INTO t SELECT g, 'v' FROM generate_series({first}, {first + rows - 1}) g")
        reader.take(rows)
        first += rows
        assert process.stop() == 0
        counts.append(process.wait_for("stopped")["allocations"])
    assert counts[1] == counts[2]


def test_many_small_kafka_transactions_do_not_keep_a_thread_spinning(database, millrace, topic):
    """librdkafka's main thread waits for its timers; before 2.4.0 it polled the clock meanwhile."""
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    process = millrace(sink__kafka__delivery='"exactly-once"').start().streaming()
    with connect(database.name) as connection:
        connection.execute("INSERT INTO t VALUES (0)")
        records = topic(database.topic("t"))
        records.take(1)
        before = threads(process.process.pid)
        for number in range(1, 101):
            connection.execute("INSERT INTO t VALUES (%s)", [number])
            records.take(1)
    spent = {name: thread["cpu"] - before.get(name, thread)["cpu"] for name, thread in threads(process.process.pid).items()}
    print(spent)
    assert 0 < spent["rdk:main"] < 0.4 * sum(spent.values()), spent
