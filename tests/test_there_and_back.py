"""A connector is taken over by millrace, with what `millrace convert` makes of its configuration, goes on itself after that, and is
taken over once more (docs/migrating-from-debezium.md); another connector with the same options reads all the while. What is in the topics
of both is the same, record by record and partition by partition. With what migrations stumble over: keys in another order
than the table, names of any letters, six partitions, rows without an envelope, an outbox, heartbeats, a table without a key."""

import collections
import json
import os
import re
import sys

import pytest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "debezium"))
import connect  # noqa: E402
from kit import BOOTSTRAP, Topic, connect as connect_to, dsn, eventually  # noqa: E402
from test_convert import convert  # noqa: E402

SETUP = """
CREATE TABLE k (a int, b int, n int, v text, PRIMARY KEY (b, a));
CREATE TABLE i (a int NOT NULL, b text NOT NULL, n int);
CREATE UNIQUE INDEX i_ba ON i (b, a); ALTER TABLE i REPLICA IDENTITY USING INDEX i_ba;
CREATE SCHEMA "S 3"; CREATE TABLE "S 3"."T ü.🐎" ("ü" int, "🐎" text, n int, PRIMARY KEY ("🐎", "ü"));
CREATE TABLE loose (n int); ALTER TABLE loose REPLICA IDENTITY FULL;
CREATE TABLE outbox (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), aggregatetype text, aggregateid text, type text, payload jsonb);
"""
LOOSE = "public.loose"
ODD_TABLES = r",S 3\\..*"


def options(prefix):
    """Of a connector, besides those of tests/debezium/connect.py."""
    return {
        "topic.creation.default.partitions": 6, "heartbeat.interval.ms": 300, "table.include.list": r"public\\.(k|i|loose|outbox)" + ODD_TABLES,
        "transforms": "outbox,unwrap", "predicates": "isOutbox",
        "predicates.isOutbox.type": "org.apache.kafka.connect.transforms.predicates.TopicNameMatches",
        "predicates.isOutbox.pattern": r".*\\.public\\.outbox",
        "transforms.outbox.type": "io.debezium.transforms.outbox.EventRouter", "transforms.outbox.predicate": "isOutbox",
        "transforms.outbox.route.topic.replacement": prefix + ".ev.${routedByValue}",
        "transforms.unwrap.type": "io.debezium.transforms.ExtractNewRecordState",
        "transforms.unwrap.delete.tombstone.handling.mode": "rewrite-with-tombstone", "transforms.unwrap.add.fields": "op",
    }


def write(database, phase):
    """Each kind of change of each table, in transactions of one or several."""
    with connect_to(database.name) as connection:
        for n in range(phase * 100, phase * 100 + 40):
            key = n % 37
            connection.execute(
                f"BEGIN; INSERT INTO k VALUES ({n}, {key}, {phase}, 'ž🐎'); INSERT INTO \"S 3\".\"T ü.🐎\" VALUES ({n}, 'ü{key}', {phase}); COMMIT;"
                f"INSERT INTO i VALUES ({n}, 'i{key}', {phase}); UPDATE i SET n = n + 1 WHERE a = {n};"
                f"UPDATE k SET n = n + 1 WHERE a = {n - 50}; UPDATE k SET a = a + 10000 WHERE a = {n - 7}; DELETE FROM k WHERE a = {n - 11};"
                f"DELETE FROM \"S 3\".\"T ü.🐎\" WHERE \"ü\" = {n - 5}; UPDATE \"S 3\".\"T ü.🐎\" SET \"🐎\" = 'moved' WHERE \"ü\" = {n - 9};"
                f"INSERT INTO loose VALUES ({n}); UPDATE loose SET n = -n WHERE n = {n - 3}; DELETE FROM i WHERE a = {n - 8};"
                "INSERT INTO outbox (aggregatetype, aggregateid, type, payload)"
                f" VALUES ('{'order' if n % 2 else 'item'}', '{key}', 'made', '{{\"n\": {n}, \"v\": \"ž\"}}')")


class Roles:
    """One slot that changes hands, and the connector that is the judge."""

    def __init__(self, database, folder):
        self.database = database
        self.judge = database.prefix + "judge"
        self.worker = connect.Connect(database, folder, database.prefix, options(database.prefix), [(self.judge, options(self.judge))])
        self.path = f"/connectors/{self.worker.slot}"

    def read_all(self, slots):
        """What is written so far has been delivered, and is confirmed. Debezium confirms up to the transaction before its last."""
        end = self.database.run("SELECT pg_current_wal_insert_lsn()")[0][0]
        self.database.run("INSERT INTO loose VALUES (0)")
        eventually(lambda: not self.database.run(
            "SELECT 1 FROM pg_replication_slots WHERE slot_name = ANY(%s) AND confirmed_flush_lsn < %s", [slots, end],
            database="postgres"), 120, "all is confirmed")

    def is_active(self):
        return self.database.run("SELECT active FROM pg_replication_slots WHERE slot_name = %s", [self.worker.slot],
                                 database="postgres")[0][0]

    def stop_connector(self):
        """The offset as Connect tells it."""
        self.read_all(self.worker.slots)
        assert self.worker.ask("PUT", self.path + "/stop")[0] == 204
        eventually(lambda: not self.is_active(), 60, "the slot is free")
        return self.worker.ask("GET", self.path + "/offsets")[1]

    def resume_connector(self, offset):
        """From where the slot stands: Debezium refuses an offset before the slot's restart_lsn (PostgresConnection.validateLogPosition)."""
        place = self.database.run("SELECT (confirmed_flush_lsn - '0/0')::bigint FROM pg_replication_slots WHERE slot_name = %s",
                                  [self.worker.slot], database="postgres")[0][0]
        patched = json.loads(offset)
        patched["offsets"][0]["offset"].update(lsn=place, lsn_proc=place, lsn_commit=place, messageType="COMMIT")
        answer = self.worker.ask("PATCH", self.path + "/offsets", json.dumps(patched))
        assert answer[0] == 200, answer
        assert self.worker.ask("PUT", self.path + "/resume")[0] in (202, 204)
        eventually(self.is_active, 120, "Debezium reads again")

    def configuration(self):
        """What `convert` makes of the connector's file; a pattern that it leaves to do is done."""
        with open(os.path.join(self.worker.folder, f"{self.worker.slot}.properties"), encoding="utf-8") as file:
            text = file.read() + f"producer.override.bootstrap.servers={BOOTSTRAP}\n"
        done = convert("-", text.replace(ODD_TABLES, ""))
        assert done.returncode == 0, done.stderr
        assert '"public.outbox"]\n' in done.stdout and "null_keys" in done.stdout
        return done.stdout.replace('"public.outbox"]\n', '"public.outbox", \'"S 3".*\']\n', 1) + '\n[log]\nformat = "json"\n[http]\naddress = "127.0.0.1:0"\n'


