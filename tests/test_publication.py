"""What millrace has PostgreSQL send of a table: row filters and column lists of the publication it makes, or may alter."""

import json
import re

import pytest

from kit import check, connect, eventually, expect
from test_reload import reload, with_tables

WHERE = {"publication__where": json.dumps(["t: open AND id <> 13"]), "publication__columns": json.dumps(["public.t:id,open,v"])}
TABLE = ("CREATE TABLE t (id int, open bool, v text, secret text, PRIMARY KEY (id, open)); CREATE TABLE u (id int PRIMARY KEY)")


def folded(records):
    """What the events leave, by key."""
    rows = {}
    for record in records:
        event = record.json if record.value is not None else {"op": "tombstone"}
        if event["op"] == "d":
            rows.pop(event["before"]["id"], None)
        elif event["op"] != "tombstone":
            rows[event["after"]["id"]] = event["after"]
    return [rows[key] for key in sorted(rows)]


def rows_of(database):
    """What must be in the topic."""
    return [{"id": id, "open": open, "v": v} for id, open, v in
            database.run("SELECT id, open, v FROM t WHERE open AND id <> 13 ORDER BY id")]


def read_to(reader, text, records):
    """Reads on until a row with that text is there."""
    def there():
        records.extend(reader.read())
        return any(((r.value and r.json["after"]) or {}).get("v") == text for r in records)
    eventually(there, 60, f"row {text}")
    return records


def filters(database):
    return database.run("SELECT tablename::text, rowfilter, attnames::text FROM pg_publication_tables WHERE pubname = %s"
                        " ORDER BY 1", [database.publication])


def test_rows_and_columns(database, millrace, topic):
    """The publication is made so; the first copy, the stream and a copy beside it have the same rows; an update that moves a row
    over the filter's edge is an insert or a delete."""
    database.run(TABLE)
    database.run("INSERT INTO t SELECT n, n % 2 = 0, 'first ' || n, 'canary' FROM generate_series(1, 14) n")
    process = millrace(("t", "u"), snapshot__mode='"initial"', snapshot__signal_table='"u"', **WHERE)
    expect(check(process), 0, without="canary")
    assert not filters(database), "check has left something"
    process.start().streaming()
    assert filters(database) == [("t", "(open AND (id <> 13))", "{id,open,v}"), ("u", None, "{id}")]
    reader = topic(database.topic("t"))
    records = read_to(reader, "first 14", [])
    assert [r.json["op"] for r in records] == ["r"] * 7
    database.run("UPDATE t SET open = true, v = 'came' WHERE id = 1; UPDATE t SET open = false WHERE id = 2;"
                 "UPDATE t SET v = 'still out' WHERE id = 3; INSERT INTO t VALUES (13, true, 'never', 'canary');"
                 "DELETE FROM t WHERE id = 4; UPDATE t SET v = 'changed', secret = 'canary2' WHERE id = 6;"
                 "INSERT INTO t VALUES (99, true, 'end', 'canary')")
    fresh = read_to(reader, "end", [])
    assert [(r.json["op"], (r.json["after"] or r.json["before"])["id"]) for r in fresh if r.value is not None] == [
        ("c", 1), ("d", 2), ("d", 4), ("u", 6), ("c", 99)]
    assert folded(records + fresh) == rows_of(database)
    assert not any("canary" in (r.value or "") for r in records + fresh)
    assert process.stop() == 0
    process.start().streaming()  # and finds it as it is to be
    assert not process.log("publication_altered") and not process.log("setup_warning")


