"""The configuration file, read again while the stream runs."""

import itertools
import json
import os
import random
import re
import signal
import subprocess
import threading

import pytest

from endless import Endless
from kit import BINARY, connect, eventually, expect



def reload(process, *arguments):
    """Exit code and what `millrace reload` said."""
    done = subprocess.run([BINARY, "reload", "--address", process.address(), "--config", process.path, *arguments],
                          capture_output=True, text=True, timeout=120, env=process.environment, check=False)
    return done.returncode, done.stdout + done.stderr


def outcomes(process, times):
    """Records of the reloads so far, once there are so many."""
    eventually(lambda: len(process.log("reloaded")) + len(process.log("reload_refused")) >= times, what="a reload")
    return process.log("reloaded")


def with_tables(process, *tables, **options):
    """Another file in the place of the one that is there, as editors leave it."""
    path, process.path = process.path, process.path + ".new"
    process.tables = tables
    process.configure(**options)
    os.replace(process.path, path)
    process.path = path


class Writer(Endless):
    """Inserts 1, 2, 3 … into each table, a transaction each, until it is told to stop."""

    def __init__(self, database, tables):
        def write(connection, _):
            for number in itertools.count(1):
                for table in tables:
                    connection.execute(f"INSERT INTO {table} VALUES ({number})")
                yield
        super().__init__(database, write)

    def advance(self):
        """Some more, all of which begin after the call; answers the last that began before it."""
        before = self.rounds + 1
        self.more(21)
        return before

    def finish(self):
        self.end()
        return self.rounds


@pytest.mark.parametrize("delivery", ["at-least-once", "exactly-once"])
def test_tables_come_and_go_while_writers_run(database, millrace, topic, delivery):
    """No row of a table is lost that is written while the table is listed; of the others none comes."""
    database.run("CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE u (id int PRIMARY KEY);"
                 "CREATE TABLE p (id int PRIMARY KEY) PARTITION BY RANGE (id);"
                 "CREATE TABLE p_1 PARTITION OF p FOR VALUES FROM (0) TO (1000000)")
    database.run(f"CREATE PUBLICATION {database.publication} FOR TABLE t, u, p")
    options = {"sink__kafka__delivery": json.dumps(delivery)}
    process = millrace(**options).start().streaming()
    found = {table: [] for table in ("t", "u", "p_1")}
    readers = {}

    def read_until(table, number):
        """What is in its topic, which comes to hold that row."""
        if table not in readers:
            readers[table] = topic(database.topic(table))

        def there():
            found[table] += [record.json["after"]["id"] for record in readers[table].read()]
            return found[table] and found[table][-1] >= number
        eventually(there, 60, f"row {number} of {table}")

    writer = Writer(database, ["t", "u", "p"])
    not_listed = writer.advance()
    read_until("t", not_listed)
    with_tables(process, "t", "u", "p", **options)
    code, text = reload(process)
    assert code == 0 and re.search(r"tables added: +public.u, public.p\n", text), text
    listed_from = writer.advance() + 1
    listed_to = writer.advance()
    for table in found:
        read_until(table, listed_to)
    with_tables(process, "t", **options)
    expect(reload(process), 0, "tables removed: public.u, public.p")
    gone_from = writer.advance() + 1
    last = writer.finish()
    read_until("t", last)
    assert process.stop() == 0
    assert not process.log("source_lost") and len(process.log("source_connected")) == 3
    for table, ids in found.items():
        ids += [record.json["after"]["id"] for record in readers[table].read()]
        assert ids == list(range(ids[0], ids[-1] + 1)), "a gap, a repetition, or out of order"
        if table == "t":
            assert (ids[0], ids[-1]) == (1, last)
        else:
            assert not_listed <= ids[0] <= listed_from and listed_to <= ids[-1] < gone_from


