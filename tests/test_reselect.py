"""Large values that an update did not touch, read again (columns.reselect). The judge of writers is the table's own history, which a trigger keeps: an
event without the header mr-reselected, and without the placeholder, has the value that the row had then."""

import collections
import hashlib
import json
import os
import random
import sys
import threading
import time

import pytest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "debezium"))
import connect as connect_worker  # noqa: E402
from kit import Topic, check, connect, dsn, eventually, swapped  # noqa: E402

DELIVERIES = pytest.mark.parametrize("delivery", ["at-least-once", "exactly-once"])
PLACEHOLDER = "__debezium_unavailable_value"
ALL = '["*.*:*"]'
HISTORY = """
CREATE SEQUENCE ns;
CREATE TABLE t (id int PRIMARY KEY, n bigint NOT NULL DEFAULT nextval('ns'), body text, other text);
ALTER TABLE t ALTER body SET STORAGE EXTERNAL, ALTER other SET STORAGE EXTERNAL;
CREATE TABLE h (n bigint PRIMARY KEY, id int, body text, other text);
CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  INSERT INTO h VALUES (NEW.n, NEW.id, md5(NEW.body), md5(NEW.other)); RETURN NEW; END $$;
CREATE TRIGGER keep AFTER INSERT OR UPDATE ON t FOR EACH ROW EXECUTE FUNCTION keep()"""


def large(seed):
    return (hashlib.md5(str(seed).encode()).hexdigest() * 120)[:3000 + hash(seed) % 700]


def after(records):
    """What the events have, one row each, with what was read later: [(row, columns)]."""
    return [(r.json["after"], json.loads(r.headers.get("mr-reselected-columns", "[]"))) for r in records if r.value and r.json["after"]]


def outcome(millrace, word):
    return millrace.figure(f'millrace_reselected_total{{outcome="{word}"}}')


class Judge:
    """Compares a topic with the history."""

    def __init__(self, database, table="t"):
        self.database, self.topic = database, Topic(database.topic(table))
        self.events = []

    def until_end(self, limit_s=60, keys=None):
        """All up to the last change of each key, or of these."""
        last = dict(self.database.run("SELECT DISTINCT ON (id) id, n FROM h ORDER BY id, n DESC"))
        last = {key: n for key, n in last.items() if keys is None or key in keys}
        seen = {r.json["after"]["id"]: r.json["after"]["n"] for r in self.events}

        def there():
            for record in self.topic.read(0.2):
                if record.value and record.json["after"]:
                    self.events.append(record)
                    seen[record.json["after"]["id"]] = max(record.json["after"]["n"], seen.get(record.json["after"]["id"], 0))
            return all(seen.get(key) == n for key, n in last.items())
        eventually(there, limit_s, "the last change of each key")
        return last

    def verdict(self, limit_s=60):
        last = self.until_end(limit_s)
        truth = {n: (body, other) for n, _, body, other in self.database.run("SELECT n, id, body, other FROM h")}
        kinds = collections.Counter()
        for record in self.events:
            row, (_, later) = record.json["after"], after([record])[0]
            for name, value in zip(("body", "other"), truth[row["n"]]):
                if row[name] == PLACEHOLDER or name in later:
                    kinds["unknown"] += 1
                    assert row["n"] != last[row["id"]], f"the newest event of {row['id']} is not exact: {record.headers}"
                else:
                    kinds["exact"] += 1
                    assert value == (row[name] and hashlib.md5(row[name].encode()).hexdigest()), f"{row['id']}, {row['n']}: wrong {name}"
        return kinds


def test_values_are_those_after_their_transaction(database, millrace):
    database.run(HISTORY)
    process = millrace(columns__reselect=ALL).start().streaming()
    database.run("INSERT INTO t VALUES (1, DEFAULT, %s, %s)", [large(1), large(2)])
    judge = Judge(database)
    for text, values in (("n = nextval('ns')", []), ("n = nextval('ns'), body = %s", [large(3)]), ("n = nextval('ns'), other = NULL", [])):
        database.run(f"UPDATE t SET {text}", values)
        judge.until_end()
    assert judge.verdict() == {"exact": 8}
    assert outcome(process, "exact") == 3