@pytest.mark.parametrize("table, where, columns, reason", [
    ("id int PRIMARY KEY, v int", ["t: v > 0"], [], "not in its replica identity (v)"),
    ("id int PRIMARY KEY, v int", [], ["t:v"], "without columns of its replica identity (id)"),
    ("id int PRIMARY KEY, v int", ["t: absent > 0"], [], 'column "absent" does not exist'),
    ("id int PRIMARY KEY, v int", [], ["t:id,absent"], 'column "absent" of relation "t" does not exist'),
    ("id int PRIMARY KEY, v int", ["t: random() < 0.5"], [], "invalid publication WHERE expression"),
    ("id int PRIMARY KEY, v int", ["t: id IN (SELECT 1)"], [], "invalid publication WHERE expression"),
    ("id int PRIMARY KEY, v int", ["t: id >"], [], "syntax error"),
    ("id int PRIMARY KEY, v int", ["t: xmin = '1'"], [], "invalid publication WHERE expression"),
    ("id int PRIMARY KEY, v int GENERATED ALWAYS AS (id) STORED", [], ["t:id,v"], "generated column"),
], ids=["filter", "list", "column", "listed", "volatile", "subquery", "syntax", "system", "generated"])
def test_what_postgres_would_refuse(database, millrace, table, where, columns, reason):
    """`check` and the start say the same, and nothing is left behind."""
    if reason == "generated column" and database.run("SHOW server_version_num")[0][0] >= "180000":
        pytest.skip("18 has generated columns in lists")
    database.run(f"CREATE TABLE t ({table})")
    process = millrace(publication__where=json.dumps(where), publication__columns=json.dumps(columns))
    expect(check(process), 78, reason, 'table "public"."t"')
    code, text = process.run_to_end()
    said = process.log("stopped")[0]["message"]
    assert code == 78 and reason in said and 'table "public"."t"' in said, text
    assert database.run("SELECT pubname FROM pg_publication") == []
    assert database.slot_row("1") is None


def test_full_and_partitions(database, millrace, topic):
    """FULL has any filter and no list; partitions are judged by their own identities, and sent by their root."""
    database.run("CREATE TABLE t (id int PRIMARY KEY, v text); ALTER TABLE t REPLICA IDENTITY FULL;"
                 "CREATE TABLE p (id int PRIMARY KEY, v text) PARTITION BY RANGE (id);"
                 "CREATE TABLE p_1 (v text, gone int, id int NOT NULL); ALTER TABLE p_1 DROP COLUMN gone;"
                 "ALTER TABLE p ATTACH PARTITION p_1 FOR VALUES FROM (0) TO (1000)")
    options = {"publication__where": json.dumps(["t: v <> 'no'", "p: id > 10"])}
    process = millrace(("t", "p"), **options, publication__columns='["t:id"]')
    expect(check(process), 78, "can't be published so", "only with publication.via_partition_root")
    options["publication__via_partition_root"] = "true"
    process.configure(**options, publication__columns='["t:id"]')
    expect(check(process), 78, '"t": has REPLICA IDENTITY FULL and a list')
    process.configure(**options, publication__columns='["p:v"]')
    expect(check(process), 78, "without columns of its replica identity (id)")
    process.configure(**options).start().streaming()
    database.run("INSERT INTO t VALUES (1, 'no'), (2, 'yes'); UPDATE t SET v = 'no' WHERE id = 2; INSERT INTO t VALUES (3, 'end')")
    database.run("INSERT INTO p VALUES (5, 'no'), (11, 'yes')")
    records = read_to(topic(database.topic("t")), "end", [])
    assert [r.json["op"] for r in records if r.value is not None] == ["c", "d", "c"]
    assert topic(database.topic("p")).take(1)[0].json["after"] == {"id": 11, "v": "yes"}
    assert process.stop() == 0
    database.run("ALTER TABLE p_1 REPLICA IDENTITY FULL")
    process.configure(**options, publication__columns='["p:id,v"]')
    expect(check(process), 78, '"p": has REPLICA IDENTITY FULL and a list')


