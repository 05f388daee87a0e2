"""What the repository itself promises: its workflows, the packages of its tests, and what a release is made of."""

import json
import os
import re
import shutil
import subprocess
import sys

import pytest

from kit import BINARY, served
from prometheus import ROOT

WORKFLOWS = os.path.join(ROOT, ".github", "workflows")
# Who may write what, and why it is safe: none of these runs a pull request's code.
MAY_WRITE = {
    "codeql.yml": {"security-events"},  # GitHub gives requests from forks no such token
    "scorecard.yml": {"security-events", "id-token"},
    "pr-comment.yml": {"pull-requests"},
    "site.yml": {"pages", "id-token"},
    "release.yml": {"contents", "packages", "id-token", "attestations", "pages"},
}


def read(*parts):
    with open(os.path.join(ROOT, *parts), encoding="utf-8") as file:
        return file.read()


def workflows():
    return {name: read(WORKFLOWS, name) for name in sorted(os.listdir(WORKFLOWS))}


def test_actions_are_pinned_by_digest():
    for name, text in workflows().items():
        used = re.findall(r"uses: +(?!\./)(\S.*)", text)
        assert used, name
        for action in used:
            assert re.fullmatch(r"[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", action), (name, action)


def test_one_version_of_each_action():
    used = {}
    for text in workflows().values():
        for action, digest in re.findall(r"uses: *([\w-]+/[\w-]+)[\w/-]*@([0-9a-f]{40})", text):
            used.setdefault(action, set()).add(digest)
    assert not {action: digests for action, digests in used.items() if len(digests) > 1}


def test_nothing_is_written_that_is_not_listed():
    for name, text in workflows().items():
        granted = set(re.findall(r"^\s+([\w-]+): *write", text, re.MULTILINE))
        assert granted == MAY_WRITE.get(name, set()), name
        assert "write-all" not in text, name
        before_jobs = text.split("\njobs:")[0]
        assert re.search(r"^permissions:( \{\}|\n  contents: read\n)", before_jobs, re.MULTILINE), name
        assert "write" not in before_jobs.split("\npermissions:")[1].split("\n\n")[0], name


def test_no_code_of_a_pull_request_runs_where_something_can_be_written():
    """Neither a token that writes nor pull_request_target; what comments runs nothing that it was given."""
    for name, text in workflows().items():
        assert "pull_request_target" not in text, name
        if re.search(r"^  pull_request:", text, re.MULTILINE):
            assert MAY_WRITE.get(name, set()) <= {"security-events"}, name
        if "workflow_run:" in text:
            assert "checkout" not in text and "run: " not in text, name
        # What others may write (titles, branches) never becomes part of a script.
        for script in re.findall(r"run: (\|(?:\n {10,}.*)+|.*)", text):
            assert not re.search(r"\$\{\{ *github\.(event|head_ref)", script), (name, script)


def test_checkouts_leave_no_token_behind():
    for name, text in workflows().items():
        assert text.count("actions/checkout@") == text.count("persist-credentials: false"), name


def test_releases_are_signed_and_say_what_they_are_made_of():
    text = read(WORKFLOWS, "release.yml")
    assert text.count("uses: actions/attest-build-provenance@") == 2  # files, image
    assert "subject-path: out/*" in text and "subject-digest:" in text
    assert "arm64" in text and "amd64" in text
    assert "pull_request" not in text


# ---- the release, as far as it can be tried without GitHub ----

RELEASE = os.path.join(ROOT, "scripts", "release.sh")


def version():
    return re.search(r"^project\(millrace VERSION (\S+)", read("CMakeLists.txt"), re.M)[1]


def steps(name="release.yml"):
    """The command of each step that has one, in order. A job that needs another stands after it."""
    return re.findall(r"^ +(?:- )?run: (.*)$", read(WORKFLOWS, name), re.M)


