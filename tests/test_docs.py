"""What documents, dashboards and scripts name exists: metrics, options, variables, files, sections."""

import glob
import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
import xml.etree.ElementTree

import pytest

import documents
import kit
from kit import BINARY, BOOTSTRAP, dsn

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "benchmarks"))
import figures  # pylint: disable=wrong-import-position

# Names that begin like a metric: programs, functions, roles; and metrics that are gone.
NO_METRICS = {"millrace_flame", "millrace_load", "millrace_profiler_captures_total"}
GENERATED_BY_PROMETHEUS = ("_bucket", "_sum", "_count")


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        return file.read()


def files(*patterns):
    found = [os.path.relpath(path, ROOT) for pattern in patterns
             for path in glob.glob(os.path.join(ROOT, pattern), recursive=True) if os.path.isfile(path)]
    assert found, patterns
    return sorted(found)


DOCUMENTS = sorted({*files("*.md", "docs/**/*.md", "*/README.md", "src/*/README.md")})


def printed(*arguments):
    return subprocess.run([BINARY, *arguments], check=True, text=True, capture_output=True).stdout


@pytest.fixture(scope="module")
def options():
    """Every option's full name."""
    found = set(re.findall(r"^### `([a-z0-9_.]+)`$", printed("reference", "config"), re.MULTILINE))
    assert "sink.kafka.brokers" in found
    return found


def test_generated_documents_are_those_of_the_program():
    for command, path in (("config", "docs/configuration.md"), ("metrics", "docs/metrics.md"),
                          ("debezium", "docs/debezium-options.md")):
        assert printed("reference", command) in read(path), f"put what millrace reference {command} prints into {path}"


def test_metrics_exist():
    known = set(re.findall(r'^MR_METRIC\(\w+, "(\w+)"', read("src/metrics/metrics.def"), re.MULTILINE))
    for path in [*DOCUMENTS, *files("grafana/**/*.json", "grafana/**/*.yml", "grafana/*.py", "load/*", "benchmarks/*",
                                    "docs/deploy/*", "scripts/*")]:
        for name in set(re.findall(r"(?<![\w./:-])millrace_[a-z0-9_]*[a-z0-9]\b(?![(*])", read(path))):
            base = next((name.removesuffix(end) for end in GENERATED_BY_PROMETHEUS if name.endswith(end)), name)
            assert known & {name, base} or name in NO_METRICS, f"{path} names {name}"


@pytest.mark.parametrize("path", figures.PAGES)
def test_figures_are_those_of_the_file(path):
    """Each figure is in a marked place, and says what benchmarks/figures has."""
    text = read(path)
    assert figures.written(text, figures.recorded()) == text, f"{path}: run benchmarks/figures.py"
    assert figures.unmarked(path, text) == [], f"{path}: mark it, or say in figures.ELSEWHERE why not"


def test_the_chart_is_that_of_the_file():
    assert read(figures.CHART) == figures.svg(figures.recorded()), "run benchmarks/figures.py"


def test_a_figure_outside_of_a_mark_is_found():
    text = ("<!-- figures: memory -->\n1 ms\n<!-- /figures -->\nNow 92,000 to 158,000 rows/s.\n| a | p50, ms |\n|---|---:|\n| 7 | 2.6 |\n| 7 | – |\n"
            "\n```\n5 ms\n```\nSet 64 MiB.\n| a | b |\n|---|---|\n| 1 | 2 |\n")
    assert figures.unmarked("a.md", text) == ["Now 92,000 to 158,000 rows/s.", "| 7 | 2.6 |"]


def arguments_of(call):
    """The arguments of a call in C, from behind its parenthesis on."""
    depth, begin, found = 0, 0, []
    for at, (sign, quoted) in enumerate(zip(call, quotes(call))):
        if quoted:
            continue
        if depth == 0 and sign in ",)":
            found.append(call[begin:at])
            begin = at + 1
        if sign == ")" and depth == 0:
            return found
        depth += (sign in "([{") - (sign in ")]}")
    return found