def test_somebody_elses_publication(database, millrace, topic):
    """Its filters hold and `check` tells them; what the file wants besides is an error with its remedy; nothing is altered."""
    database.run(TABLE)
    database.run(f"CREATE PUBLICATION {database.publication} FOR TABLE t (id, open, v) WHERE (open), u")
    before = filters(database)
    process = millrace(("t", "u"))
    expect(check(process), 0, '"t": is published with only rows with open and only the columns id, open, v')
    process.configure(**WHERE)
    text = expect(check(process), 78, f'ALTER PUBLICATION "{database.publication}" DROP TABLE ONLY "public"."t"; ')
    assert 'ADD TABLE ONLY "public"."t" ("id", "open", "v") WHERE (open AND id <> 13' in text and "publication.alter" in text, text
    assert filters(database) == before
    process.configure(publication__where='["t: (((open)))"]', publication__columns='["t:v,open,id"]')  # in other words
    expect(check(process), 0)
    process.configure(publication__where='["t: open"]', publication__columns='["t:v,open,id"]', columns__exclude='["t:secret"]')
    process.start().streaming()  # what is not even sent is left out
    database.run("INSERT INTO t VALUES (1, true, 'end', 'canary')")
    assert topic(database.topic("t")).take(1)[0].json["after"] == {"id": 1, "open": True, "v": "end"}
    assert process.stop() == 0
    process.configure(publication__where='["t: open AND id <> 7"]', publication__columns='["t:v,open,id"]')
    expect(process.run_to_end(), 78, "sends only rows with open")
    assert filters(database) == before


def test_a_role_that_may_not_compare(database, millrace, topic):
    """A stream goes on where only the comparison is not allowed; a new one does not begin."""
    role = database.name + "_role"
    database.run(f"{TABLE}; CREATE ROLE {role} LOGIN REPLICATION PASSWORD 'millrace-stand';"
                 f"CREATE PUBLICATION {database.publication} FOR TABLE t WHERE (open)")
    try:
        process = millrace(publication__where='["t: open"]')
        good = process.environment["TEST_URL"]
        process.environment["TEST_URL"] = re.sub("//[^/@]*@", f"//{role}:millrace-stand@", good)
        assert process.environment["TEST_URL"] != good
        expect(process.run_to_end(), 77, "permission denied for database")
        process.environment["TEST_URL"] = good
        process.start().streaming()
        assert process.stop() == 0
        process.environment["TEST_URL"] = re.sub("//[^/@]*@", f"//{role}:millrace-stand@", good)
        process.start().streaming()
        assert "can't be compared with publication.where" in process.log("setup_warning")[0]["message"]
        database.run("INSERT INTO t VALUES (1, true, 'end', '')")
        assert topic(database.topic("t")).take(1)[0].json["after"]["id"] == 1
        assert process.stop() == 0
    finally:
        database.run(f"DROP ROLE {role}")


def test_altered_by_a_reload(database, millrace, topic):
    """Filters, lists and tables follow the file between two transactions of the writers; without publication.alter they don't."""
    database.run(TABLE)
    process = millrace(publication__where='["t: id < 100"]').start().streaming()
    database.run("INSERT INTO t VALUES (1, true, 'one', ''), (101, true, 'out', '')")
    reader = topic(database.topic("t"))
    read_to(reader, "one", [])
    with_tables(process, "t", **WHERE)
    expect(reload(process), 78, "publication.alter = true")
    assert filters(database) == [("t", "(id < 100)", "{id,open,v,secret}")]
    with_tables(process, "t", "u", **WHERE, publication__alter="true")
    code, text = reload(process, "--dry-run")
    assert code == 0 and filters(database) == [("t", "(id < 100)", "{id,open,v,secret}")], text
    code, text = reload(process)
    assert code == 0 and "publication.where" in text and process.log("publication_altered"), text
    assert filters(database) == [("t", "(open AND (id <> 13))", "{id,open,v}"), ("u", None, "{id}")]
    database.run("INSERT INTO t VALUES (102, true, 'now in', 'canary'), (2, false, 'now out', ''); INSERT INTO u VALUES (7);"
                 "INSERT INTO t VALUES (103, true, 'end', 'canary')")
    found = read_to(reader, "end", [])
    assert [r.json["after"] for r in found] == [{"id": 102, "open": True, "v": "now in"}, {"id": 103, "open": True, "v": "end"}]
    assert topic(database.topic("u")).take(1)[0].json["after"] == {"id": 7}
    with_tables(process, "t", "u", publication__alter="true")
    code, text = reload(process)
    assert code == 0 and filters(database) == [("t", None, "{id,open,v,secret}"), ("u", None, "{id}")], text
    process.wait_for("source_connected", times=3)
    assert process.stop() == 0
    database.run("CREATE TABLE w (id int PRIMARY KEY)")
    process.tables = ("t", "u", "w")
    process.configure(publication__alter="true", publication__via_partition_root="true").start().streaming()
    assert [row[0] for row in filters(database)] == ["t", "u", "w"]
    assert database.run("SELECT pubviaroot FROM pg_publication") == [(True,)]


