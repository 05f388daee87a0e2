"""`millrace check`: every finding at once, remedies, exit codes, and nothing changed."""


import pytest
from confluent_kafka.admin import NewTopic

from endless import Endless
from kit import check, dsn, eventually, expect, is_linked_with


def state(database):
    return (database.run("SELECT slot_name, active FROM pg_replication_slots WHERE database = %s", [database.name]),
            database.run("SELECT pubname FROM pg_publication"),
            database.topics())


def test_good_set_up(database, millrace):
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    before = state(database)
    text = expect(check(millrace()), 0)
    assert "0 errors" in text and "will be created" in text
    assert state(database) == before


def test_every_finding_at_once(database, millrace):
    database.run("CREATE TABLE t (id int); CREATE VIEW v AS SELECT 1 AS id; CREATE UNLOGGED TABLE u (id int PRIMARY KEY)")
    before = state(database)
    text = expect(check(millrace(tables=("t", "v", "u", "absent"), sink__kafka__create_topics="false")), 78)
    for part in ('"public"."t": has no replica identity', 'REPLICA IDENTITY FULL', '"public"."v": is not a table',
                 '"public"."u": is unlogged', '"public"."absent": does not exist', "kafka-topics.sh", "8 errors"):
        assert part in text, text
    assert state(database) == before


def test_unlogged_table_under_a_pattern(database, millrace):
    database.run("CREATE TABLE t (id int PRIMARY KEY); CREATE UNLOGGED TABLE u (id int PRIMARY KEY)")
    process = millrace(tables=("public.*",))
    expect(check(process), 0, "match 1 unlogged table (public.u), whose changes are not in the WAL: nothing comes of it")
    process.configure(excluded_tables='["public.u"]')
    expect(check(process), 0, without="unlogged")


def test_identities_that_are_none_or_hold_less(database, millrace):
    """Partitions are no better than their own identity; neither a deferrable key nor a dropped index is one; INCLUDE adds nothing."""
    database.run("CREATE TABLE d (id int PRIMARY KEY DEFERRABLE); CREATE TABLE x (id int PRIMARY KEY, v int NOT NULL UNIQUE);"
                 "ALTER TABLE x REPLICA IDENTITY USING INDEX x_v_key; ALTER TABLE x DROP CONSTRAINT x_v_key;"
                 "CREATE TABLE i (id int NOT NULL, region text); CREATE UNIQUE INDEX i_i ON i (id) INCLUDE (region);"
                 "ALTER TABLE i REPLICA IDENTITY USING INDEX i_i;"
                 "CREATE TABLE p (id int PRIMARY KEY, v int NOT NULL) PARTITION BY RANGE (id);"
                 "CREATE TABLE p_1 PARTITION OF p FOR VALUES FROM (0) TO (10); CREATE TABLE p_2 PARTITION OF p FOR VALUES FROM (10) TO (20);"
                 "CREATE UNIQUE INDEX p_2_v ON p_2 (v)")
    process = millrace(tables=("d", "x", "i"))
    code, text = check(process)
    assert code == 78 and text.count("has no replica identity (a deferrable primary key is none, nor is an index that is gone)") == 2, text
    process.tables = ("p",)
    for via_root, statement, cure in (
            ("false", "ALTER TABLE p REPLICA IDENTITY FULL", None),
            ("true", "ALTER TABLE p_2 REPLICA IDENTITY FULL", "run ALTER TABLE public.p_1 REPLICA IDENTITY FULL\n"),
            ("true", "ALTER TABLE p REPLICA IDENTITY DEFAULT", None),
            ("true", "ALTER TABLE p_2 REPLICA IDENTITY USING INDEX p_2_v", "run ALTER TABLE public.p_2 REPLICA IDENTITY FULL\n"),
            ("false", "SELECT", None),
            ("false", "ALTER TABLE p_1 REPLICA IDENTITY NOTHING", "run ALTER TABLE public.p_1 REPLICA IDENTITY FULL\n")):
        database.run(statement)
        process.configure(publication__via_partition_root=via_root)
        code, text = check(process)
        assert code == 0 and (cure or "run ALTER TABLE") in text + "\n" if cure else "run ALTER TABLE" not in text, (statement, text)