def quotes(text):
    """For each character: is it within a string?"""
    inside = escaped = False
    for sign in text:
        yield inside
        inside ^= sign == '"' and not escaped
        escaped = inside and sign == "\\" and not escaped


def logged_events():
    """Every event that a line of code logs: the second argument of mr_log, or both ends of its condition."""
    for path in files("src/**/*.c"):
        if not path.endswith("_test.c") and not path.startswith("src/testing/"):
            for call in re.split(r"\bmr_log(?:_write)?\(", read(path))[1:]:
                yield from re.findall(r'"([a-z_]+)"', (arguments_of(call[:4000]) + ["", ""])[1])


def test_every_logged_event_is_described():
    table = read("docs/log-events.md")
    events = {*logged_events()}
    assert {"started", "incremental_resumed", "offset_taken", "slot_unseen"} <= events and len(events) > 70
    assert sorted(event for event in events if f"`{event}`" not in table) == []


def test_every_folder_is_described_and_its_includes_are_checked():
    table, checked = read("docs/dev/architecture.md"), read("scripts/style.sh")
    for folder in os.listdir(os.path.join(ROOT, "src")):
        if os.path.isdir(os.path.join(ROOT, "src", folder)) and folder != "cmake":
            assert f"| `src/{folder}` |" in table, folder
            assert f"[{folder}]=" in checked or f"[{folder}/" in checked or folder == "testing", folder


def settings(table, prefix=""):
    for key, value in table.items():
        if isinstance(value, dict):
            yield from settings(value, f"{prefix}{key}.")
        else:
            yield prefix + key


def with_options(table):
    """The part that has options: of a fleet's definition its template."""
    return table.get("template", {}) if "fleet" in table else table