def test_partitions_whose_identity_is_not_their_roots(database, millrace, topic):
    """PostgreSQL calls an old row whole as the root's FULL says, and fills it with nulls, as the partition's identity has it. What is not
    known is told of as such, and ends the stream where a topic or a key hangs on it."""
    database.run("CREATE TABLE t (id int PRIMARY KEY, v text, large text) PARTITION BY RANGE (id); ALTER TABLE t REPLICA IDENTITY FULL;"
                 "CREATE TABLE t_1 PARTITION OF t FOR VALUES FROM (0) TO (100); ALTER TABLE t_1 ALTER large SET STORAGE EXTERNAL")
    options = {"publication__via_partition_root": "true"}
    process = millrace(**options).start().streaming()
    database.run("INSERT INTO t VALUES (1, 'one', repeat('x', 5000)); UPDATE t SET id = 2; DELETE FROM t")
    reader = topic(database.topic("t"))
    created, ended, _, moved, deleted, _ = reader.take(6)
    assert created.json["after"]["large"] == "x" * 5000
    assert moved.json["after"] == {"id": 2, "v": "one", "large": "__debezium_unavailable_value"}
    assert ended.json_key == {"id": 1} and deleted.json_key == {"id": 2} and deleted.json["before"]["id"] == 2
    assert process.log("partition_identity")[0]["partition"] == "t_1"
    assert process.stop() == 0
    database.run("ALTER TABLE t_1 REPLICA IDENTITY FULL")
    process.configure(**options).start().streaming()
    database.run("INSERT INTO t VALUES (4, 'four', repeat('x', 5000)); UPDATE t SET id = 5 WHERE id = 4")
    found = []
    eventually(lambda: found.extend(reader.read()) or any(record.key == '{"id":5}' for record in found), 60, "the last row")
    assert found[-1].json["after"] == {"id": 5, "v": "four", "large": "x" * 5000}


def test_a_key_that_a_partition_does_not_hold(database, millrace, topic):
    """PostgreSQL does not tell what the root's key was where the identity of the row's partition stays as it is."""
    database.run("CREATE TABLE t (id int PRIMARY KEY, v text NOT NULL) PARTITION BY RANGE (id);"
                 "CREATE TABLE t_1 PARTITION OF t FOR VALUES FROM (0) TO (100); CREATE UNIQUE INDEX t_1_v ON t_1 (v);"
                 "CREATE TABLE t_2 PARTITION OF t FOR VALUES FROM (100) TO (200); ALTER TABLE t_1 REPLICA IDENTITY USING INDEX t_1_v")
    process = millrace(publication__via_partition_root="true").start().streaming()
    database.run("INSERT INTO t VALUES (101, 'x'); UPDATE t SET id = 102; INSERT INTO t VALUES (1, 'one')")
    database.run("UPDATE t SET id = 2 WHERE id = 1")
    assert process.ended(60) == 65
    assert "does not tell the key that the row had" in "".join(process.lines), process.lines
    assert process.log("partition_identity")[0]["partition"] == "t_1"
    assert [r.key for r in topic(database.topic("t")).take(5)] == ['{"id":101}'] * 3 + ['{"id":102}', '{"id":1}']
    assert any(r["subject"] == 'table "public"."t"' for r in process.log("setup_warning"))