RULES = {
    "columns__mask": r'["public.user.*:emial=5", "public.(user|order)s:email=5", "sales.*:email=5"]',
    "columns__exclude": '["public.users:se.*", "public.users:no.*", "*.*:email"]',
    "outbox__tables": '["public.out.*", "public.users", "public.autbox"]', "outbox__key": '"email"', "outbox__payload": '"email"',
    "outbox__route_by": '"email"', "outbox__id": '"id"',
    "snapshot__where": '["public.users: id > 1", "public.usrs: id > 1"]',
    "excluded_tables": '["public.tpm_.*", "public.tmp_.*", "public.temp"]', "key_columns": None,
}
IN_VAIN = [
    ('columns.mask "public.user.*:emial=5"', 'names column "emial", which none of the tables has that it matches'),
    ('columns.mask "sales.*:email=5"', "matches none of the tables that are streamed now"),
    ('columns.exclude "public.users:no.*"', 'names column "no.*", which none of the tables has that it matches'),
    ('outbox.tables "public.out.*"', "matches none of the tables that are streamed now"),
    ('outbox.tables "public.autbox"', "matches none of the tables that are streamed now"),
    ('snapshot.where "public.usrs: id > 1"', "matches none of the tables that are streamed now"),
    ('excluded_tables "public.tpm_.*"', "matches no table that is there now"),
    ('excluded_tables "public.temp"', "matches no table that is there now"),
]


@pytest.mark.parametrize("published", ["not yet", "all", "altered"])
def test_rules_that_fit_nothing(database, millrace, published):
    """A mistyped pattern hides nothing, and takes nothing away: `check` and the start say so, each once, and of no other."""
    database.run("CREATE TABLE users (id int PRIMARY KEY, email text, secret text); CREATE TABLE orders (id int PRIMARY KEY, email text);"
                 "CREATE TABLE tmp_1 (id int PRIMARY KEY); CREATE SCHEMA sales; CREATE TABLE sales.t (id int PRIMARY KEY, email text);"
                 "ALTER TABLE users REPLICA IDENTITY FULL; ALTER TABLE orders REPLICA IDENTITY FULL")
    options = dict(RULES)
    if published == "all":
        database.run(f"CREATE PUBLICATION {database.publication} FOR ALL TABLES")
    if published == "altered":
        database.run(f"CREATE PUBLICATION {database.publication} FOR TABLE orders")
        options["publication__alter"] = "true"
    tables = ("public.users", "public.order.*", "public.tmp.*") if published != "altered" else ("users", "orders")
    wanted = IN_VAIN
    if published == "altered":  # what is wrong without a look at the server is refused
        options |= {"excluded_tables": None, "outbox__tables": '["public.users"]'}
        wanted = [pair for pair in IN_VAIN if not pair[0].startswith(("excluded", "outbox"))]
    process = millrace(tables=tables, **options)
    text = expect(check(process), 0)
    found = [line for line in text.splitlines() if "none of the tables" in line or "no table that is there" in line]
    assert sorted(found) == sorted(line for line in found if any(f"{subject}: {finding}" in line for subject, finding in wanted)), text
    assert len(found) == len(wanted), text
    process.start().streaming()
    told = [(record["subject"], record["message"]) for record in process.log("setup_warning")]
    assert set(wanted) <= set(told), told


