"""What is installed: manual pages, completions and packages, judged by the programs that know their forms."""

import os
import re
import subprocess

import pytest

from kit import BINARY
from prometheus import ROOT

BUILD = os.path.dirname(BINARY)


def run(*command, **options):
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, **options)


def reference(part):
    done = run(BINARY, "reference", part)
    assert done.returncode == 0
    return done.stdout


def declared(kind):
    """Names in commands.def."""
    with open(os.path.join(ROOT, "src", "cli", "commands.def"), encoding="utf-8") as file:
        return re.findall(rf'^{kind}\(\w+, "([a-z-]+)"', file.read(), re.MULTILINE)


@pytest.mark.parametrize("part", ["man", "man-config"])
def test_manual_pages(part, tmp_path):
    page = tmp_path / "page"
    page.write_text(reference(part))
    lint = run("mandoc", "-T", "lint", "-W", "style", str(page))
    assert lint.returncode == 0, lint.stdout
    text = run("mandoc", "-T", "utf8", str(page)).stdout
    text = re.sub(".\b", "", text)  # bold and underlined, as a terminal of paper does it
    for name in declared("MR_COMMAND") if part == "man" else ("sink.kafka.brokers", "pipeline.memory"):
        assert name in text
    for section in ("FILES", "EXAMPLES", "SEE ALSO", *(["EXIT STATUS"] if part == "man" else [])):
        assert f"\n{section}\n" in text
    assert re.findall(r"\]\(|\*\*|`", text) == []  # no Markdown


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completions_know_the_commands(shell, tmp_path):
    script = tmp_path / "completion"
    script.write_text(reference(shell))
    checked = run(shell, "-n", str(script))
    assert checked.returncode == 0, checked.stderr
    for name in declared("MR_COMMAND") + declared("MR_CLI_OPTION"):
        assert name in script.read_text()


@pytest.mark.parametrize("words, offered, not_offered", [
    (("millrace", "pro"), {"profile"}, {"run"}),
    (("millrace", "profile", "--"), {"--heap", "--out"}, {"--blank"}),
    (("millrace", "record", "--b"), {"--blank", "--blank-names"}, {"--heap"}),
    (("millrace", "reference", "f"), {"fish"}, {"bash"}),
])
def test_bash_offers(words, offered, not_offered, tmp_path):
    script = tmp_path / "completion"
    script.write_text(reference("bash"))
    quoted = " ".join(f"'{word}'" for word in words)
    found = set(run("bash", "-c", f". {script}; COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; _millrace; "
                                  'printf "%s\\n" "${COMPREPLY[@]}"').stdout.split())
    assert offered <= found and not found & not_offered, found


def test_an_option_of_another_command_is_refused():
    done = run(BINARY, "status", "--blank")
    assert done.returncode == 64 and "status has no option --blank; try millrace status --help" in done.stderr


@pytest.mark.parametrize("topic", declared("MR_COMMAND") + ["options", "exit-codes", "sink.kafka", "sink.kafka.oversize"])
def test_help_topics_fit_a_terminal(topic):
    done = run(BINARY, "help", topic)
    assert done.returncode == 0
    # A word that is longer than a line stays whole.
    assert all(len(line) <= 80 or " " not in line.strip() for line in done.stdout.splitlines())


def test_help_of_options():
    one = run(BINARY, "help", "sink.kafka.oversize").stdout
    assert "sink.kafka.oversize (word, default fail)" in one and "One of: fail, placeholder, dead-letter" in one
    section = run(BINARY, "help", "sink.kafka").stdout
    assert one in section and "sink.kafka.sasl.mechanism" in section and "sink.file" not in section
    nothing = run(BINARY, "help", "sink.kafk")
    assert nothing.returncode == 64 and 'no help about "sink.kafk"' in nothing.stderr


@pytest.fixture(scope="module")
def packages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("packages")
    for form in ("DEB", "RPM"):
        made = run("cpack", "-G", form, "-B", str(folder), cwd=BUILD)
        assert made.returncode == 0, made.stdout + made.stderr
    return folder


EXPECTED = {"/etc/millrace/config.toml", "/usr/bin/millrace",
            "/usr/lib/systemd/system/millrace.service", "/usr/share/man/man1/millrace.1.gz",
            "/usr/share/man/man5/millrace.toml.5.gz", "/usr/share/bash-completion/completions/millrace",
            "/usr/share/zsh/vendor-completions/_millrace", "/usr/share/fish/vendor_completions.d/millrace.fish",
            "/usr/share/doc/millrace/changelog.gz", "/usr/share/doc/millrace/librdkafka-licenses.txt",
            "/usr/share/doc/millrace/copyright", "/usr/share/millrace/role.sql"}


def test_the_deb_package(packages):
    package = str(next(packages.glob("*.deb")))
    files = set(re.findall(r" \.(/\S*[^/\s])$", run("dpkg", "-c", package).stdout, re.MULTILINE))
    assert EXPECTED <= files and not any(name.startswith("/usr/local") for name in files)
    fields = run("dpkg", "-f", package, "Depends").stdout
    assert "librdkafka1" not in fields and "libsasl2-2" in fields and "libpq5" in fields and "ca-certificates" in fields
    lint = run("lintian", "--fail-on", "error", package)
    assert lint.returncode == 0, lint.stdout


def test_deb_installs_keeps_the_configuration_and_purges(packages, tmp_path):
    """Into a root of its own: no dependency is looked at, and no script needs anything but a shell."""
    package = str(next(packages.glob("*.deb")))
    root = tmp_path / "root"
    admin = root / "var/lib/dpkg"
    (admin / "info").mkdir(parents=True)
    (admin / "updates").mkdir()
    (admin / "status").touch()
    (admin / "available").touch()
    dpkg = ("dpkg", "--force-not-root", "--force-script-chrootless", f"--root={root}", "--force-depends",
            f"--log={tmp_path}/dpkg.log")
    assert run(*dpkg, "-i", package).returncode == 0
    config, password = root / "etc/millrace/config.toml", root / "etc/millrace/postgres.password"
    assert run(BINARY, "check", "--config", str(config)).returncode != 64  # it parses
    config.write_text(config.read_text().replace("localhost:9092", "kafka:9092"))
    password.write_text("secret")
    again = run(*dpkg, "--force-confdef", "--force-confold", "-i", package)
    assert again.returncode == 0 and "kafka:9092" in config.read_text()
    assert run(*dpkg, "-P", "millrace").returncode == 0
    assert not config.exists() and not (root / "usr/bin/millrace").exists()
    assert password.read_text() == "secret"


def test_the_rpm_package(packages):
    package = str(next(packages.glob("*.rpm")))
    assert EXPECTED <= set(run("rpm", "-qlp", package).stdout.split())
    assert "/etc/millrace/config.toml" in run("rpm", "-qcp", package).stdout
