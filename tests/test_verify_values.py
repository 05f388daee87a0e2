"""`millrace verify` of values in Debezium's form: each type in each mode is proved, and a value that is a little different is found."""

import json
import os
import subprocess
import sys

import pytest
from confluent_kafka import Producer

import witness
from kit import BINARY, BOOTSTRAP, connect, expect
from test_formats import as_json, avro, registry  # noqa: F401  # pylint: disable=unused-import
from test_repair import repair
from test_verify import DIFFERENT, EQUAL, IN_PART, NO_VERDICT, agree, copied, produce

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "debezium"))
import cases  # noqa: E402  # pylint: disable=wrong-import-position

MODES = {
    "default": {},
    "strings": {"decimal_handling_mode": "string", "time_precision_mode": "adaptive_time_microseconds", "binary_handling_mode": "base64",
                "interval_handling_mode": "string"},
    "doubles": {"decimal_handling_mode": "double", "time_precision_mode": "connect", "binary_handling_mode": "hex", "hstore_handling_mode": "map"},
    "iso": {"time_precision_mode": "isostring", "binary_handling_mode": "base64-url-safe"},
    "micros": {"time_precision_mode": "microseconds"},
    "nanos": {"time_precision_mode": "nanoseconds"},
}
# What Debezium's form has null for, so that a null may be a value that an update left alone; and a type that is not compared.
IN_PARTS = {"places", "vectors"}


def options_of(modes, **more):
    return {"types": '"debezium"', **{name: json.dumps(value) for name, value in modes.items()}, **more}


def verified(process, modes, *tables):
    """Exit code, and what is said of each table; the witness agrees."""
    done = subprocess.run([BINARY, "verify", *tables, "--json", "--config", process.path], env=process.environment, capture_output=True,
                          text=True, timeout=240, check=False)
    said = {line["table"]: line for line in map(json.loads, done.stdout.splitlines())}
    assert said, done.stderr
    for name, line in said.items():
        agree(line, witness.look(process.database, name, line["schema"], modes=modes))
    return done.returncode, said


def fill(database):
    with connect(database.name) as connection:
        for group, columns in cases.GROUPS.items():
            for statement in cases.rows(group, columns, group):
                connection.execute(statement)
            connection.execute(f"UPDATE {group} SET id = -id WHERE id = 2")
            connection.execute(f"DELETE FROM {group} WHERE id = 3")


@pytest.mark.parametrize("modes", MODES.values(), ids=MODES)
def test_each_type_in_each_mode_is_proved(database, millrace, modes):
    for statement in cases.setup():
        database.run(statement)
    process = millrace(tables=tuple(cases.GROUPS), **options_of(modes)).start().streaming()
    fill(database)
    code, said = verified(process, modes)
    assert set(said) == set(cases.GROUPS)
    for name, line in said.items():
        assert line["verdict"] == ("equal in part" if name in IN_PARTS else "equal"), line
        assert {one["kind"] for one in line["differences"]} <= {"unknown"}, line
    assert code == IN_PART and '"s" has a type whose values are not compared' in said["vectors"]["reason"]


def decoding(registry, modes):  # noqa: F811
    """`modes`, for the witness."""
    def decode(raw):
        is_known = raw is not None and raw[:1] == b"\0" and int.from_bytes(raw[1:5], "big") in registry.schemas
        return json.dumps(as_json(registry.decode(raw)[0])) if is_known else raw and "no Avro"
    return {**modes, "avro": decode}


AVRO_IN_PARTS = {*IN_PARTS, "arrays"}  # which has arrays of hstore


