"""docs/consumers.md: the examples read each change once from a topic that has repeats, transactions that were aborted, and a consumer
that is killed."""

import os
import re
import sqlite3
import subprocess
import sys

import pytest
from confluent_kafka import Producer

from kit import BOOTSTRAP, GO, Database, Millrace, Topic, eventually

EXAMPLES = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "docs", "examples")
ROWS = 6000


def deliver(database, first, last):
    database.run(f"INSERT INTO t SELECT generate_series({first}, {last})")
    database.all_confirmed()


def abort_transaction(topic, positions):
    """Records as millrace makes them that nobody is to see, in each partition, with positions above all others."""
    producer = Producer({"bootstrap.servers": BOOTSTRAP, "transactional.id": topic, "log_level": 0})
    producer.init_transactions(30)
    producer.begin_transaction()
    for partition in range(3):
        producer.produce(topic, b"{}", b'{"id":0}', partition, headers={"mr-pos": "F" * positions})
    producer.flush(30)
    producer.abort_transaction(30)


@pytest.fixture(scope="module")
def repeated(tmp_path_factory):
    """A topic of three partitions with ids 1 to 6,000, most of them twice: the slot is set back by a copy of it."""
    database = Database()
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    name = database.make_topic("t", partitions=3)
    # With a stored position nothing would come twice.
    process = Millrace(database, tmp_path_factory.mktemp("millrace"), sink__kafka__state_topic='""').start().streaming()
    database.run("SELECT pg_copy_logical_replication_slot(%s, %s)", [database.slot, database.slot + "_copy"])
    deliver(database, 1, 5000)
    process.stop()
    database.run("SELECT pg_drop_replication_slot(%s)", [database.slot])
    database.run("SELECT pg_copy_logical_replication_slot(%s, %s)", [database.slot + "_copy", database.slot])
    topic = Topic(name)
    abort_transaction(name, len(topic.take(1)[0].position))
    process.start().streaming()
    deliver(database, 5001, ROWS)
    assert process.stop() == 0
    topic.take(5000 + ROWS - 1)
    topic.close()
    yield name
    database.drop()


class Java:
    def __init__(self, folder):
        classes = os.path.join(os.environ["MILLRACE_TOOLS_DIR"], "kafka", "libs", "*")
        source = os.path.join(EXAMPLES, "consumers", "ConsumeOnce.java")
        subprocess.run(["javac", "-Xlint:all", "-Werror", "-cp", classes, "-d", str(folder), source], check=True)
        self.command = ["java", "-XX:+UseSerialGC", "-cp", f"{folder}:{classes}", "ConsumeOnce"]


class Go:
    def __init__(self, folder):
        program = os.path.join(folder, "consume-once")
        subprocess.run([GO, "build", "-buildvcs=false", "-o", program, "."], cwd=os.path.join(EXAMPLES, "consumers", "go"), check=True)
        self.command = [program]


def keys_in_file(path):
    """What the examples in Java and Go have written: whole lines, without their last field."""
    if not os.path.exists(path):
        return []
    with open(path, encoding="utf-8") as file:
        text = file.read()
    return [key for line in text[:text.rfind("\n") + 1].splitlines() for key in line.split("\t")[:-1] if key]


def keys_in_store(path):
    if not os.path.exists(path):
        return []
    store = sqlite3.connect(path)
    try:
        return [key.decode() for (key,) in store.execute("SELECT key FROM results")]
    except sqlite3.OperationalError:
        return []  # not made yet
    finally:
        store.close()


@pytest.mark.parametrize("language", ["python", "java", "go"])
def test_a_consumer_counts_each_change_once_though_it_is_killed(repeated, tmp_path, language):
    kept, read = str(tmp_path / "kept"), keys_in_file
    if language == "python":
        command, read = [sys.executable, os.path.join(EXAMPLES, "consume_once.py"), "--brokers", BOOTSTRAP, "--topic", repeated, "--store", kept], keys_in_store
        last = ["--idle", "20"]
    else:
        command, last = [*{"java": Java, "go": Go}[language](tmp_path).command, BOOTSTRAP, repeated, kept], ["20"]
    # The one in Go reads all before a signal can reach it: it dies of the size of its file.
    limit = ["prlimit", "--fsize=40000"] if language == "go" else []
    killed = subprocess.Popen([*limit, *command], stdout=subprocess.DEVNULL)
    try:
        eventually(lambda: read(kept), 60, "results")
    finally:
        killed.kill()
        killed.wait()
    if language != "python":
        with open(kept, "ab") as file:
            file.write(b'{"id":"\xc3')  # a line that the kill has cut, within a character
    done = subprocess.run([*command, *last], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0 and re.search(r"^[1-9]\d* repeats dropped", done.stdout, re.MULTILINE), done.stdout + done.stderr
    assert sorted(read(kept)) == sorted(f'{{"id":{n}}}' for n in range(1, ROWS + 1))


def test_each_language_of_the_page_has_its_example():
    with open(os.path.join(os.path.dirname(EXAMPLES), "consumers.md"), encoding="utf-8") as file:
        named = set(re.findall(r"\(examples/consumers/([\w.]+)(?:/main\.go)?\)", file.read()))
    assert named == set(os.listdir(os.path.join(EXAMPLES, "consumers"))) and len(named) > 1
