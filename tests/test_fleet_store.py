"""millrace fleet and what Kafka keeps of a fleet: plan, apply, status and the commands about one pipeline or node; two at once, one that is killed, a topic
that was deleted. What is there is read by confluent-kafka; the agents are this file's."""

import collections
import hashlib
import json
import os
import re
import signal
import socket
import subprocess
import threading
import time
import uuid

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from kit import BINARY, BOOTSTRAP, CLIENT, READER, dsn, eventually, read_whole
from prometheus import ROOT

TEMPLATE = f"""
topic_prefix = "{{name}}"
tables = ["public.*"]
http.address = "127.0.0.1:0"
source.postgres.connection = "host=127.0.0.1 port=1 dbname={{name}} user=someone"
source.postgres.slot_name = "mr_{{name}}"
sink.kafka.brokers = ["{BOOTSTRAP}"]
sink.kafka.state_topic = "__millrace_state.{{name}}"
"""


class Fleet:
    """A definition of pipelines by hand, and the topics of its fleet."""

    def __init__(self, folder):
        self.folder, self.name = folder, "f" + uuid.uuid4().hex[:10]
        self.topic, self.status_topic = f"__millrace_fleet.{self.name}", f"__millrace_fleet.{self.name}.status"
        self.admin = AdminClient(CLIENT)
        self.producer = Producer({**CLIENT, "linger.ms": 0})

    def define(self, count, template=TEMPLATE, rest=""):
        self.write("".join(f"[pipeline.p{n:02}]\n" for n in range(count)) + rest, template)
        return self

    def write(self, pipelines, template=TEMPLATE, name="fleet.toml"):
        (self.folder / name).write_text(f'[fleet]\nname = "{self.name}"\n[template]\n{template}\n{pipelines}')

    def start(self, *arguments):
        return subprocess.Popen([BINARY, "fleet", *arguments], cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                env={**os.environ, "ASAN_OPTIONS": "detect_leaks=1"})

    def run(self, *arguments):
        """Exit code, standard output, standard error."""
        process = self.start(*arguments)
        out, err = process.communicate(timeout=90)
        return process.returncode, out, err

    def apply(self, *arguments, code=0):
        got, out, err = self.run("apply", *arguments)
        assert got == code, (got, out, err)
        return out.splitlines()

    def plan(self, *arguments):
        code, out, err = self.run("plan", *arguments)
        assert code in (0, 2, 4), err
        return code, out.splitlines()

    def kept(self):
        """{key: (partition, value)} of what a committed reader finds; no key is in two partitions."""
        (records,) = read_whole(self.admin, [self.topic]).values()
        places = {}
        for record in records:
            places[record.key, record.partition] = record.value
        left = [(key, partition, json.loads(value)) for (key, partition), value in places.items() if value is not None]
        assert len({key for key, _, _ in left}) == len(left)
        return {key: (partition, value) for key, partition, value in left}

    def pipelines(self):
        return {key: value for key, (_, value) in self.kept().items() if key[0] != "_" and "/" not in key}

    def revision(self):
        return self.kept()["_revision"][1]["revision"]

    def tell(self, name, **fields):
        """As an agent."""
        now = int(time.time() * 1000)
        value = {"version": 1, "at_ms": now, "since_ms": now - 5000, "node": "a", "generation": 1, "program": "0.2.0", **fields}
        self.producer.produce(self.status_topic, json.dumps(value), name, partition=0)
        assert self.producer.flush(30) == 0

    def tell_node(self, node, partitions, **fields):
        owned = "".join("01"[n in partitions] for n in range(256))
        self.tell(f"node/{node}", **{"revision": 1, "processes": 1, "partitions": owned, "ready": True, **fields})

    def status(self):
        code, out, err = self.run("status", "--json")
        assert code in (0, 1), err
        return json.loads(out)

    def create(self):
        """As somebody would who wants fewer partitions than apply makes: 256 take this machine many seconds."""
        wanted = [NewTopic(self.topic, 8, 1, config={"cleanup.policy": "compact"}), NewTopic(self.status_topic, 1, 1, config={"cleanup.policy": "compact"})]
        for done in self.admin.create_topics(wanted).values():
            done.result(30)

    def delete(self, *topics):
        for done in self.admin.delete_topics(list(topics or (self.topic, self.status_topic))).values():
            done.result(30)

    def drop(self):
        there = set(self.admin.list_topics(timeout=10).topics) & {self.topic, self.status_topic}
        if there:
            self.delete(*there)


