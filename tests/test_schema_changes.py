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
    assert process.stop() == 0
