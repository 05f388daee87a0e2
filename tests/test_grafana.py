"""Every query of every dashboard and alert rule has data, in a real Prometheus on a real run.

PostgreSQL's exporter is Debian's. cAdvisor, kafka_exporter and Debezium have no native program here: their
answers are served from tests/samples."""

import contextlib
import json
import math
import os
import re
import subprocess
import sys

import pytest

from endless import Endless
from kit import dsn, eventually
from prometheus import CONFIGURATION, ROOT, Exporter, Prometheus, Sample, postgres_exporter
from test_every import every  # noqa: F401  pylint: disable=unused-import

GRAFANA = os.path.join(ROOT, "grafana")
# What Grafana puts in place of its variables.
VARIABLES = {"$__rate_interval": "15s", "$__interval": "5s", "$__range": "1m", "$instance": ".*",
             "$stage": "flush"}
SANITIZED = "MILLRACE_TEST_SANITIZED" in os.environ
METRIC = re.compile(r"\b(?!container_label_)(?:millrace_|process_|container_|kafka_|pg_|tool:|instance:)[a-z0-9_:]+")


def dashboards():
    for name in sorted(os.listdir(os.path.join(GRAFANA, "dashboards"))):
        with open(os.path.join(GRAFANA, "dashboards", name), encoding="utf-8") as file:
            yield name, json.load(file)


def panel_queries():
    """(where, query) of every panel of every dashboard, and of its annotations."""
    for name, dashboard in dashboards():
        for panel in dashboard["panels"]:
            for target in panel.get("targets", []):
                text = target["expr"]
                for variable, value in VARIABLES.items():
                    text = text.replace(variable, value)
                assert "$" not in text, f"unknown variable in {name}: {text}"
                if not (SANITIZED and "jemalloc" in text):
                    yield f"{name}: {panel['title']}", text


def run(*command):
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    print(result.stdout)  # shown when the test failed
    return result.returncode


def test_dashboards_are_what_the_script_makes():
    assert run(sys.executable, os.path.join(GRAFANA, "make_dashboards.py"), "--check") == 0


def test_dashboards_are_whole():
    seen = set()
    for name, dashboard in dashboards():
        assert dashboard["uid"] not in seen
        seen.add(dashboard["uid"])
        for panel in dashboard["panels"]:
            place = panel["gridPos"]
            assert place["x"] + place["w"] <= 24, f"{name}: {panel['title']} is beyond the right edge"
            assert panel["type"] == "row" or panel["description"], f"{name}: {panel['title']} says nothing"


def test_dashboards_fit_any_grafana():
    """Each asks for its data source by a variable, which its user chooses; Grafana's own annotations have theirs."""
    for name, dashboard in dashboards():
        variables = {variable["name"]: variable for variable in dashboard["templating"]["list"]}
        assert (variables["datasource"]["type"], variables["datasource"]["query"]) == ("datasource", "prometheus"), name
        uids = set(re.findall(r'"uid": "([^"]+)"', json.dumps(dashboard)))
        assert uids == {"${datasource}", "-- Grafana --", dashboard["uid"]}, name


def test_panels_that_may_be_empty_say_why():
    said = {(dashboard["title"], panel["title"]): panel["fieldConfig"]["defaults"].get("noValue", "")
            for _, dashboard in dashboards() for panel in dashboard["panels"] if panel["type"] != "row"}
    for words, part in (("Slot: WAL until it is lost", "max_slot_wal_keep_size"), ("Backlog", "exporters")):
        assert any(title == words and part in text for (_, title), text in said.items()), words


def test_copies_have_panels():
    """How a copy stands, how far it is, how long it takes yet, of the first copy and of those beside the stream."""
    shown = " ".join(query for _, query in panel_queries())
    for name in ("snapshot_state", "snapshot_bytes", "snapshot_table_bytes", "snapshot_seconds_left", "snapshot_rows",
                 "incremental_tables", "incremental_rows_total", "incremental_chunks_repeated_total"):
        assert re.search(rf"\bmillrace_{name}\b", shown), f"no panel has millrace_{name}"


def test_rules_and_their_tests():
    assert run("promtool", "check", "rules", os.path.join(CONFIGURATION, "rules.yml")) == 0
    assert run("promtool", "check", "config", os.path.join(CONFIGURATION, "prometheus.yml")) == 0
    assert run("promtool", "test", "rules", os.path.join(CONFIGURATION, "rules_test.yml")) == 0


def read(*path):
    with open(os.path.join(ROOT, *path), encoding="utf-8") as file:
        return file.read()