def test_a_pattern_for_a_table_whose_rows_come_by_other_names(database, millrace):
    """A mask that matches a partitioned table alone means no row, unless rows come by its root."""
    database.run("CREATE TABLE p (id int PRIMARY KEY, v text) PARTITION BY RANGE (id);"
                 "CREATE TABLE p_1 PARTITION OF p FOR VALUES FROM (0) TO (10)")
    for via_root, rule, finds in (("false", "p.{0}", True), ("false", "p_[0-9]", False), ("true", "p.{0}", False), ("true", "p_[0-9]", True)):
        code, text = check(millrace(tables=("p",), columns__mask=f'["public.{rule}:v=5"]', publication__via_partition_root=via_root))
        assert code == 0 and ("none of the tables" in text) == finds, (via_root, rule, text)
    database.run(f"CREATE PUBLICATION {database.publication} FOR TABLE p")
    process = millrace(tables=("p",), columns__mask='["public.p.{0}:v=5"]').start().streaming()
    assert any(record["subject"].startswith("columns.mask") for record in process.log("setup_warning"))
    process.configure(columns__mask='["public.p.{0}:v=5"]', publication__alter="true")


def test_heap_profiles_that_this_build_has_not(database, millrace):
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    code, text = check(millrace(profiling__heap="true"))
    if is_linked_with("jemalloc"):
        assert code == 0, text
    else:
        assert code == 78 and "MILLRACE_JEMALLOC=ON" in text


def test_beside_a_stream_that_goes_on(database, millrace):
    """The slot is further than what was read of the stored position a moment before: no row is missing for that."""
    database.run("CREATE TABLE t (id bigserial PRIMARY KEY)")
    process = millrace().start().streaming()

    def write(connection, _):
        while True:
            connection.execute("INSERT INTO t DEFAULT VALUES")
            yield
    with Endless(database, write):
        for _ in range(5):
            expect(check(process), 0, "is in use by this pipeline")


def test_few_rights(database, millrace):
    role = "r" + database.name
    database.run(f"CREATE TABLE t (id int PRIMARY KEY); CREATE ROLE {role} LOGIN PASSWORD 'x'")
    process = millrace()
    process.environment["TEST_URL"] = dsn(database.name).replace("postgres:millrace-stand", f"{role}:x")
    try:
        text = expect(check(process), 77)
        assert f'ALTER ROLE "{role}" REPLICATION' in text and "GRANT CREATE ON DATABASE" in text
    finally:
        database.run(f"DROP ROLE {role}")


def test_least_rights_are_enough(database, millrace, topic):
    """The role of docs/postgresql.md: no superuser, publication made by the owner."""
    role = "r" + database.name
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    database.run(f"CREATE PUBLICATION {database.publication} FOR TABLE t")
    database.run(f"CREATE ROLE {role} LOGIN REPLICATION PASSWORD 'x'; GRANT SELECT ON t TO {role}")
    process = millrace()
    process.environment["TEST_URL"] = dsn(database.name).replace("postgres:millrace-stand", f"{role}:x")
    try:
        expect(check(process), 0, without="superuser")
        process.start().streaming()
        database.run("INSERT INTO t VALUES (1)")
        topic(database.topic("t")).take(1)
        assert process.stop() == 0
        database.run(f"DROP PUBLICATION {database.publication}")
        code, text = check(process)  # one statement for it, which has filters and lists
        assert code == 10 and text.count("CREATE PUBLICATION") == 1 and "may not create the publication" not in text, text
    finally:
        database.run(f"DROP OWNED BY {role}; DROP ROLE {role}")


def test_servers_away(database, millrace):
    process = millrace(sink__kafka__brokers='["127.0.0.1:1"]')
    process.environment["TEST_URL"] = "postgresql://x@127.0.0.1:1/x"
    text = expect(check(process), 69)
    assert "2 errors" in text and "Connection refused" in text


def test_topic_that_kafka_does_not_tell_from_another(database, millrace):
    database.run('CREATE TABLE a_b (id int PRIMARY KEY); CREATE SCHEMA public_a; CREATE TABLE public_a.b (id int PRIMARY KEY)')
    process = millrace(tables=("a_b", "public_a.b"))
    code, text = check(process)
    assert code == 78 and text.count("Kafka does not tell . from _ in names, and has") == 1, text
    database.create_topic(database.topic("a_b").replace(".public.", "_public_"))
    process.tables = ("a_b",)
    process.configure()
    expect(check(process), 78, "Kafka does not tell . from _ in names, and has")


