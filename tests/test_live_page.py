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


def test_tables_sort_options_have_origins_and_lines_have_gaps(database, millrace, browser, tmp_path):
    secret = tmp_path / "password"
    secret.write_text("sesame\n")
    secret.chmod(0o600)
    database.run("CREATE TABLE t (id serial PRIMARY KEY, v text); CREATE TABLE u (id serial PRIMARY KEY)")
    process = millrace(("t", "u"), http__username='"ann"', http__password=f'"file:{secret}"',
                       http__last_events="true").start().streaming()
    browser.look(1280)
    browser.log_in("ann:sesame")
    browser.driver.get(f"http://{process.address()}/")
    database.run("INSERT INTO t (v) VALUES ('see me'), ('<b>'); INSERT INTO u DEFAULT VALUES")

    def cells(column):
        return browser.run("return [...document.querySelectorAll('#tables tbody tr')].map((r) => r.cells[arguments[0]].textContent)",
                           column)

    def click(selector):
        browser.run("document.querySelector(arguments[0]).click()", selector)
    eventually(lambda: sorted(cells(0)) == ["public.t", "public.u"], what="both tables")
    click("#tables th:nth-child(1) button")
    assert cells(0) == ["public.t", "public.u"]
    click("#tables th:nth-child(1) button")
    assert cells(0) == ["public.u", "public.t"]
    turned(browser, time.time() * 1000)
    assert cells(0) == ["public.u", "public.t"]  # it stays sorted
    click("#tables th:nth-child(2) button")
    eventually(lambda: cells(1) == ["2", "1"], what="the larger number first")
    assert browser.run("return document.querySelector('#tables th:nth-child(2)').getAttribute('aria-sort')") == "descending"

    # Only names that contain what is typed; it stays so with the next answer.
    def filter_tables(words):
        browser.run("const field = document.querySelector('input.filter'); field.value = arguments[0]; "
                    "field.dispatchEvent(new Event('input'))", words)
    filter_tables("C.U")
    assert cells(0) == ["public.u"]
    turned(browser, time.time() * 1000)
    assert cells(0) == ["public.u"]
    filter_tables("nobody")
    assert cells(0) == ["Nothing here contains “nobody”."]
    filter_tables("")

    # A click on a table's name shows its last event, as text.
    assert "see me" not in browser.run("return document.body.textContent")
    click("#tables tbody tr:nth-child(1) button")
    event = eventually(lambda: browser.run("return document.getElementById('last-event-text').textContent"), what="the event")
    assert '"v": "<b>"' in event and '{"id":2}' in event

    # Options: those that are set first, with their place; sizes as people read them.
    rows = browser.run("return [...document.querySelectorAll('#options tbody tr')].map((r) => [...r.cells].map((c) => c.textContent))")
    found = {name: (value, origin) for name, value, origin in rows}
    assert "config.toml" in found["topic_prefix"][1] and rows[0][2] != "default" and rows[-1][2] == "default"
    assert found["pipeline.memory"] == ("256 MiB", "default")
    assert found["pipeline.reconnect_max"][0] == "30 s" and found["pipeline.latency"][0] == "2.0 ms"
    assert any(about for about in browser.run("return [...document.querySelectorAll('#events .about')].map((e) => e.textContent)")
               if database.publication in about)

    # Flush time is known for the moment of the rows alone: no line leads from them to now.
    eventually(lambda: browser.run("return rows.length > 6 && rows[rows.length - 1].flush_p99 === null"), what="an idle second")
    assert browser.run("""const x = (ms) => 1000 + (ms - newest()) / 60, drawn = path('flush_p99', x, () => 0, 100).line;
        const idle = rows.slice(rows.findLastIndex((row) => known(row.flush_p99)) + 1);
        return idle.length > 0 && Math.max(...drawn.match(/[ML]\\d+/g).map((p) => Number(p.slice(1)))) < Math.round(x(newest()))""")
    assert browser.errors() == []
    assert process.stop() == 0


def test_flame_graph_is_dark_where_the_page_is(profiled, browser):
    process = profiled(endpoints="true", recorder="true")
    database = process.database
    browser.look(1280, scheme="dark")
    browser.driver.get(process.url)

    def busy_and_drawn():
        database.run("INSERT INTO t (name) SELECT 'x' FROM generate_series(1, 20000)")
        return browser.run("return Number(document.getElementById('flame').dataset.turn || 0)") > 0
    eventually(busy_and_drawn, 60, "the flame graph")
    pixel = """const [done] = arguments, image = document.getElementById('flame'), at = new OffscreenCanvas(image.naturalWidth, image.naturalHeight).getContext('2d');
        at.drawImage(image, 0, 0); done([...at.getImageData(1, 1, 1, 1).data].slice(0, 3));"""
    assert max(browser.driver.execute_async_script(pixel)) < 80
    assert "The profiler has taken" in browser.run("return document.getElementById('flame-note').textContent")
    assert process.stop() == 0


def test_survives_a_restart(database, page, browser):
    database.run("INSERT INTO t (v) VALUES ('x')")
    eventually(lambda: browser.run(READ_FIGURES)["values"].get("millrace_changes_total") == "1", what="the row")
    before = browser.run(READ_FIGURES)
    address = page.address()
    assert page.stop() == 0
    eventually(lambda: "no answer" in browser.run("return document.getElementById('contact').textContent"), 30,
               "the page says that nobody answers")
    page.configure(http__address=f'"{address}"').start().streaming()
    after = turned(browser, before["turn"])
    assert after["start"] != before["start"]
    eventually(lambda: browser.run("return document.getElementById('contact').textContent") == "live", what="live")
    database.run("INSERT INTO t (v) VALUES ('y')")
    eventually(lambda: browser.run(READ_FIGURES)["values"]["millrace_changes_total"] == "1", what="the new row")
    assert page.stop() == 0
