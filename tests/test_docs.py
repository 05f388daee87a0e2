"""What documents, dashboards and scripts name exists: metrics, options, variables, files, sections."""

import glob
import os
import re
import subprocess
import tomllib

import pytest

from kit import BINARY

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# Names that begin like a metric: programs, functions, roles.
NO_METRICS = {"millrace_flame", "millrace_load"}
GENERATED_BY_PROMETHEUS = ("_bucket", "_sum", "_count")


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        return file.read()


def files(*patterns):
    found = [os.path.relpath(path, ROOT) for pattern in patterns
             for path in glob.glob(os.path.join(ROOT, pattern), recursive=True) if os.path.isfile(path)]
    assert found, patterns
    return sorted(found)


DOCUMENTS = files("*.md", "docs/*.md", "*/README.md")


def printed(*arguments):
    return subprocess.run([BINARY, *arguments], check=True, text=True, capture_output=True).stdout


@pytest.fixture(scope="module")
def options():
    """Every option's full name."""
    found = set(re.findall(r"^\| `([a-z0-9_.]+)` \|", printed("reference", "config"), re.MULTILINE))
    assert "sink.kafka.brokers" in found
    return found


def test_generated_documents_are_those_of_the_program():
    for command, path in (("config", "docs/configuration.md"), ("metrics", "docs/metrics.md")):
        assert printed("reference", command) == read(path), f"millrace reference {command} > {path}"


def test_metrics_exist():
    known = set(re.findall(r'^MR_METRIC\(\w+, "(\w+)"', read("src/metrics/metrics.def"), re.MULTILINE))
    for path in [*DOCUMENTS, *files("grafana/**/*.json", "grafana/**/*.yml", "grafana/*.py", "load/*", "benchmarks/*",
                                    "docs/deploy/*", "scripts/*")]:
        for name in set(re.findall(r"(?<![\w./:-])millrace_[a-z0-9_]*[a-z0-9]\b(?![(*])", read(path))):
            base = next((name.removesuffix(end) for end in GENERATED_BY_PROMETHEUS if name.endswith(end)), name)
            assert known & {name, base} or name in NO_METRICS, f"{path} names {name}"


def test_every_folder_is_described_and_its_includes_are_checked():
    table, checked = read("docs/architecture.md"), read("scripts/style.sh")
    for folder in os.listdir(os.path.join(ROOT, "src")):
        if os.path.isdir(os.path.join(ROOT, "src", folder)) and folder != "cmake":
            assert f"| `src/{folder}` |" in table, folder
            assert f"[{folder}]=" in checked or folder == "testing", folder


def settings(table, prefix=""):
    for key, value in table.items():
        if isinstance(value, dict):
            yield from settings(value, f"{prefix}{key}.")
        else:
            yield prefix + key


def test_options_exist(options):
    sections = {name.rsplit(".", 1)[0] for name in options if "." in name}
    # The generated page lists Outboxx's options too.
    for path in sorted({*DOCUMENTS} - {"docs/configuration.md"}):
        text = read(path)
        for name in re.findall(r"`((?:source\.postgres|sink|pipeline|http|log|profiling|position)\.[a-z0-9_.]+)[` =]", text):
            assert name in options | sections, f"{path} names the option {name}"
        for block in re.findall(r"^```toml\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
            for name in settings(tomllib.loads(block)):
                assert name in options, f"{path} sets {name}"


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


def sections_of(path):
    """Anchors of a document's headings, as GitHub makes them."""
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
            for title in re.findall(r"^#+ (.*)$", read(path), re.MULTILINE)}


@pytest.mark.parametrize("path", DOCUMENTS)
def test_links_lead_somewhere(path):
    for target in re.findall(r"\]\(([^)\s]+)\)", read(path)):
        if re.match(r"https?://", target):
            continue
        name, _, section = target.partition("#")
        to = os.path.normpath(os.path.join(os.path.dirname(path), name)) if name else path
        assert os.path.exists(os.path.join(ROOT, to)), f"{path} leads to {target}"
        if section:
            assert section in sections_of(to), f"{path} leads to {target}"


@pytest.mark.parametrize("path", DOCUMENTS)
def test_files_exist(path):
    """Files of this repository that a document names by their path."""
    for name in re.findall(r"(?<![\w./…-])(?:scripts|tests|benchmarks|load|docker|grafana|fuzz|src)/[\w./-]*\w\.\w+", read(path)):
        assert os.path.exists(os.path.join(ROOT, name)), f"{path} names {name}"