@pytest.mark.parametrize("types", ["text", "debezium", "plain"])
def test_each_form_of_values(database, millrace, types):
    database.run("CREATE TABLE t (a text, b int, j jsonb, l text[], y bytea, body text, PRIMARY KEY (a, b));"
                 "ALTER TABLE t ALTER j SET STORAGE EXTERNAL, ALTER l SET STORAGE EXTERNAL, ALTER y SET STORAGE EXTERNAL, ALTER body SET STORAGE EXTERNAL")
    process = millrace(columns__reselect=ALL, types=f'"{types}"').start().streaming()
    values = [json.dumps({"k": large(1)}), [large(2), "x,\"y", None], large(3).encode(), large("'\\é")]
    database.run("INSERT INTO t VALUES ('a''b', 7, %s, %s, %s, %s)", values)
    database.run("UPDATE t SET b = 8")
    topic = Topic(database.topic("t"))
    created, moved = [row for row, _ in after(topic.take(4))]
    database.run("UPDATE t SET body = 'short'")
    (changed, _), = after(topic.take(1))
    assert moved == {**created, "b": 8}
    assert changed == {**moved, "body": "short"}
    assert outcome(process, "exact") == 2


def test_several_changes_of_a_row_in_one_transaction(database, millrace):
    """What the table has is the last of them, and no earlier update may call it its own."""
    database.run(HISTORY)
    database.run("INSERT INTO t SELECT id, nextval('ns'), repeat(md5(id::text), 100), repeat('o', 3000) FROM generate_series(1, 9) id")
    process = millrace(columns__reselect=ALL).start().streaming()
    touch = "UPDATE t SET n = nextval('ns') WHERE id = {}"
    with connect(database.name) as connection:
        with connection.transaction():
            connection.execute(touch.format(1))
            connection.execute("UPDATE t SET n = nextval('ns'), body = %s WHERE id = 1", [large(1)])
            connection.execute(touch.format(1))
            connection.execute(touch.format(2))
            connection.execute(touch.format(2))
            connection.execute(touch.format(3))
            connection.execute("UPDATE t SET id = 33, n = nextval('ns') WHERE id = 3")
            connection.execute("INSERT INTO t VALUES (3, DEFAULT, %s, %s)", [large(5), large(6)])
            connection.execute(touch.format(4))
            connection.execute("DELETE FROM t WHERE id = 4")
            connection.execute("INSERT INTO t VALUES (4, DEFAULT, %s, %s)", [large(7), large(8)])
            connection.execute(touch.format(5))
    judge = Judge(database)
    judge.until_end(keys=[1, 2, 5, 33])
    database.run("UPDATE t SET n = nextval('ns')")
    kinds = judge.verdict()
    assert kinds["unknown"] == 2 * 3  # what was touched first of 1, 3 and 4
    assert outcome(process, "later") == 3 and outcome(process, "exact") > 10


@pytest.mark.parametrize("later", ["value", "placeholder"])
def test_row_that_was_changed_or_deleted_since(database, millrace, later):
    database.run("CREATE TABLE t (id int PRIMARY KEY, n int, body text); ALTER TABLE t ALTER body SET STORAGE EXTERNAL")
    process = millrace(columns__reselect=ALL, columns__reselect_later=f'"{later}"').start().streaming()
    topic = Topic(database.make_topic("t"))
    database.run("INSERT INTO t VALUES (1, 0, %s), (2, 0, %s)", [large(1), large(2)])
    topic.take(2)
    process.stop()
    database.run("UPDATE t SET n = 1")
    database.run("UPDATE t SET n = 2, body = %s WHERE id = 1", [large(3)])
    database.run("DELETE FROM t WHERE id = 2")
    process.start().streaming()
    records = topic.take(5)
    first, second, third = after(records)
    expected = (large(3), ["body"]) if later == "value" else (PLACEHOLDER, [])
    assert (first[0]["body"], first[1]) == expected
    assert (second[0]["body"], second[1]) == (PLACEHOLDER, [])
    assert (third[0]["body"], third[1]) == (large(3), [])
    assert [r.headers.get("mr-reselected") for r in records[:2]] == (["later", None] if later == "value" else [None, None])
    assert outcome(process, "later") == 1 and outcome(process, "gone") == 1


