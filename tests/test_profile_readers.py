"""Profiles as others read them: `go tool pprof` in its ways, speedscope in a browser, the live page; and the names in them."""

import base64
import gzip
import os
import re
import shutil
import subprocess
import urllib.error
import urllib.request
import xml.etree.ElementTree

import pytest

from browser import open_browser
from kit import BINARY, GO, eventually, expect
from pprof_file import Profile, fields
from test_profiler import SANITIZED, fetch, insert, refusal

pytestmark = pytest.mark.timeout(240)

RESULTS = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "results")
SPEEDSCOPE = os.path.join(os.environ.get("MILLRACE_TOOLS_DIR", ""), "speedscope/node_modules/speedscope/dist/release")


def pprof(*arguments, environment=None):
    result = subprocess.run([GO, "tool", "pprof", *map(str, arguments)], capture_output=True, timeout=180, check=False,
                            env={**os.environ, **(environment or {})})
    assert result.returncode == 0, result.stderr.decode()
    return result.stdout.decode()


KEPT = {}


def forms(url, headers=None, method="GET"):
    """Status and headers of an answer, good or bad."""
    request = urllib.request.Request(url, headers=headers or {}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.headers
    except urllib.error.HTTPError as error:
        return error.code, error.headers


@pytest.fixture
def taken(database, profiled, tmp_path_factory):
    """One profile of each kind, {name: path}; fetched once for all tests that only read them."""
    if not KEPT:
        folder = tmp_path_factory.mktemp("profiles")
        options = {} if SANITIZED else {"heap": "true"}
        pages = {"before": "/pprof/profile/report?seconds=2&frequency=1000",
                 "after": "/debug/pprof/profile?seconds=2"}
        if options:
            pages["heap"] = "/pprof/heap/report"
        process = profiled(endpoints="true", **options)
        found = {}
        for name, page in pages.items():
            insert(database, 30000)
            found[name] = folder / f"{name}.pb.gz"
            found[name].write_bytes(fetch(process.url + page))
        assert process.stop() == 0
        KEPT.update(found)
    return KEPT


def test_filters_roots_and_forms(database, profiled):
    process = profiled(endpoints="true", recorder="true", frequency="500")
    insert(database, 30000)
    last = process.url + "/pprof/last-minute/"
    def rooted_by_stage():
        folded = fetch(last + "folded?root=stage").decode()
        return folded if re.search(r"^flush;", folded, re.M) else None
    stages = eventually(rooted_by_stage, 60, "time in the brokers' threads")
    threads = fetch(last + "folded").decode()
    assert re.search(r"^rdk:", threads, re.M) and not re.search(r"^flush;", threads, re.M)
    assert not re.search(r"^(rdk:|flush;)", fetch(last + "folded?root=none").decode(), re.M)
    assert {line.split(";")[0] for line in stages.splitlines()} <= {
        "receive", "decode", "encode", "produce", "flush", "acknowledge", "http", "profiler", "other"}

    only = Profile(fetch(last + "report?stage=flush"))
    assert only.labelled("stage") == {"flush"}
    thread = next(iter(only.labelled("thread")))
    assert Profile(fetch(f"{last}report?thread={thread}")).labelled("thread") == {thread}
    assert fetch(last + "report?format=folded&thread=nobody") == b""
    assert Profile(fetch(last + "flamegraph?format=pprof")).types[1] == ("cpu", "nanoseconds")
    assert xml.etree.ElementTree.fromstring(fetch(last + "report?format=svg")).get("width") == "2500"
    assert xml.etree.ElementTree.fromstring(fetch(last + "flamegraph?image_width=700&min_width=2")).get("width") == "700"
    for query, says in (("image_width=9", "from 300 to 20000"), ("stage=x", "acknowledge"), ("root=x", "thread, stage"),
                        ("format=x", "folded"), ("min_width=-1", "from 0")):
        expect(refusal(f"{last}flamegraph?{query}"), 400, says)

    assert "Content-Encoding" not in forms(last + "flamegraph")[1]
    packed = forms(last + "flamegraph", {"Accept-Encoding": "gzip"})[1]
    assert (packed["Content-Encoding"], packed["Vary"]) == ("gzip", "Accept-Encoding")
    assert 'filename="profile.pb.gz"' in forms(last + "report")[1]["Content-Disposition"]
    for index in ("/pprof/", "/debug/pprof/"):
        assert b"/pprof/heap/activate" in fetch(process.url + index)


@pytest.mark.skipif(SANITIZED, reason="a sanitizer brings its own allocator")
def test_heap_profiling_is_switched_by_post_only(database, profiled):
    process = profiled(endpoints="true")

    def post(what, headers=None):
        return process.get(f"/pprof/heap/{what}", headers=headers, method="POST")

    assert forms(process.url + "/pprof/heap/report")[0] == 403
    assert process.get("/pprof/heap/activate").status == 405
    assert post("activate", {"Origin": "http://example.org"}).status == 403
    assert forms(process.url + "/pprof/heap/report")[0] == 403
    assert post("activate").status == 200
    assert post("reset?lg_sample=12").status == 200
    assert post("reset?lg_sample=99").status == 400
    insert(database, 20000)
    eventually(lambda: Profile(fetch(process.url + "/pprof/heap/report")).total(1) > 0, 60, "samples")
    assert post("deactivate").status == 200
    assert forms(process.url + "/pprof/heap/report")[0] == 403


def test_go_tool_pprof_in_its_ways(taken, tmp_path):
    before, after = taken["before"], taken["after"]
    assert "flat%" in pprof("-top", before)
    assert re.search(r"stage: Total .*flush", pprof("-tags", before), re.S)
    assert re.search(r"\bstage:flush|\bflush\b", pprof("-top", "-cum", "-tagroot=stage", before))
    assert "flat%" in pprof("-top", "-tagfocus=stage=flush", before)
    assert "flat%" in pprof("-top", f"-diff_base={before}", after)
    merged = tmp_path / "merged.pb.gz"
    pprof("-proto", f"-output={merged}", before, after)
    total = sum(Profile(path.read_bytes()).total(1) for path in (before, after))
    assert Profile(merged.read_bytes()).total(1) == total
    picture = tmp_path / "graph.png"
    pprof("-png", f"-output={picture}", before)
    assert picture.read_bytes().startswith(b"\x89PNG") and picture.stat().st_size > 10000
    if "heap" in taken:
        for value in ("inuse_space", "alloc_objects"):
            assert value in pprof("-top", f"-sample_index={value}", taken["heap"])


def without_names(path, to):
    """The same profile with addresses, objects and build ids only."""
    def varint(value):
        out = b""
        while value >= 128:
            out += bytes([value & 127 | 128])
            value >>= 7
        return out + bytes([value])

    def field(number, value):
        return (varint(number << 3) + varint(value) if isinstance(value, int)
                else varint(number << 3 | 2) + varint(len(value)) + value)

    def kept(number, value):
        without = {3: (7, 8, 9, 10), 4: (4,)}.get(number)
        if without:
            value = b"".join(field(n, v) for n, v in fields(value) if n not in without)
        return b"" if number == 5 else field(number, value)

    to.write_bytes(gzip.compress(b"".join(kept(n, v) for n, v in fields(gzip.decompress(path.read_bytes())))))


@pytest.mark.skipif(SANITIZED, reason="the sanitizers' runtime has thousands of its own")
def test_a_profile_without_names_gets_them_by_build_id(taken, tmp_path):
    bare = tmp_path / "bare.pb.gz"
    without_names(taken["before"], bare)
    assert not any(Profile(bare.read_bytes()).locations.values())
    # Where the program was: its own path is in the mapping.
    assert "mr_" in pprof("-top", "-nodecount=1000", bare, environment={"PPROF_BINARY_PATH": str(tmp_path)})
    # Elsewhere: the program by its build id, in a folder of the reader's.
    profile = Profile(bare.read_bytes())
    build_id = next(profile.texts[mapping[6]] for mapping in profile.mappings
                    if profile.texts[mapping[5]].endswith("/millrace"))
    assert build_id in subprocess.run(["readelf", "-n", BINARY], capture_output=True, text=True, check=True).stdout
    named = tmp_path / "named.pb.gz"
    pprof("-symbolize=force", "-proto", f"-output={named}", BINARY, bare)
    functions = {name for names in Profile(named.read_bytes()).locations.values() for name in names}
    # The outermost at each address: how inlined ones are found depends on the reader's tools.
    truth = {names[-1] for names in Profile(taken["before"].read_bytes()).locations.values() if names}
    ours = {name for name in truth if name.startswith("mr_")}
    assert ours and len(ours - functions) <= max(2, 0.2 * len(ours)), ours - functions


@pytest.fixture
def browser(tmp_path):
    with open_browser(tmp_path / "browser") as opened:
        yield opened


def test_speedscope_draws_every_kind(taken, browser, tmp_path):
    assert os.path.isdir(SPEEDSCOPE), "speedscope is missing; scripts/setup.sh installs it"
    page = tmp_path / "speedscope"
    shutil.copytree(SPEEDSCOPE, page)
    browser.look(1200, 800)
    browser.driver.get(f"file://{page}/index.html")
    eventually(lambda: browser.run("return document.readyState") == "complete", 30, "the page")
    assert browser.colours() <= 4
    os.makedirs(RESULTS, exist_ok=True)
    for name in taken:
        content = base64.b64encode(taken[name].read_bytes()).decode()
        script = page / f"{name}.js"
        script.write_text(f"speedscope.loadFileFromBase64('{name}.pb.gz', '{content}');")
        browser.driver.get("about:blank")
        browser.driver.get(f"file://{page}/index.html#localProfilePath={script}")
        eventually(lambda expected=name: browser.driver.title.startswith(f"{expected}.pb.gz"), 60, "its title")
        assert "Sandwich" in browser.run("return document.body.innerText")  # the views of a profile
        # Of the page without a profile, only buttons have a colour.
        eventually(lambda: browser.colours() > 4, 60, "frames")
        browser.screenshot(os.path.join(RESULTS, f"speedscope-{name}.png"))
        assert "Something went wrong" not in browser.run("return document.body.innerText")
        assert [entry for entry in browser.errors() if entry["level"] == "SEVERE"] == []


def test_live_page_shows_the_last_minute(database, profiled, browser):
    process = profiled(endpoints="true", recorder="true", frequency="500")
    insert(database, 50000)
    browser.look(1280)
    browser.driver.get(process.url + "/")

    def drawn(at_least):
        shown = browser.run("""const picture = document.getElementById('flame');
            return [picture.naturalWidth, picture.offsetWidth, Number(picture.dataset.turn || 0)]""")
        return shown[0] > 300 and shown[1] > 300 and shown[2] >= at_least

    eventually(lambda: drawn(1), 60, "the flame graph")
    insert(database, 50000)
    eventually(lambda: drawn(2), 60, "the next one")
    os.makedirs(RESULTS, exist_ok=True)
    browser.screenshot(os.path.join(RESULTS, "live-page-flame.png"))
    browser.look(360)
    assert browser.run("return document.documentElement.scrollWidth") <= 360
    assert browser.errors() == []
    browser.driver.find_element("id", "flame-link").click()
    eventually(lambda: browser.run("return document.documentElement.tagName") == "svg", 30, "the picture as a page")
    assert browser.driver.current_url.endswith("/pprof/last-minute/flamegraph")
    assert process.stop() == 0


def test_live_page_says_how_to_see_it(profiled, browser):
    process = profiled(endpoints="true")
    browser.driver.get(process.url + "/")
    eventually(lambda: "recorder = true" in browser.run("return document.getElementById('flame-note').innerText"), 30,
               "the hint")
    assert not browser.run("return document.getElementById('flame-link').offsetWidth")
    assert browser.errors() == []
    assert process.stop() == 0