def test_topic_of_the_position(database, millrace):
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    topic = database.prefix + ".state"
    process = millrace(sink__kafka__state_topic=f'"{topic}"', sink__kafka__delivery='"exactly-once"')
    code, text = check(process)
    assert code == 0 and f"state topic {topic}: does not exist; will be created, compacted" in text, text
    assert "transactional id" in text and topic not in database.topics()
    for policy, expected in (("compact", 0), ("delete", 78), ("compact,delete", 78)):
        name = f"{topic}.{policy.replace(',', '.')}"
        database.admin.create_topics([NewTopic(name, 1, 1, config={"cleanup.policy": policy})])[name].result(30)
        eventually(lambda name=name: name in database.topics(), what="the topic")
        process.configure(sink__kafka__state_topic=f'"{name}"')
        code, text = check(process)
        assert code == expected, text
        assert ("exists, compacted" if code == 0 else f"cleanup.policy is {policy}") in text, text
    process.configure(sink__kafka__state_topic='""')
    expect(check(process), 0, "kept by the slot alone")


def test_keys_that_are_not_debeziums(database, millrace):
    """Order matters to nobody but those who come from Debezium, and they are told; where columns differ, the remedy has them."""
    database.run("CREATE TABLE same (a int, b int, PRIMARY KEY (a, b)); CREATE TABLE turned (a int, b int, PRIMARY KEY (b, a));"
                 "CREATE TABLE by_index (id int PRIMARY KEY, a int NOT NULL, b int NOT NULL); CREATE UNIQUE INDEX ba ON by_index (b, a);"
                 "ALTER TABLE by_index REPLICA IDENTITY USING INDEX ba;"
                 "CREATE TABLE keyless (a int, b int, c int); ALTER TABLE keyless REPLICA IDENTITY FULL;"
                 "CREATE UNIQUE INDEX zz ON keyless (a); CREATE UNIQUE INDEX aa ON keyless (c, b) INCLUDE (a);"
                 f"CREATE PUBLICATION {database.publication} FOR ALL TABLES")
    tables = ("same", "turned", "by_index", "keyless")
    text = expect(check(millrace(tables=tables)), 0, '"public"."turned": is (a,b), in the table\'s order; Debezium\'s is (b,a)')
    assert "key of table" not in text.replace('key of table "public"."turned"', ""), text
    text = expect(check(millrace(tables=("public.*",), types='"debezium"')), 0, without='"public"."turned"')
    assert '"public"."by_index": is (b,a), the columns of its replica identity; Debezium\'s is (id)' in text, text
    assert 'key_columns = ["public.by_index:id"], and REPLICA IDENTITY FULL' in text, text
    assert '"public"."keyless": is null; Debezium\'s is (c,b,a)' in text and 'key_columns = ["public.keyless:c,b,a"]\n' in text, text
    assert '"public"."same"' not in text
    chosen = millrace(tables=tables, types='"debezium"', key_columns='["keyless:c,b,a"]')
    assert 'key of table "public"."keyless"' not in check(chosen)[1]


def test_a_slot_that_takes_a_whole_core_is_named_with_the_tables_that_write(database, millrace):
    """Its reader is here a session that decodes it over and over, and stays where it is."""
    process = millrace(tables=("t",))
    database.run(f"CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE other (v text); CREATE PUBLICATION {database.publication} FOR TABLE t")
    database.run("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", [database.slot])
    database.run("INSERT INTO other SELECT repeat(md5(i::text), 8) FROM generate_series(1, 250000) i")

    def decode(connection, _):
        while True:
            connection.execute("SELECT count(*) FROM pg_logical_slot_peek_binary_changes(%s, NULL, NULL, 'proto_version', '1',"
                               " 'publication_names', %s)", [database.slot, database.publication])
            yield

    assert "core's limit" not in check(process)[1]
    with Endless(database, decode):
        said = eventually(lambda: next((line for line in check(process)[1].splitlines() if "core's limit" in line), None), 60, "the warning")
    assert "public.other 100 %" in said, said