@pytest.mark.parametrize("form", ["flat", "cloudevents", "row"])
def test_each_format_tells_what_was_read_later(database, millrace, form):
    database.run("CREATE TABLE t (id int PRIMARY KEY, n int, body text); ALTER TABLE t ALTER body SET STORAGE EXTERNAL")
    process = millrace(columns__reselect=ALL, format=f'"{form}"').start().streaming()
    topic = Topic(database.make_topic("t"))
    database.run("INSERT INTO t VALUES (1, 0, %s)", [large(1)])
    topic.take(1)
    process.stop()
    database.run("UPDATE t SET n = 1")
    database.run("UPDATE t SET n = 2")
    process.start().streaming()
    first, second = topic.take(2)
    assert (first.headers["mr-reselected"], first.headers["mr-reselected-columns"]) == ("later", '["body"]')
    assert "mr-reselected" not in second.headers and large(1) in first.value and large(1) in second.value


def test_subtransactions_and_commit_times(database, millrace):
    """Under a savepoint a row has another number: exact where the server keeps the times of commits, which the test's does or does not."""
    database.run(HISTORY)
    database.run("INSERT INTO t VALUES (1, DEFAULT, %s, NULL)", [large(1)])
    keeps_times = database.run("SHOW track_commit_timestamp")[0][0] == "on"
    process = millrace(columns__reselect=ALL).start().streaming()
    with connect(database.name) as connection:
        with connection.transaction(), connection.transaction():
            connection.execute("UPDATE t SET n = nextval('ns')")
    (row, columns), = after(Topic(database.topic("t")).take(1))
    assert row["body"] == large(1) and columns == ([] if keeps_times else ["body"])
    assert outcome(process, "exact" if keeps_times else "later") == 1


def test_columns_that_mean_something_else_by_now(database, millrace):
    """Two columns have changed their names, one was made anew: the row is the same one, and what these names say now are not its values."""
    database.run("CREATE TABLE t (id int PRIMARY KEY, n int, a text, b text, c text);"
                 "ALTER TABLE t ALTER a SET STORAGE EXTERNAL, ALTER b SET STORAGE EXTERNAL, ALTER c SET STORAGE EXTERNAL")
    process = millrace(columns__reselect=ALL).start().streaming()
    topic = Topic(database.make_topic("t"))
    database.run("INSERT INTO t VALUES (1, 0, %s, %s, %s)", [large(1), large(2), large(3)])
    topic.take(1)
    process.stop()
    database.run("UPDATE t SET n = 1")
    database.run(f"{swapped('t', 'b', 'a')}; ALTER TABLE t DROP c;"
                 "ALTER TABLE t ADD c text DEFAULT 'made anew'")
    process.start().streaming()
    (row, columns), = after(topic.take(1))
    assert [row[name] for name in "abc"] == [PLACEHOLDER] * 3 and columns == []
    assert outcome(process, "gone") == 1


def test_table_under_another_name(database, millrace):
    """Another table has the name by now, with a row that the same transaction wrote."""
    database.run("CREATE TABLE t (id int PRIMARY KEY, n int, body text); ALTER TABLE t ALTER body SET STORAGE EXTERNAL")
    process = millrace(columns__reselect=ALL).start().streaming()
    topic = Topic(database.make_topic("t"))
    database.run("INSERT INTO t VALUES (1, 0, %s)", [large(1)])
    topic.take(1)
    process.stop()
    with connect(database.name) as connection, connection.transaction():
        connection.execute("UPDATE t SET n = 1")
        connection.execute("CREATE TABLE u (LIKE t INCLUDING ALL)")
        connection.execute("INSERT INTO u VALUES (1, 1, %s)", [large(2)])
        connection.execute("ALTER TABLE t RENAME TO v")
        connection.execute("ALTER TABLE u RENAME TO t")
    process.start().streaming()
    (row, columns), = after(topic.take(1))
    assert row["body"] == PLACEHOLDER and columns == []
    assert process.log("reselect_refused")


def test_columns_that_were_altered_and_kept_their_names(database, millrace):
    """Whether they are those of then their numbers say, and the order of all names: their values are marked."""
    database.run("CREATE TABLE t (id int PRIMARY KEY, n int, a text, b text);"
                 "ALTER TABLE t ALTER a SET STORAGE EXTERNAL, ALTER b SET STORAGE EXTERNAL")
    process = millrace(columns__reselect=ALL).start().streaming()
    topic = Topic(database.make_topic("t"))
    database.run("INSERT INTO t VALUES (1, 0, %s, %s)", [large(1), large(2)])
    topic.take(1)
    process.stop()
    database.run("UPDATE t SET n = 1")
    database.run("ALTER TABLE t ALTER a SET STATISTICS 10, ALTER b TYPE varchar")
    database.run("UPDATE t SET n = 2")
    process.start().streaming()
    for row, columns in after(topic.take(2)):
        assert (row["a"], row["b"], columns) == (large(1), large(2), ["a", "b"])
    assert outcome(process, "later") == 2


