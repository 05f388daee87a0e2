"""The fleet's page in a real browser, served by an agent that runs real pipelines: what it shows is what /status says, it fits, and it says who is
silent."""

import json
import os
import time

import pytest
from confluent_kafka import Producer

from agents import Fleet
from browser import open_browser
from kit import eventually

RESULTS = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "results")
LONG = "a-name-that-is-as-long-as-a-pipeline-may-be-called-sixty-three-c"[:63]
MARKUP = "<img src=x onerror=\"document.title='taken'\"> " + "a reason that takes more than one line to tell; " * 4

READ_ROWS = """
return [...document.querySelectorAll(arguments[0] + ' tbody tr')].map((row) => [...row.cells].map((cell) => cell.textContent));
"""


@pytest.fixture
def fleet():
    made = Fleet(5)
    yield made
    made.close()


@pytest.fixture
def browser(tmp_path):
    with open_browser(tmp_path / "browser") as opened:
        yield opened


def tell(fleet, name, **fields):
    """As another agent, of a pipeline whose definition is gone; it stays as it is."""
    now = int(time.time() * 1000)
    value = {"version": 1, "at_ms": now, "since_ms": now, "node": "host-of-another-agent", "generation": 1, "program": "0.2.0", **fields}
    producer = Producer({"bootstrap.servers": fleet.bootstrap, "linger.ms": 0})
    producer.produce(f"__millrace_fleet.{fleet.name}.status", json.dumps(value), name, partition=0)
    assert producer.flush(30) == 0


def turned(browser):
    """Once the page has asked twice again: one answer may have been on its way."""
    for _ in range(2):
        before = browser.run("return Number(document.body.dataset.turn || 0)")
        eventually(lambda: browser.run("return Number(document.body.dataset.turn || 0)") > before, 60, "the page draws itself anew")


def states(browser):
    return {row[0]: row[1] for row in browser.run(READ_ROWS, "#pipelines")}


def test_what_the_page_shows(fleet, browser):
    well, held, stopped, silent, lags = fleet.sources
    fleet.define(p1='source.postgres.publication_name = "not_there"\nsource.postgres.create_publication = false\n', p2="run = false\n")
    fleet.apply()
    agent = fleet.agent("host-1").start()
    eventually(lambda: len(fleet.served()) == 3, 60, "three streams")
    fleet.write(1000)
    agent.get("/status")
    browser.look(1280)
    address = agent.log("http_listening")[0]["address"]
    browser.driver.get(f"http://{address}/")
    wanted = {well: "streaming", held: "held", stopped: "stopped", silent: "streaming", lags: "streaming"}
    eventually(lambda: states(browser) == wanted, 60, "all states")

    # Each number is that of /status; those that stream have all of them.
    def agrees():
        turned(browser)
        rows = {row[0]: row for row in browser.run(READ_ROWS, "#pipelines")}
        for one in json.loads(agent.get("/status").body)["pipelines"]:
            _, state, lag, kept, node, memory, used, starts, why = rows[one["name"]]
            assert (state, node, starts, why) == (one["state"], one["node"], str(one["starts"]), one.get("error", "")), rows[one["name"]]
            if state == "streaming":
                assert memory == f"{one['rss_bytes'] / 2 ** 20:.1f} MiB" and used.endswith(" s") and lag.endswith(" s") and "B" in kept, rows[one["name"]]
        return True
    eventually(agrees, 60, "the page is what /status says", (AssertionError,))
    assert [row[0] for row in browser.run(READ_ROWS, "#pipelines")][0] == held, "the worst is not first"
    assert "not_there" in browser.run(READ_ROWS, "#pipelines")[0][8]
    assert [row[:4] for row in browser.run(READ_ROWS, "#nodes")] == [["host-1", "ready", "3", "1"]]
    assert browser.run("return document.getElementById('contact').textContent") == "live"

    # Sixty rows with whatever others say of them: long names, an error that looks like markup, a slot at risk.
    for number in range(53):
        tell(fleet, f"far_{number}", state="streaming", lag_seconds=number * 1000, retained_wal_bytes=10 ** (number // 4), rss_bytes=2e7,
             cpu_seconds=number * 5000, starts=1, rows=1, bytes=1)
    tell(fleet, LONG, state="backoff", error=MARKUP, starts=12)
    tell(fleet, "at_risk", state="streaming", slot="unreserved", lag_seconds=1, starts=1)
    eventually(lambda: len(states(browser)) == 60, 30, "sixty rows")
    turned(browser)
    os.makedirs(RESULTS, exist_ok=True)
    for name, width, scheme in (("light", 1280, "light"), ("dark", 1280, "dark"), ("narrow", 360, "light"), ("tablet", 760, "dark")):
        browser.look(width, scheme=scheme)
        assert browser.run("return document.documentElement.scrollWidth") <= width
        assert browser.run("return [...document.querySelectorAll('.scroll')].every((one) => one.scrollWidth <= one.clientWidth)"), name
        browser.screenshot(os.path.join(RESULTS, f"fleet-page-{name}.png"))
    rows = {row[0]: row for row in browser.run(READ_ROWS, "#pipelines")}
    assert rows[LONG][8] == MARKUP and browser.driver.title == f"Fleet {fleet.name}"
    assert rows["at_risk"][8] == "slot unreserved" and rows["far_50"][2:4] == ["13.9 h", "931.3 GiB"] and rows["far_50"][6] == "2.9 d"

    # Only those that contain what is typed.
    def only(words):
        browser.run("const field = document.getElementById('filter'); field.value = arguments[0]; field.dispatchEvent(new Event('input'))", words)
        return [row[0] for row in browser.run(READ_ROWS, "#pipelines")]
    assert only("NOT_there") == [held] and only("nobody") == ["Nothing here contains “nobody”."]
    assert len(only("")) == 60
    assert browser.errors() == []

    agent.kill()
    eventually(lambda: browser.run("return document.getElementById('contact').textContent") == "no answer", 30, "the page says that nobody answers")
    browser.screenshot(os.path.join(RESULTS, "fleet-page-lost.png"))