def test_options_exist(options):
    sections = {name.rsplit(".", 1)[0] for name in options if "." in name}
    # The generated page lists Outboxx's options too.
    for path in sorted({*DOCUMENTS} - {"docs/configuration.md"}):
        text = read(path).partition("\n### Options that are gone")[0]
        for name in re.findall(r"`((?:source\.postgres|sink|pipeline|http|log|profiling|position)\.[a-z0-9_.]+)[` =]", text):
            assert name in options | sections, f"{path} names the option {name}"
        for block in re.findall(r"^```toml\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
            for name in {*settings(with_options(tomllib.loads(block)))} - {"streams"}:  # a list of tables, no option
                assert name in options or name.startswith("sink.kafka.properties."), f"{path} sets {name}"


def test_variables_are_read_somewhere():
    """MILLRACE_… of documents stands in code, not only in comments."""
    code = "".join(line for path in files("src/**/*.[ch]", "src/**/*.def", "scripts/**/*.sh", "tests/**/*.py",
                                          "tests/*.sh", "benchmarks/*", "load/*.sh", "CMakeLists.txt",
                                          "docker-compose.yml")
                   for line in read(path).splitlines(keepends=True) if not line.lstrip().startswith("#"))
    used = set(re.findall(r"\bMILLRACE_[A-Z_]+\b", code))
    for path in DOCUMENTS:
        for name in re.findall(r"\bMILLRACE_[A-Z_]+\b", read(path)):
            assert name in used, f"{path} names the variable {name}"


def exists(path):
    return os.path.exists(os.path.join(ROOT, path))


@pytest.mark.parametrize("path", DOCUMENTS)
def test_links_lead_somewhere(path):
    assert documents.wrong_links(path, read, exists) == []


def test_a_wrong_link_is_found():
    text = {"docs/a.md": "# One\n## One\n[good](b.md#two-words) [good](#one-1) <https://example.com/x> ![good](../c.png)\n"
                         "`code[0](not.md)`\n```sh\n# not-a-heading\n[not](a-link.md)\n```\n"
                         "[gone](gone.md) [no section](b.md#two) [not a heading](#not-a-heading) [out](../../x.md)\n"
                         "[plain](http://example.com/) <https://no-host> <img src=\"gone.png\">\n[ref]: gone-too.md\n",
            "docs/b.md": "# Two *words*!\n"}
    wrong = documents.wrong_links("docs/a.md", text.get, {*text, "c.png"}.__contains__)
    assert [line.split(": ")[1] for line in wrong] == [
        "gone.md", "b.md#two", "#not-a-heading", "../../x.md", "http://example.com/", "https://no-host", "gone.png", "gone-too.md"]


def spelling(*paths):
    return subprocess.run(["codespell", "--skip", "*/librdkafka.patch", *paths], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)


def test_documents_are_spelled_right(tmp_path):
    done = spelling(*files("*.md"), "docs", "src", "load", "benchmarks", "scripts", "tests", "grafana", "packaging", ".github")
    assert done.returncode == 0, done.stdout
    wrong = tmp_path / "wrong.md"
    wrong.write_text("It " + "rec" "ieves rows.")  # in two parts, so that this file is right
    assert "==> receives" in spelling(str(wrong)).stdout


# Words that read as translated; README and docs/*.md say "again", "any role", "fixed", "without limit", "incremental snapshot".
HOUSE_WORDS = re.compile(r"\b(?:anew|whoever|mended|told of|for ever|as ever|beside the stream)\b|(?<!user )\bnobody\b", re.IGNORECASE)


@pytest.mark.parametrize("path", DOCUMENTS)
def test_house_words_stay_away(path):
    assert HOUSE_WORDS.findall(re.sub(r"`[^`]*`", "", read(path)).replace("\n", " ")) == []


def test_house_words_stay_out_of_messages():
    """The same of what the program prints: the strings of src."""
    found = {path: HOUSE_WORDS.findall(" ".join(re.findall(r'"((?:[^"\\\n]|\\.)*)"', re.sub(r"/\*.*?\*/", "", read(path), flags=re.DOTALL))))
             for path in files("src/**/*.c", "src/**/*.h", "src/**/*.def") if not path.endswith("_test.c")}
    assert {path: words for path, words in found.items() if words} == {}


# Words of this house for known ones: duplicates, sent again, unreachable, continues, after. Pages for users; docs/dev/ is for those who know the house.
PRIVATE_WORDS = re.compile(r"\b(?:comes? again|came again|(?:is|are|was|were) away|goes on|went on|a repeat|repeats (?!this|that)|is there no more)\b", re.IGNORECASE)
READ_BY_USERS = ["README.md", *files("docs/*.md")]


@pytest.mark.parametrize("path", READ_BY_USERS)
def test_private_words_stay_away(path):
    assert PRIVATE_WORDS.findall(documents.prose(read(path)).replace("\n", " ")) == []


def words(text):
    """Those that are read: without code, comments, and where links lead."""
    return re.findall(r"\w[\w'’.-]*", re.sub(r"\]\([^)]*\)|<!--.*?-->", " ", documents.FENCE.sub("", text), flags=re.DOTALL))


def test_pages_are_few_and_short():
    assert len(words(read("README.md"))) <= 900
    assert len(files("docs/*.md")) <= 32
    assert sum(len(read(path).split()) for path in files("docs/*.md")) <= 60000  # as wc -w counts them


# What people look for, and the pages with a door to it.
DOORS = {"README.md": ("docs/verify.md", "docs/runbook.md#e-exit-10", "docs/upgrading-postgresql.md", "docs/monitoring.md#slow-but-flowing",
                       "docs/monitoring.md#a-slot-that-grows", "docs/built-in-profiler.md", "docs/dev/profiling.md", "docs/kubernetes.md",
                       "docs/migrating-from-debezium.md", "docs/consumers.md", "docs/quick-start.md#with-docker", "docs/snapshots.md#while-the-stream-runs", "docs/snapshots.md#large-tables",
                       "docs/upgrading.md#add-a-table", "docs/managed-services.md#by-iam-without-a-password", "docs/sizing.md", "docs/runbook.md"),
         "docs/README.md": ("runbook.md#e-exit-10", "consumers.md#dropping-duplicates", "monitoring.md", "monitoring.md#a-slot-that-grows", "verify.md")}


@pytest.mark.parametrize("page", DOORS)
def test_doors_are_there(page):
    assert [door for door in DOORS[page] if door not in documents.links(read(page))] == []


def test_pages_that_the_source_names_exist():
    """In comments and messages: docs/page.md, and docs/page.md, "Section"."""
    named = 0
    for path in files("src/**/*.*", "grafana/**/*.*", "packaging/**/*", "scripts/**/*.*", "benchmarks/*.py", "tests/**/*.py"):
        if path.endswith((".c", ".h", ".def", ".cpp", ".cmake", ".py", ".sh", ".sql", ".yml", ".yaml", ".tpl", ".toml")) and path != "tests/test_docs.py":
            for page, section in re.findall(r'\b(docs/[\w/-]+\.md)(?:,? \\?"([A-Z][^"\\]*))?', read(path)):
                assert exists(page), f"{path} names {page}"
                assert not section or re.search(rf"(?:^#+ |\*\*){re.escape(section)}", read(page), re.MULTILINE), f"{path} names {page}, {section}"
                named += 1
    assert named > 100


# ---- commands ----

BLOCKS = [block for path in DOCUMENTS for block in documents.blocks(path, read(path))]


@pytest.fixture(scope="module")
def programs():
    return documents.Programs(ROOT, BINARY)


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.place)
def test_commands_say_what_there_is(programs, block):
    """Programs, subcommands, options and presets; and each block says what runs it, or why nothing does."""
    for words in documents.commands(block.text):
        assert programs.wrong(words) is None, f"{block.place}: {' '.join(words)}"
    if block.mark == "not run":
        assert len(block.about.split()) > 3, f"{block.place}: why is it not run?"
    if block.mark == "run by":
        path, _, function = block.about.partition("::")
        text = read(path)
        assert not function or f"def {function}(" in text, f"{block.place}: {block.about}"
        for words in documents.commands(block.text):
            assert (documents.what_runs(words) or "") in text, f"{block.place}: {path} does not run {' '.join(words)}"