@pytest.mark.parametrize("when, change", [
    ("since", "ALTER TABLE t DROP pub; ALTER TABLE t RENAME secret TO pub"),
    ("since", swapped("t", "secret", "pub")),
    ("within", swapped("t", "secret", "pub")),
    ("older", "ALTER TABLE t DROP pub; ALTER TABLE t RENAME secret TO pub")], ids=["drop", "swap", "one", "older"])
@pytest.mark.parametrize("later", ["value", "placeholder"])
def test_hidden_column_has_the_name_by_now(database, millrace, when, change, later):
    """Rules know the name that it had then: nothing is read by one that another column may have."""
    database.run("CREATE TABLE t (id int PRIMARY KEY, n int, secret text, pub text); CREATE TABLE u ();"
                 "ALTER TABLE t ALTER secret SET STORAGE EXTERNAL, ALTER pub SET STORAGE EXTERNAL")
    process = millrace(columns__mask='["t:secret=4"]', columns__reselect='["t:pub"]', columns__reselect_later=f'"{later}"').start().streaming()
    topic = Topic(database.make_topic("t"))
    database.run("INSERT INTO t VALUES (1, 0, %s, %s)", ["SECRET" * 500, large(1)])
    topic.take(1)
    process.stop()
    update = "UPDATE t SET n = 1"
    with connect(database.name) as connection, connection.transaction():
        if when == "older":  # by a transaction whose number is the lower one
            connection.execute("INSERT INTO u DEFAULT VALUES")
            database.run(update)
        elif when == "since":
            database.run(update)
        else:
            connection.execute(update)
        connection.execute(change)
    process.start().streaming()
    record, = topic.take(1)
    assert record.json["after"]["pub"] == PLACEHOLDER and "SECRET" not in record.value
    assert outcome(process, "gone") == 1


def test_hidden_column_that_no_rule_hides_any_more(database, millrace):
    """Its table's updates can't be passed on, which is said when they are; they are looked at before that."""
    database.run("CREATE TABLE t (id int PRIMARY KEY, n int, secret text, pub text); ALTER TABLE t ALTER pub SET STORAGE EXTERNAL")
    process = millrace(columns__mask='["t:secret=4"]', columns__reselect=ALL).start().streaming()
    database.run("INSERT INTO t VALUES (1, 0, 'SECRET', %s)", [large(1)])
    Topic(database.topic("t")).take(1)
    database.run("ALTER TABLE t RENAME secret TO other")
    database.run("UPDATE t SET n = 1")
    assert process.ended(20) == 65
    assert process.start().ended(20) == 65