@pytest.mark.parametrize("modes", MODES.values(), ids=MODES)
def test_avro_is_proved(database, millrace, registry, modes):  # noqa: F811
    """Each type in each mode: by another reader of Avro than the encoder's, and by the witness with fastavro."""
    for statement in cases.setup():
        database.run(statement)
    process = millrace(tables=tuple(cases.GROUPS), **{**options_of(modes), **avro(registry)}).start().streaming()
    fill(database)
    code, said = verified(process, decoding(registry, modes))
    assert set(said) == set(cases.GROUPS) and code == IN_PART
    for name, line in said.items():
        assert line["verdict"] == ("equal in part" if name in AVRO_IN_PARTS else "equal"), line
        assert {one["kind"] for one in line["differences"]} <= {"unknown"}, line


def write_after(topic, key, value):
    """As if the last transaction had written it, too."""
    last = dict(list(witness.records(topic))[-1].headers())
    head, ordinal, part = last["mr-pos"].decode().split("-")
    produce(topic, key, value, [("mr-pos", f"{head}-{int(ordinal, 16) + 1:010X}-{part}"), ("mr-xid", last["mr-xid"])])


def test_faults_in_avro_are_found_and_repaired(database, millrace, registry):  # noqa: F811
    """An old event that comes again, one of another row, one of a row that is gone; what is no Avro, or of a schema that nobody knows; and
    the registry must say what they are."""
    database.run("CREATE TABLE t (id int, d date, v numeric(9,2), a text[], PRIMARY KEY (id, d)); CREATE TABLE u (\"a b\" int PRIMARY KEY);"
                 "CREATE TABLE w (id int PRIMARY KEY)")
    process = millrace(("t", "u", "w"), **avro(registry, snapshot__mode='"no_data"')).start().streaming()
    database.run("INSERT INTO w VALUES (1)")
    database.run("INSERT INTO t SELECT n, date '2001-02-03' + n, n, '{{a,b},{c,NULL}}' FROM generate_series(1, 4) n; UPDATE t SET v = 1.5; DELETE FROM t WHERE id = 3")
    modes = decoding(registry, {})
    code, said = verified(process, modes, "t")
    assert code == EQUAL and said["t"]["rows"] == 3
    messages = list(witness.records(database.topic("t")))
    for key, value in ((0, 0), (1, 3), (2, 2)):
        write_after(database.topic("t"), messages[key].key(), messages[value].value())
    code, said = verified(process, modes, "t")
    assert code == DIFFERENT and [json.loads(one["key"]) for one in said["t"]["differences"]] and len(said["t"]["differences"]) == 3, said
    code, _, done, second = repair(process)
    assert (code, done["keys"], done["sent"], done["fault"], second["verdict"]) == (EQUAL, 3, 3, "", "equal"), (done, second)
    assert not witness.look(database, "t", modes=modes).differences
    done = subprocess.run([BINARY, "verify", "u", "--json", "--config", process.path], env=process.environment, capture_output=True, text=True,
                          timeout=120, check=False)
    assert done.returncode == IN_PART and "a column has a name that Avro does not take" in done.stdout
    registry.fault = (500, {"error_code": 50001, "message": "no"})
    done = subprocess.run([BINARY, "verify", "--json", "--config", process.path], env=process.environment, capture_output=True, text=True, timeout=120,
                          check=False)
    said = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == NO_VERDICT and [line["table"] for line in said] == ["t", "u", "w"], (said, done.stderr)
    assert said[0]["cause"] == "registry" and "does not say schema" in said[0]["reason"], said
    registry.fault = None
    # The row as it is, but in JSON; the same key's record of a schema that is not there.
    event = {"op": "u", "before": None, "after": as_json(registry.decode(messages[4].value())[0])["after"]}
    write_after(database.topic("t"), messages[0].key(), json.dumps(event))
    write_after(database.topic("w"), list(witness.records(database.topic("w")))[0].key(), b"\0" + (99999).to_bytes(4, "big") + b"\2")
    code, said = verified(process, modes, "t", "w")
    assert code == DIFFERENT and "its value is no Avro" in said["t"]["reason"] and "of schema 99999, which is in no registry" in said["w"]["reason"], said
    assert all("partition 0, offset" in line["reason"] and not line["differences"] for line in said.values()), said
    assert process.stop() == 0


def faulty(value):
    """A value of the same type of JSON that is another one."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, witness.Bare):
        return int(value) + 1 if value.lstrip("-").isdigit() else float(value) + 1
    if isinstance(value, str):
        return ("B" if value[:1] == "A" else "A") + value[1:]
    if isinstance(value, list):
        return [faulty(value[0]), *value[1:]]
    name = next(name for name in ("wkb", "value", "a", "center", *value) if name in value)
    return {**value, name: faulty(value[name])}


def plain(value):
    """As it was in the record."""
    if isinstance(value, witness.Bare):
        return json.loads(value)
    if isinstance(value, list):
        return [plain(one) for one in value]
    return {name: plain(one) for name, one in value.items()} if isinstance(value, dict) else value


@pytest.mark.parametrize("modes", MODES.values(), ids=MODES)
def test_a_fault_in_a_value_of_each_type_is_found(database, millrace, modes):
    """A row for each column, whose last event has another value there."""
    for statement in cases.setup():
        database.run(statement)
    process = millrace(tables=tuple(cases.GROUPS), **options_of(modes)).start().streaming()
    wanted, producer = {}, Producer({"bootstrap.servers": BOOTSTRAP, "log_level": 0})
    with connect(database.name) as connection:
        for group, columns in cases.GROUPS.items():
            for number, (name, _, values) in enumerate(columns):
                connection.execute(f"INSERT INTO {group} (id, {name}) VALUES (%s, {values[0]})", [number])
    verified(process, modes)  # all of it is in the topics then
    for group, columns in cases.GROUPS.items():
        topic, wanted[group] = database.topic(group), set()
        records = copied(topic, lambda record: True)
        head, ordinal, part = records[-1][0].position.split("-")
        for nth, (record, _) in enumerate(records, 1):
            number = json.loads(record.key)["id"]
            name = columns[number][0]
            row = witness.parsed(record.value)["after"]
            if row.get(name) is None or group == "vectors" and name in ("s", "va", "ha", "sa"):
                continue  # absent, or not compared
            wanted[group].add(f'{{"id":{number}}}')
            changed = {**plain(row), name: plain(faulty(row[name]))}
            producer.produce(topic, json.dumps({"before": None, "after": changed, "source": {}, "op": "u"}), record.key, partition=0,
                             headers=[("mr-pos", f"{head}-{int(ordinal, 16) + nth:010X}-{part}"), ("mr-xid", record.headers["mr-xid"])])
    assert producer.flush(30) == 0
    said = expect(verified(process, modes), DIFFERENT)
    for group, line in said.items():
        assert {(one["key"], one["kind"]) for one in line["differences"] if one["kind"] != "unknown"} == {(key, "altered") for key in wanted[group]}, (group, line)
    assert sum(map(len, wanted.values())) > 100


def test_placeholders_of_large_values(database, millrace):
    """In the form of each type; those of types that hold no text are null, which proves nothing."""
    for statement in cases.setup():
        database.run(statement)
    process = millrace(tables=("large",), **options_of({})).start().streaming()
    columns = ", ".join(value for _, _, value in cases.LARGE)
    database.run(f"INSERT INTO large VALUES (1, 1, {columns}); UPDATE large SET n = 2")
    code, said = verified(process, {})
    assert (code, said["large"]["unknown"], [one["kind"] for one in said["large"]["differences"]]) == (IN_PART, 1, ["unknown"])
    database.run("ALTER TABLE large DROP ge, DROP gg, DROP ve, DROP sp, DROP gea, DROP ha; UPDATE large SET t = t || 'x'")
    code, said = verified(process, {})
    assert (code, said["large"]["unknown"], said["large"]["differences"]) == (EQUAL, 0, [])
    database.run("UPDATE large SET id = 2")
    code, said = verified(process, {})
    assert (code, said["large"]["unknown"], [one["kind"] for one in said["large"]["differences"]]) == (IN_PART, 1, ["unknown"])


def payload(raw):
    """For the witness: what a record with a schema has in it."""
    begin = b'{"schema":'
    if raw is None:
        return None
    assert raw.startswith(begin), raw
    text = raw.decode()
    end = json.JSONDecoder().raw_decode(text, len(begin))[1] + len(',"payload":')
    return text[end:-1]


def without_witness(process, *tables):
    done = subprocess.run([BINARY, "verify", *tables, "--json", "--config", process.path], env=process.environment, capture_output=True,
                          text=True, timeout=240, check=False)
    return done.returncode, {line["table"]: line for line in map(json.loads, done.stdout.splitlines())}


@pytest.mark.parametrize("form", ["debezium", "row"])
def test_values_with_schemas_are_proved(database, millrace, form):
    """Each type, and a value that is a little different. The witness knows envelopes only."""
    for statement in cases.setup():
        database.run(statement)
    process = millrace(tables=tuple(cases.GROUPS), **options_of({"json__schemas": "both", "format": form})).start().streaming()
    fill(database)
    code, said = verified(process, {"avro": payload}) if form == "debezium" else without_witness(process)
    assert set(said) == set(cases.GROUPS) and code == IN_PART
    for name, line in said.items():  # lists of hstore are not compared, as with Avro
        assert line["verdict"] == ("equal in part" if name in {*IN_PARTS, "arrays"} else "equal"), line
        assert {one["kind"] for one in line["differences"]} <= {"unknown"}, line
    records = [record for record, _ in copied(database.topic("numbers"), lambda record: True)]
    record = next(record for record in records if '"i2":1,' in (record.value or ""))
    head, ordinal, part = records[-1].position.split("-")
    produce(database.topic("numbers"), record.key, record.value.replace('"i2":1,', '"i2":2,'),
            [("mr-pos", f"{head}-{int(ordinal, 16) + 1:010X}-{part}"), ("mr-xid", record.headers["mr-xid"])])
    code, said = without_witness(process, "public.numbers")
    assert code == DIFFERENT and [one["kind"] for one in said["numbers"]["differences"]] == ["altered"]


def test_keys_of_converted_types(database, millrace):
    """What the server converts is a key all the same, and where a chunk of rows ends."""
    database.run("CREATE TABLE k (d date, n numeric, iv interval, by bytea, tt timestamptz, v int, PRIMARY KEY (d, n, iv, by, tt));"
                 "CREATE TABLE g (d date PRIMARY KEY, v int);"
                 "CREATE TABLE a (i int[], f float8, u uuid, l pg_lsn, PRIMARY KEY (i, f, u, l))")
    process = millrace(tables=("k", "g", "a"), **options_of({}, sink__kafka__partitions="3")).start().streaming()
    database.run("INSERT INTO k SELECT date '2000-01-01' + n, n / 10.0, n * interval '1 day', decode(md5(n::text), 'hex'), timestamptz 'epoch' +"
                 " n * interval '1 s', n FROM generate_series(1, 50) n; UPDATE k SET v = 0 WHERE v > 20; DELETE FROM k WHERE v = 7;"
                 "INSERT INTO k VALUES ('infinity', 'NaN', '0', '', 'infinity', 1);"
                 "INSERT INTO g SELECT date '2000-01-01' + n, n FROM generate_series(1, 3000) n; DELETE FROM g WHERE v % 7 = 0;"
                 "INSERT INTO a VALUES ('{1,2}', 0.1, 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', '0/1'), ('{}', 'NaN', 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', '0/2')")
    done = subprocess.run([BINARY, "verify", "--rate", "400", "--json", "--config", process.path], env=process.environment, capture_output=True,
                          text=True, timeout=240, check=False)
    said = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == EQUAL, said
    assert {line["table"]: line["rows"] for line in said} == {"a": 2, "g": 2572, "k": 50}


def test_keys_that_have_no_form_stay_apart(database, millrace):
    """Timestamps that nanoseconds do not reach are null in values, and text in keys: each row is proved and named by its own."""
    database.run("CREATE TABLE k (t timestamp PRIMARY KEY, v int); INSERT INTO k VALUES ('2700-01-01', 0)")
    modes = {"time_precision_mode": "nanoseconds"}
    process = millrace(tables=("k",), **options_of(modes)).start().streaming()
    database.run("INSERT INTO k VALUES ('2020-01-01', 1), ('2500-01-01', 2), ('2600-01-01 01:02:03.5', 3); UPDATE k SET v = 4 WHERE v = 3;"
                 "INSERT INTO k VALUES ('4000-01-01 BC', 5); DELETE FROM k WHERE v = 2")
    for keys in ({"2700-01-01 00:00:00"}, set()):
        done = subprocess.run([BINARY, "verify", "--json", "--config", process.path], env=process.environment, capture_output=True, text=True,
                              timeout=240, check=False)
        said = json.loads(done.stdout)
        assert {json.loads(one["key"])["t"]["text"] for one in said["differences"]} == keys, said
        assert done.returncode == (DIFFERENT if keys else EQUAL) and said["missing"] == len(keys), said
        database.run("UPDATE k SET v = 6 WHERE v = 0")


def test_keyless_tables_and_columns_that_come_later(database, millrace):
    """What an older event does not have is what the server makes of the column's default."""
    database.run("CREATE TABLE t (n numeric, a int[]); ALTER TABLE t REPLICA IDENTITY FULL; CREATE TABLE u (id int PRIMARY KEY)")
    process = millrace(tables=("t", "u"), **options_of({})).start().streaming()
    database.run("INSERT INTO t VALUES (1.50, '{1,NULL}'), (1.5, '{1,NULL}'), (NULL, NULL); DELETE FROM t WHERE n IS NULL; INSERT INTO u VALUES (1);"
                 "ALTER TABLE u ADD d date DEFAULT '2000-01-02', ADD m numeric(5,2) DEFAULT 1.5, ADD b bytea DEFAULT '\\x01', ADD f bit DEFAULT B'1',"
                 " ADD e int[] DEFAULT '{{1,2}}', ADD o timestamptz DEFAULT '2000-01-01 00:00+00'")
    expect(verified(process, {}), EQUAL)


def test_what_owners_of_types_wrote_is_not_called(database, millrace):
    """A cast of an enum to JSON and the check of a domain run with the rights of the role that proves."""
    database.run("CREATE TYPE mood AS ENUM ('sad', 'so \"so\"'); CREATE TABLE calls (who text);"
                 "CREATE FUNCTION evil(mood) RETURNS json LANGUAGE plpgsql AS"
                 " $$ BEGIN INSERT INTO public.calls VALUES (current_user); RETURN '\"happy\"'; END $$;"
                 "CREATE CAST (mood AS json) WITH FUNCTION evil(mood);"
                 "CREATE FUNCTION spies(date) RETURNS bool LANGUAGE plpgsql AS"
                 " $$ BEGIN IF EXISTS (SELECT FROM public.calls WHERE who = 'armed') THEN RAISE 'called'; END IF; RETURN true; END $$;"
                 "CREATE DOMAIN spied AS date; CREATE TABLE t (id int PRIMARY KEY, m mood[])")
    process = millrace(tables=("t",), **options_of({})).start().streaming()
    database.run("INSERT INTO t VALUES (1, ARRAY['sad', 'so \"so\"']::mood[]), (2, '{}'), (3, NULL);"
                 "ALTER TABLE t ADD d spied DEFAULT '2000-01-02'; ALTER DOMAIN spied ADD CHECK (spies(VALUE)) NOT VALID;"
                 "INSERT INTO calls VALUES ('armed')")
    expect(verified(process, {}), EQUAL)
    assert database.run("SELECT who FROM calls") == [("armed",)]