def test_a_table_that_is_locked_holds_it_up_not_in_silence(database, millrace):
    """A start says who has the lock, and keeps the other tables free while it waits; a stop is at once."""
    database.run("CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE u (id int PRIMARY KEY)")
    process = millrace(("t", "u"))
    with connect(database.name) as holder:
        holder.execute("BEGIN; LOCK TABLE u IN SHARE ROW EXCLUSIVE MODE")
        process.start()
        told = process.wait_for("publication_held_up")
        pid = holder.info.backend_pid
        assert told["table"] == "public.u" and told["holder"] == f"the transaction of role postgres in database {database.name}, process {pid}"
        assert f"pg_terminate_backend({pid})" in told["remedy"] and told["since"], told
        database.run("VACUUM t")  # it wants the lock that a publication takes
        assert process.stop(20) == 0
        process.start().wait_for("publication_held_up")
        holder.execute("COMMIT; BEGIN; LOCK TABLE u IN ACCESS EXCLUSIVE MODE; PREPARE TRANSACTION 'locks u'")
        try:
            told = eventually(lambda: [r for r in process.log("publication_held_up") if "prepared" in r["holder"]], what="the other holder")
            assert "ROLLBACK PREPARED 'locks u'" in told[0]["remedy"], told
        finally:
            holder.execute("ROLLBACK PREPARED 'locks u'")
    process.streaming()
    assert filters(database) == [("t", None, "{id}"), ("u", None, "{id}")]


@pytest.fixture
def busy_autovacuum(database):
    """Makes t, and has an autovacuum of it under way that takes minutes."""
    def begin():
        database.run("CREATE TABLE t (id int PRIMARY KEY, v text) WITH (autovacuum_vacuum_threshold = 1, autovacuum_vacuum_scale_factor = 0,"
                     " autovacuum_vacuum_cost_delay = 100, autovacuum_vacuum_cost_limit = 1)")
        database.run("INSERT INTO t SELECT i, repeat('x', 500) FROM generate_series(1, 20000) i")
        database.run("DELETE FROM t WHERE id % 2 = 0")
        eventually(lambda: database.run("SELECT 1 FROM pg_stat_activity WHERE backend_type = 'autovacuum worker' AND datname = current_database()"
                                        " AND query LIKE %s", ["autovacuum: VACUUM%public.t%"]), 120, "an autovacuum")
    for name, value in SOON.items():
        database.run(f"ALTER SYSTEM SET {name} = {value}")
    database.run("SELECT pg_reload_conf()")
    yield begin
    for name in SOON:
        database.run(f"ALTER SYSTEM RESET {name}")
    database.run("SELECT pg_reload_conf()")


SOON = {"autovacuum": "on", "autovacuum_naptime": "'1s'"}


def test_an_autovacuum_gives_way(database, millrace, busy_autovacuum):
    """As it does for whoever waits for a lock as long as deadlock_timeout. Nothing else ends it within minutes."""
    busy_autovacuum()
    process = millrace().start().streaming()
    assert process.stop() == 0


def test_a_table_that_is_locked_while_it_is_altered(database, millrace):
    """The refused reload names who has it."""
    database.run("CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE u (id int PRIMARY KEY)")
    process = millrace(("t",), publication__alter="true").start().streaming()
    with connect(database.name) as holder:
        holder.execute("BEGIN; LOCK TABLE u IN ACCESS EXCLUSIVE MODE")
        with_tables(process, "t", "u", publication__alter="true")
        code, text = reload(process)
        assert code != 0 and f"process {holder.info.backend_pid}" in text and "public.u" in text, text


def test_children_are_other_tables(database, millrace, topic):
    """Of INHERITS: published with their parent, one without a replica identity would have the application's UPDATE of that fail."""
    database.run("CREATE TABLE t (id int PRIMARY KEY, v int); CREATE TABLE t_2025 () INHERITS (t)")
    process = millrace().start().streaming()
    database.run("INSERT INTO t VALUES (1, 0); INSERT INTO t_2025 VALUES (2, 0); UPDATE t SET v = 1; DELETE FROM t WHERE id = 2")
    records = topic(database.topic("t")).take(2)
    assert [(record.json["op"], record.json_key["id"]) for record in records] == [("c", 1), ("u", 1)]
    assert process.stop() == 0
    database.run(f"ALTER PUBLICATION {database.publication} ADD TABLE ONLY t_2025")
    expect(check(process), 0, "also sends 1 table without a replica identity (public.t_2025)")