def test_every_alert_is_tested_and_documented():
    alerts = re.findall(r"alert: (\w+)", read("grafana", "prometheus", "rules.yml"))
    tests, page = read("grafana", "prometheus", "rules_test.yml"), read("docs", "runbook.md").split("\n## Alerts\n")[1]
    assert alerts and sorted(alerts) == sorted(re.findall(r"^### (\w+)$", page, re.MULTILINE))
    for alert in alerts:
        assert f"- name: {alert}\n" in tests


def write(connection, _):
    while True:
        connection.execute("INSERT INTO t (v) SELECT repeat('x', 100) FROM generate_series(1, 50)")
        connection.execute("UPDATE t SET v = 'y' WHERE id IN (SELECT id FROM t ORDER BY id DESC LIMIT 5)")
        yield 0.05


@pytest.fixture
def slot_limit(database):
    """A limit of the slot's log, so that there is something to forecast."""
    database.run("ALTER SYSTEM SET max_slot_wal_keep_size = '2GB'")
    database.run("SELECT pg_reload_conf()")
    yield
    database.run("ALTER SYSTEM RESET max_slot_wal_keep_size")
    database.run("SELECT pg_reload_conf()")


@pytest.fixture
def prometheus(database, slot_limit, millrace, every, tmp_path):  # noqa: F811  pylint: disable=redefined-outer-name
    """One that scrapes a millrace through which rows flow."""
    database.run("CREATE TABLE t (id bigserial PRIMARY KEY, v text)")
    database.run("INSERT INTO t (v) SELECT repeat('x', 100) FROM generate_series(1, 1000)")
    process = millrace(snapshot__mode='"initial"', metrics__interval='"1s"',
                       sink__kafka__partitions="2", skipped_operations="[]").start().streaming()
    prover = every(process, "1m")

    def figures():
        """millrace's, and those of the proofs beside it, which node_exporter serves elsewhere."""
        return process.get("/metrics").body + (prover.path.read_text() if prover.path.exists() else "")
    with contextlib.ExitStack() as stack:
        def started(made):
            stack.callback(made.stop)
            return made.address
        targets = {
            "millrace:9464": started(Exporter(figures)),
            "postgres-exporter:9187": started(postgres_exporter(tmp_path, dsn("postgres"))),
            "kafka-exporter:9308": started(Sample("kafka_exporter")),
            "cadvisor:8080": started(Sample("cadvisor")),
            "debezium:9404": started(Sample("debezium")),
        }
        server = Prometheus(tmp_path, targets)
        stack.callback(server.stop)
        with Endless(database, write):
            yield server


def watched(query):
    """What an alert compares, numbers apart: what must have data while nothing is wrong."""
    compared = [re.split(r" (?:==|>|<) ", part) for part in re.split(r"\s+(?:and|or)\s+", query.strip())]
    assert all(len(sides) <= 2 for sides in compared) and len(compared[0]) == 2, f"an alert is to be comparisons, joined by and, or: {query}"
    return [side for sides in compared for side in sides if not re.fullmatch(r"[0-9.e+]+", side)]


def rule_queries(server):
    for group in server.api("rules")["groups"]:
        for rule in group["rules"]:
            for query in watched(rule["query"]) if rule["type"] == "alerting" else [rule["query"]]:
                yield f"rule {rule['name']}", query


def known_metrics(server):
    """The series there are, and all that millrace declares: counters of trouble have no series without any."""
    known = set(server.api("label/__name__/values"))
    for name, kind in re.findall(r'^MR_METRIC\(\w+, "(\w+)", (\w+)', read("src", "metrics", "metrics.def"), re.MULTILINE):
        known |= {name + ending for ending in ("_bucket", "_sum", "_count")} if kind == "HISTOGRAM" else {name}
    return known


def test_every_query_has_data(prometheus):
    missing = list(panel_queries())

    def all_have_data():
        missing[:] = [(where, query) for where, query in missing
                      if all(math.isnan(value) for _, value in prometheus.query(query))]
        return not missing

    eventually(lambda: len(prometheus.query('up == 1')) == 5, 60, "an answer of every target")
    missing += rule_queries(prometheus)
    assert len(missing) > 100
    try:
        eventually(all_have_data, 120, "data for every query")
    except AssertionError:
        raise AssertionError("no data:\n" + "\n".join(f"{where}: {query}" for where, query in missing)) from None

    known = known_metrics(prometheus)
    for where, query in [*panel_queries(), *rule_queries(prometheus)]:
        unknown = set(METRIC.findall(query)) - known
        assert not unknown, f"{where}: no such metric {unknown}"
    for group in prometheus.api("rules")["groups"]:
        for rule in group["rules"]:
            assert rule["health"] == "ok", rule
    firing = [labels["alertname"] for labels, _ in prometheus.query('ALERTS{alertstate="firing"}')]
    assert not firing