def test_a_wrong_command_is_found(programs):
    wrong = {"millrace check --confg x": "--confg", "build/ci/millrace status --bytes": "--bytes",
             "cmake --preset fast": "fast", "tests/gone.sh --minutes 5": "no such program",
             "A=b benchmarks/matrix.sh --rowss 5 > x; true": "--rowss"}
    for command, what in wrong.items():
        assert [what in (programs.wrong(words) or "") for words in documents.commands(command)][0], command
    block = next(documents.blocks("a.md", "<!-- not run: needs\n a network -->\n```sh\nx\n```\n"))
    assert (block.mark, block.about) == ("not run", "needs a network")
    assert next(documents.blocks("a.md", "<!-- not run: x -->\n\n```sh\nx\n```\n")).mark is None


# Asks this test's millrace where a document asks the one at the default address.
ASKS = """#!/bin/sh
case "$1" in
    status | top | health | profile)
        case " $* " in *" --address "*) ;; *) set -- "$@" --address "$MILLRACE_TEST_ADDRESS" ;; esac ;;
esac
exec "$MILLRACE_BIN" "$@"
"""


@pytest.mark.parametrize("block", [block for block in BLOCKS if block.mark is None], ids=lambda block: block.place)
def test_commands_run(database, millrace, tmp_path, block):
    """As they stand in the document, beside a millrace that streams public.orders."""
    database.run("CREATE TABLE orders (id bigserial PRIMARY KEY, v text)")
    process = millrace(("public.orders",)).start().streaming()
    place = tmp_path / "place"
    os.makedirs(place / "bin")
    for name in ("scripts", "docs", "tests"):
        os.symlink(os.path.join(ROOT, name), place / name)
    os.symlink(process.path, place / "config.toml")
    (place / "bin" / "millrace").write_text(ASKS)
    (place / "bin" / "millrace").chmod(0o755)
    environment = {**process.environment, "MILLRACE_TEST_ADDRESS": process.address(),
                   "PATH": f"{place}/bin:{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-euo", "pipefail", "-c", block.text], cwd=place, env=environment, timeout=120,
                          capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def first(document, language, needle):
    return next(found for found in re.findall(rf"^```{language}\n(.*?)^```", read(document), re.MULTILINE | re.DOTALL)
                if needle in found)


