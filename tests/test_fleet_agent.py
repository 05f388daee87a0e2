"""millrace fleet run: agents that place pipelines by Kafka's group protocol, start, restart, hold and hand over."""

import contextlib
import json
import os
import re
import signal
import subprocess
import time

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import NewPartitions

from agents import PARTITIONS, SESSION_S, Fleet, read_topic
from faults.servers import free_port
from kit import BINARY, READER, eventually, figures
from prometheus import ROOT


@pytest.fixture
def fleet():
    made = []

    def make(count, **options):
        made.append(Fleet(count, **options))
        return made[-1]
    yield make
    for one in made:
        one.close()


def test_an_agent_is_killed(fleet):
    """An agent joins and gets a share, whose processes have ended where they were before they start there; then the other one is killed, its processes end,
    and it serves all. Every row once."""
    four = fleet(4)
    four.apply()
    first = four.agent("a").start()
    four.all_served()
    frozen = first.children()
    for pid in frozen:
        os.kill(pid, signal.SIGSTOP)  # none of them can end now
    second = four.agent("b").start()
    first.wait_for("fleet_revoked")
    time.sleep(2)
    assert not second.log("fleet_pipeline_started"), "a partition was given up before its processes had ended"
    for pid in frozen:
        os.kill(pid, signal.SIGCONT)
    four.shared(first, second)
    for moved in second.log("fleet_pipeline_started"):
        ended = first.log("fleet_pipeline_ended", moved["pipeline"])
        assert [one["exit_code"] for one in ended] == [0] and ended[0]["time"] <= moved["time"], (ended, moved)
    four.write(100)
    assert first.left() == first.children()
    first.kill()
    four.write(100)
    eventually(lambda: not first.left(), 60, "the end of what the killed one has left")
    eventually(lambda: len(second.children()) == 4, SESSION_S + 15, "the other agent's four processes")
    four.all_served(15)
    four.write(100)
    four.all_arrived()
    page = second.get("/metrics").body
    states = figures(page)
    assert states['millrace_fleet_pipelines{state="streaming"}'] + states['millrace_fleet_pipelines{state="standby"}'] == 4
    name = next(iter(four.sources))
    assert states[f'millrace_records_acknowledged_total{{pipeline="{name}"}}'] > 0
    assert page.count("# TYPE millrace_ready gauge") == 1
    assert second.stop() == 0


def test_nothing_starts_before_the_end(fleet):
    """A partition with much in it, as before it is compacted: what its last record says is started, and nothing before."""
    one = fleet(1)
    one.apply()
    name, topic = next(iter(one.sources)), f"__millrace_fleet.{one.name}"
    records = read_topic(one.bootstrap, {topic: PARTITIONS})
    place, value = next((partition, json.loads(value)) for _, partition, key, value in records if key == name)
    producer = Producer({"bootstrap.servers": one.bootstrap, "message.max.bytes": 1000000})
    for _ in range(8):
        value["generation"] += 1
        producer.produce(topic, json.dumps({**value, "pad": os.urandom(400000).hex()}), name, place)
    assert producer.flush(30) == 0
    agent = one.agent("a").start()
    one.all_served()
    started = agent.log("fleet_pipeline_started")
    assert [said["generation"] for said in started] == [value["generation"]] and not agent.log("fleet_pipeline_reloaded")


def test_what_needs_a_person_is_held(fleet):
    """One wrong definition is held, whatever else happens, until it is another one; its neighbour streams on."""
    two = fleet(2)
    wrong, right = two.sources
    two.define(p0='source.postgres.publication_name = "not_there"\nsource.postgres.create_publication = false\n')
    two.apply()
    agent = two.agent("a").start()
    agent.wait_for("fleet_pipeline_held", pipeline=wrong)
    eventually(lambda: two.served() == {right}, what="the other stream")
    time.sleep(2.5)  # two pauses: a restart would have come by now
    assert len(agent.log("fleet_pipeline_started", wrong)) == 1
    said = two.status()[wrong]
    assert said["state"] == "held" and said["exit_code"] == 78 and "not_there" in said["error"], said
    two.define(p0="")
    two.apply("--accept-position")
    two.all_served()
    two.write(10)
    two.all_arrived()
    assert agent.stop() == 0