@pytest.fixture
def bare(tmp_path):
    """Without topics yet."""
    made = Fleet(tmp_path)
    yield made
    made.drop()


@pytest.fixture
def fleet(bare):
    bare.create()
    return bare


def digest(kept):
    """As docs/fleet.md says it."""
    lines = "".join(f"{name} {hashlib.sha256(text.encode()).hexdigest()[:32]}\n" for name, text in sorted(kept.items()))
    return hashlib.sha256(lines.encode()).hexdigest()[:32]


def texts(fleet):
    """Values as they are, of pipelines."""
    (records,) = read_whole(fleet.admin, [fleet.topic]).values()
    last = {}
    for record in records:
        if record.partition > 0:
            last[record.key, record.partition] = record.value
    return {key: value for (key, _), value in last.items() if value is not None}


def test_plan_and_apply(fleet):
    """60 changes in one go, each time; nothing is written where nothing would change."""
    fleet.define(60)
    names = [f"p{n:02}" for n in range(60)]
    assert fleet.plan() == (2, [f"+ {name}" for name in names])
    assert fleet.apply() == [f"+ {name}" for name in names]
    kept = fleet.kept()
    places = collections.Counter(kept[name][0] for name in names)
    assert sorted(places) == list(range(1, 8)) and set(places.values()) == {8, 9}  # spread
    assert {key: kept["_revision"][1][key] for key in ("version", "revision", "count")} == {"version": 1, "revision": 1, "count": 60}
    assert kept["_revision"][1]["sha256"] == digest(texts(fleet)) and kept["_revision"][0] == 0
    one = kept["p07"][1]
    assert one | {"config": ""} == {"version": 1, "revision": 1, "generation": 1, "retry": 0, "run": True, "config": "", "weight": 1, "memory_max": 0,
                                    "cpu_weight": 0}
    assert 'source.postgres.slot_name = "mr_p07"\n' in one["config"]

    assert fleet.plan() == (0, []) and fleet.apply() == [] and fleet.revision() == 1
    fleet.define(60, TEMPLATE.replace("public.*", "public.orders"))
    assert fleet.apply() == [f"~reload {name}: tables" for name in names]
    before, kept = kept, fleet.kept()
    assert {(kept[name][1]["revision"], kept[name][1]["generation"]) for name in names} == {(2, 2)}
    assert [kept[name][0] for name in names] == [before[name][0] for name in names]

    # Other limits; one that stops, and one that goes: only these are written.
    fleet.define(59, TEMPLATE.replace("public.*", "public.orders"), 'weight = 5\nlimits = {memory = "512MiB", cpu_weight = 50}\n[pipeline.q]\nrun = false\n')
    assert fleet.apply() == ["~reload p58: weight, limits", "+ q", "- p59: its slot stays, and keeps WAL until somebody drops it"]
    kept = fleet.kept()
    assert "p59" not in kept and kept["q"][1] == {**kept["q"][1], "run": False, "generation": 3}
    assert kept["p58"][1] == {**kept["p58"][1], "revision": 3, "weight": 5, "memory_max": 512 << 20, "cpu_weight": 50}
    assert kept["p00"][1]["revision"] == 2 and kept["_revision"][1]["sha256"] == digest(texts(fleet))
    assert fleet.plan() == (0, [])