def test_each_step_of_a_release_is_the_scripts():
    """But for what is before the checkout: so tests run what the workflow runs."""
    before_the_checkout = {"apt-get update && apt-get install -y --no-install-recommends git ca-certificates",
                           'git config --global --add safe.directory "$PWD"'}
    told = [step.split() for step in steps() if step not in before_the_checkout]
    assert all(words[0] in ("scripts/release.sh", "scripts/setup.sh") for words in told), told
    assert "|" not in re.findall(r"run: (\S+)", read(WORKFLOWS, "release.yml"))
    ours = [words[1] for words in told if words[0] == "scripts/release.sh"]
    assert ours == ["check", "packages", "check", "image", "push", "source", "apt", "sums", "index", "publish"]
    explained = subprocess.run([RELEASE, "--help"], capture_output=True, text=True, check=True).stdout
    assert {re.match(r"  (\w+) ", line)[1] for line in explained.splitlines() if re.match(r"  \w+ ", line)} == {"prepare", "notes", "fetch", *ours}
    assert "scripts/release.sh fetch build/site" in steps("site.yml")
    # What is signed is complete: nothing gets into out after the sums.
    assert ours.index("sums") > max(ours.index(step) for step in ("packages", "source", "apt"))


@pytest.fixture
def copy(tmp_path):
    """What the steps look at, committed in a repository that may be changed."""
    folder = tmp_path / "copy"
    for name in subprocess.run(["git", "-C", ROOT, "ls-files", "*.md", "CMakeLists.txt", "LICENSE", "scripts/release.sh", "scripts/lib/base.sh", "src/cli", "src/daemon",
                              "docs", "mkdocs.yml"],
                               capture_output=True, text=True, check=True).stdout.splitlines():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(os.path.join(ROOT, name), folder / name)
    for words in (["init", "--quiet"], ["add", "--all"], ["-c", "user.name=x", "-c", "user.email=x@example.com", "commit", "--quiet", "-m", "x"]):
        subprocess.run(["git", *words], cwd=folder, check=True)
    return folder


def release(folder, *words, **variables):
    return subprocess.run([folder / "scripts" / "release.sh", *words], cwd=folder, capture_output=True, text=True, timeout=60, check=False,
                          env={**os.environ, "GITHUB_REPOSITORY": "Somebody/millrace", "GITHUB_ACTOR": "somebody", "TOKEN": "t", **variables})


def test_a_release_is_prepared_and_its_tag_checked(copy):
    assert release(copy, "prepare", "7.8").returncode == 1
    nameless = subprocess.run(["git", "-C", copy, "grep", "-lw", "OWNER"], capture_output=True, text=True, check=False).stdout
    if nameless:  # until the first release
        assert "mkdocs.yml" in release(copy, "prepare", "7.8.9", "2031-02-03", GITHUB_REPOSITORY="").stderr
        subprocess.run(["git", "-C", copy, "checkout", "--quiet", "."], check=True)
    assert release(copy, "prepare", "7.8.9", "2031-02-03").returncode == 0
    assert "repository: https://github.com/Somebody/millrace\n" in (copy / "mkdocs.yml").read_text() or not nameless
    assert "https://somebody.github.io/millrace/apt" in (copy / "docs/dev/releasing.md").read_text() or not nameless
    assert "image: ghcr.io/somebody/millrace:VERSION" in (copy / "docs/deploy/kubernetes.yaml").read_text() or not nameless
    assert "project(millrace VERSION 7.8.9 " in (copy / "CMakeLists.txt").read_text()
    assert "\n## 7.8.9 - 2031-02-03\n" in (copy / "CHANGELOG.md").read_text()
    assert '"2031-02-03"' in (copy / "src/cli/reference.c").read_text()
    assert release(copy, "prepare", "7.8.10").returncode == 1  # nothing is unreleased
    other = release(copy, "check", "v7.8.8")
    assert other.returncode == 1 and "the tag is v7.8.8, CMakeLists.txt has version 7.8.9" in other.stderr
    early = release(copy, "check", "v7.8.9")
    if early.returncode:  # until the first release
        assert "before the first release" in early.stderr
        for page in re.findall(r"\./\S+\.md", early.stderr):
            text = re.sub(r"<!-- until the first release -->\n.*", "", (copy / page).read_text())
            (copy / page).write_text(text.replace("<!-- until the first release", "<!-- "))
        done = release(copy, "check", "v7.8.9")
        assert done.returncode == 0, done.stderr
    notes = release(copy, "notes", "v7.8.9").stdout
    assert notes.strip() and "## 7.8.9" not in notes and "Versions follow" not in notes


def test_a_tarball_has_the_sources(copy):
    assert release(copy, "source", "out").returncode == 0
    names = subprocess.run(["tar", "-tzf", copy / "out" / f"millrace-{version()}.tar.gz"], capture_output=True, text=True, check=True).stdout
    assert f"millrace-{version()}/src/daemon/run.c\n" in names and f"millrace-{version()}/LICENSE\n" in names and ".git/" not in names