def test_what_is_above_the_hosts_limits(fleet):
    """It is not started, and said to be so, until there is room: on another host, whose own limit, by memory, leaves one again."""
    three = fleet(3)
    three.apply()
    small = three.agent("a", limits="max_pipelines = 2\n").start()
    (left, *_) = three.above_limits(1)
    assert left["state"] == "waiting" and "max_pipelines" in left["error"] and len(small.children()) == 2
    page = figures(small.get("/metrics").body)
    assert page["millrace_fleet_surplus"] == 1 and page['millrace_fleet_pipelines{state="waiting"}'] == 1
    os.kill(small.children()[0], signal.SIGKILL)  # it keeps its place, which the one that waits does not get
    eventually(lambda: small.log("fleet_pipeline_ended"), what="the end")
    eventually(lambda: len(small.children()) == 2, what="both again")
    assert three.above_limits(1)[0]["name"] == left["name"]
    small.stop()
    large = three.agent("b", limits='max_memory = "300MiB"\n').start()  # 256 MiB each
    three.above_limits(2)
    assert len(large.children()) == 1
    large.stop()
    three.agent("c").start()
    three.above_limits(0)
    three.all_served()


def test_a_definition_changes(fleet):
    """Another log level is taken up by a reload, another memory by a restart; a definition that goes ends its process."""
    one = fleet(2)
    name, other = one.sources
    one.apply()
    agent = one.agent("a").start()
    one.all_served()
    eventually(lambda: all(said["state"] == "streaming" for said in one.status().values()), what="both as streaming")
    one.define(p0='log.level = "debug"\n')
    one.apply()
    agent.wait_for("fleet_pipeline_reloaded", pipeline=name)
    assert len(agent.log("fleet_pipeline_started", name)) == 1
    one.define(p0='log.level = "debug"\npipeline.memory = "128MiB"\n')
    one.apply()
    agent.wait_for("fleet_pipeline_started", times=2, pipeline=name)
    one.all_served()
    one.write(10)
    one.all_arrived()
    gone = one.sources.pop(other)
    one.define()
    one.apply()
    eventually(lambda: len(agent.children()) == 1, what="the end of the process whose definition is gone")
    eventually(lambda: set(one.status()) == {name}, what="the end of its status")
    one.sources[other] = gone


def test_one_that_does_not_end(fleet):
    """Its definition goes while it is being started, and it does not hear SIGTERM: it is killed in time, beside one that streams, and the agent says so."""
    two = fleet(2)
    name, other = two.sources
    two.define(p0='pipeline.shutdown_deadline = "1s"\n')
    two.apply()
    agent = two.agent("a").start()
    os.kill(agent.wait_for("fleet_pipeline_started", pipeline=name)["pid"], signal.SIGSTOP)
    gone = two.sources.pop(name)
    two.own.clear()
    two.define()
    two.apply()
    ended = agent.wait_for("fleet_pipeline_ended", pipeline=name)
    assert (ended["exit_code"], ended["state"]) == (128 + signal.SIGKILL, "stopped") and agent.log("fleet_pipeline_killed", name)
    eventually(lambda: set(two.status()) == {other}, what="the end of its status")
    two.all_served()
    two.write(10)
    two.all_arrived()
    two.sources[name] = gone
    assert agent.stop() == 3


