"""A broker whose disk is full, and one that is cut off: nothing is confirmed, nothing is lost, and it goes on by
itself."""

import contextlib
import json
import signal

import psycopg
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import NewTopic, OffsetSpec

from checker import Checker
from consume import up_to_now
from kit import cannot_try, check, dsn, eventually, expect, set_topic
from servers import Broker


@pytest.fixture
def small_broker():
    try:
        broker = Broker(disk_mb=100, log_segment_bytes=8000000, log_preallocate="false")
    except PermissionError as error:
        cannot_try(error)
    yield broker
    broker.close()


def test_broker_with_a_full_disk(database, millrace, small_broker):
    broker = small_broker
    database.run("CREATE TABLE t (id int PRIMARY KEY, v text)")
    topic = database.topic("t")
    broker.admin.create_topics([NewTopic(topic, 1, 1)])[topic].result()
    process = millrace(sink__kafka__brokers=f'["{broker.proxied}"]', sink__kafka__compression='"none"',
                       pipeline__reconnect_max='"1s"').start().streaming()
    # More than the disk takes; in pieces, so that part of it is confirmed before.
    rows, piece = 400, 40
    for first in range(1, rows + 1, piece):
        database.run("INSERT INTO t SELECT g, repeat('x', 400000) FROM generate_series(%s::int, %s::int) g",
                     [first, first + piece - 1])
    end = database.run("SELECT pg_current_wal_lsn()")[0][0]
    eventually(lambda: not broker.running(), 90, "the broker to give up its full disk")
    assert process.process.poll() is None, "".join(process.lines)
    process.wait_for("kafka_unreachable")
    assert not database.slot_row(f"confirmed_flush_lsn >= '{end}'")
    broker.disk.resize(600)
    broker.start()
    eventually(lambda: database.slot_row(f"confirmed_flush_lsn >= '{end}'"), 120, "delivery of everything")
    assert process.stop() == 0
    checker = Checker(broker.direct, database.prefix, ["t"])
    checker.check_transactions()
    checker.check_fold("t", "id", [{"id": str(n), "v": "x" * 400000} for n in range(1, rows + 1)])
    checker.report.expect_clean()


def written(broker, topic):
    """End offset of the topic's only partition."""
    answers = broker.admin.list_offsets({TopicPartition(topic, 0): OffsetSpec.latest()}, request_timeout=5)
    return [answer.result().offset for answer in answers.values()][0]


def restarted(broker, process):
    """In order, until millrace streams."""
    broker.stop(signal.SIGTERM)
    broker.start()
    process.wait_for("source_connected", limit_s=120)


def test_acknowledgements_cut_off(database, millrace):
    """Records reach the broker, its answers do not: nothing may be confirmed, and nothing comes twice."""
    broker = Broker()
    try:
        database.run("CREATE TABLE t (id int PRIMARY KEY, v text)")
        topic = database.topic("t")
        broker.admin.create_topics([NewTopic(topic, 1, 1)])[topic].result()
        process = millrace(sink__kafka__brokers=f'["{broker.proxied}"]').start().streaming()
        database.run("INSERT INTO t VALUES (1, 'known')")
        database.all_confirmed()
        broker.proxy.set("hold-down")
        database.run("INSERT INTO t SELECT g, 'held' FROM generate_series(2, 1000) g")
        end = database.run("SELECT pg_current_wal_lsn()")[0][0]
        eventually(lambda: written(broker, topic) >= 2, what="records in the broker")
        # A status update later it is still not confirmed.
        said = database.run("SELECT now()")[0][0]
        eventually(lambda: database.run("SELECT reply_time > %s FROM pg_stat_replication WHERE pid = %s",
                                        [said, database.slot_row("active_pid")])[0][0], 30, "a status update")
        assert not database.slot_row(f"confirmed_flush_lsn >= '{end}'")
        broker.proxy.set("reset")
        eventually(lambda: database.slot_row(f"confirmed_flush_lsn >= '{end}'"), 60, "delivery of everything")
        assert process.stop() == 0
        checker = Checker(broker.direct, database.prefix, ["t"])
        checker.check_transactions()
        checker.report.expect_clean()
        assert checker.report.events == 1000 and checker.report.duplicates == 0
    finally:
        broker.close()