@pytest.mark.parametrize("via_root", ["true", "false"])
def test_partitions(database, millrace, via_root):
    database.run("CREATE TABLE t (id int, p int, n int, body text, PRIMARY KEY (id, p)) PARTITION BY LIST (p);"
                 "CREATE TABLE t1 PARTITION OF t FOR VALUES IN (1); CREATE TABLE t2 PARTITION OF t FOR VALUES IN (2);"
                 "ALTER TABLE t1 ALTER body SET STORAGE EXTERNAL; ALTER TABLE t2 ALTER body SET STORAGE EXTERNAL;"
                 "INSERT INTO t SELECT id, 1 + id % 2, 0, repeat(md5(id::text), 100) FROM generate_series(1, 10) id")
    process = millrace(columns__reselect=ALL, publication__via_partition_root=via_root).start().streaming()
    database.run("UPDATE t SET n = 1")
    names = ["t"] if via_root == "true" else ["t1", "t2"]
    rows = [row for name in names for row, _ in after(Topic(database.topic(name)).take(10 // len(names)))]
    assert all(row["body"] == hashlib.md5(str(row["id"]).encode()).hexdigest() * 100 for row in rows)
    eventually(lambda: outcome(process, "exact") == 10)
    database.run("UPDATE t SET p = 3 - p WHERE id = 1")  # a delete and an insert, which has all values
    assert outcome(process, "gone") == 0


def test_identities(database, millrace):
    """An index as identity; FULL sends the old row, and nothing is asked; a child's row is not its parent's."""

    database.run("CREATE TABLE i (a text NOT NULL UNIQUE, n int, body text); ALTER TABLE i REPLICA IDENTITY USING INDEX i_a_key;"
                 "CREATE TABLE f (id int PRIMARY KEY, n int, body text); ALTER TABLE f REPLICA IDENTITY FULL;"
                 "CREATE TABLE p (id int PRIMARY KEY, n int, body text); CREATE TABLE c () INHERITS (p);"
                 + "".join(f"ALTER TABLE {name} ALTER body SET STORAGE EXTERNAL;" for name in "ifpc"))

    process = millrace(tables=("i", "f", "p"), columns__reselect=ALL).start().streaming()
    for name in "ifp":
        database.run(f"INSERT INTO {name} VALUES (1, 0, %s)", [large(name)])
    database.run("INSERT INTO c VALUES (1, 0, %s)", [large("child")])
    for name in "ifp":
        database.run(f"UPDATE {name} SET n = 1")
        assert after(Topic(database.topic(name)).take(2))[1] == ({**after(Topic(database.topic(name)).take(1))[0][0], "n": 1}, [])
    assert outcome(process, "exact") == 2


def test_columns_that_are_hidden(database, millrace, monkeypatch):
    """A role that may not read what is left out; masks, cuts and hashes are of what was read."""
    monkeypatch.setenv("TEST_SALT", "salt")
    role = database.name + "_reader"
    database.run("CREATE TABLE t (id int PRIMARY KEY, n int, secret text, masked text, cut text, hashed text, plain text);"
                 + "".join(f"ALTER TABLE t ALTER {name} SET STORAGE EXTERNAL;" for name in ("secret", "masked", "cut", "hashed", "plain"))
                 + f"CREATE ROLE {role} LOGIN PASSWORD 'x'; GRANT SELECT (id, masked, cut, hashed, xmin, tableoid) ON t TO {role};"
                   f"GRANT SELECT ON pg_replication_slots TO {role}")
    try:
        monkeypatch.setenv("TEST_READER", f"{dsn(database.name)}?user={role}&password=x")
        process = millrace(columns__reselect='["t:secret,masked,cut,hashed"]', columns__exclude='["t:secret"]', columns__mask='["t:masked=5"]',
                                 columns__truncate='["t:cut=4"]', columns__hash='["t:hashed"]', columns__hash_salt='"env:TEST_SALT"',
                                 snapshot__connection='"env:TEST_READER"').start().streaming()
        texts = {name: large(name) for name in ("secret", "masked", "cut", "hashed", "plain")}
        database.run("INSERT INTO t VALUES (1, 0, %s, %s, %s, %s, %s)", list(texts.values()))
        database.run("UPDATE t SET n = 1")
        topic = Topic(database.topic("t"))
        records = topic.take(2)
        created, updated = [row for row, _ in after(records)]
        assert updated == {**created, "n": 1, "plain": PLACEHOLDER}
        assert updated["masked"] == "*****" and updated["cut"] == texts["cut"][:4] and "secret" not in updated
        assert updated["hashed"] == hashlib.sha256(("salt" + texts["hashed"]).encode()).hexdigest()
        assert not any(text in records[1].value for text in texts.values())
        assert outcome(process, "exact") == 1
        process.stop()
    finally:
        database.run(f"DROP OWNED BY {role}; DROP ROLE {role}")


def test_as_debeziums_post_processor(database, millrace, tmp_path):
    """Both cases of Debezium's ReselectColumnsPostProcessor, values that are not sent and nulls: the same rows."""
    database.run("CREATE TABLE t (id int PRIMARY KEY, n int, body text, l text[], note text);"
                 "ALTER TABLE t ALTER body SET STORAGE EXTERNAL, ALTER l SET STORAGE EXTERNAL")
    process = millrace(columns__reselect=ALL, types='"debezium"').start().streaming()
    folder = tmp_path / "connect"
    folder.mkdir()
    theirs = database.prefix + "-dbz"
    worker = connect_worker.Connect(database, folder, theirs, {
        "post.processors": "r", "r.type": "io.debezium.processors.reselect.ReselectColumnsPostProcessor",
        "r.reselect.columns.include.list": r"public\\.t:(body|l|note)"})
    worker.start()
    try:
        eventually(worker.streams, 120, "the connector's slot")
        topics = None
        for text, values in (("INSERT INTO t VALUES (1, 0, %s, %s, NULL)", [large(1), [large(2), "x"]]), ("UPDATE t SET n = 1", []),
                             ("UPDATE t SET l = NULL", []), ("UPDATE t SET n = 2", [])):
            database.run(text, values)
            topics = topics or [Topic(database.topic("t")), Topic(f"{theirs}.public.t")]
            ours, of_debezium = [topic.take(1)[0].json for topic in topics]
            assert (ours["op"], ours["after"]) == (of_debezium["op"], of_debezium["after"])
    finally:
        worker.stop()
    assert outcome(process, "exact") == 3


def fill(database):
    database.run(HISTORY)
    database.run("INSERT INTO t SELECT id, nextval('ns'), repeat(md5(id::text), 100), repeat('o', 3000) FROM generate_series(1, 20) id")


def touch(database, times=1):
    for _ in range(times):
        database.run("UPDATE t SET n = nextval('ns') WHERE id = 1")


def last_value(database, topic):
    """Of the newest change, once it has come."""
    (n, body), = database.run("SELECT n, body FROM t WHERE id = 1")
    seen = {}

    def there():
        seen.update({row["n"]: (row["body"], columns) for row, columns in after(topic.read(0.1))})
        return n in seen
    eventually(there, 30, "the newest change")
    return seen[n] == (body, [])


def test_table_that_is_locked(database, millrace):
    """The stream goes on with placeholders, says so once, and asks again later."""
    fill(database)
    process = millrace(tables=("t", "free"), columns__reselect=ALL).start()
    database.run("CREATE TABLE free (id int PRIMARY KEY)")
    process.wait_for("source_connected")
    topic = Topic(database.make_topic("t"))
    touch(database)
    assert last_value(database, topic)
    with connect(database.name) as locker:
        locker.execute("BEGIN")
        touch(database, 50)
        locker.execute("LOCK TABLE t")
        before = time.monotonic()
        records = topic.take(50)
        assert time.monotonic() - before < 20
        assert len(records) == 50
        locker.execute("COMMIT")

    def is_read_again():
        touch(database)
        return last_value(database, topic)
    eventually(is_read_again, 40, "values that are read again")
    assert len(process.log("reselect_refused")) <= 1


@pytest.mark.parametrize("fault", ["revoked", "policy", "dropped", "cut"])
def test_what_can_not_be_read(database, millrace, monkeypatch, fault):
    fill(database)
    role = database.name + "_reader"
    database.run(f"CREATE ROLE {role} LOGIN PASSWORD 'x'; GRANT SELECT ON t TO {role}")
    try:
        monkeypatch.setenv("TEST_READER", f"{dsn(database.name)}?user={role}&password=x")
        process = millrace(columns__reselect=ALL, snapshot__connection='"env:TEST_READER"').start().streaming()
        topic = Topic(database.make_topic("t"))
        touch(database)
        assert last_value(database, topic)
        cut = threading.Event()

        def cutter():
            while not cut.is_set():
                database.run(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '{role}'")
        thread = threading.Thread(target=cutter, daemon=True)
        if fault == "revoked":
            database.run(f"REVOKE SELECT ON t FROM {role}")
        elif fault == "policy":
            database.run("ALTER TABLE t ENABLE ROW LEVEL SECURITY; CREATE POLICY p ON t USING (id = 2)")
        elif fault == "dropped":
            process.stop()
            touch(database, 30)
            database.run("DROP TABLE t; CREATE TABLE t (id int PRIMARY KEY, n bigint, body text)")
            process.start().streaming()
        else:
            thread.start()
        if fault != "dropped":
            touch(database, 30)
        rows = after(topic.take(30))
        refused = [row for row, columns in rows if row["body"] == PLACEHOLDER]
        assert len(rows) == 30 and (refused or fault == "cut") and all(not columns for _, columns in rows)
        assert fault == "cut" or len(process.log("reselect_refused")) == 1, process.lines
        assert fault == "cut" or outcome(process, "refused") >= 1
        if fault == "cut":
            cut.set()
            thread.join()
            eventually(lambda: touch(database) or last_value(database, topic), 60, "values that are read again")
        assert "md5" not in "".join(process.lines)
        assert process.stop() == 0
    finally:
        database.run(f"DROP OWNED BY {role}; DROP ROLE {role}")


def test_table_without_rest_does_not_stop_the_stream(database, millrace):
    """A server that shows no end of the transactions (a synchronous standby is away): each waits for its time, and then none do for a while."""
    fill(database)
    process = millrace(columns__reselect=ALL).start().streaming()
    topic = Topic(database.make_topic("t"))
    with connect(database.name) as connection:
        connection.execute("SET synchronous_commit = on")
        writer = threading.Thread(target=lambda: connection.execute("UPDATE t SET n = nextval('ns') WHERE id = 1"), daemon=True)
        with database.setting("synchronous_standby_names", "'nobody'"):
            eventually(lambda: database.run("SHOW synchronous_standby_names")[0][0] == "nobody")
            writer.start()
            (row, columns), = after(topic.take(1))
            assert (row["body"], columns) == (PLACEHOLDER, [])
        writer.join(30)
    assert outcome(process, "late") == 1
    process.wait_for("reselect_late")
    assert len(process.log("reselect_late")) == 1
    eventually(lambda: touch(database) or last_value(database, topic), 40, "values that are read again")


def test_transaction_that_is_larger_than_the_window(database, millrace):
    """Its first values can't be proved, and are marked; it takes no more memory than others, and none is lost."""
    database.run("CREATE TABLE t (id int PRIMARY KEY, n int, pad text, body text); ALTER TABLE t ALTER body SET STORAGE EXTERNAL;"
                 "INSERT INTO t SELECT id, 0, repeat('p', 1000), repeat(md5(id::text), 70) FROM generate_series(1, 8000) id")
    process = millrace(columns__reselect=ALL).start().streaming()
    database.run("UPDATE t SET n = 1")
    rows = after(Topic(database.topic("t")).take(8000, 120))
    assert sorted(row["id"] for row, _ in rows) == list(range(1, 8001))
    assert all(row["body"] == hashlib.md5(str(row["id"]).encode()).hexdigest() * 70 for row, _ in rows)
    assert outcome(process, "later") > 1000 and outcome(process, "exact") > 1000
    assert all(columns == [] for _, columns in rows[-1000:])


def writer(database, chance, keys, ended, pace):
    """One row after the other, mostly touched, sometimes with other values; a few transactions have several."""
    with connect(database.name) as connection:
        connection.autocommit = False
        begun, done = time.monotonic(), 0
        while not ended.is_set():
            for _ in range(1 if chance.random() < 0.8 else chance.randint(2, 5)):
                key = chance.choice(keys)
                what = chance.random()
                if what < 0.9:
                    connection.execute("UPDATE t SET n = nextval('ns') WHERE id = %s", [key])
                elif what < 0.97:
                    column = chance.choice(["body", "other"])
                    connection.execute(f"UPDATE t SET n = nextval('ns'), {column} = %s WHERE id = %s", [large(chance.random()), key])
                else:
                    connection.execute("DELETE FROM t WHERE id = %s", [key])
                    connection.execute("INSERT INTO t VALUES (%s, DEFAULT, %s, %s)", [key, large(chance.random()), large(chance.random())])
                done += 1
            connection.commit()
            time.sleep(max(0, begun + done / pace - time.monotonic()))


@DELIVERIES
def test_writers_and_kills(database, millrace, delivery):
    fill(database)
    ended = threading.Event()
    writers = [threading.Thread(target=writer, args=(database, random.Random(i), range(1 + 5 * i, 6 + 5 * i), ended, 200), daemon=True) for i in range(4)]
    process = millrace(columns__reselect=ALL, sink__kafka__delivery=f'"{delivery}"', sink__kafka__partitions="3").start().streaming()
    for one in writers:
        one.start()
    for _ in range(5):
        time.sleep(1.5)
        process.kill().start().streaming()
    time.sleep(2)
    ended.set()
    for one in writers:
        one.join(30)
    kinds = Judge(database).verdict()
    assert kinds["exact"] > 1000


def test_check_names_tables_with_large_values(database, millrace):
    fill(database)
    database.run("CREATE TABLE small (id int PRIMARY KEY, body text)")
    process = millrace(tables=("t", "small")).start().streaming()
    process.stop()
    assert "1 published table has values stored out of line, which an update that does not touch them does not send (public.t)" in check(process)[1]