def test_whoever_has_started_it(fleet):
    """Ignores SIGCHLD, has closed standard input and output: ends are known nevertheless, and no process gets a file of the agent's but its own pipe."""
    two = fleet(2)
    two.apply()
    agent = two.agent("a", inside=["env", "--ignore-signal=CHLD", "sh", "-c", 'exec "$@" <&- >&-', "sh"]).start()
    two.all_served()

    def files(pid):
        found = {}
        for fd in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(FileNotFoundError):
                found[int(fd)] = os.readlink(f"/proc/{pid}/fd/{fd}")
        return {fd: name for fd, name in found.items() if not name.startswith("anon_inode")}
    mine = files(agent.process.pid)
    assert mine[0] == mine[1] == "/dev/null"
    for child in agent.children():
        its = files(child)
        assert set(mine.values()) & set(its.values()) == {"/dev/null", its[2]}, (mine, its)
    os.kill(agent.children()[0], signal.SIGKILL)
    agent.wait_for("fleet_pipeline_started", times=3)
    two.all_served()
    assert agent.stop() == 0


def test_a_folder_that_is_gone(fleet):
    """A new definition can't be written: what streams goes on, which a restart would not, and says why."""
    one = fleet(1)
    (name,) = one.sources
    one.apply()
    agent = one.agent("a").start()
    one.all_served()
    eventually(lambda: one.status()[name]["state"] == "streaming", what="that it is known to stream")
    os.rename(agent.folder, agent.folder + ".away")
    one.define(p0='log.level = "debug"\n')
    one.apply()
    eventually(lambda: "[fleet] folder" in one.status()[name].get("error", ""), what="the reason")
    one.write(10)
    one.all_arrived()
    assert not agent.log("fleet_pipeline_ended")
    os.rename(agent.folder + ".away", agent.folder)
    one.command("retry", name)
    agent.wait_for("fleet_pipeline_started", times=2)
    one.all_served()
    assert one.status()[name]["generation"] == 2 and agent.stop() == 0


def test_partitions_are_added(fleet):
    """More than agents take: what runs goes on, and who looks or writes is told."""
    one = fleet(1)
    one.apply()
    agent = one.agent("a").start()
    one.all_served()
    topic = f"__millrace_fleet.{one.name}"
    one.admin.create_partitions([NewPartitions(topic, 257)], request_timeout=60)[topic].result(60)
    agent.wait_for("fleet_assigned", times=2)
    one.command("status", codes=(78,))
    one.write(10)
    one.all_arrived()
    assert not agent.log("fleet_pipeline_ended") and agent.stop() == 0


def test_a_log_without_end(fleet):
    """One process says more than anybody can read: the agent serves the others, and ends in order."""
    two = fleet(2)
    two.apply()
    agent = two.agent("a").start()
    two.all_served()
    with subprocess.Popen(["sh", "-c", f"exec yes said_again > /proc/{agent.children()[0]}/fd/2"]) as flood:
        try:
            two.define(p0='log.level = "debug"\n', p1='log.level = "debug"\n')
            two.apply()
            eventually(lambda: {one["generation"] for one in two.status().values()} == {2}, what="both definitions to be taken up")
            assert agent.get("/readyz").status == 200 and agent.stop() == 0
        finally:
            flood.kill()


def test_two_agents_of_one_name(fleet):
    """The older one is fenced, ends its pipelines in order, and says why."""
    one = fleet(1)
    one.apply()
    older = one.agent("a").start()
    one.all_served()
    one.write(10)
    one.agent("b", node="a").start()
    assert older.process.wait(60) == 78
    assert "--node" in older.log("stopped")[-1]["message"]
    one.all_served()
    one.write(10)
    one.all_arrived()


def test_fenced_by_what_comes_late(fleet):
    """Behind a loss (it stood still), something joins under its name, as a request of its own does that comes late: it joins once more, and serves on."""
    one = fleet(1)
    one.apply()
    agent = one.agent("a").start()
    one.all_served()
    agent.send(signal.SIGSTOP)
    time.sleep(SESSION_S + 2)
    agent.send(signal.SIGCONT)
    agent.wait_for("fleet_lost")
    topic = f"__millrace_fleet.{one.name}"
    late = Consumer({**READER, "bootstrap.servers": one.bootstrap, "group.id": topic, "group.instance.id": "a", "session.timeout.ms": SESSION_S * 1000,
                     "partition.assignment.strategy": "cooperative-sticky"})
    late.subscribe([topic])
    eventually(lambda: (late.poll(0.1), agent.log("fleet_fenced"))[1], 60, "the fence")
    late.close()
    one.all_served()
    one.write(10)
    one.all_arrived()
    assert not agent.log("fleet_ends") and not agent.log("fleet_pipeline_ended") and agent.stop() == 0


