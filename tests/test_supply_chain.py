"""What the repository itself promises: its workflows, the packages of its tests, and what a release is made of."""

import json
import os
import re
import shutil
import subprocess
import sys

import pytest

from kit import BINARY
from prometheus import ROOT

WORKFLOWS = os.path.join(ROOT, ".github", "workflows")
# Who may write what, and why it is safe: none of these runs a pull request's code.
MAY_WRITE = {
    "codeql.yml": {"security-events"},  # GitHub gives requests from forks no such token
    "scorecard.yml": {"security-events", "id-token"},
    "pr-comment.yml": {"pull-requests"},
    "release.yml": {"contents", "packages", "id-token", "attestations"},
}


def read(*parts):
    with open(os.path.join(ROOT, *parts), encoding="utf-8") as file:
        return file.read()


def workflows():
    return {name: read(WORKFLOWS, name) for name in sorted(os.listdir(WORKFLOWS))}


def test_actions_are_pinned_by_digest():
    for name, text in workflows().items():
        used = re.findall(r"uses: *(.+)", text)
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
    assert "scripts/sbom.py" in text and "SHA256SUMS" in text
    assert "arm64" in text and "amd64" in text
    assert "pull_request" not in text


def test_each_fuzz_target_runs_at_night():
    targets = sorted(name[:-2] for name in os.listdir(os.path.join(ROOT, "fuzz")) if name.startswith("fuzz_") and name.endswith(".c"))
    told = re.search(r"target: \[(.*)\]", read(WORKFLOWS, "fuzz.yml"))[1].split(", ")
    assert len(targets) > 5 and told == targets


def test_python_packages_have_hashes():
    lines = [line for line in read("tests", "requirements.txt").splitlines() if line and not line.startswith(("#", " "))]
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
    assert sorted(watched) == ["docker", "docker-compose", "github-actions", "pip"]


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
    assert {"librdkafka", "libpq5", "libseccomp2", "libtoml11-dev"} <= set(by_name)
    assert by_name["librdkafka"]["version"] == librdkafka("--version")
    installed = subprocess.run(["dpkg-query", "-W", "-f", "${Version}", "libpq5"], capture_output=True, text=True, check=True)
    assert by_name["libpq5"]["version"] == installed.stdout
    references = [component["bom-ref"] for component in components]
    assert len(set(references)) == len(references) and set(bom["dependencies"][0]["dependsOn"]) == set(references)
    assert sbom() == text, "the same program, other bytes"