def test_a_position_is_at_stake(fleet):
    fleet.define(2).apply()
    fleet.define(2, TEMPLATE.replace('"mr_{name}"', '"cdc_{name}"'))
    said = [f"!position p0{n}: source.postgres.slot_name" for n in range(2)]
    assert fleet.plan("--out", "plan.json") == (4, said)
    assert fleet.apply(code=4) == said and fleet.apply("plan.json", code=4) == [] and fleet.revision() == 1
    assert fleet.apply("plan.json", "--accept-position") == [] and fleet.revision() == 2
    assert "cdc_p00" in fleet.pipelines()["p00"]["config"]


def test_a_plan_holds_for_its_revision(fleet):
    fleet.define(3).plan("--out", "plan.json")
    assert fleet.apply("plan.json") == [] and len(fleet.pipelines()) == 3
    code, _, err = fleet.run("apply", "plan.json")
    assert code == 2 and "plan.json is upon revision 0, and Kafka has 1 of " in err and "plan again" in err and fleet.revision() == 1
    fleet.define(2).plan("--out", "plan.json")
    assert fleet.run("drain", "a")[0] == 0
    assert fleet.apply("plan.json", code=2) == [] and len(fleet.pipelines()) == 3
    # Neither a plan of another fleet nor one that was edited into nonsense.
    plan = json.loads((fleet.folder / "plan.json").read_text())
    for change, code, part in (({"fleet": "other"}, 64, "not a plan of this fleet"), ({"version": 2}, 64, "not a plan"), ({"gone": 7}, 64, "not a plan"),
                               ({"revision": 2, "pipelines": {"p00": {"version": 1}}}, 70, '"config" is missing'),
                               ({"revision": 2, "pipelines": {"../p": {"version": 1}}}, 78, "not a pipeline's name"),
                               ({"revision": 2, "pipelines": {"p00": {"version": 1, "revision": 0, "generation": 0, "run": True, "config": "tabels = []"}}}, 78,
                                "unknown key")):
        (fleet.folder / "plan.json").write_text(json.dumps({**plan, **change}))
        got, _, err = fleet.run("apply", "plan.json")
        assert got == code and part in err, (change, got, err)
    assert fleet.revision() == 2


class Gate:
    """A server's door that opens later."""

    def __init__(self, port):
        self.target, self.listener = port, socket.create_server(("127.0.0.1", 0))
        self.port, self.client = self.listener.getsockname()[1], None

    def reached(self):
        self.listener.settimeout(30)
        self.client = self.listener.accept()[0]

    def open(self):
        server = socket.create_connection(("127.0.0.1", self.target))

        def pass_on(one, other):
            while data := one.recv(1 << 16):
                other.sendall(data)
            other.shutdown(socket.SHUT_WR)
        for one, other in ((self.client, server), (server, self.client)):
            threading.Thread(target=pass_on, args=(one, other), daemon=True).start()


def test_of_two_that_apply_the_earlier_is_told(fleet):
    """The earlier has begun, and asks a server for its databases; the later has written."""
    url = re.fullmatch(r"(\w+://[^@]+@)([^:]+):(\d+)(/.*)", dsn("postgres"))
    gate = Gate(int(url[3]))
    (fleet.folder / "pg1").write_text(f"{url[1]}127.0.0.1:{gate.port}{url[4]}")
    (fleet.folder / "pg1").chmod(0o600)
    fleet.define(2).apply()
    fleet.define(3, rest='[discover.pg1]\nconnection_file = "pg1"\ndatabases = "^none$"\n')
    earlier = fleet.start("apply")
    gate.reached()
    fleet.define(4).apply()
    gate.open()
    _, err = earlier.communicate(timeout=30)
    assert earlier.returncode == 2 and "nothing was written: another writer of" in err and "plan again" in err
    assert sorted(fleet.pipelines()) == ["p00", "p01", "p02", "p03"] and fleet.revision() == 2


