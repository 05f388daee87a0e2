"""Forms of values: the declarations against the server's catalog, and what consumers of `plain` and `text` get."""

import base64
import json
import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "debezium"))
import cases  # noqa: E402
from kit import connect  # noqa: E402

DECLARATIONS = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "src", "encode", "values", "types.def")


def declared():
    """(name, oid, array's oid) of each declaration."""
    with open(DECLARATIONS, encoding="utf-8") as file:
        return [(name, int(oid), int(array_oid))
                for name, oid, array_oid in re.findall(r"^MR_TYPE\((\w+), (\d+), (\d+),", file.read(), re.M)]


def test_types_are_the_servers(database):
    """Each type that is declared is the server's, and each of the server's that a user can have in a column is declared."""
    catalog = set(database.run("SELECT typname, oid::int, typarray::int FROM pg_type WHERE typtype IN ('b', 'r', 'm') "
                               "AND typarray <> 0 AND oid < 16384"))
    assert len(set(declared())) == len(declared()) > 70
    assert not set(declared()) - catalog
    assert not catalog - set(declared())


def test_types_are_documented():
    """The table in docs/types.md has each type that is declared."""
    with open(os.path.join(os.path.dirname(DECLARATIONS), "..", "..", "..", "docs", "types.md"), encoding="utf-8") as file:
        section = file.read().partition("\n## ")[0]
    rows = [line.partition("| ")[2].partition(" |")[0] for line in section.splitlines() if line.startswith("| ")]
    documented = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert not {name for name, _, _ in declared()} - documented


def members(items):
    """An object, with all members of one name."""
    return {name: [value for other, value in items if other == name] for name, _ in items}


def refuse(word):
    raise ValueError(f"{word} is not JSON")


def strict(text):
    # Numbers stay texts: Python would take -0 for 0.
    return json.loads(text, parse_constant=refuse, parse_int=str, parse_float=str, object_pairs_hook=members)


def quoted(text):
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


PLACES, VECTORS = ("geometry", "geography", "place"), ("vector", "halfvec")


def written_back(value, form):
    """The text of the value for PostgreSQL: what a consumer that knows the column's type would write."""
    if value is None:
        return None
    if isinstance(value, list):
        element = form.removesuffix("[]")

        def is_vector(item):
            return element in VECTORS and isinstance(item, list) and item and isinstance(item[0], str)
        if is_vector(value):
            return f"[{','.join(value)}]"
        return "{" + (":" if element in PLACES else ",").join(
            "NULL" if item is None else written_back(item, form) if isinstance(item, list) and not is_vector(item)
            else quoted(written_back(item, element)) for item in value) + "}"
    if isinstance(value, dict):
        return ", ".join(quoted(key) + "=>" + ("NULL" if item is None else quoted(item))
                         for key, [item] in value.items())
    if form == "bytea":
        return "\\x" + base64.b64decode(value, validate=True).hex()
    year = re.match(r"([+-]?\d{4,})(-\d\d-\d\d.*)", value) if isinstance(value, str) else None
    if year and form.startswith(("date", "timestamp")) and not form.endswith("range"):
        number = int(year[1])  # the year 0 is 1 BC, and PostgreSQL takes no sign
        return f"{number if number > 0 else 1 - number:04}{year[2]}" + (" BC" if number <= 0 else "")
    return json.dumps(value) if isinstance(value, bool) else str(value)


def test_types_restore_rows(database, millrace, topic):
    """`types = "plain"`: every event is strict JSON, and each value written back is the one that was there."""
    for statement in cases.setup():
        database.run(statement)
    process = millrace(tables=tuple(cases.GROUPS), types='"plain"').start().streaming()
    restored = 0
    with connect(database.name) as connection:
        for group, columns in cases.GROUPS.items():
            for statement in cases.rows(group, columns, group):
                connection.execute(statement)
        for group, columns in cases.GROUPS.items():
            count = connection.execute(f"SELECT count(*) FROM {group}").fetchone()[0]
            for record in topic(database.topic(group)).take(count):
                [row] = strict(record.value)["after"]
                there = connection.execute(f"SELECT {', '.join(f'{name}::text' for name, _, _ in columns)} "
                                           f"FROM {group} WHERE id = {row['id'][0]}").fetchone()
                for (name, form, _), text in zip(columns, there):
                    [value] = row[name]
                    if form in ("json", "jsonb"):
                        assert value == (text and strict(text)), (group, name, value, text)
                        continue
                    if form in ("json[]", "jsonb[]"):
                        continue  # as json, in a list
                    if form.endswith("[]") and text is not None:
                        text = re.sub(r"^[][0-9:]+=", "", text)  # a list has no bounds of its own
                    given = written_back(value, form)
                    again = connection.execute(f"SELECT (%s::{form})::text", [given]).fetchone()[0]
                    assert again == text, f"{group} {row['id']} {name} {form}: {value!r}, {text!r}"
                    restored += text is not None
    assert restored > 200


def test_types_plain_lists_what_is_not_known(database, millrace, topic):
    """A large value that an update left alone is named, not told by something that looks like a value."""
    database.run("CREATE TABLE t (id int PRIMARY KEY, large text, n int); ALTER TABLE t ALTER large SET STORAGE EXTERNAL")
    process = millrace(types='"plain"').start().streaming()
    database.run("INSERT INTO t VALUES (1, repeat('x', 5000), 1)")
    database.run("UPDATE t SET n = 2")
    first, second = (record.json for record in topic(database.topic("t")).take(2))
    assert first["after"] == {"id": 1, "large": "x" * 5000, "n": 1} and "unavailable" not in first
    assert second["after"] == {"id": 1, "n": 2} and second["unavailable"] == ["large"]