def test_limits_that_a_broker_sets(database, millrace):
    """Transactions of less than a minute are named by check and by the stream; a quota slows it, and a metric says that it does."""
    broker = Broker(transaction_max_timeout_ms=30000)
    try:
        database.run("CREATE TABLE t (id int PRIMARY KEY, v text)")
        topic = database.topic("t")
        broker.admin.create_topics([NewTopic(topic, 1, 1)])[topic].result()
        options = {"sink__kafka__brokers": f'["{broker.direct}"]', "sink__kafka__compression": '"none"',
                   "metrics__interval": '"500ms"'}
        process = millrace(**options, sink__kafka__delivery='"exactly-once"')
        code, text = check(process)
        assert code != 0 and "transaction.max.timeout.ms = 30000 and will refuse exactly-once" in text, text
        lost = process.start().wait_for("sink_session_lost")["message"]
        assert "set the brokers' transaction.max.timeout.ms to 60000 or more" in lost
        assert process.stop() == 0
        process.configure(**options)
        assert check(process)[0] == 0
        broker.configure_clients("producer_byte_rate=20000")
        process.start().streaming()
        database.run("INSERT INTO t SELECT g, repeat('x', 20000) FROM generate_series(1, 30) g")
        throttle = 'millrace_kafka_broker_throttle_seconds{broker="1",stat="p99"}'
        eventually(lambda: process.figure(throttle) > 0, 60, "a quota's wait", (KeyError,))  # once there is a report
        broker.configure_clients("producer_byte_rate=100000000")
        eventually(lambda: keys_of(broker, topic) == list(range(1, 31)), 60, "all rows")
        eventually(lambda: process.figure(throttle) == 0, 60, "the end of it")
        assert process.stop() == 0
        assert keys_of(broker, topic) == list(range(1, 31)) and not process.log("sink_session_lost")
    finally:
        broker.close()


def test_brokers_that_begin_no_transaction(database, millrace):
    """One that wants three for its topic of transactions, as it is set unless somebody changes it: nothing was said, however long."""
    broker = Broker(transaction_state_log_replication_factor=3)
    try:
        database.run("CREATE TABLE t (id int PRIMARY KEY)")
        process = millrace(sink__kafka__brokers=f'["{broker.direct}"]', sink__kafka__delivery='"exactly-once"')
        expect(check(process), 0, "exactly-once: waits for 3 brokers that keep its transactions, and there is 1")
        lost = process.start().wait_for("sink_session_lost", times=2)["message"]
        assert "begin: Broker: Coordinator not available" in lost and "transaction.state.log.replication.factor" in lost
        status = process.get("/status").json
        assert status["standstill"]["cause"] == "sink_fails" and status["reason"].startswith(lost)
        broker.settings["transaction_state_log_replication_factor"] = 1
        broker.configure([broker])
        restarted(broker, process)
        assert process.stop() == 0
    finally:
        broker.close()


def test_a_transaction_before_does_not_end(database, millrace):
    """Of the same id: its topic refuses the record that ends it, whose time is that of now, and the broker does not try again (Kafka 4.3.1). The
    topic's configuration is put right and the broker restarted, as the runbook says; then the stream begins by itself."""
    broker = Broker()
    try:
        database.run("CREATE TABLE t (id int PRIMARY KEY)")
        name = f"{database.prefix}.before"
        broker.admin.create_topics([NewTopic(name, 1)])[name].result(30)
        before = Producer({"bootstrap.servers": broker.direct, "transactional.id": database.name, "log_level": 0})
        before.init_transactions(60)
        before.begin_transaction()
        before.produce(name, b"x")
        assert before.flush(60) == 0
        set_topic(broker.admin, name, "message.timestamp.before.max.ms", 1)
        before.commit_transaction(60)
        process = millrace(sink__kafka__brokers=f'["{broker.direct}"]', sink__kafka__delivery='"exactly-once"',
                           sink__kafka__state_name=json.dumps(database.name)).start()
        lost = process.wait_for("sink_session_lost", limit_s=60)["message"]
        assert f'no broker lets a transaction of "{database.name}" begin' in lost and "(CONCURRENT_TRANSACTIONS)" in lost, lost
        set_topic(broker.admin, name, "message.timestamp.before.max.ms", 2**63 - 1)
        restarted(broker, process)
        assert process.stop() == 0
    finally:
        broker.close()


def records_of(broker, topic):
    """All, of a topic of one partition."""
    with contextlib.closing(Consumer({"bootstrap.servers": broker.direct, "group.id": "all", "enable.auto.commit": "false"})) as consumer:
        consumer.assign([TopicPartition(topic, 0, 0)])
        end = written(broker, topic)
        records = []
        while not records or records[-1].offset() < end - 1:
            records += [record for record in consumer.consume(1000, 1) if not record.error()]
        return records


def mirror(one, other, topics):
    """Makes the topics in another cluster, with all records of the first."""
    producer = Producer({"bootstrap.servers": other.direct})
    for topic in topics:
        other.admin.create_topics([NewTopic(topic, 1, 1)])[topic].result()
        for record in records_of(one, topic):
            producer.produce(topic, record.value(), record.key(), 0, headers=record.headers(), timestamp=record.timestamp()[1])
    assert producer.flush(60) == 0