def test_a_part_of_an_apply_is_never_seen(fleet):
    """One that is killed as soon as some of its records are in the topic: a committed reader finds all of them, or none, and the next apply goes through."""
    fleet.define(60).apply()
    for turn in range(2):
        fleet.define(60, TEMPLATE.replace("public.*", f"public.t{turn}"))
        looker = Consumer({**READER, "group.id": "looker", "isolation.level": "read_uncommitted"})
        looker.assign([TopicPartition(fleet.topic, n, looker.get_watermark_offsets(TopicPartition(fleet.topic, n), timeout=10)[1]) for n in range(1, 8)])
        applying = fleet.start("apply")
        while applying.poll() is None:
            message = looker.poll(0.05)
            if message is not None and message.error() is None:
                applying.kill()
        applying.communicate()
        looker.close()
        assert len({value["revision"] for value in fleet.pipelines().values()}) == 1
        fleet.apply()
        assert {'tables = ["public.t%d"]' % turn in value["config"] for value in fleet.pipelines().values()} == {True}


def test_check_comes_first(fleet, database):
    """One that does not pass holds up all."""
    url = re.fullmatch(r"\w+://([^:]+):([^@]+)@([^:]+):(\d+)/x", dsn("x"))
    (fleet.folder / "password").write_text(url[2])
    (fleet.folder / "password").chmod(0o600)
    good = TEMPLATE.replace("host=127.0.0.1 port=1 dbname={name} user=someone", f"host={url[3]} port={url[4]} dbname={database.name} user={url[1]}")
    good += f'source.postgres.password_file = "{fleet.folder}/password"\nsource.postgres.publication_name = "{database.name}"\n'
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    fleet.write("[pipeline.a]\n[pipeline.b]\nsource.postgres.connection = 'host=127.0.0.1 port=1 dbname=b user=b'\n", good)
    code, _, err = fleet.run("apply", "--check")
    assert code == 69 and "pipeline b does not pass its check; nothing was written" in err and fleet.kept() == {}
    fleet.write("[pipeline.a]\n", good)
    assert fleet.apply("--check") == ["+ a"] and list(fleet.pipelines()) == ["a"]


def test_a_folder_is_a_definition(fleet, database):
    """Templates and the fleet's own part in fleet.toml, and a short file for each database; what is wrong in one names it."""
    fleet.write('[pipeline.a]\nweight = 2\n[templates.large]\nweight = 5\nlimits.memory = "512MiB"\npipeline.memory = "384MiB"\n')
    folder = fleet.folder / "definition"
    folder.mkdir()
    (fleet.folder / "fleet.toml").rename(folder / "fleet.toml")
    (folder / "b.toml").write_text('weight = 7\nsource.postgres.slot_name = "other"\n')
    (folder / "c.toml").write_text('template = "large"\nweight = 6\n')
    (folder / "notes.txt").write_text("none of ours")
    code, out, err = fleet.run("plan", "definition")
    assert (code, out) == (2, "+ a\n+ b\n+ c\n"), err
    code, out, err = fleet.run("plan", "definition", "--check")
    assert code == 69 and "pipeline a does not pass its check" in err
    assert fleet.run("apply", "definition")[0] == 0
    kept = fleet.kept()
    large = kept["c"][1]
    assert (large["weight"], large["memory_max"]) == (6, 512 << 20) and 'pipeline.memory = "384MiB"' in large["config"]
    assert kept["b"][1]["weight"] == 7 and 'slot_name = "other"' in kept["b"][1]["config"] and kept["a"][1]["weight"] == 2
    assert fleet.run("plan", "definition")[0] == 0
    (folder / "b.toml").write_text('weight = "7"\n')
    code, _, err = fleet.run("apply", "definition")
    assert code == 78 and "b.weight must be a whole number" in err
    (folder / "b.toml").write_text("weight = \n")
    code, _, err = fleet.run("apply", "definition")
    assert code == 78 and "definition/b.toml is not TOML: line 1: " in err
    (folder / "b.toml").write_text("run = false\n")
    (folder / "a.toml").write_text("")
    code, _, err = fleet.run("apply", "definition")
    assert code == 78 and "a.toml is beside [pipeline.a]" in err
    (folder / "a.toml").unlink()
    (folder / "c.toml").unlink()
    code, out, _ = fleet.run("plan", "definition")
    assert code == 4 and out.splitlines()[0].startswith("!position b: ") and out.splitlines()[1].startswith("- c: ")
    assert fleet.run("plan", "nowhere")[0] == 64