def test_a_root_without_a_key_whose_partitions_have_theirs(database, millrace, topic):
    """As pg_partman's templates make them. The application's UPDATE and DELETE work, and so does the stream."""
    database.run("CREATE TABLE t (id int NOT NULL, v int) PARTITION BY RANGE (id);"
                 "CREATE TABLE t_1 PARTITION OF t (PRIMARY KEY (id)) FOR VALUES FROM (0) TO (10)")
    process = millrace()
    expect(check(process), 0)
    process.start().streaming()
    database.run("INSERT INTO t VALUES (1, 0); UPDATE t SET v = 1; DELETE FROM t")
    records = topic(database.topic("t_1")).take(3)
    assert [(record.json["op"], record.key) for record in records] == [(op, '{"id":1}') for op in "cud"]
    assert process.stop() == 0
    database.run("CREATE TABLE t_2 PARTITION OF t FOR VALUES FROM (10) TO (20)")
    code, text = check(process)
    assert code == 0 and "no replica identity" in text and '"t_2" REPLICA IDENTITY FULL' in text.replace("public.t_2 ", '"t_2" '), text


ALTERED = {
    "publish": ("SET (publish = 'insert')", "no UPDATE is sent any more; no DELETE"),
    "filter": ("SET TABLE t WHERE (id > 100), u", "public.t is sent with only rows with (id > 100) and all columns, and was with all rows"),
    "list": ("SET TABLE t (id, open), u", "only the columns id, open"),
}


@pytest.mark.parametrize("how", ALTERED)
def test_a_publication_that_is_altered_meanwhile_is_said(database, millrace, topic, how):
    """Nothing in the stream tells of rows, changes and columns that are not sent: the watcher compares. What was there before is no news,
    nor is what somebody does to tables that are not listed; a connection that is lost in between changes nothing about it."""
    database.run(f"{TABLE}; CREATE TABLE other (id int PRIMARY KEY)")
    process = millrace(("t", "u")).start().streaming()
    alter, words = ALTERED[how]
    database.run(f"ALTER PUBLICATION {database.publication} ADD TABLE other WHERE (id > 7)")
    database.run("INSERT INTO u VALUES (1)")
    assert topic(database.topic("u")).take(1)[0].json["after"] == {"id": 1}
    database.run(f"ALTER PUBLICATION {database.publication} {alter}")
    line = process.standstill("publication_changed")
    assert words in line["message"] and "other" not in line["message"], line
    assert process.figure('millrace_standstill{cause="publication_changed"}') == 1 and process.figure("millrace_ready") == 1
    database.run("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = %s", [database.slot])
    process.wait_for("source_connected", times=2)
    assert process.figure('millrace_standstill{cause="publication_changed"}') == 1
    code, text = check(process)
    assert (code == 78 and "does not publish all of insert, update and delete" in text if how == "publish" else
            code == 0 and '"t": is published with' in text), text
    back = re.search(r"alter it back \((BEGIN; .*; COMMIT;)\)", line["message"])[1]
    assert how == "publish" or back in text, text
    database.run(back)  # as printed
    process.wait_for("standstill_over")


@pytest.mark.parametrize("altered", ["t, u", "t (id, open, v), u"])
def test_a_filter_that_no_file_has_is_taken_back_as_printed(database, millrace, altered):
    database.run(TABLE)
    database.run(f"CREATE PUBLICATION {database.publication} FOR TABLE t (id, open, v) WHERE (open AND id <> 13), u")
    before = filters(database)
    process = millrace(("t", "u")).start().streaming()
    database.run(f"ALTER PUBLICATION {database.publication} SET TABLE {altered}")
    assert filters(database) != before
    database.run(re.search(r"alter it back \((BEGIN; .*; COMMIT;)\)", process.standstill("publication_changed")["message"])[1])
    process.wait_for("standstill_over")
    assert filters(database) == before