def test_images_are_named_after_the_repository(copy, tmp_path):
    """By a docker and a gh that only note how they are called; no registry takes capitals."""
    programs = tmp_path / "programs"
    programs.mkdir()
    for name, answer in (("docker", f"case $1 in run) echo millrace {version()};; buildx) [ $3 = create ] || echo sha256:7;; esac"), ("gh", "cat >&2")):
        (programs / name).write_text(f'#!/bin/sh\necho {name} "$@" >> {tmp_path}/calls\n{answer}\n')
        (programs / name).chmod(0o755)
    variables = {"PATH": f"{programs}:{os.environ['PATH']}", "GITHUB_OUTPUT": str(tmp_path / "output")}
    for step in (["image", "arm64"], ["push", "arm64"], ["index"]):
        done = release(copy, *step, **variables)
        assert done.returncode == 0, done.stderr
    calls = (tmp_path / "calls").read_text()
    name = f"ghcr.io/somebody/millrace:{version()}"
    assert f"docker build -t {name}-arm64 .\n" in calls and f"docker push {name}-arm64\n" in calls
    assert f"create -t {name} -t ghcr.io/somebody/millrace:latest {name}-amd64 {name}-arm64\n" in calls
    assert (tmp_path / "output").read_text() == "name=ghcr.io/somebody/millrace\ndigest=sha256:7\n"
    assert release(copy, "prepare", "7.8.9", "2031-02-03").returncode == 0
    assert release(copy, "image", "arm64", **variables).returncode == 1  # a stale image
    (copy / "out").mkdir()
    (copy / "out" / "file").touch()
    published = release(copy, "publish", "v7.8.9", "out", **variables)
    assert published.returncode == 0 and "\n### Added\n" in published.stderr
    assert "gh release create v7.8.9 --repo Somebody/millrace --verify-tag --title millrace 7.8.9 --notes-file - out/file\n" in (tmp_path / "calls").read_text()


def test_the_site_has_the_apt_repository_of_the_newest_release(copy, tmp_path):
    """Of the newest that is there: the tag comes before its files. Without any tag there is none; without files, and with broken ones,
    which must not give way to older ones, that is an error."""
    served_folder = tmp_path / "served"
    releases = {tag: served_folder / "Somebody" / "millrace" / "releases" / "download" / tag for tag in ("v7.8.9", "v7.8.10")}
    releases["v7.8.9"].mkdir(parents=True)
    with served(served_folder) as address:
        where = {"GITHUB_SERVER_URL": address.rstrip("/")}
        assert release(copy, "fetch", "site", **where).returncode == 0 and not (copy / "site").exists()
        for tag in releases:
            subprocess.run(["git", "tag", tag], cwd=copy, check=True)
        assert release(copy, "fetch", "site", **where).returncode == 1
        (copy / "debian12.sources").write_text("Types: deb\n")
        archive = releases["v7.8.9"] / "millrace-7.8.9-apt.tar.gz"
        subprocess.run(["tar", "-czf", archive, "debian12.sources"], cwd=copy, check=True)
        done = release(copy, "fetch", "site", **where)
        assert done.returncode == 0, done.stderr
        assert (copy / "site" / "apt" / "debian12.sources").read_text() == "Types: deb\n"
        releases["v7.8.10"].mkdir()
        (releases["v7.8.10"] / "millrace-7.8.10-apt.tar.gz").write_bytes(archive.read_bytes()[:40])
        assert release(copy, "fetch", "other", **where).returncode != 0
        assert not (copy / "other" / "apt" / "debian12.sources").exists()


def second_places(name, text):
    """Where a file states millrace's version, which CMakeLists.txt has."""
    found = re.findall(rf"^.*(?<![\d.]){re.escape(version())}(?![\d.]).*$|^.*millrace[_:@-]v?\d+\.\d+\.\d+.*$|"
                       r'^.*(?:iodebezium|")version":"\d+\.\d+\.\d+".*$', text, re.M)
    return [f"{name}: {line.strip()[:120]}" for line in found]