def test_the_worst_come_first(fleet):
    fleet.define(9).apply()
    old = int(time.time() * 1000) - 91000
    fleet.tell("p00", state="streaming", lag_seconds=0.1)
    fleet.tell("p01", state="streaming", lag_seconds=7200, retained_wal_bytes=5 << 30)
    fleet.tell("p02", state="held", exit_code=10, error="the slot is ahead", lag_seconds=1)
    fleet.tell("p03", state="streaming", at_ms=old)
    fleet.tell("p04", state="backoff", error="away")
    fleet.tell("p05", state="streaming", slot="unreserved", lag_seconds=0.1)
    fleet.tell("p06", state="streaming", lag_seconds=0.1, program="0.1.9", cpu_seconds=12.5, rows=1e6, bytes=2e9, rss_bytes=2e7)
    fleet.tell("p07", state="waiting", surplus=True, error="the host's limits")
    fleet.tell("gone", state="ending")
    fleet.tell("gone_long_ago", state="ending", at_ms=old)
    fleet.tell_node("a", range(0, 4), program="0.2.0")
    fleet.tell_node("b", range(4, 8), at_ms=old, drained=True)
    fleet.run("drain", "b")
    found = fleet.status()
    assert [(one["name"], one["state"]) for one in found["pipelines"]] == [
        ("p07", "waiting"), ("p02", "held"), ("p03", "unknown"), ("p08", "unknown"), ("gone", "ending"), ("p04", "backoff"), ("p05", "streaming"),
        ("p01", "streaming"), ("p06", "streaming"), ("p00", "streaming")]
    by_name = {one["name"]: one for one in found["pipelines"]}
    assert by_name["p06"]["bill"] == {"cpu_seconds": 12.5, "rows": 1e6, "bytes": 2e9} and by_name["p06"]["rss_bytes"] == 2e7
    assert by_name["p02"]["exit_code"] == 10 and by_name["p02"]["wanted"] == {"generation": 1, "run": True, "partition": 2, "weight": 1}
    assert [(node["name"], node["drain"], node["unknown"]) for node in found["nodes"]] == [("a", False, False), ("b", True, True)]
    code, out, _ = fleet.run("status")
    assert code == 1 and f"fleet {fleet.name}   revision 2   10 pipelines   4 streaming   1 held   2 unknown" in out
    assert re.search(r"^held +p02 +a +\d+\.\d s +1\.0 s +- +0\.2\.0 +the slot is ahead$", out, re.MULTILINE), out
    assert re.search(r"^streaming +p01 +a +\d+\.\d s +2\.0 h +5\.0 GiB ", out, re.MULTILINE), out
    top = fleet.start("top")
    assert top.stdout.readline().startswith("\x1b[H\x1b[2Jfleet ")
    top.send_signal(signal.SIGTERM)
    assert top.communicate(timeout=30) and top.returncode == 0
    # What is stopped is last, whatever was said of it.
    fleet.define(9, rest="run = false\n").apply()
    fleet.tell("p08", state="stopped", lag_seconds=1e6)
    assert [fleet.status()["pipelines"][-1][key] for key in ("name", "state")] == ["p08", "stopped"]