def test_a_frozen_agent_and_its_successor(fleet):
    """An agent that stands still for longer than its session: another one's processes stand by, never do both deliver, and once it goes on it ends
    what is no more its."""
    two = fleet(4)
    two.apply()
    frozen, other = two.agent("a").start(), two.agent("b").start()
    two.shared(frozen, other)
    with two.load():
        before = len(frozen.children())
        frozen.send(signal.SIGSTOP)
        eventually(lambda: len(other.children()) == 4, SESSION_S + 15, "the other one's processes")
        assert len(frozen.children()) == before  # they stream on
        frozen.send(signal.SIGCONT)
        eventually(lambda: len(frozen.children()) + len(other.children()) == 4, 60, "one process of each pipeline")
        two.all_served(30)
    two.all_arrived()


def test_drained_without_a_gap(fleet):
    """Each process ends once another agent's stands by for its pipeline."""
    four = fleet(4)
    four.apply()
    first, second = four.agent("a").start(), four.agent("b").start()
    four.shared(first, second)
    with four.load():
        four.command("drain", "a")
        eventually(lambda: not first.children(), SESSION_S + 60, "a node without processes")
        four.all_served(30)
    assert len(second.children()) == 4
    four.all_arrived()
    assert first.stop() == 0
    four.command("undrain", "a")
    first.start()
    four.shared(first, second)
    four.write(10)
    four.all_arrived()


def test_definitions_that_go_back(fleet):
    """The topic is deleted: nothing is changed, the agent is not ready, and says so."""
    two = fleet(2)
    two.apply()
    agent = two.agent("a").start()
    two.all_served()
    assert agent.get("/readyz").status == 200
    two.admin.delete_topics([f"__millrace_fleet.{two.name}"])[f"__millrace_fleet.{two.name}"].result(30)
    agent.wait_for("fleet_revision_back", 60)
    assert agent.get("/readyz").status == 503
    two.write(10)
    two.all_arrived()
    assert len(agent.children()) == 2 and not agent.log("fleet_pipeline_ended")
    two.apply("--accept-position")
    agent.wait_for("fleet_revision_forward", 60)
    eventually(lambda: agent.get("/readyz").status == 200, 60, "readiness")
    two.write(10)
    two.all_arrived()


def test_the_page(fleet):
    """docs/fleet.md, "Without an orchestrator": its file and its commands, with names and places of this test."""
    one = fleet(1)
    with open(os.path.join(ROOT, "docs", "fleet.md"), encoding="utf-8") as file:
        section = file.read().split("## Without an orchestrator")[1].split("\n## ")[0]
    toml, commands = (re.findall(rf"^```{form}\n(.*?)^```", section, re.MULTILINE | re.DOTALL)[0] for form in ("toml", "sh"))
    port = str(free_port())
    for old, new in (('"shop"', f'"{one.name}"'), ("/run/millrace/fleet", f"{one.folder}/run"), ("localhost:9092", one.bootstrap), ("9465", port)):
        toml = toml.replace(old, new)
    os.mkdir(os.path.join(one.folder, "bin"))
    os.symlink(BINARY, os.path.join(one.folder, "bin", "millrace"))
    with open(os.path.join(one.folder, "agent.toml"), "w", encoding="utf-8") as file:
        file.write(toml)
    script = commands.replace("9465", port) + "kill %1 && wait %1\n"
    done = subprocess.run(["bash", "-euo", "pipefail", "-mc", script], cwd=one.folder, capture_output=True, text=True, timeout=90, check=False,
                          env={**os.environ, "PATH": f"{one.folder}/bin:{os.environ['PATH']}"})
    assert done.returncode == 0 and 'millrace_fleet_pipelines{state="streaming"} 1' in done.stdout, (done.stdout, done.stderr)