def test_the_version_has_one_place():
    names = subprocess.run(["git", "-C", ROOT, "grep", "-lI", ""], capture_output=True, text=True, check=True).stdout.splitlines()
    # The changes are of versions; tests and recordings invent some or keep those that wrote them.
    # A chart must state the version that it is of.
    chart = "packaging/helm/millrace/Chart.yaml"
    assert re.findall(r"(?im)^(?:app)?version: (.*)$", read(chart)) == [version()] * 2
    elsewhere = [name for name in names if not name.startswith(("CMakeLists.txt", "CHANGELOG.md", "tests/", "fuzz/", chart))]
    assert len(elsewhere) > 300
    assert [place for name in elsewhere for place in second_places(name, read(name))] == []
    said = subprocess.run([BINARY, "--version"], capture_output=True, text=True, check=True).stdout
    assert said.startswith(f"millrace {version()}\n")


def test_a_second_place_is_found():
    for text in (f"v{version()}", "image: x/millrace:0.1.0", "millrace_9.9.9_amd64.deb", '{"version":"0.1.0"}', '"iodebeziumversion":"0.1.0"'):
        assert second_places("x", text), text
    for text in (f"1{version()}", f"{version()}.1", "millrace:local", "librdkafka 2.15.1", '"version":"…"'):
        assert not second_places("x", text), text


def test_each_fuzz_target_runs_at_night():
    targets = sorted(name[:-2] for name in os.listdir(os.path.join(ROOT, "fuzz")) if name.startswith("fuzz_") and name.endswith(".c"))
    told = re.search(r"target: \[(.*)\]", read(WORKFLOWS, "fuzz.yml"))[1].split(", ")
    assert len(targets) > 5 and told == targets


def test_python_packages_have_hashes():
    for folder in (("tests",), ("tests", "telemetry"), ("scripts", "site")):
        lines = [line for line in read(*folder, "requirements.txt").splitlines() if line and not line.startswith(("#", " "))]
        assert lines and all(re.fullmatch(r"[\w.-]+==[\w.]+ \\", line) for line in lines)
    assert "--require-hashes" in read("scripts", "setup.sh")


WITH_IMAGES = ("Dockerfile", "docker-compose.yml", *(f".github/workflows/{name}" for name in sorted(os.listdir(WORKFLOWS))))
# No digest was found that two others name for that version.
BY_VERSION = {"danielqsj/kafka-exporter:v1.9.0", "quay.io/debezium/connect:3.3.1.Final"}


def images_of(text):
    """Of others: neither our own, nor stages of the Dockerfile, nor what stands in a variable (which is listed where it is set)."""
    stages = {"scratch", *re.findall(r"^FROM .* AS (\S+)", text, re.MULTILINE)}
    found = re.findall(r"^(?:FROM (?:--\S+ )*| *(?:- )?(?:image|container): *|COPY --from=| *(?:- )?uses: *docker://)([^\s{#]+)", text, re.MULTILINE)
    return [image for image in (one.strip("\"'") for one in found) if image not in stages and not image.startswith(("millrace:", "$"))]


def test_images_are_pinned_by_digest():
    digests = {}
    for name in WITH_IMAGES:
        for image in images_of(read(name)):
            version, _, digest = image.partition("@")
            assert re.search(r":v?\d+(\.\d+)*(-slim|\.Final)?$", version), (name, image)
            assert version in BY_VERSION or re.fullmatch(r"sha256:[0-9a-f]{64}", digest), (name, image)
            digests.setdefault(version, set()).add(digest)
    assert not {version: found for version, found in digests.items() if len(found) > 1}
    assert BY_VERSION <= set(digests), "an image that is no longer used is not pinned either"
    assert {"debian:12", "debian:13", "debian:13-slim", "postgres:17.10", "apache/kafka:4.3.1"} <= set(digests)


def test_an_image_without_digest_is_seen():
    for text in ("FROM a/b:1.2", "FROM --platform=linux/arm64 a/b:1.2 AS x", "    image: a/b:1.2", "    container: a/b:1.2", '  image: "a/b:1.2"',
                 "  - image: a/b:1.2", "COPY --from=a/b:1.2 /x /y", "  - uses: docker://a/b:1.2"):
        assert images_of(text) == ["a/b:1.2"], text
    assert not images_of("FROM x AS y\nFROM y\nCOPY --from=y /a /b\nFROM scratch".replace("FROM x AS y", "FROM scratch AS y"))