def test_words_about_one(fleet):
    fleet.define(3).apply()
    assert fleet.run("drain", "b")[0] == 0 and fleet.kept()["node/b"] == (0, {"version": 1, "drain": True})
    assert fleet.run("undrain", "b")[0] == 0 and "node/b" not in fleet.kept() and fleet.revision() == 3
    assert fleet.run("retry", "p01")[0] == 0
    assert fleet.pipelines()["p01"] == {**fleet.pipelines()["p00"], "config": fleet.pipelines()["p01"]["config"], "retry": 4, "revision": 4}
    # A partition of the node's with the least weight; elsewhere without one. Nobody's is refused.
    fleet.tell_node("a", range(0, 4))
    fleet.tell_node("b", range(4, 8))
    before = fleet.pipelines()["p02"]
    assert fleet.run("move", "p02", "b")[0] == 0 and fleet.kept()["p02"] == (6, {**before, "revision": 5})
    assert fleet.run("move", "p00", "b")[0] == 0 and fleet.kept()["p00"][0] == 7
    assert fleet.run("move", "p02")[0] == 0 and fleet.kept()["p02"][0] == 1
    for arguments, part in ((("move", "p02", "c"), "no agent on c has a partition to move p02 to"), (("move", "x"), "has no pipeline x"),
                            (("retry", "x"), "has no pipeline x"), (("drain", "a/b"), "not a node's name")):
        code, _, err = fleet.run(*arguments)
        assert code == 64 and part in err, (arguments, err)
    assert fleet.plan() == (0, []) and fleet.revision() == 7


class Agent(threading.Thread):
    """Restarts what is asked for, and says so; a pipeline of `held` does not come back."""

    def __init__(self, fleet, held=()):
        super().__init__(daemon=True)
        self.fleet, self.held, self.done, self.restarted = fleet, held, False, []
        self.reader = Consumer({**READER, "group.id": "agent", "auto.offset.reset": "earliest"})
        self.reader.assign([TopicPartition(fleet.topic, n, 0) for n in range(1, 8)])
        self.start()

    def run(self):
        while not self.done:
            message = self.reader.poll(0.05)
            if message is not None and message.error() is None and message.value() is not None:
                value = json.loads(message.value())
                if value["retry"] > 0:
                    self.restarted.append(message.key().decode())
                    self.fleet.tell(message.key().decode(), state="ending", retry=0)
                self.fleet.tell(message.key().decode(), retry=value["retry"], state="held" if message.key().decode() in self.held and value["retry"] > 0
                                else "streaming", error="gone")
        self.reader.close()

    def stop(self):
        self.done = True
        self.join()


def all_stream(fleet):
    return eventually(lambda: {one["state"] for one in fleet.status()["pipelines"]} == {"streaming"}, what="all of them")


def test_one_after_another(fleet):
    fleet.define(3).apply()
    agent = Agent(fleet, held=("p02",))
    try:
        all_stream(fleet)
        assert fleet.run("restart")[0] == 64
        code, out, err = fleet.run("restart", "--rolling", "p01")
        assert (code, agent.restarted) == (0, ["p01"]) and re.fullmatch(r"p01 streams again after \d\.\d s\n", out), err
        code, out, err = fleet.run("restart", "--rolling")
        assert code == 1 and agent.restarted == ["p01", "p00", "p01", "p02"] and "p02 is held: gone" in err and len(out.splitlines()) == 2
    finally:
        agent.stop()


def test_a_topic_that_was_deleted(bare):
    """apply makes the topics, and again where one was deleted: what agents have seen is above what it would begin with."""
    fleet = bare.define(2)
    fleet.apply()
    assert {key: value[0] for key, value in fleet.kept().items()} == {"_revision": 0, "p00": 1, "p01": 159}
    topics = fleet.admin.list_topics(timeout=10).topics
    assert [len(topics[name].partitions) for name in (fleet.topic, fleet.status_topic)] == [256, 1]
    fleet.tell_node("a", range(256), revision=41)
    fleet.delete(fleet.topic)
    eventually(lambda: fleet.topic not in fleet.admin.list_topics(timeout=10).topics, what="the end of the topic")
    assert fleet.status()["whole"] is False and fleet.plan() == (2, ["+ p00", "+ p01"])
    assert fleet.apply() == ["+ p00", "+ p01"]
    assert {value["generation"] for value in fleet.pipelines().values()} == {42} and fleet.revision() == 42


