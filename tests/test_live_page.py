"""The live page in a real browser: its figures are those of /metrics, it fits, it survives a restart."""

import os
import threading
import time

import pytest
from selenium.webdriver.common.keys import Keys

from browser import open_browser
from kit import eventually, figures

RESULTS = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "results")
BURST_ROWS = 200000

READ_FIGURES = """
return {turn: Number(document.body.dataset.turn || 0), start: document.body.dataset.start,
        values: Object.fromEntries([...document.querySelectorAll('[data-figure]')]
            .map((e) => [e.dataset.figure, e.dataset.value]))};
"""


@pytest.fixture
def browser(tmp_path):
    with open_browser(tmp_path / "browser") as opened:
        yield opened


@pytest.fixture
def page(database, millrace, browser):
    """A millrace that streams, and its page."""
    database.run("CREATE TABLE t (id serial PRIMARY KEY, v text)")
    process = millrace().start().streaming()
    browser.look(1280)
    browser.driver.get(f"http://{process.address()}/")
    turned(browser, 0)
    return process


def turned(browser, after_ms, limit_s=60):
    """What the page shows once it has asked again after that moment."""
    def read():
        shown = browser.run(READ_FIGURES)
        return shown if shown["turn"] > after_ms else None
    return eventually(read, limit_s, "the page draws itself anew")


def check_between(before, shown, after):
    """Counts only grow: what the page asked for in between lies in between."""
    for name in ("millrace_changes_total", "millrace_records_acknowledged_total", "millrace_transactions_total",
                 "millrace_record_bytes_acknowledged_total"):
        assert before[name] <= float(shown["values"][name]) <= after[name], name
    most = after["millrace_records_total"] - before["millrace_records_acknowledged_total"]
    assert 0 <= float(shown["values"]["millrace_messages_in_flight"]) <= most


def test_figures_are_those_of_metrics(database, page, browser):
    looked = threading.Event()

    def burst():
        for part in range(20):
            if part == 10:
                looked.wait(60)  # else all of it might be through before the page has turned once
            database.run(f"INSERT INTO t (v) SELECT repeat('x', 100) FROM generate_series(1, {BURST_ROWS // 20})")
    writer = threading.Thread(target=burst)
    writer.start()
    moments = 0
    acknowledged = 0
    while acknowledged < BURST_ROWS:
        before = figures(page.get("/metrics").body)
        shown = turned(browser, time.time() * 1000)
        after = figures(page.get("/metrics").body)
        check_between(before, shown, after)
        acknowledged = after["millrace_records_acknowledged_total"]
        moments += 1
        looked.set()
    writer.join()
    assert moments > 1

    # At rest all of them are equal.
    at_rest = figures(page.get("/metrics").body)
    shown = turned(browser, time.time() * 1000)
    for name, value in shown["values"].items():
        if name in at_rest:
            assert float(value) == at_rest[name], name
    assert float(shown["values"]["millrace_changes_total"]) == BURST_ROWS
    rate = browser.run("return [...document.querySelectorAll('path.p1')].map((p) => p.getAttribute('d').length)")
    assert max(rate) > 20  # the burst is drawn
    assert browser.errors() == []
    os.makedirs(RESULTS, exist_ok=True)
    for name, width, scheme in (("light", 1280, "light"), ("dark", 1280, "dark"), ("narrow", 360, "light")):
        browser.look(width, scheme=scheme)
        turned(browser, time.time() * 1000)
        browser.screenshot(os.path.join(RESULTS, f"live-page-{name}.png"))
    assert page.stop() == 0


def test_fits_a_narrow_window(page, browser):
    for width in (360, 640, 1024):
        browser.look(width)
        turned(browser, time.time() * 1000)
        assert browser.run("return document.documentElement.scrollWidth") <= width
    assert browser.errors() == []
    assert page.stop() == 0


def test_keyboard_and_themes(page, browser):
    def ground():
        return browser.run("return getComputedStyle(document.body).backgroundColor")
    light = ground()
    browser.look(1280, scheme="dark")
    assert ground() != light
    body = browser.driver.find_element("tag name", "body")
    reached = set()
    for _ in range(40):
        browser.driver.switch_to.active_element.send_keys(Keys.TAB)
        reached.add(browser.run("const e = document.activeElement; return e.id || e.className.baseVal || "
                                "e.getAttribute('href') || e.getAttribute('aria-label') || e.tagName"))
    assert {"theme", "metrics", "status"} <= reached
    assert any(name.startswith("Rate") for name in reached)

    eventually(lambda: browser.run("return document.querySelectorAll('path.p1[d^=M]').length") >= 1, 30, "a curve")
    chart = body.find_elements("css selector", ".chart svg")[0]
    browser.run("arguments[0].focus()", chart)
    browser.driver.switch_to.active_element.send_keys(Keys.ARROW_LEFT)
    assert browser.run("return document.querySelector('.chart time').textContent") != ""
    browser.driver.switch_to.active_element.send_keys(Keys.ESCAPE)
    assert browser.run("return document.querySelector('.chart time').textContent") == ""

    browser.run("document.getElementById('theme').focus()")
    browser.driver.switch_to.active_element.send_keys(Keys.ENTER)  # from auto to light
    assert ground() == light
    assert browser.errors() == []
    assert page.stop() == 0


def test_survives_a_restart(database, page, browser):
    database.run("INSERT INTO t (v) VALUES ('x')")
    eventually(lambda: browser.run(READ_FIGURES)["values"].get("millrace_changes_total") == "1", what="the row")
    before = browser.run(READ_FIGURES)
    address = page.address()
    assert page.stop() == 0
    eventually(lambda: "no answer" in browser.run("return document.getElementById('contact').textContent"), 30,
               "the page says that nobody answers")
    page.configure(http__address=f'"{address}"')
    page.start().streaming()
    after = turned(browser, before["turn"])
    assert after["start"] != before["start"]
    eventually(lambda: browser.run("return document.getElementById('contact').textContent") == "live", what="live")
    database.run("INSERT INTO t (v) VALUES ('y')")
    eventually(lambda: browser.run(READ_FIGURES)["values"]["millrace_changes_total"] == "1", what="the new row")
    assert page.stop() == 0