def test_every_order_of_reloads(database, millrace, tmp_path):
    """Each three of: other tables (t), a number or the level (l), a file that is refused or needs a restart (n); with rows, lost
    connections and new tables between. Of each table come the rows of the times in which it is listed."""
    database.run("CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE u (id int PRIMARY KEY); CREATE TABLE v (id int PRIMARY KEY)")
    database.run(f"CREATE PUBLICATION {database.publication} FOR ALL TABLES")
    chance, file = random.Random(43), tmp_path / "events"
    options = {"sink__kafka__brokers": None, "sink__file__path": json.dumps(str(file)), "pipeline__latency": '"1ms"', "log__level": '"info"'}
    process = millrace(("t", "public.new_[0-9]+"), **options).start().streaming()
    listed, wanted, number, connections = {"t"}, [], 0, 1

    def write():
        nonlocal number
        for table in ("t", "u", "v"):
            number += 1
            database.run(f"INSERT INTO {table} VALUES ({number})")
            wanted.extend([(table, number)] if table in listed else [])

    order = "tttlttntlltlntnltnnlllnlnnntt"
    assert all("".join(three) in order for three in itertools.product("tln", repeat=3))
    for done, kind in enumerate(order, 1):
        now = dict(options)
        if kind == "t":
            listed ^= {chance.choice("uv")}
            connections += 1
        elif kind == "l":
            one, values = chance.choice([("pipeline__latency", ('"100us"', '"1ms"')), ("log__level", ('"info"', '"debug"'))])
            options[one] = now[one] = values[options[one] == values[0]]
        else:
            now |= chance.choice([{"nonsense": "1"}, {"pipeline__batch_size": str(chance.randrange(8, 100) * 1024)}])
        with_tables(process, *listed, "public.new_[0-9]+", **now)
        process.process.send_signal(signal.SIGHUP)
        outcomes(process, done)
        if chance.random() < 0.4:
            process.wait_for("source_connected", times=connections)
            database.run("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = %s AND active", [database.slot])
            connections += 1
        process.wait_for("source_connected", times=connections)
        if chance.random() < 0.4:
            number += 1
            database.run(f"CREATE TABLE new_{number} (id int PRIMARY KEY); INSERT INTO new_{number} VALUES ({number})")
            wanted.append((f"new_{number}", number))
        if chance.random() < 0.7:
            write()
    write()
    eventually(lambda: len(file.read_text().splitlines()) >= len(wanted), what="all rows: a stop delivers what was read, not all that was written")
    assert process.stop() == 0
    events = [json.loads(line)["value"] for line in file.read_text().splitlines()]
    assert [(event["source"]["table"], event["after"]["id"]) for event in events] == wanted


def test_a_wrong_file_changes_nothing(database, millrace, topic):
    database.run("CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE u (id int PRIMARY KEY); CREATE TABLE bare (id int)")
    database.run(f"CREATE PUBLICATION {database.publication} FOR TABLE t, bare")
    process = millrace().start().streaming()
    good = process.native(("t",), {})
    wrong = {
        good + "nonsense": "not valid TOML",
        good + "log.level = \"loud\"": "log.level must be one of",
        process.native(("t", "t"), {}): "listed twice",
        process.native(("t", "absent"), {}): "does not exist",
        process.native(("t", "u"), {}): "ALTER PUBLICATION",
        process.native(("t", "bare"), {}): "no replica identity",
        process.native(("t", "u"), {"format": '"flat"'}): "needs a restart; nothing was changed",
        process.native(("t",), {"messages__prefixes": '["*"]'}): "needs a restart; nothing was changed",
    }
    for number, (text, reason) in enumerate(wrong.items(), 1):
        process.write(text)
        process.process.send_signal(signal.SIGHUP)
        assert reason in process.wait_for("reload_refused", times=number)["message"]
    code, said = reload(process)
    assert code == 78 and said.startswith("refused\n") and "needs a restart" in said, said
    assert not any("problems" in told for told in process.log("reload_refused")[:1])
    process.write(good + 'log.level = "loud"\nlog.nonsense = 1\n')
    process.process.send_signal(signal.SIGHUP)
    problems = process.wait_for("reload_refused", times=len(wrong) + 2)["problems"]
    assert "log.level" in problems and "log.nonsense" in problems, problems  # both
    os.unlink(process.path)
    process.process.send_signal(signal.SIGHUP)
    assert "can't be read" in process.wait_for("reload_refused", times=len(wrong) + 3)["message"]
    assert not process.log("reloaded")
    database.run("INSERT INTO t VALUES (1)")
    assert topic(database.topic("t")).take(1)[0].json["after"] == {"id": 1}