def test_what_others_wrote(fleet):
    """A record that nobody can read, one that is gone, and a later one: told, and written again by the next apply, but for the later one."""
    fleet.define(3).apply()
    for key, value, partition in (("p00", "{", 1), ("p01", None, 5)):
        fleet.producer.produce(fleet.topic, value, key, partition=partition)
    assert fleet.producer.flush(30) == 0
    assert fleet.status()["whole"] is False
    code, out, err = fleet.run("plan")
    assert code == 4 and out.splitlines() == ["!position p00: what was made before is wrong", "+ p01"] and "is not what revision 1 wrote" in err
    fleet.apply("--accept-position")
    assert fleet.status()["whole"] is True and sorted(fleet.pipelines()) == ["p00", "p01", "p02"] and fleet.plan() == (0, [])
    fleet.producer.produce(fleet.topic, json.dumps(fleet.pipelines()["p02"]), "p02", partition=7)
    fleet.producer.flush(30)
    code, _, err = fleet.run("plan")
    assert code == 70 and "has pipeline p02 in partitions 2 and 7" in err
    fleet.producer.produce(fleet.topic, None, "p02", partition=7)
    fleet.producer.produce(fleet.topic, '{"version": 2}', "p02", partition=2)
    fleet.producer.flush(30)
    code, _, err = fleet.run("apply")
    assert code == 78 and "p02 was written by a later millrace" in err


def test_kafka_is_away(fleet):
    (fleet.folder / "fleet.toml").write_text(f'[fleet]\nname = "{fleet.name}"\nsink.kafka.brokers = ["127.0.0.1:1"]\n[template]\n{TEMPLATE}\n[pipeline.p]\n')
    begun = time.monotonic()
    code, _, err = fleet.run("apply")
    assert code == 69 and "Connection refused" in err and time.monotonic() - begun < 45


def test_the_page(fleet):
    """What docs/fleet.md says of fleets that Kafka keeps, in its order; the fleet's name and the broker are this test's."""
    with open(os.path.join(ROOT, "docs", "fleet.md"), encoding="utf-8") as file:
        section = file.read().split("\n## Kept in Kafka\n")[1].split("\n## ")[0]
    (toml,) = re.findall(r"^```toml\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
    (fleet.folder / "fleet.toml").write_text(toml.replace('"shop"', f'"{fleet.name}"').replace("localhost:9092", BOOTSTRAP))
    program = fleet.folder / "bin" / "millrace"
    program.parent.mkdir()
    program.symlink_to(BINARY)
    agent, said = None, []
    try:
        for commands in re.findall(r"^```sh\n(.*?)^```", section, re.MULTILINE | re.DOTALL):
            done = subprocess.run(["bash", "-euo", "pipefail", "-c", commands], cwd=fleet.folder, capture_output=True, text=True, timeout=120, check=False,
                                  env={**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}"})
            said.append(done.stdout)
            assert done.returncode == 0, (commands, done.stdout, done.stderr)
            if agent is None:
                agent = Agent(fleet)
                fleet.tell_node("host1", range(0, 4))
                fleet.tell_node("host2", range(4, 8))
                all_stream(fleet)
        assert said[0] == "+ shop_a\n+ shop_b\nexit code 2\n" and "   2 streaming   " in said[1]
        assert fleet.kept()["shop_a"][0] >= 4 and fleet.plan() == (0, []) and set(agent.restarted) == {"shop_a", "shop_b"}
    finally:
        if agent is not None:
            agent.stop()