def test_the_same_filter_in_other_words_is_no_news(database, millrace):
    """Nor is a column of it that is renamed."""
    database.run(TABLE)
    database.run(f"CREATE PUBLICATION {database.publication} FOR TABLE t (id, open, v) WHERE (open AND id <> 13), u")
    process = millrace(("t", "u")).start().streaming()
    database.run(f"ALTER PUBLICATION {database.publication} SET TABLE t (v, open, id) WHERE ((open)   AND (id <> 13)), u")
    database.run("ALTER TABLE t RENAME v TO w")
    database.run(f"ALTER PUBLICATION {database.publication} SET TABLE t (w, open, id) WHERE (open), u")
    assert "and was with only rows with (open AND (id <> 13)) and only the columns id, open, v" in process.standstill("publication_changed")["message"]
    assert len(process.log("standstill")) == 1


def test_what_is_configured_holds_while_it_runs(database, millrace, topic):
    """By hand, the list is widened: with publication.alter it is set right at once, without it the stream ends as a start would."""
    database.run(TABLE)
    process = millrace(("t", "u"), **WHERE, publication__alter="true").start().streaming()
    before = filters(database)
    database.run(f"ALTER PUBLICATION {database.publication} SET TABLE t, u")
    eventually(lambda: filters(database) == before, 60, "the publication is altered back")
    process.wait_for("standstill_over")
    database.run("INSERT INTO t VALUES (1, false, 'out', 'canary'), (2, true, 'end', 'canary')")
    assert [record.json["after"] for record in read_to(topic(database.topic("t")), "end", [])] == [{"id": 2, "open": True, "v": "end"}]
    assert process.stop() == 0
    process.configure(**WHERE).start().streaming()
    database.run(f"ALTER PUBLICATION {database.publication} SET TABLE t, u")
    assert "was with only rows with" in process.standstill("publication_changed")["message"]
    assert process.ended(60) == 78
    assert "sends all rows and all columns of it" in "".join(process.lines)


def test_partitions_that_no_longer_come_by_their_root(database, millrace):
    """Their rows go to topics that nobody configured: the stream ends as a start would."""
    database.run("CREATE TABLE p (id int PRIMARY KEY) PARTITION BY RANGE (id); CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (9)")
    process = millrace(("p",), publication__via_partition_root="true").start().streaming()
    database.run(f"ALTER PUBLICATION {database.publication} SET (publish_via_partition_root = false)")
    assert "come by their own names" in process.standstill("publication_changed")["message"]
    assert process.ended(60) == 78


def test_partitions_that_come_by_their_root(database, millrace):
    """Listed by their own names, they are dropped then."""
    database.run("CREATE TABLE p (id int PRIMARY KEY) PARTITION BY RANGE (id); CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (9)")
    database.run(f"CREATE PUBLICATION {database.publication} FOR TABLE p")
    process = millrace(("p1",)).start().streaming()
    database.run(f"ALTER PUBLICATION {database.publication} SET (publish_via_partition_root = true)")
    line = process.standstill("publication_changed")
    assert "no more by their own" in line["message"], line
    code, text = check(process)
    assert '"public"."p1": is not in publication' in text, text


def test_sessions_that_are_read_only(database, millrace):
    """The publication can't be made: check says what a start would, and so does the start; where it is there, nothing has to be written."""
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    process = millrace(("t",))
    database.run(f"ALTER DATABASE {database.name} SET default_transaction_read_only = on")
    expect(check(process), 78, "default_transaction_read_only: is on", "SET default_transaction_read_only = off")
    expect(process.run_to_end(), 78, "sessions are read only")
    database.run(f"SET TRANSACTION READ WRITE; CREATE PUBLICATION {database.publication} FOR TABLE t")
    expect(check(process), 0)
    process.start().streaming()