def test_somebody_asks_for_newer_ones():
    """Of each kind of what is pinned; of the images of workflows Dependabot does not, scripts/pin-images.sh does."""
    watched = re.findall(r"package-ecosystem: (\S+)", read(".github", "dependabot.yml"))
    assert sorted(watched) == ["docker", "docker-compose", "github-actions", "pip", "pip", "pip"]


def test_images_can_be_pinned(tmp_path):
    """By a docker that stands for the registries."""
    for name in (*WITH_IMAGES, "scripts/pin-images.sh"):
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        shutil.copy(os.path.join(ROOT, name), tmp_path / name)
    docker = tmp_path / "docker"
    docker.write_text('#!/bin/sh\nprintf sha256:%064d "$DIGEST"\n')
    docker.chmod(0o755)

    def pin(digest, *options):
        return subprocess.run([tmp_path / "scripts" / "pin-images.sh", *options], capture_output=True, check=False, timeout=60,
                              env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "DIGEST": digest}).returncode

    def images():
        return [image for name in WITH_IMAGES for image in images_of((tmp_path / name).read_text())]
    before = images()
    assert pin("7", "--check") == 1 and images() == before
    for digest in ("7", "8"):
        assert pin(digest) == 0
        assert images() == [f"{image.partition('@')[0]}@sha256:{int(digest):064d}" for image in before]
        assert pin(digest, "--check") == 0
    assert pin("9", "--check") == 1


def librdkafka(option):
    done = subprocess.run([os.path.join(ROOT, "scripts", "librdkafka.sh"), option], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_the_program_holds_the_pinned_librdkafka():
    """Fetched by version and hash. One that is newer is a change of one variable in the script."""
    said = subprocess.run([BINARY, "--version"], capture_output=True, text=True, check=True).stdout
    assert f"librdkafka {librdkafka('--version')}\n" in said
    with open(os.path.join(ROOT, "scripts", "librdkafka.sh"), encoding="utf-8") as file:
        text = file.read()
    assert re.search(r'^RELEASE="\d+\.\d+\.\d+ @?[\w/-]+@\d+\.\d+\.\d+\n[0-9a-f]{128}"$', text, re.M)
    assert os.path.exists(os.path.join(librdkafka("--where"), "LICENSES.txt"))


def sbom():
    done = subprocess.run([sys.executable, os.path.join(ROOT, "scripts", "sbom.py"), BINARY], capture_output=True, text=True,
                          check=True, timeout=120)
    return done.stdout


@pytest.mark.skipif("MILLRACE_TEST_SANITIZED" in os.environ, reason="a sanitizer's build is not what users run")
def test_the_sbom_names_what_is_linked():
    text = sbom()
    bom = json.loads(text)
    assert (bom["bomFormat"], bom["specVersion"]) == ("CycloneDX", "1.5")
    components = bom["components"]
    files = {file["name"]: file for component in components for file in component.get("components", [])}
    needed = re.findall(r"\(NEEDED\) .*\[(.+)\]", subprocess.run(["readelf", "-dW", BINARY], capture_output=True, text=True,
                                                                   check=True).stdout)
    assert len(needed) > 10
    for library in needed:
        assert any(os.path.basename(path) == library for path in files), library
    for file in files.values():
        assert re.fullmatch(r"[0-9a-f]{64}", file["hashes"][0]["content"])
    by_name = {component["name"]: component for component in components}
    assert {"librdkafka", "libpq5", "libseccomp2", "libtoml11-dev", "libxxhash-dev"} <= set(by_name)
    assert by_name["librdkafka"]["version"] == librdkafka("--version")
    (patch,) = by_name["librdkafka"]["pedigree"]["patches"]
    assert patch["diff"]["text"]["content"] == read("scripts", "librdkafka.patch")
    with open(os.path.join(librdkafka("--where"), "include", "librdkafka", "rdkafka.h"), encoding="utf-8") as file:
        assert "rd_kafka_topic_send_now(" in file.read(), "what is built is patched"
    installed = subprocess.run(["dpkg-query", "-W", "-f", "${Version}", "libpq5"], capture_output=True, text=True, check=True)
    assert by_name["libpq5"]["version"] == installed.stdout
    references = [component["bom-ref"] for component in components]
    assert len(set(references)) == len(references) and set(bom["dependencies"][0]["dependsOn"]) == set(references)
    assert sbom() == text, "the same program, other bytes"
