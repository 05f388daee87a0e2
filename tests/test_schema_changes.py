"""Tables whose form changes while their rows stream: the rows, and the events that tell the form."""


def test_forms_are_told_before_the_first_row(database, millrace, topic):
    """Each change, in a transaction of its own and in the middle of one, and the name of the table."""
    database.run("CREATE TABLE t (id int PRIMARY KEY, a text)")
    database.run(f"CREATE PUBLICATION {database.publication} FOR ALL TABLES")
    forms = f"{database.prefix}.forms"
    process = millrace(["public.(t|u)"], types='"plain"', schema_topic=f'"{forms}"').start().streaming()
    steps = [
        ("INSERT INTO t VALUES (1, 'x')", {"id": "int4", "a": "text"}),
        ("ALTER TABLE t ADD COLUMN b numeric(4,2)[]; INSERT INTO t VALUES (2, 'x')", {"id": "int4", "a": "text", "b": "numeric[]"}),
        ("ALTER TABLE t RENAME COLUMN a TO c; UPDATE t SET c = 'y' WHERE id = 1", {"id": "int4", "c": "text", "b": "numeric[]"}),
        ("ALTER TABLE t ALTER COLUMN c TYPE varchar(7); DELETE FROM t WHERE id = 1", {"id": "int4", "c": "varchar", "b": "numeric[]"}),
        ("BEGIN; INSERT INTO t VALUES (3); ALTER TABLE t DROP COLUMN b; INSERT INTO t VALUES (4, 'z'); COMMIT",
         {"id": "int4", "c": "varchar"}),
        ("ALTER TABLE t REPLICA IDENTITY FULL; INSERT INTO t VALUES (5)", {"id": "int4", "c": "varchar"}),
        ("ALTER TABLE t RENAME TO u; INSERT INTO u VALUES (6)", {"id": "int4", "c": "varchar"}),
    ]
    for statements, _ in steps:
        database.run(statements)
    told = topic(forms).take(len(steps))
    assert [{column["name"]: column["type"] for column in form.json["columns"]} for form in told] == [form for _, form in steps]
    assert [form.json["identity"] for form in told] == ["default"] * 5 + ["full"] * 2
    assert {form.key for form in told[:-1]} == {'{"schema":"public","table":"t"}'}
    assert told[-1].json["table"] == "u" and all(form.json["key"] == ["id"] for form in told)

    rows = [row for row in topic(database.topic("t")).take(8) if row.value is not None]
    rows += topic(database.topic("u")).take(1)
    last = None  # the newest form at or before each row's place is the form of the row
    places = [(form.headers["mr-pos"][:-2], [column["name"] for column in form.json["columns"]]) for form in told]
    for row in rows:
        last = [names for place, names in places if place <= row.headers["mr-pos"][:-2]][-1]
        assert list((row.json["after"] or row.json["before"])) == last
    assert sorted(place for place, _ in places) == [place for place, _ in places]
    assert all(form.headers["mr-pos"].endswith("-9") for form in told)
    assert process.stop() == 0

    # A start tells the form anew, and the row keeps its place.
    process.start().streaming()
    database.run("INSERT INTO u VALUES (7)")
    assert topic(forms).take(len(steps) + 1)[-1].json["table"] == "u"
    assert topic(database.topic("u")).take(2)[-1].headers["mr-pos"].endswith("-0")


def test_types_are_altered(database, millrace, topic):
    """A type gets values, attributes and another name while its rows stream; the forms tell its name."""
    database.run("CREATE TYPE mood AS ENUM ('sad'); CREATE TYPE pair AS (a int, b text); CREATE DOMAIN price AS numeric(10,2);"
                 " CREATE DOMAIN moods AS mood; CREATE SCHEMA other; CREATE TYPE other.mood AS ENUM ('x');"
                 "CREATE TABLE t (id int PRIMARY KEY, m mood, ms mood[], more mood[], p pair, d price, dm moods, o other.mood)")
    forms = f"{database.prefix}.forms"
    process = millrace(["t"], types='"plain"', schema_topic=f'"{forms}"').start().streaming()
    database.run("INSERT INTO t VALUES (1, 'sad', '{sad,NULL}', '{}', '(1,a)', 1.5, 'sad', 'x')")
    database.run("ALTER TYPE mood ADD VALUE 'glad'")
    database.run("INSERT INTO t VALUES (2, 'glad', '{glad}', NULL, '(1,a)', 2, 'glad', 'x')")
    database.run("ALTER TYPE mood RENAME VALUE 'sad' TO 'blue'; ALTER TYPE pair ADD ATTRIBUTE c int; ALTER TYPE pair RENAME ATTRIBUTE b TO bb")
    database.run("INSERT INTO t VALUES (3, 'blue', '{blue}', NULL, '(1,a,7)', 3, 'blue', 'x')")
    database.run("ALTER TYPE mood RENAME TO feeling; ALTER TABLE t ADD n int")
    database.run("BEGIN; INSERT INTO t VALUES (4, 'glad', '{glad}', NULL, NULL, NULL, NULL, NULL, 1); ALTER TABLE t ALTER m TYPE text;"
                 " INSERT INTO t VALUES (5, 'any'); COMMIT")
    rows = [row.json["after"] for row in topic(database.topic("t")).take(5)]
    assert [(row["m"], row["ms"], row["p"]) for row in rows] == [
        ("sad", ["sad", None], "(1,a)"), ("glad", ["glad"], "(1,a)"), ("blue", ["blue"], "(1,a,7)"), ("glad", ["glad"], None), ("any", None, None)]
    told = [{column["name"]: column["type"] for column in form.json["columns"]} for form in topic(forms).take(3)]
    first = {"id": "int4", "m": "public.mood", "ms": "public.mood[]", "more": "public.mood[]", "p": "public.pair", "d": "numeric",
             "dm": "public.mood", "o": "other.mood"}
    feeling = {"m": "public.feeling", "ms": "public.feeling[]", "more": "public.feeling[]", "dm": "public.feeling", "n": "int4"}
    assert told == [first, {**first, **feeling}, {**first, **feeling, "m": "text"}]


def test_type_that_is_gone(database, millrace, topic):
    """A backlog has rows with types that were dropped since: their values come as text, and the log says so."""
    database.run("CREATE TYPE mood AS ENUM ('sad'); CREATE DOMAIN label AS text;"
                 "CREATE TABLE t (id int PRIMARY KEY, m mood, ms mood[], n label)")
    process = millrace(["t"], types='"debezium"').start().streaming()
    assert process.stop() == 0
    database.run("INSERT INTO t VALUES (1, 'sad', '{sad}', 'ann')")
    database.run("ALTER TABLE t ALTER m TYPE text, ALTER ms TYPE text[] USING ms::text[], ALTER n TYPE text; DROP TYPE mood; DROP DOMAIN label")
    database.run("INSERT INTO t VALUES (2, 'sad', '{sad}', 'ann')")
    process.start().streaming()
    rows = [row.json["after"] for row in topic(database.topic("t")).take(2)]
    assert rows == [{"id": 1, "m": "sad", "ms": "{sad}", "n": "ann"}, {"id": 2, "m": "sad", "ms": ["sad"], "n": "ann"}]
    assert sorted(line["column"] for line in process.log("type_gone")) == ["public.t.m", "public.t.ms", "public.t.n"]
