"""Two pipelines that are not one: the same slot, or the same topic."""

import socket

import pytest

from kit import check, expect


def test_a_stranger_is_refused(database, millrace, topic):
    """The same slot, another prefix: it neither waits for the slot nor takes it over."""
    database.run("CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE u (id int PRIMARY KEY)")
    owner = millrace(tables=("t", "u")).start().streaming()
    for tables, different in ((("t", "u"), {"topic_prefix": '"other"'}), (("t",), {}),
                              (("t", "u"), {"sink__kafka__state_name": '"other"'})):
        stranger = millrace(tables=tables, **different)
        expect(check(stranger), 78, "in use by another pipeline", without="pg_drop_replication_slot")
        text = expect(stranger.run_to_end(), 78)
        assert f"millrace {socket.gethostname()}:{owner.process.pid} {database.prefix}" in text, text
        assert f"process {database.slot_row('active_pid')} of the server" in text, text
    database.run("INSERT INTO t VALUES (1)")
    topic(database.topic("t")).take(1)


@pytest.mark.parametrize("delivery", ["at-least-once", "exactly-once"])
def test_a_changed_instance_waits_for_the_old_one(database, millrace, topic, delivery):
    """With handover it is ready, and takes over as it is configured: nothing is lost, and what ended in order does not come twice."""
    database.run("CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE u (id int PRIMARY KEY)")
    options = {"sink__kafka__delivery": f'"{delivery}"', "publication__alter": "true"}
    old = millrace(tables=("t",), **options).start().streaming()
    database.run("INSERT INTO t SELECT generate_series(1, 1000)")
    impatient = millrace(tables=("t", "u"), source__postgres__handover='"3s"', **options)
    code, text = impatient.run_to_end()
    assert code == 78 and "in use by another pipeline" in text and len(impatient.log("standby")) == 1, text
    new = millrace(tables=("t", "u"), source__postgres__handover='"2m"', **options)
    expect(check(new), 0, "waits for it to end")
    new.start().wait_for("standby")
    assert new.get("/readyz").status == 200
    database.run("INSERT INTO t SELECT generate_series(1001, 2000)")
    assert old.stop() == 0
    new.streaming()
    database.run("INSERT INTO u VALUES (1); INSERT INTO t VALUES (2001)")
    assert [record.json["after"]["id"] for record in topic(database.topic("t")).take(2001)] == list(range(1, 2002))
    assert topic(database.topic("u")).take(1)[0].json["after"] == {"id": 1}


def test_a_twin_stands_by(database, millrace, topic):
    """Tables in another order are the same."""
    database.run("CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE u (id int PRIMARY KEY)")
    owner = millrace(tables=("t", "u")).start().streaming()
    twin = millrace(tables=("u", "t"))
    expect(check(twin), 0, "another instance stands by")
    twin.start().wait_for("standby")
    database.run("INSERT INTO t VALUES (1)")
    topic(database.topic("t")).take(1)
    assert owner.stop() == 0
    twin.streaming()
    database.run("INSERT INTO t VALUES (2)")
    topic(database.topic("t")).take(2)


def test_a_slot_in_use_is_not_to_be_dropped(database, millrace):
    """Somebody reads from the slot, and the publication that is configured here does not exist."""
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    owner = millrace().start().streaming()
    other = millrace(source__postgres__publication_name='"elsewhere"')
    text = expect(check(other), 78, "somebody else's, or this pipeline's", without="pg_drop_replication_slot")
    assert "stop it, and run millrace check again" in text, text


@pytest.mark.parametrize("names", [('public."ä"', 'public."ö"'), ('"a.b".c', 'a."b.c"')])
def test_two_tables_one_topic(database, millrace, names):
    process = millrace(tables=names)
    for code, text in (check(process), process.run_to_end()):
        assert code == 78, text
    assert "would share topic" in text and all(name.split('"')[1] in text for name in names), text


def test_two_partitions_one_topic(database, millrace, topic):
    """Names that only the stream tells."""
    database.run("CREATE TABLE t (id int PRIMARY KEY) PARTITION BY RANGE (id);"
                 'CREATE TABLE "t ä" PARTITION OF t FOR VALUES FROM (0) TO (10);'
                 'CREATE TABLE "t ö" PARTITION OF t FOR VALUES FROM (10) TO (20)')
    process = millrace().start().streaming()
    database.run("INSERT INTO t VALUES (1)")
    topic(database.topic("t__")).take(1)
    database.run("INSERT INTO t VALUES (11)")
    assert process.ended(30) == 78
    text = "".join(process.lines)
    assert "would share topic" in text and "t ä" in text and "t ö" in text, text