def records(database, prefix):
    """By topic without its prefix, and partition: what consumers see."""
    found = {}
    for name in database.topics():
        if not name.startswith(prefix + "."):
            continue
        topic = Topic(name)
        ends = {p.partition: topic.consumer.get_watermark_offsets(p, timeout=10)[1] for p in topic.consumer.assignment()}
        assert len(ends) == 6, name
        for record in topic.take(sum(ends.values())):
            # The worker's converter of headers is JsonConverter, which quotes the id of an outbox.
            headers = {name: value.strip('"') for name, value in record.headers.items() if not re.match("mr-|content-type|__debezium.context", name)}
            found.setdefault(name[len(prefix) + 1:], collections.defaultdict(list))[record.partition].append(
                (record.key, record.value, json.dumps(headers, sort_keys=True)))
        topic.close()
    return found


def heartbeats(database):
    topic = Topic(f"__debezium-heartbeat.{database.prefix}")
    ends = {p.partition: topic.consumer.get_watermark_offsets(p, timeout=10)[1] for p in topic.consumer.assignment()}
    keys = [record.key for record in topic.take(sum(ends.values()))]
    topic.close()
    return keys


def run_millrace(roles, millrace, folder, phase, configuration, offset):
    """From taking over to giving back."""
    path = os.path.join(folder, f"offset{phase}.json")
    with open(path, "w", encoding="utf-8") as file:
        file.write(offset)
    process = millrace(text=configuration)
    process.environment["MILLRACE_PG_PASSWORD"] = re.match(r"\w+://[^:]+:([^@]*)@", dsn("postgres"))[1]
    process.start("--after-offset", path).streaming()
    assert process.log("offset_taken") and not process.log("offset_ignored")
    before = len(heartbeats(roles.database))
    write(roles.database, phase)
    roles.read_all([roles.worker.slot])
    beats = eventually(lambda: len(heartbeats(roles.database)) > before and heartbeats(roles.database), 30, "a heartbeat")
    assert process.stop() == 0
    assert len(set(beats)) == 1, "heartbeats go on under their key"


@pytest.fixture
def roles(database, tmp_path):
    database.run(SETUP + f"CREATE PUBLICATION {database.publication} FOR ALL TABLES")
    made = Roles(database, tmp_path)
    made.worker.start()
    try:
        eventually(made.worker.streams, 300, "Debezium reads")
        yield made
    finally:
        print(made.worker.said())  # shown when the test failed
        made.worker.stop()


@pytest.mark.timeout(600)
def test_there_and_back(database, millrace, roles, tmp_path):
    configuration = roles.configuration()
    write(database, 1)
    offset = roles.stop_connector()
    run_millrace(roles, millrace, tmp_path, 2, configuration, offset)
    roles.resume_connector(offset)
    write(database, 3)
    # The position that is stored belongs to the time before; the new one has another name.
    renamed = configuration.replace("[sink.kafka]\n", f'[sink.kafka]\nstate_name = "{database.name} again"\n', 1)
    assert renamed != configuration
    offset = roles.stop_connector()
    run_millrace(roles, millrace, tmp_path, 4, renamed, offset)
    roles.resume_connector(offset)
    write(database, 5)
    roles.read_all(roles.worker.slots)
    roles.worker.finish()
    theirs, ours = records(database, roles.judge), records(database, database.prefix)
    assert sorted(theirs) == sorted(ours)
    assert len(ours) == 6 and "S_3.T__.__" in ours
    wrong = []
    for topic, partitions in theirs.items():
        if topic == LOOSE:
            left, right = (collections.Counter(record for partition in found[LOOSE].values() for record in partition)
                           for found in (theirs, ours))
            wrong += [f"{topic}: {left - right} {right - left}"] if left != right else []
            continue
        for partition in range(6):
            left, right = partitions[partition], ours[topic][partition]
            wrong += [f"{topic} {partition} {at}: {a} {b}" for at, (a, b) in enumerate(zip(left, right)) if a != b]
            if len(left) != len(right):
                wrong.append(f"{topic} {partition}: {len(left)} {len(right)}")
    assert not wrong, f"{len(wrong)} differences\n" + "\n".join(wrong[:20])
    assert len(ours[LOOSE]) == 6
    assert sum(len(partition) for found in ours.values() for partition in found.values()) > 2000
