"""The site of docs/: built strictly, then opened in a browser. It asks no other host, its search finds what one looks for at
three in the morning, no link leads nowhere, and pages stay light."""

import json
import os
import re
import subprocess
import urllib.parse
from html.parser import HTMLParser

import pytest
from selenium.webdriver.support.ui import WebDriverWait

from browser import open_browser
from kit import BINARY, served
from test_docs import ROOT, files, read

KIB = 1024
# What one page may weigh, bytes before compression: its text, its pictures, and what all pages share.
TEXT_MAX, PICTURES_MAX, SHARED_MAX = 220 * KIB, 1200 * KIB, 1000 * KIB


def build(out, *arguments, script=os.path.join(ROOT, "scripts", "site.sh")):
    done = subprocess.run([script, "--out", out, *arguments], capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return str(out)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    return build(tmp_path_factory.mktemp("site"))


class Page(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.ids, self.links, self.pictures = set(), [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.ids |= {attributes[name] for name in ("id", "name") if attributes.get(name)}
        self.links += [attributes[name] for name in ("href", "src") if attributes.get(name)]
        if tag == "img":
            self.pictures.append(attributes["src"])


@pytest.fixture(scope="module")
def pages(site):
    """By the file's path within the site."""
    found = {}
    for folder, _, names in os.walk(site):
        for name in names:
            if name.endswith(".html"):
                path = os.path.join(folder, name)
                with open(path, encoding="utf-8") as file:
                    found[os.path.relpath(path, site)] = Page(file.read())
    assert len(found) > 30
    return found


def target(page, link):
    """The file within the site, and the anchor; None for an address elsewhere."""
    parts = urllib.parse.urlsplit(link)
    if parts.scheme or parts.netloc:
        return None
    path = os.path.normpath(os.path.join("/" + os.path.dirname(page), urllib.parse.unquote(parts.path)) if parts.path else "/" + page).lstrip("/")
    return os.path.join(path, "index.html") if parts.path.endswith("/") or parts.path in (".", "..") else path, urllib.parse.unquote(parts.fragment)


def test_each_page_is_in_the_navigation(pages):
    names = {os.path.basename(path)[:-3] for path in files("docs/*.md")} - {"README"}
    assert {f"{name}/index.html" for name in names} | {"index.html", "404.html"} == set(pages)
    for home, link in (("docs/README.md", "]({}.md)"), ("mkdocs.yml", ": {}.md\n")):
        assert [name for name in names if link.format(name) not in read(home)] == [], home


def test_no_link_leads_nowhere(site, pages):
    wrong = []
    for path, page in pages.items():
        for link in page.links if path != "404.html" else ():
            found = target(path, link)
            if found and not os.path.exists(os.path.join(site, found[0])):
                wrong.append(f"{path}: {link}")
            elif found and found[1] and found[0] in pages and found[1] not in pages[found[0]].ids:
                wrong.append(f"{path}: {link}: no such anchor")
    assert wrong == []


def test_each_option_and_metric_has_an_anchor(pages):
    for command, path in (("config", "configuration/index.html"), ("metrics", "metrics/index.html")):
        printed = subprocess.run([BINARY, "reference", command], check=True, text=True, capture_output=True).stdout
        names = re.findall(r"^#+ `(.*)`$", printed, re.MULTILINE)
        assert len(names) > 100
        assert [name for name in names if name.replace(".", "") not in pages[path].ids] == []


def test_pages_are_light(site, pages):
    def size(path):
        return os.path.getsize(os.path.join(site, path))
    shared = {}
    for path, page in pages.items():
        assert size(path) < TEXT_MAX, path
        assert sum(size(target(path, picture)[0]) for picture in page.pictures) < PICTURES_MAX, path
        if path == "index.html":
            shared = {target(path, link)[0] for link in page.links if re.search(r"\.(css|js)$", link)}
    assert shared and sum(map(size, shared)) + size("search/search_index.json") < SHARED_MAX


@pytest.fixture(scope="module")
def opened(site, tmp_path_factory):
    with served(site) as address, open_browser(tmp_path_factory.mktemp("chromium")) as browser:
        browser.look(1400)
        browser.driver.get(address)
        yield browser, address


def search(browser, words):
    """Where the first results lead: pages and anchors."""
    browser.driver.set_script_timeout(60)
    return browser.driver.execute_async_script("""
const [words, done] = arguments;
const field = document.querySelector('input.md-search__input'), list = document.querySelector('.md-search-result__list');
const links = () => [...list.querySelectorAll('a.md-search-result__link')].map((link) => link.getAttribute('href'));
document.querySelector('#__search').checked = true;
let timer;
const settle = () => { clearTimeout(timer); if (links().length) timer = setTimeout(() => done(links()), 300); };
list.replaceChildren();
new MutationObserver(settle).observe(list, {childList: true, subtree: true});
field.focus();
field.value = words;
field.dispatchEvent(new KeyboardEvent('keyup', {bubbles: true}));
""", words)


EXIT_CODES = re.findall(r"^### (E-exit-\d+)$", read("docs/runbook.md"), re.MULTILINE)
SEARCHES = {**{f"exit {name.rpartition('-')[2]}": f"runbook/#{name.lower()}" for name in EXIT_CODES},
            "first event": "quick-start/#", "duplicates": "consumers/#dropping-duplicates", "add a table": "upgrading/#add-a-table", "slot grows": "monitoring/#a-slot-that-grows",
            "PostgreSQL upgrade": "upgrading-postgresql/#", "disk full": "runbook/#millraceslotunlimited", "exit code": "runbook/#exit-codes", "lag": "monitoring/#", "shadow run": "migrating-from-debezium/#shadow-run",
            "sink.kafka.message_max": "configuration/#sinkkafkamessage_max", "snapshot.mode": "configuration/#snapshotmode",
            "pipeline.latency": "configuration/#pipelinelatency", "millrace_lag_seconds": "metrics/#millrace_lag_seconds",
            "millrace_slot_forecast_seconds": "metrics/#millrace_slot_forecast_seconds", "slot lost": "runbook/#e-slot-lost",
            "MillraceBacklog": "runbook/#millracebacklog"}


@pytest.mark.parametrize("words", SEARCHES)
def test_search_finds(opened, words):
    """Where "exit 1" finds nothing at all while others do, it is lunr: its TokenSet takes two nodes for one whose letters and numbers are the
    same when they are written one behind the other ("1" and 23, "12" and 3). One more word with a digit, or one less, is then found again."""
    found = [urllib.parse.urlsplit(link) for link in search(opened[0], words)]
    first = list(dict.fromkeys(parts.path for parts in found))[:5]  # pages; each shows its sections below it
    assert SEARCHES[words] in [f"{parts.path.lstrip('/')}#{parts.fragment}" for parts in found if parts.path in first], first


def scheme(browser):
    return browser.run("return document.body.getAttribute('data-md-color-scheme')")


def test_dark_and_light(opened, tmp_path):
    browser, address = opened
    for preferred, expected in (("dark", "slate"), ("light", "default")):
        browser.look(1400, scheme=preferred)
        browser.driver.get(address)
        WebDriverWait(browser.driver, 20).until(lambda _, expected=expected: scheme(browser) == expected)
    seen = set()
    for _ in range(3):
        browser.run("document.querySelector('form.md-header__option label:not([hidden])').click()")
        WebDriverWait(browser.driver, 20).until(lambda _: browser.run("return document.querySelectorAll('form.md-header__option label:not([hidden])').length") == 1)
        seen.add(scheme(browser))
    assert seen == {"default", "slate"}


def test_nothing_is_asked_of_other_hosts(opened):
    browser, address = opened
    for path in ("", "configuration/", "built-in-profiler/", "fleet/"):
        browser.driver.get(address + path)
        asked = browser.run("return performance.getEntriesByType('resource').map((entry) => entry.name)")
        assert asked and [url for url in asked if not url.startswith((address, "data:", "blob:"))] == []
    assert [entry for entry in browser.errors() if entry["level"] == "SEVERE"] == []


def test_releases_have_a_folder_each(tmp_path):
    """Of a clone that has a release."""
    def git(*arguments):
        subprocess.run(["git", *arguments], check=True, capture_output=True)
    clone = str(tmp_path / "clone")
    git("clone", "--quiet", "--shared", ROOT, clone)
    git("-C", clone, "tag", "v9.9.9")
    out = build(tmp_path / "out", "--versions", script=os.path.join(clone, "scripts", "site.sh"))
    with open(os.path.join(out, "versions.json"), encoding="utf-8") as file:
        versions = [entry["version"] for entry in json.load(file)]
    assert versions[0] == "dev" and versions[-1] == "9.9.9"
    for name in versions:
        assert os.path.exists(os.path.join(out, name, "runbook", "index.html"))
    with open(os.path.join(out, "index.html"), encoding="utf-8") as file:
        assert "url=9.9.9/" in file.read()