@pytest.mark.parametrize("how", ["written", "renamed", "linked"])
def test_a_watched_file_is_reloaded_when_it_changes(database, millrace, tmp_path, how):
    """Once two looks find the same in it: half of a file is none. A ConfigMap's file is a link into a folder that is a link itself."""
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    process = millrace(reload__watch='"200ms"')
    path = process.path
    if how == "linked":
        (tmp_path / "0").mkdir()
        os.rename(path, tmp_path / "0" / "config.toml")
        os.symlink("0", tmp_path / "data")
        os.symlink("data/config.toml", path)
    with open(path, encoding="utf-8") as file:
        begin = file.read()
    process.start().streaming()

    def change(number, text):
        if how == "written":
            with open(path, "w", encoding="utf-8") as file:
                file.write(text[:len(text) // 2])
                file.flush()
                file.write(text[len(text) // 2:])
        elif how == "renamed":
            (tmp_path / "new").write_text(text)
            os.rename(tmp_path / "new", path)
        else:
            (tmp_path / number).mkdir()
            (tmp_path / number / "config.toml").write_text(text)
            os.symlink(number, tmp_path / "new")
            os.rename(tmp_path / "new", tmp_path / "data")
    change("1", begin + 'log.level = "debug"\n')
    assert outcomes(process, 1)[0]["changed"] == "log.level"
    assert process.get("/status").json["configuration"]["log.level"] == "debug"
    # What was read once is not read again, whoever asked for it; so is a wrong file.
    process.process.send_signal(signal.SIGHUP)
    assert outcomes(process, 2)[1]["changed"] == ""
    change("2", begin + "nonsense")
    process.wait_for("reload_refused")
    change("3", begin)
    reload(process, "--dry-run")  # which settles nothing
    eventually(lambda: process.get("/status").json["configuration"]["log.level"] == "info", what="the reload")
    assert len(process.log("reload_refused")) == 1


def test_a_watched_file_is_tried_again_when_it_could_not_be_taken(database, millrace):
    """By one that stands by, which says so once."""
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    owner = millrace().start().streaming()
    twin = millrace(reload__watch='"100ms"').start()
    twin.wait_for("standby")
    with open(twin.path, "a", encoding="utf-8") as file:
        file.write('log.level = "debug"\n')
    assert "stands by" in twin.wait_for("reload_refused")["message"]
    assert owner.stop() == 0
    twin.streaming()
    eventually(lambda: twin.get("/status").json["configuration"]["log.level"] == "debug", what="the reload")
    assert len(twin.log("reload_refused")) == 1


def test_signal_unchanged_file_and_what_needs_a_restart(database, millrace):
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    process = millrace().start().streaming()
    process.process.send_signal(signal.SIGHUP)
    assert outcomes(process, 1)[0]["changed"] == ""
    options = {"log__level": '"debug"', "pipeline__latency": '"3ms"', "pipeline__batch_size": '"256KiB"',
               "sink__kafka__compression": '"zstd"'}
    process.configure(**options)
    code, text = reload(process, "--dry-run")
    assert code == 0 and text.startswith("checked\n") and "would change:   pipeline.latency, log.level" in text, text
    assert process.get("/status").json["configuration"]["log.level"] == "info"
    assert process.log("reload_checked")[0]["changed"] == "pipeline.latency, log.level"
    process.process.send_signal(signal.SIGHUP)
    done = outcomes(process, 2)[1]
    assert done["changed"] == "pipeline.latency, log.level"
    assert done["needs_restart"] == "sink.kafka.compression, pipeline.batch_size" and done["level"] == "warn"
    status = process.get("/status").json
    shown = status["configuration"]
    assert (shown["log.level"], shown["pipeline.latency"]) == ("debug", 3000)
    assert (shown["sink.kafka.compression"], shown["pipeline.batch_size"]) == ("lz4", 131072)
    assert "config.toml" in status["configuration_origins"]["log.level"]
    # What is in effect is compared, not what the file said before.
    code, text = reload(process)
    assert code == 0 and text.startswith("unchanged\n") and "pipeline.batch_size" in text, text
    process.configure(log__level='"error"')
    assert reload(process)[0] == 0
    database.run("SELECT 1")
    lines = len(process.lines)
    assert reload(process)[0] == 0  # says so at level info
    assert len(process.log("reloaded")) == 3 and len(process.lines) == lines


def test_reloads_at_once(database, millrace, topic):
    """Each reads the file after it was asked for; none is lost, and the last one counts."""
    database.run("CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE u (id int PRIMARY KEY)")
    database.run(f"CREATE PUBLICATION {database.publication} FOR TABLE t, u")
    process = millrace().start().streaming()
    with connect(database.name) as open_transaction, open_transaction.transaction():
        open_transaction.execute("INSERT INTO t VALUES (1)")
        with_tables(process, "t", "u")
        done = []
        askers = [threading.Thread(target=lambda: done.append(reload(process)), daemon=True) for _ in range(4)]
        for asker in askers:
            asker.start()
        for asker in askers:
            asker.join(120)
    assert [code for code, _ in done] == [0, 0, 0, 0], done
    assert sum("tables added:   public.u" in text for _, text in done) >= 1, done
    assert sum(record["changed"] != "" for record in process.log("reloaded")) == 1
    database.run("INSERT INTO u VALUES (7)")
    assert topic(database.topic("u")).take(1)[0].json["after"] == {"id": 7}


def test_routes_and_policies(database, millrace, topic):
    """Skipped operations and tombstones change; a stream of Outboxx's form gets another topic."""
    database.run("CREATE TABLE t (id int PRIMARY KEY, v text)")
    process = millrace().start().streaming()
    database.run("INSERT INTO t VALUES (1, 'a')")
    reader = topic(database.topic("t"))
    assert reader.take(1)[0].json["op"] == "c"
    process.configure(tombstones="false", skipped_operations='["update"]')
    assert reload(process)[0] == 0
    database.run("UPDATE t SET v = 'b'")
    database.run("DELETE FROM t")
    database.run("INSERT INTO t VALUES (2, 'c')")
    assert [record.json["op"] for record in reader.take(2)] == ["d", "c"]


def test_not_while_another_instance_stands_by(database, millrace):
    """It could take over with the old tables while the stream begins anew."""
    database.run("CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE u (id int PRIMARY KEY)")
    database.run(f"CREATE PUBLICATION {database.publication} FOR TABLE t, u")
    first = millrace().start().streaming()
    second = millrace().start()
    second.wait_for("standby")
    with_tables(first, "t", "u")
    with_tables(second, "t", "u")
    expect(reload(first), 69, "another instance stands by")
    with_tables(second, "t", log__level='"debug"')
    expect(reload(second), 69, "this one stands by")
    assert second.stop() == 0
    with_tables(first, "t", "u")
    expect(reload(first), 0, "tables added:   public.u")
    with_tables(second, "t", "u")
    second.start().wait_for("standby")  # the same pipeline again
    assert second.stop() == 0 and first.stop() == 0


def test_a_stop_right_behind_a_reload_of_tables(database, millrace):
    """The stream begins anew, here behind a server that lets each connection wait. That the server's WAL has gone on without any
    row of ours is nothing that it must be told."""
    database.run("CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE u (id int PRIMARY KEY); CREATE TABLE other (id int)")
    database.run(f"CREATE PUBLICATION {database.publication} FOR TABLE t, u")
    process = millrace(pipeline__status_interval='"60s"')
    process.environment["TEST_URL"] += "?options=-c%20post_auth_delay%3D1"
    process.start().streaming()
    begin = process.get("/status").json["positions"]["received"]
    database.run("INSERT INTO other SELECT generate_series(1, 1000)")
    eventually(lambda: process.get("/status").json["positions"]["received"] != begin, what="a position behind no row")
    with_tables(process, "t", "u", pipeline__status_interval='"60s"')
    expect(reload(process), 0)


def test_patterns_of_tables(database, millrace, topic):
    database.run("CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE o_1 (id int PRIMARY KEY);"
                 "CREATE TABLE o_2 (id int PRIMARY KEY)")
    database.run(f"CREATE PUBLICATION {database.publication} FOR ALL TABLES")
    process = millrace().start().streaming()
    insert = "INSERT INTO t VALUES ({0}); INSERT INTO o_1 VALUES ({0}); INSERT INTO o_2 VALUES ({0})"

    def ids(reader, count):
        return [record.json["after"]["id"] for record in reader.take(count)]

    database.run(insert.format(1))
    all_of_t = topic(database.topic("t"))
    assert ids(all_of_t, 1) == [1]
    with_tables(process, "t", "public.o_[0-9]")
    code, text = reload(process)
    assert code == 0 and re.search("changed: +tables\n", text), text
    database.run(insert.format(2))
    with_tables(process, "t", "public.o_[0-9]", excluded_tables='["o_2"]')
    assert ids(all_of_t, 1) == [2]
    code, text = reload(process)
    assert code == 0 and re.search("changed: +excluded_tables\n", text), text
    database.run(insert.format(3))
    assert ids(all_of_t, 1) == [3]
    assert process.stop() == 0
    assert ids(topic(database.topic("o_1")), 2) == [2, 3]
    excluded = topic(database.topic("o_2"))
    assert ids(excluded, 1) == [2] and not excluded.read()


@pytest.mark.parametrize("rule", [
    {"columns__mask": '["public.u:v=5"]'}, {"columns__exclude": '["public.u:v"]'}, {"key_columns": '["public.u:v"]'},
    {"outbox__tables": '["public.u"]', "outbox__key": '"v"', "outbox__payload": '"v"', "outbox__route_by": '"v"'},
    {"snapshot__where": '["public.u: id > 5"]'},
    {"publication__via_partition_root": "true"}])
def test_a_table_comes_with_the_rules_for_its_rows_or_not_at_all(database, millrace, topic, rule):
    """The rules need a restart: until then its rows would go out without them."""
    database.run("CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE u (id int PRIMARY KEY, v text); ALTER TABLE u REPLICA IDENTITY FULL")
    database.run(f"CREATE PUBLICATION {database.publication} FOR TABLE t, u")
    process = millrace().start().streaming()
    for tables in (("t", "u"), ("t", "public.u.*")):
        with_tables(process, *tables, **rule)
        code, text = reload(process)
        option = next(iter(rule)).replace("__", ".")
        assert code == 78 and f"{option}" in text and "needs a restart: restart millrace with this file; nothing was changed" in text, text
    database.run("INSERT INTO u VALUES (1, 'secret'); INSERT INTO t VALUES (1)")
    topic(database.topic("t")).take(1)
    assert database.topic("u") not in database.topics()
    with_tables(process, "t", **rule)  # of a table that does not come, what it says can wait
    if next(iter(rule)) not in ("key_columns", "outbox__tables"):  # which must name one that is listed
        expect(reload(process), 0, "needs restart")


@pytest.mark.parametrize("tables", [("t", "p"), ("t", "public.p.{0}")])
def test_a_table_that_would_end_the_stream_is_refused(database, millrace, topic, tables):
    """A mask of a table with partitions, whose rows come by other names, ends each start."""
    database.run("CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE p (id int PRIMARY KEY, v text) PARTITION BY RANGE (id);"
                 "CREATE TABLE p_1 PARTITION OF p FOR VALUES FROM (0) TO (9)")
    database.run(f"CREATE PUBLICATION {database.publication} FOR TABLE t, p")
    options = {"columns__mask": '["public.p:v=5"]'}
    process = millrace(**options).start().streaming()
    with_tables(process, *tables, **options)
    expect(reload(process), 78, "has no effect: the table has partitions")
    assert not process.log("reloaded")
    database.run("INSERT INTO t VALUES (1)")
    topic(database.topic("t")).take(1)


def test_a_column_that_a_new_table_lacks_is_told(database, millrace):
    """Its mask would hide nothing."""
    database.run("CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE u (id int PRIMARY KEY, email text)")
    database.run(f"CREATE PUBLICATION {database.publication} FOR TABLE t, u")
    options = {"columns__mask": '["public.u:emial=5"]'}
    process = millrace(**options).start().streaming()
    with_tables(process, "t", "u", **options)
    expect(reload(process), 78, 'names column "emial", which the table does not have')


def test_a_table_that_comes_right_after_the_start_is_copied(database, millrace, topic):
    """It is not one of those that were there before, though nobody has looked yet which those are."""
    database.run("CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE u (id int PRIMARY KEY); INSERT INTO u VALUES (1), (2)")
    database.run(f"CREATE PUBLICATION {database.publication} FOR TABLE t, u")
    process = millrace(snapshot__added_tables="true").start().streaming()
    with_tables(process, "t", "u", snapshot__added_tables="true")
    assert reload(process)[0] == 0
    assert {record.json["after"]["id"] for record in topic(database.topic("u")).take(2)} == {1, 2}


def test_others_reach_it_without_a_password(database, millrace):
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    process = millrace(http__address='"0.0.0.0:0"').start().streaming()
    expect(reload(process), 78, "without a password; set http.username")
    assert process.get("/api/reload").status == 405
    process.process.send_signal(signal.SIGHUP)
    assert outcomes(process, 1)


def test_another_file_is_refused(database, millrace, tmp_path):
    """The running one reads its own file, whatever file was named to find it by."""
    database.run("CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE u (id int PRIMARY KEY)")
    process = millrace().start().streaming()
    other = tmp_path / "other.toml"
    other.write_text(process.native(["t", "u"], {}))

    def of_other(*arguments):
        done = subprocess.run([BINARY, "reload", "--address", process.address(), "-c", other, *arguments],
                              capture_output=True, text=True, timeout=120, env=process.environment, check=False)
        return done.returncode, done.stdout + done.stderr
    for arguments in (["--dry-run"], []):
        expect(of_other(*arguments), 78, process.path, str(other), "nothing was changed")
    assert process.log("reloaded") == []
    # The same content by another path is the same file to everybody.
    with open(process.path, encoding="utf-8") as file:
        other.write_text(file.read())
    assert of_other("--dry-run") == (0, "unchanged\n")


def test_commands_for_another_pipeline_are_refused(database, millrace):
    """Two pipelines with one http.address by mistake: no command of one reaches the other, and a copy of the file finds its own."""
    database.run("CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1)")
    process = millrace().start().streaming()
    own = f"{process.folder}/own.toml"

    def asked(path, *arguments):
        done = subprocess.run([BINARY, *arguments, "-c", path], capture_output=True, text=True, timeout=120, env=process.environment, check=False)
        return done.returncode, done.stdout + done.stderr

    def files(**options):
        """Whose content is not the running one's."""
        with open(own, "w", encoding="utf-8") as file:
            file.write(process.native(["t"], {"http.address": json.dumps(process.address()), **options}))
        return own
    files()
    for arguments in (["status"], ["health"], ["snapshot"], ["reload", "--dry-run"]):
        assert "runs another pipeline" not in asked(own, *arguments)[1]
    copies = process.get("/api/snapshot/outcome").json
    for option in ({"source.postgres.slot_name": '"other"'}, {"topic_prefix": '"other"'}):
        files(**option)
        for arguments in (["status"], ["snapshot"], ["snapshot", "public.t"], ["snapshot", "--pause"], ["reload"],
                          ["profile", "--seconds", "1"], ["health"], ["health", "--ready"]):
            code, said = asked(own, *arguments)
            assert code == (1 if arguments[0] == "health" else 78), (arguments, said)
            assert "runs another pipeline" in said and process.path in said and "nothing was asked or done" in said, said
    assert process.get("/api/snapshot/outcome").json == copies and not process.log("reloaded")
    assert process.get("/status").status == 200  # whoever has no file is not asked for it