def test_first_event_on_standard_output(database):
    """The shortest way of the quick start: no file, no Kafka."""
    database.run("CREATE TABLE orders (id bigserial PRIMARY KEY, v text)")
    command = next(line for line in first("docs/quick-start.md", "sh", "MILLRACE_TABLES=").splitlines() if "MILLRACE_TABLES=" in line)
    words = shlex.split(command, comments=True)
    environment = dict(word.split("=", 1) for word in words if "=" in word)
    assert set(environment) == {"DATABASE_URL", "MILLRACE_TABLES"} and words[-1].endswith("millrace")
    environment["DATABASE_URL"] = dsn(database.name)
    process = subprocess.Popen([BINARY], env={**os.environ, **environment}, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True)
    try:
        next(line for line in process.stderr if "source_connected" in line)
        database.run("INSERT INTO orders (v) VALUES ('a')")
        assert json.loads(process.stdout.readline())["value"]["after"]["v"] == "a"
    finally:
        process.terminate()
        process.communicate(timeout=60)


def test_first_event_in_kafka(database, millrace, topic):
    """The quick start's configuration: only server and broker are another."""
    database.run("CREATE TABLE orders (id bigserial PRIMARY KEY, v text)")
    text = first("docs/quick-start.md", "toml", "topic_prefix").replace("localhost:9092", BOOTSTRAP)
    assert 'topic_prefix = "shop"' in text
    text = text.replace('"shop"', f'"{database.prefix}"').replace("[source.postgres]", f"""[source.postgres]
slot_name = "{database.slot}"
publication_name = "{database.publication}" """)
    process = millrace(text='http.address = "127.0.0.1:0"\nlog.format = "json"\n' + text)
    process.environment["DATABASE_URL"] = dsn(database.name)
    assert kit.check(process)[0] == 0
    process.start().streaming()
    database.run("INSERT INTO orders (v) VALUES ('a')")
    assert topic(database.topic("orders")).take(1)[0].json["after"]["v"] == "a"


@pytest.mark.parametrize("path", DOCUMENTS)
def test_files_exist(path):
    """Files of this repository that a document names by their path."""
    for name in re.findall(r"(?<![\w./…-])(?:scripts|tests|benchmarks|load|docker|grafana|fuzz|src)/[\w./-]*\w\.\w+", read(path)):
        assert os.path.exists(os.path.join(ROOT, name)), f"{path} names {name}"
    if path == "src/README.md":
        named = re.findall(r"`([a-z_]+/[a-z_/]*(?:\.\w+)?)`", read(path))
        assert len(named) > 20
        for name in named:
            assert any(os.path.exists(os.path.join(ROOT, top, name)) for top in ("src", "")), name


@pytest.mark.parametrize("path", sorted(glob.glob(os.path.join(ROOT, "docs", "images", "*.svg"))), ids=os.path.basename)
def test_pictures_are_svg_that_needs_nothing_else(path):
    """Well-formed, of a size, ids once, and nothing that is fetched from elsewhere."""
    root = xml.etree.ElementTree.parse(path).getroot()
    assert root.tag == "{http://www.w3.org/2000/svg}svg" and float(root.get("width")) > 0 and float(root.get("height")) > 0
    ids = [element.get("id") for element in root.iter() if element.get("id")]
    assert len(ids) == len(set(ids))
    for element in root.iter():
        for name, value in element.attrib.items():
            assert not name.rsplit("}", 1)[-1] in ("href", "src") or value.startswith("#"), (name, value)