def test_topics_that_were_mirrored_to_another_cluster(database, millrace):
    """The ids are others there, and say nothing; from then on they do again, for the next process, too."""
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    topic, state = database.topic("t"), f"{database.name}-state"
    with contextlib.closing(Broker()) as first, contextlib.closing(Broker(another=True)) as second:
        first.admin.create_topics([NewTopic(topic, 1, 1)])[topic].result()
        process = millrace(sink__kafka__brokers=f'["{first.proxied}"]', sink__kafka__state_topic=f'"{state}"').start().streaming()
        database.run("INSERT INTO t VALUES (1)")
        eventually(lambda: len(json.loads(records_of(first, state)[-1].value()).get("topics", "").split()) == 2, 30, "the ids, stored")
        assert process.stop() == 0
        mirror(first, second, [topic, state])
        process = millrace(sink__kafka__brokers=f'["{second.proxied}"]', sink__kafka__state_topic=f'"{state}"').start().streaming()
        database.run("INSERT INTO t VALUES (2)")
        process.wait_for("kafka_cluster_changed")
        assert process.stop() == 0 and not process.log("topic_made_again")
        process.start().streaming()
        database.run("INSERT INTO t VALUES (3)")
        eventually(lambda: written(second, topic) == 3, what="the rows")
        assert process.stop() == 0 and not process.log("kafka_cluster_changed") and not process.log("topic_made_again")


def keys_of(broker, topic):
    """The ids of all that a reader of committed records sees, in order."""
    return [json.loads(message.key())["id"] for message in up_to_now([(topic, 0)], broker.direct)]


def test_broker_dies_within_a_copy(database, millrace):
    """What was stored is not copied again, what was on its way is."""
    broker = Broker()
    try:
        rows = 40000
        database.run("CREATE TABLE t (id int PRIMARY KEY, v text); CREATE TABLE z (id int PRIMARY KEY); INSERT INTO z VALUES (1);"
                     f"INSERT INTO t SELECT i, repeat('x', 200) FROM generate_series(1, {rows}) i;"
                     f"CREATE PUBLICATION {database.publication} FOR TABLE t, z")
        # As a process leaves it that died right behind making it: a slot is not made while somebody has a table locked.
        database.run(f"SELECT pg_create_logical_replication_slot('{database.slot}_snapshot_1', 'pgoutput')")
        topic = database.topic("t")
        broker.admin.create_topics([NewTopic(topic, 1, 1)])[topic].result()
        process = millrace(tables=("t", "z"), sink__kafka__brokers=f'["{broker.proxied}"]', snapshot__mode='"initial"',
                           sink__kafka__delivery='"exactly-once"', pipeline__reconnect_max='"1s"')
        with psycopg.connect(dsn(database.name)) as holder:
            holder.execute("LOCK TABLE z IN ACCESS EXCLUSIVE MODE")  # it can't end before
            process.start()
            eventually(lambda: written(broker, topic) > 0, 60, "the first rows in the broker")
            broker.stop()
            process.wait_for("kafka_unreachable", 60)
            broker.start()
        process.wait_for("source_connected", 120)
        assert sorted(keys_of(broker, topic)) == list(range(1, rows + 1))
        assert process.stop() == 0
    finally:
        broker.close()


def asked(process, **wish):
    assert process.get("/api/snapshot", method="POST", body=json.dumps(wish)).status == 200


def copy_of(process, table):
    return {one["table"]: one for one in process.get("/api/snapshot/outcome").json["tables"]}[table]


def test_broker_away_within_a_copy_beside_the_stream(database, millrace):
    """Rows are read while it is away; they come once, and the copy is not done before."""
    broker = Broker()
    try:
        rows = 20000
        database.run(f"CREATE TABLE t (id int PRIMARY KEY, v text); INSERT INTO t SELECT i, repeat('x', 200) FROM generate_series(1, {rows}) i")
        process = millrace(sink__kafka__brokers=f'["{broker.proxied}"]', sink__kafka__delivery='"exactly-once"', pipeline__reconnect_max='"1s"')
        process.start().streaming()
        asked(process, type="pause")
        asked(process, type="start", tables=["public.t"])
        eventually(lambda: copy_of(process, "public.t")["state"] == "waiting", 60, "the copy's turn")
        broker.stop()
        asked(process, type="resume")
        process.wait_for("kafka_unreachable", 60)
        assert copy_of(process, "public.t")["state"] != "done"
        broker.start()
        eventually(lambda: copy_of(process, "public.t")["state"] == "done", 120, "the copy's end")
        assert sorted(keys_of(broker, database.topic("t"))) == list(range(1, rows + 1))
        assert process.stop() == 0
    finally:
        broker.close()
