"""Forms of events besides Debezium's JSON, read by libraries that know nothing of millrace."""

import base64
import datetime
import decimal
import json
import math
import os
import re
import socket
import ssl
import struct
import subprocess
import sys
import threading
import time
import urllib.request

import fastavro
import pytest
from cloudevents.kafka import KafkaMessage, from_binary, from_structured

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "debezium"))
import cases  # noqa: E402
from kit import BINARY, Millrace, connect, eventually  # noqa: E402
from registry import ENDLESS, GARBAGE, Registry  # noqa: E402

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
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
def test_cloudevents_are_read_by_their_sdk(database, millrace, topic, mode):
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


@pytest.fixture
def registry():
    made = Registry()
    yield made
    made.close()


def avro(registry, **options):
    return {"format": '"avro"', "types": '"debezium"', "schema_registry__url": json.dumps([registry.url]), **options}


def as_json(value):
    """What fastavro has read, as JsonConverter would have it."""
    if isinstance(value, dict) and list(value) == ["key", "value"]:  # of a map whose keys are numbers
        return list(value.values())
    if isinstance(value, dict):
        return {name: as_json(part) for name, part in value.items()}
    if isinstance(value, list):
        return [as_json(part) for part in value]
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, decimal.Decimal):
        sign, digits, _ = value.as_tuple()
        whole = int("".join(map(str, digits))) * (-1 if sign else 1)
        return base64.b64encode(whole.to_bytes((whole if whole >= 0 else ~whole).bit_length() // 8 + 1, "big", signed=True)).decode()
    if isinstance(value, float) and (math.isnan(value) or math.isinf(value)):
        return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[str(value)]
    return value


def narrow(ours, theirs):
    """float4 is read as a wider number than JSON tells."""
    return isinstance(ours, float) and isinstance(theirs, (int, float)) and struct.pack("f", ours) == struct.pack("f", theirs)


def flat(values):
    """All elements of lists in lists."""
    return [part for value in values for part in (flat(value) if isinstance(value, list) else [value])]


def apart(place, told, read):
    """Where the two are not the same; leaves out what differs between two runs."""
    if isinstance(told, dict) and isinstance(read, dict):
        for name in {**told, **read}:
            own = name.startswith("ts_") and (".source" not in place or ".message." in place)
            if not own:
                yield from apart(f"{place}.{name}", told.get(name, "(absent)"), read.get(name, "(absent)"))
    elif isinstance(told, list) and isinstance(read, list) and len(flat(told)) == len(flat(read)):
        for at, (one, other) in enumerate(zip(flat(told), flat(read))):
            yield from apart(f"{place}[{at}]", one, other)
    elif told != read and not narrow(read, told):
        yield f"{place}: JSON {json.dumps(told)[:100]}, Avro {json.dumps(read)[:100]}"


def test_json_with_schemas_follows_the_table(database, millrace, topic):
    """Copied rows, the stream's, and those after a restart have one schema; a new column is in it from its first row on."""
    database.run("CREATE TABLE t (id int PRIMARY KEY, v text); INSERT INTO t VALUES (1, 'copied')")
    process = millrace(types='"debezium"', json__schemas='"both"', **SNAPSHOT).start().streaming()
    database.run("INSERT INTO t VALUES (2, 'streamed')")
    database.run("BEGIN; INSERT INTO t VALUES (3, 'before'); ALTER TABLE t ADD n numeric(5,2); INSERT INTO t VALUES (4, 'after', 1.1); COMMIT")
    source = topic(database.topic("t"))
    records = source.take(4)
    assert process.stop() == 0
    process.start().streaming()
    database.run("UPDATE t SET v = NULL WHERE id = 4")
    database.run("DELETE FROM t WHERE id = 4")
    records += source.take(3)
    assert records.pop().value is None
    values = [record.json for record in records]
    assert [(value["payload"]["op"], value["payload"]["after"]) for value in values] == [
        ("r", {"id": 1, "v": "copied"}), ("c", {"id": 2, "v": "streamed"}), ("c", {"id": 3, "v": "before"}),
        ("c", {"id": 4, "v": "after", "n": "bg=="}), ("u", {"id": 4, "v": None, "n": "bg=="}), ("d", None)]
    schemas = [value["schema"] for value in values]
    assert schemas[0] == schemas[1] == schemas[2] != schemas[3] == schemas[4] == schemas[5]
    for schema, wanted in ((schemas[0], ["id", "v"]), (schemas[3], ["id", "v", "n"])):
        before, after = schema["fields"][:2]
        assert [field["field"] for field in before["fields"]] == wanted and before["fields"] == after["fields"]
        assert (before["field"], after["field"], before["name"]) == ("before", "after", f"{database.prefix}.public.t.Value")
        assert [field["optional"] for field in before["fields"]] == [False] + [True] * (len(wanted) - 1)
    assert all(record.json_key == {"schema": records[0].json_key["schema"], "payload": {"id": number}}
               for record, number in zip(records, (1, 2, 3, 4, 4, 4)))



WIDE = """CREATE TABLE t (id bigint PRIMARY KEY, customer bigint NOT NULL, state text, price numeric(12,2), paid boolean, note varchar(80),
          placed timestamptz, shipped date, tags text[], weight double precision)"""
WIDE_ROWS = """INSERT INTO t SELECT g, g % 977, 'state ' || g % 7, g / 100.0, g % 2 = 0, 'note ' || md5(g::text), '2026-01-01'::timestamptz + g * interval
               '1 minute', '2026-01-01'::date + g % 365, ARRAY['a', 'b' || g % 5], g / 3.0::float8 FROM generate_series(1, 20000) g"""


def bytes_on_disk(name):
    folder = os.path.join(os.environ["MILLRACE_STAND_DIR"], "data", "kafka", "logs", f"{name}-0")
    return os.path.getsize(os.path.join(folder, "00000000000000000000.log"))


@pytest.mark.parametrize("form", ["debezium", "row"])
def test_what_schemas_take(database, millrace, topic, form):
    """The table of docs/formats.md: bytes of an event, and of each in Kafka's log, which depends on how many go into a request."""
    with open(os.path.join(ROOT, "docs", "formats.md"), encoding="utf-8") as file:
        row = re.search(rf"^\| `{form}` \|(.*)\|$", file.read().split("in Kafka's log (lz4, 20,000 rows)")[1], re.MULTILINE)[1]
    said = [tuple(int(number.replace(",", "")) for number in cell.split(";")) for cell in row.split("|")]
    database.run(WIDE)
    for (value, kept), schemas in zip(said, ("none", "both")):
        process = millrace(format=f'"{form}"', types='"debezium"', topic_prefix=f'"{database.prefix}-{schemas}"',
                           sink__kafka__state_name=f'"{database.prefix}-{schemas}"', source__postgres__slot_name=f'"{database.slot}_{schemas}"',
                           json__schemas=f'"{schemas}"').start().streaming()
        name = f"{database.prefix}-{schemas}.public.t"
        database.run(WIDE_ROWS)
        records = topic(name).take(20000)
        assert process.stop() == 0
        database.run("TRUNCATE t")
        sizes = (sum(len(record.value) for record in records) / len(records), bytes_on_disk(name) / len(records))
        print(form, schemas, sizes)
        assert sizes[0] == pytest.approx(value, rel=0.02) and sizes[1] == pytest.approx(kept, rel=0.3)


def test_avro_says_what_json_says(database, registry, tmp_path):
    """Every statement of the comparison with Debezium, in both formats from one database: the same records in the same order."""
    with connect(database.name) as connection:
        for statement in cases.setup():
            connection.execute(statement)
        connection.execute(f"CREATE PUBLICATION {database.publication} FOR ALL TABLES")
        runs, files = [], []
        for name, options in [("json", {}), ("avro", avro(registry))]:
            folder = tmp_path / name
            folder.mkdir()
            files.append(folder / "out")
            runs.append(Millrace(database, folder, cases.names(), **{
                "types": '"debezium"', "messages__prefixes": '["judge"]', "skipped_operations": "[]", **options,
                "source__postgres__slot_name": json.dumps(f"{database.slot}_{name}"), "schema_topic": '"forms"',
                "sink__kafka__brokers": None, "sink__type": '"file"', "sink__file__path": json.dumps(str(files[-1]))}).start())
        try:
            for run in runs:
                run.streaming()
            for statement in cases.statements():
                connection.execute(statement)

            def ended():
                assert all(run.process.poll() is None for run in runs), runs[1].lines[-1]
                return all(file.exists() and b".public.last" in file.read_bytes() for file in files)
            eventually(ended, 60, "the end")
            assert [run.stop() for run in runs] == [0, 0]
        finally:
            for run in runs:
                run.kill()
    told, read = [[json.loads(line) for line in file.read_text("utf-8").split("\n")[:-1]] for file in files]
    assert [line["topic"] for line in told] == [line["topic"] for line in read] and len(told) >= 700
    wrong = []
    for one, other in zip(told, read):
        for part in ("key", "value"):
            value = other[part]
            if value is not None and one["topic"] != "forms":  # which is JSON
                value = as_json(registry.decode(base64.b64decode(value))[0])
            wrong += apart(f"{one['topic']}.{part}", one[part], value)
    assert not wrong, f"{len(wrong)} of {len(told)}:\n" + "\n".join(wrong[:20])
    assert len(registry.asked) == len(set(registry.asked)), "each schema is registered once"


def settled(registry, message):
    """Key, and the row after or before, as an independent reader has them."""
    key, _ = registry.decode(message.key())
    if message.value() is None:
        return key, None
    value, _ = registry.decode(message.value())
    return key, value["after"] if value["op"] != "d" else value["before"]


def raw(topic, name, count):
    """Messages of the only partition of a topic, as they are."""
    messages = []

    def enough():
        messages.extend(m for m in topic(name).consumer.consume(count - len(messages), timeout=0.2) if m.error() is None)
        return len(messages) == count
    eventually(enough, 60, f"{count} records in {name}")
    return messages


def registered(registry, subject):
    """The fields of the rows in each version of a subject."""
    return [[field["name"] for field in json.loads(registry.schemas[number][0])["fields"][0]["type"][1]["fields"]]
            for number in registry.subjects[subject]]


def test_avro_registry_away_delays_and_loses_nothing(database, millrace, registry, topic):
    """Away when the first row comes, and again when a table has a new form; stopped and started meanwhile."""
    database.run("CREATE TABLE t (id int PRIMARY KEY, v text)")
    name = database.topic("t")
    registry.fault = (503, {"error_code": 50301, "message": "no leader"})
    process = millrace(**avro(registry, pipeline__shutdown_deadline='"1s"')).start().streaming()
    database.run("INSERT INTO t VALUES (1, 'a')")
    told = process.wait_for("schema_registry_away", times=2)
    assert (told["subject"], told["status"], told["reason"]) == (f"{name}-value", 503, "no leader")
    assert told["pause_ms"] > process.log("schema_registry_away")[0]["pause_ms"]
    assert process.stop(30) == 3, "nothing is given up quietly"
    process.configure(**avro(registry)).start().streaming()
    process.wait_for("schema_registry_away")
    registry.fault = None
    reader = topic(name)
    assert [settled(registry, m) for m in raw(lambda _: reader, name, 1)] == [({"id": 1}, {"id": 1, "v": "a"})]
    asked = len(registry.asked)
    database.run("INSERT INTO t SELECT g, 'b' FROM generate_series(2, 1001) g")
    assert len(raw(lambda _: reader, name, 1000)) == 1000
    assert len(registry.asked) == asked, "a relation version is registered once"
    registry.fault = (500, {"error_code": 50001, "message": "store"})
    database.run("ALTER TABLE t ADD COLUMN w int; INSERT INTO t VALUES (1002, 'c', 7)")
    process.wait_for("schema_registry_away", times=2)
    registry.fault = None
    database.run("ALTER TABLE t DROP COLUMN v; UPDATE t SET w = 8 WHERE id = 1002; DELETE FROM t WHERE id = 1002")
    assert [settled(registry, m) for m in raw(lambda _: reader, name, 4)] == [
        ({"id": 1002}, {"id": 1002, "v": "c", "w": 7}), ({"id": 1002}, {"id": 1002, "w": 8}),
        ({"id": 1002}, {"id": 1002, "w": None}), ({"id": 1002}, None)]
    assert registered(registry, f"{name}-value") == [["id", "v"], ["id", "v", "w"], ["id", "w"]]
    assert len(registry.subjects[f"{name}-key"]) == 1
    assert process.stop() == 0


@pytest.mark.parametrize("fault, said", [
    ((409, {"error_code": 409, "message": "Schema being registered is incompatible"}),
     ["(409, Schema being registered is incompatible)", "compatibility level"]),
    ((401, {"error_code": 40101, "message": "Unauthorized"}), ["(401, Unauthorized)", "schema_registry.username"]),
    ((404, {"error_code": 404, "message": "no such path"}), ["/apis/ccompat/v7"]),
    ((422, {"error_code": 42201, "message": "Invalid schema"}), ["(422, Invalid schema)"]),
], ids=["incompatible", "login", "path", "invalid"])
def test_avro_registry_refuses(database, millrace, registry, fault, said):
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    process = millrace(**avro(registry)).start().streaming()
    registry.fault = fault
    database.run("INSERT INTO t VALUES (1)")
    assert process.ended(30) == 78
    line = process.log("stopped")[0]["message"]
    assert any(f'"{database.topic("t")}-{side}"' in line for side in ("key", "value")), line
    assert all(part in line for part in said), line
    assert len(registry.asked) == len(set(registry.asked)), "it is not asked again"


@pytest.mark.parametrize("strategy, subjects", [("record", ["{0}.public.t_.Envelope", "{0}.public.t_.Key"]),
                                                ("topic_record", ["{0}.public.t_-{0}.public.t_.Envelope", "{0}.public.t_-{0}.public.t_.Key"])])
def test_avro_subjects_login_and_tls(database, millrace, tmp_path, topic, strategy, subjects):
    """Schemas that must be there already, behind TLS and a password; names that Avro does not take."""
    certificate, key = tmp_path / "server.pem", tmp_path / "server.key"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "30",
                    "-subj", "/CN=registry", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", certificate],
                   check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    registry = Registry("me:pa:ss", context)
    database.run('CREATE TABLE "t-" (id int PRIMARY KEY, "1 x" int)')
    (tmp_path / "password").write_text("pa:ss\n")
    (tmp_path / "password").chmod(0o600)
    options = avro(registry, schema_registry__subject_strategy=json.dumps(strategy), schema_registry__username='"me"',
                   schema_registry__password=json.dumps(f"file:{tmp_path / 'password'}"))
    trusted = {**options, "schema_registry__tls_ca_location": json.dumps(str(certificate))}
    process = millrace(["t-"], **options).start().streaming()
    database.run('INSERT INTO "t-" VALUES (1, 2)')
    assert "certificate" in process.wait_for("schema_registry_away")["reason"]
    assert not registry.asked
    process.kill()
    process.configure(**trusted, schema_registry__register="false")
    assert process.start().ended(30) == 78
    assert "Schema not found" in process.log("stopped")[0]["message"] and not registry.subjects
    process.configure(**trusted).start().streaming()
    reader = topic(f"{database.prefix}.public.t-")
    message = raw(lambda _: reader, "t-", 1)[0]
    assert settled(registry, message) == ({"id": 1}, {"id": 1, "_1_x": 2})
    assert sorted(registry.subjects) == [name.format(database.prefix).replace(".t_-", ".t--") for name in subjects]
    assert process.stop() == 0
    process.configure(**trusted, schema_registry__register="false").start().streaming()
    database.run('INSERT INTO "t-" VALUES (2, 2)')
    raw(lambda _: reader, "t-", 1)
    assert process.stop() == 0
    registry.close()


@pytest.mark.parametrize("fault", [GARBAGE, ENDLESS, threading.Event(), (200, {"id": -1}), (200, {"id": 2**31}), (200, [])],
                         ids=["garbage", "endless", "silent", "negative", "large", "none"])
def test_avro_registry_that_makes_no_sense(database, millrace, tmp_path, fault):
    """Asked again, while the rows wait; a stop in the middle of a question is obeyed."""
    lying = Registry(fault=fault)
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    process = millrace(**avro(lying, pipeline__shutdown_deadline='"1s"')).start().streaming()
    database.run("INSERT INTO t VALUES (1)")
    if isinstance(fault, threading.Event):
        assert lying.first.wait(30)
    else:
        process.wait_for("schema_registry_away")
    begin = time.monotonic()
    assert process.stop(60) == 3
    assert time.monotonic() - begin < 9  # a question may take 10 s
    lying.close()


def test_avro_check_asks_the_registry(database, millrace, registry):
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    process = millrace(**avro(registry))
    assert "schema registry http://127.0.0.1" in checked(process, 0)
    registry.password = "a:b"
    said = checked(process, 77)
    assert "answers 401 Unauthorized" in said and "schema_registry.username" in said
    registry.close()
    assert "start it, or set schema_registry.url" in checked(process, 69)




class Apicurio:
    """A real registry, with the API at /apis/ccompat/v7, in memory; what it knows, by that API."""

    def __init__(self, log):
        folder = os.path.join(os.environ["MILLRACE_TOOLS_DIR"], "apicurio")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}/apis/ccompat/v7"
        runner = next(file for file in os.listdir(folder) if file.endswith("-runner.jar"))
        self.process = subprocess.Popen(["java", "-Xmx384M", "-XX:TieredStopAtLevel=1", "-Dquarkus.http.host=127.0.0.1",
                                         f"-Dquarkus.http.port={port}", "-jar", runner], cwd=folder, stdout=log, stderr=log)
        self.schemas = {}

    def ask(self, path, body=None):
        request = urllib.request.Request(self.url + path, method="GET" if body is None else "PUT",
                                         data=None if body is None else json.dumps(body).encode(),
                                         headers={"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)

    def answers(self):
        assert self.process.poll() is None
        try:
            return self.ask("/subjects") == []
        except OSError:
            return False

    def decode(self, data):
        number = int.from_bytes(data[1:5], "big")
        if number not in self.schemas:
            text = self.ask(f"/schemas/ids/{number}")["schema"]
            self.schemas[number] = (text, fastavro.parse_schema(json.loads(text)))
        return Registry.decode(self, data)

    def close(self):
        self.process.kill()
        self.process.wait()


@pytest.mark.skipif("MILLRACE_TEST_APICURIO" not in os.environ, reason="MILLRACE_TEST_APICURIO is not set (tests/run.sh)")
def test_avro_real_registry(database, millrace, topic, tmp_path):
    """Registers, evolves, comes again after a restart; a form that the subject's level does not take stops the stream before it."""
    database.run("CREATE TABLE t (id int PRIMARY KEY, v int)")
    with open(tmp_path / "registry.log", "wb") as log:
        registry = Apicurio(log)
    try:
        eventually(registry.answers, 120, "the registry answers")
        registry.ask("/config", {"compatibility": "FULL"})
        name = database.topic("t")
        process = millrace(**avro(registry)).start().streaming()
        assert "answers" in checked(process, 0)
        database.run("INSERT INTO t VALUES (1, 1); ALTER TABLE t ADD COLUMN w numeric(5,2), ADD COLUMN p point, ADD COLUMN b int[];"
                     "INSERT INTO t VALUES (2, 2, 1.5, '(1,2)', '{1,NULL}')")
        reader = topic(name)
        assert [settled(registry, m) for m in raw(lambda _: reader, name, 2)] == [
            ({"id": 1}, {"id": 1, "v": 1}),
            ({"id": 2}, {"id": 2, "v": 2, "w": decimal.Decimal("1.50"), "b": [1, None],
                         "p": {"x": 1.0, "y": 2.0, "wkb": base64.b64decode("AQEAAAAAAAAAAADwPwAAAAAAAABA"), "srid": None}})]
        assert registry.ask(f"/subjects/{name}-value/versions") == [1, 2]
        assert process.stop() == 0
        process.start().streaming()
        database.run("INSERT INTO t VALUES (3, 3)")
        assert settled(registry, raw(lambda _: reader, name, 1)[0])[1]["id"] == 3
        assert registry.ask(f"/subjects/{name}-value/versions") == [1, 2], "a start makes no version"
        database.run("ALTER TABLE t ALTER v TYPE text; INSERT INTO t VALUES (4, 'four')")
        assert process.ended(60) == 78
        line = process.log("stopped")[0]["message"]
        assert f'"{name}-value" (409' in line and "compatibility level" in line, line
        registry.ask("/config", {"compatibility": "NONE"})
        process.start().streaming()
        assert settled(registry, raw(lambda _: reader, name, 1)[0])[1]["v"] == "four"
        assert process.stop() == 0
    finally:
        registry.close()


def checked(process, code):
    done = subprocess.run([BINARY, "check", "--config", process.path], env=process.environment, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout
