"""Forms of events besides Debezium's JSON, read by libraries that know nothing of millrace."""

import datetime
import json

import pytest
from cloudevents.kafka import KafkaMessage, from_binary, from_structured

SNAPSHOT = {"snapshot.mode": '"initial"'}
STRUCTURED = "application/cloudevents+json; charset=UTF-8"


def message_of(record):
    return KafkaMessage(headers={name: value.encode() for name, value in record.headers.items()
                                 if not name.startswith(("mr-", "__"))},
                        key=record.key, value=record.value)


def read(mode, record):
    """A record as the SDK has it, by the mode that its content type tells."""
    structured = record.headers["content-type"].startswith("application/cloudevents")
    assert structured == (mode == "structured")
    return (from_structured if structured else from_binary)(message_of(record))


@pytest.mark.parametrize("mode", ["structured", "binary"])
def test_cloudevents(database, millrace, topic, mode):
    """A copied row, an insert, an update, a changed key, a delete, a message: what was written is what the SDK reads."""
    database.run("CREATE TABLE t (id int PRIMARY KEY, v text, n numeric(5,2)); ALTER TABLE t REPLICA IDENTITY FULL;"
                 "INSERT INTO t VALUES (1, 'é\"', 1.5), (2, NULL, NULL)")
    process = millrace(format='"cloudevents"', types='"plain"', cloudevents__mode=json.dumps(mode), messages__prefixes='["p"]',
                       **SNAPSHOT).start().streaming()
    database.run("INSERT INTO t VALUES (3, 'x', -2)")
    database.run("UPDATE t SET v = 'y' WHERE id = 3")
    database.run("UPDATE t SET id = 4 WHERE id = 3")
    database.run("DELETE FROM t WHERE id = 4")
    database.run("SELECT pg_logical_emit_message(true, 'p', 'content')")
    records = topic(database.topic("t")).take(9)
    events = [read(mode, record) for record in records if record.value is not None]
    row = {"id": 3, "v": "x", "n": "-2.00"}
    changed = {**row, "v": "y"}
    assert [(event["iodebeziumop"], event.data["before"], event.data["after"]) for event in events[:2]] == [
        ("r", None, {"id": 1, "v": "é\"", "n": "1.50"}), ("r", None, {"id": 2, "v": None, "n": None})]
    assert [(event["iodebeziumop"], event.data["before"], event.data["after"]) for event in events[2:]] == [
        ("c", None, row), ("u", row, changed), ("d", changed, None), ("c", None, {**changed, "id": 4}),
        ("d", {**changed, "id": 4}, None)]
    tombstones = [record for record in records if record.value is None]
    assert [record.json_key for record in tombstones] == [{"id": 3}, {"id": 4}]
    assert not any("ce_id" in record.headers or "content-type" in record.headers for record in tombstones)
    assert len({(event["source"], event["id"]) for event in events}) == len(events)
    for record, event in zip((record for record in records if record.value is not None), events):
        assert event["id"] == record.position
        assert event["source"] == f"/debezium/postgresql/{database.prefix}"
        assert (event["specversion"], event["type"]) == ("1.0", "io.debezium.connector.postgresql.DataChangeEvent")
        commit_ms = int(record.headers["mr-ts"]) // 1000
        assert datetime.datetime.fromisoformat(event["time"].replace("Z", "+00:00")).timestamp() * 1000 == pytest.approx(commit_ms)
        assert record.headers["content-type"] == (STRUCTURED if mode == "structured" else "application/json")
        assert (event["iodebeziumsnapshot"] == "false") == (event["iodebeziumop"] != "r")
        assert (event["iodebeziumschema"], event["iodebeziumtable"]) == ("public", "t")
    message = read(mode, topic(f"{database.prefix}.message").take(1)[0])
    assert (message["iodebeziumop"], message.data) == ("m", {"message": {"prefix": "p", "content": "Y29udGVudA=="}})
    assert process.stop() == 0
