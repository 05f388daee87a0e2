"""A transaction that a broker has left open although its coordinator thinks that it has ended (KAFKA-20734)."""

import glob
import json
import os
import time

import pytest
from confluent_kafka import Producer

from checker import Checker
from consume import up_to_now
from kit import eventually
from raw_kafka import leave_open as leave_open_in
from servers import Broker

STATE = "__millrace_state"
CONTROL = 0x20  # of a batch's attributes: it ends a transaction (https://kafka.apache.org/documentation/#recordbatch)


@pytest.fixture(scope="module")
def broker():
    made = Broker(transaction_partition_verification_enable="false")
    yield made
    made.close()


def exactly_once(millrace, broker, **options):
    return millrace(sink__kafka__brokers=f'["{broker.proxied}"]', sink__kafka__delivery='"exactly-once"', **options)


def leave_open(database, broker):
    """A record of a pipeline's own transaction stays open in the state topic."""
    name = f"{database.prefix}/{database.slot}"
    beyond = {"version": 1, "system_id": "7", "timeline": 1, "slot": database.slot,
              "publication": database.publication, "end_lsn": "FF/0"}
    leave_open_in(broker.direct, name, STATE, name.encode(), json.dumps(beyond).encode(), int(time.time() * 1000))


def expect_once(database, broker, *ids):
    checker = Checker(broker.direct, database.prefix, ["t"])
    checker.report.expect_clean()
    assert [event.key["id"] for event in checker.events("t")] == list(ids)
    assert checker.report.duplicates == 0


def test_transaction_left_open_in_the_state_topic(database, millrace, broker):
    """The next start can't read how far the position has come. It ends what is open, goes on where it really is, and
    nothing is missing or comes twice."""
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    process = exactly_once(millrace, broker).start().streaming()
    database.run("INSERT INTO t VALUES (1), (2)")
    database.all_confirmed()
    assert process.stop() == 0
    leave_open(database, broker)
    producer = Producer({"bootstrap.servers": broker.direct})
    for _ in range(100):  # another pipeline goes on behind it: the end of what is committed is far from the end
        producer.produce(STATE, b'{"version": 1}', b"another/pipeline")
    assert producer.flush(30) == 0
    database.run("INSERT INTO t VALUES (3)")
    process.start().wait_for("state_ended", 60)
    process.streaming()
    database.run("INSERT INTO t VALUES (4)")
    database.all_confirmed()
    assert process.stop() == 0
    expect_once(database, broker, 1, 2, 3, 4)
    process.start().streaming()  # nothing is left that the next one would stumble over
    assert not process.log("state_ended") and not process.log("state_wait")
    assert process.stop() == 0


def test_nothing_is_confirmed_without_a_proof(database, millrace, broker):
    """While an open transaction hides whether millrace's own have their ends, rows are delivered and PostgreSQL keeps them."""
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    process = exactly_once(millrace, broker, pipeline__status_interval='"10ms"').start().streaming()
    stranger = f"{database.prefix}/stranger"
    leave_open_in(broker.direct, stranger, STATE, b"stranger", b"{}", int(time.time() * 1000))
    begin = database.run("SELECT pg_current_wal_lsn()")[0][0]
    for row in range(1, 6):
        database.run(f"INSERT INTO t VALUES ({row})")
        eventually(lambda row=row: process.figure("millrace_records_acknowledged_total") == row, 30, f"the commit of row {row}")
    assert not database.slot_row(f"confirmed_flush_lsn > '{begin}'")
    ends = Producer({"bootstrap.servers": broker.direct, "transactional.id": stranger})
    ends.init_transactions(30)
    ends.begin_transaction()
    ends.produce(STATE, b"{}", b"stranger", partition=0)
    ends.flush(30)
    ends.abort_transaction(30)
    database.all_confirmed()
    assert process.stop() == 0


def leave_out_markers(broker, *partitions):
    """The files of a broker that is down as if it had not written the markers of the last transaction, although it has answered its commit."""
    for partition in partitions:
        folder = os.path.join(broker.folder, "logs", partition)
        log, = glob.glob(os.path.join(folder, "*.log"))
        with open(log, "r+b") as file:
            data, last, end = file.read(), 0, 0
            while end < len(data):
                last, end = end, end + 12 + int.from_bytes(data[end + 8:end + 12], "big")
            assert int.from_bytes(data[last + 21:last + 23], "big") & CONTROL, f"{partition} does not end with a marker"
            file.truncate(last)
        for snapshot in glob.glob(os.path.join(folder, "*.snapshot")):  # of the producers, with the end that is gone
            os.remove(snapshot)


def written(database, millrace, broker):
    """Two rows in a transaction that is committed, and not confirmed."""
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    process = exactly_once(millrace, broker, pipeline__status_interval='"60s"').start().streaming()
    database.run("INSERT INTO t VALUES (1), (2)")
    eventually(lambda: process.figure("millrace_records_acknowledged_total") == 2, 30, "the commit")
    for partition, count in ((STATE, 0), 1), ((database.topic("t"), 0), 2):
        eventually(lambda partition=partition, count=count: len(list(up_to_now([partition], broker.direct))) >= count, 30, f"the end in {partition}")
    return process


@pytest.mark.parametrize("killed", [False, True])
def test_committed_transaction_without_its_markers(database, millrace, broker, killed):
    """The commit was answered, the only broker ended, and the transaction has no end in any partition: it comes again, and counts once.
    millrace goes on, or was killed with the broker."""
    process = written(database, millrace, broker)
    broker.stop()
    if killed:
        process.kill()
    leave_out_markers(broker, f"{STATE}-0", f"{database.topic('t')}-0")
    broker.start()
    if killed:
        process.start()
    process.wait_for("state_ended", 60)
    database.run("INSERT INTO t VALUES (3)")
    eventually(lambda: process.figure("millrace_records_acknowledged_total") == (3 if killed else 5), 60, "both transactions")
    assert process.stop() == 0
    expect_once(database, broker, 1, 2, 3)


def test_killed_before_it_is_given_up(database, millrace, broker):
    """millrace has seen what is open, and is killed before it has sent all of it again: the next one sees it, too."""
    process = written(database, millrace, broker)
    broker.stop()
    process.kill()
    leave_out_markers(broker, f"{STATE}-0", f"{database.topic('t')}-0")
    broker.start()
    process.start()
    while not any('"state_ended"' in line for line in list(process.lines)):
        assert process.process.poll() is None
        time.sleep(0.001)
    process.kill().start().streaming()
    database.run("INSERT INTO t VALUES (3)")
    eventually(lambda: process.figure("millrace_records_acknowledged_total") == 3, 60, "both transactions")
    assert process.stop() == 0
    expect_once(database, broker, 1, 2, 3)
