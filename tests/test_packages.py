"""What is installed: manual pages, completions, packages and the apt repository, judged by the programs that know their forms."""

import os
import re
import subprocess

import pytest

from kit import BINARY
from prometheus import ROOT

BUILD = os.path.dirname(BINARY)
RELEASE = os.path.join(ROOT, "scripts", "release.sh")


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


def declared_of_verify():
    """Names in verify.def."""
    with open(os.path.join(ROOT, "src", "terminal", "verify.def"), encoding="utf-8") as file:
        return re.findall(r'^MR_VERIFY_OPTION\(\w+, "([a-z-]+)"', file.read(), re.MULTILINE)


@pytest.mark.parametrize("part", ["man", "man-verify", "man-config"])
def test_manual_pages(part, tmp_path):
    page = tmp_path / "page"
    page.write_text(reference(part))
    lint = run("mandoc", "-T", "lint", "-W", "style", str(page))
    assert lint.returncode == 0, lint.stdout
    text = run("mandoc", "-T", "utf8", str(page)).stdout
    text = re.sub(".\b", "", text)  # bold and underlined, as a terminal of paper does it
    names = {"man": declared("MR_COMMAND"), "man-verify": declared_of_verify(), "man-config": ("sink.kafka.brokers", "pipeline.memory")}
    for name in names[part]:
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
    for name in declared("MR_COMMAND") + declared("MR_CLI_OPTION") + declared_of_verify():
        assert name in script.read_text()


@pytest.mark.parametrize("words, offered, not_offered", [
    (("millrace", "pro"), {"profile"}, {"run"}),
    (("millrace", "profile", "--"), {"--heap", "--out"}, {"--blank"}),
    (("millrace", "record", "--b"), {"--blank", "--blank-names"}, {"--heap"}),
    (("millrace", "reference", "f"), {"fish"}, {"bash"}),
    (("millrace-verify", "--"), {"--sample", "--list", "--config"}, {"--blank"}),
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


@pytest.mark.parametrize("topic", declared("MR_COMMAND") + ["options", "exit-codes", "runbook", "sink.kafka", "sink.kafka.oversize"])
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
    """What the release workflow makes of this system, of the build under test."""
    folder = tmp_path_factory.mktemp("packages")
    made = run(RELEASE, "packages", str(folder), BUILD)
    assert made.returncode == 0, made.stdout + made.stderr
    return folder


EXPECTED = {"/etc/millrace/config.toml", "/usr/bin/millrace", "/usr/bin/millrace-verify", "/usr/share/man/man1/millrace-verify.1.gz",
            *(f"/usr/lib/systemd/system/millrace{end}" for end in (".service", "@.service", ".target", ".slice")), "/usr/share/man/man1/millrace.1.gz",
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


def test_everything_of_a_system_is_named_after_it(packages):
    with open("/etc/os-release", encoding="utf-8") as file:
        system = re.search(r"^ID=(.*)", text := file.read(), re.M)[1] + re.search(r'^VERSION_ID="?([\d.]+)', text, re.M)[1]
    machine = run("dpkg", "--print-architecture").stdout.strip()
    version = run(BINARY, "--version").stdout.split()[1]
    assert {path.name for path in packages.iterdir()} == {
        f"millrace_{version}+{system}_{machine}.deb", f"millrace_{version}+{system}_{machine}.cdx.json",
        f"millrace-{version}-1.{system}.{run('uname', '-m').stdout.strip()}.rpm"}


def own_root(folder):
    """A root without a package, and dpkg for it: no dependency is looked at, and no script needs anything but a shell."""
    root = folder / "root"
    admin = root / "var/lib/dpkg"
    (admin / "info").mkdir(parents=True)
    (admin / "updates").mkdir()
    (admin / "status").touch()
    (admin / "available").touch()
    return root, ("dpkg", "--force-not-root", "--force-script-chrootless", f"--root={root}", "--force-depends",
                  f"--log={folder}/dpkg.log")


def test_deb_installs_keeps_the_configuration_and_purges(packages, tmp_path):
    package = str(next(packages.glob("*.deb")))
    root, dpkg = own_root(tmp_path)
    assert run(*dpkg, "-i", package).returncode == 0
    config, password = root / "etc/millrace/config.toml", root / "etc/millrace/postgres.password"
    assert run(BINARY, "check", "--config", str(config)).returncode != 64  # it parses
    # The profiler's first example, with what was installed: heap profiles are in it (Debian's jemalloc has them on amd64 alone).
    installed = str(root / "usr/bin/millrace")
    assert "allocator jemalloc" in run(installed, "--version").stdout
    with open(os.path.join(ROOT, "docs", "built-in-profiler.md"), encoding="utf-8") as page:
        config.write_text((before := config.read_text()) + re.search(r"```toml\n(.*?)```", page.read(), re.DOTALL)[1])
    said = run(installed, "check", "--config", str(config)).stdout
    assert ("heap profiles" in said) == (os.uname().machine == "aarch64"), said
    config.write_text(before)
    config.write_text(config.read_text().replace("localhost:9092", "kafka:9092"))
    # As prerm does for all instances at once.
    enabled = root / "etc/systemd/system/multi-user.target.wants/millrace@shop.service"
    assert run("systemctl", f"--root={root}", "enable", "millrace@shop.service").returncode == 0 and enabled.is_symlink()
    assert run("systemctl", f"--root={root}", "disable", "millrace@.service").returncode == 0 and not enabled.is_symlink()
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


# ---- the apt repository ----

@pytest.fixture(scope="module")
def key(tmp_path_factory):
    """A key for these tests alone, as the workflow's secret holds it."""
    home = tmp_path_factory.mktemp("gpg")
    home.chmod(0o700)
    gpg = ("gpg", "--homedir", str(home), "--batch", "--pinentry-mode", "loopback", "--passphrase", "")
    made = run(*gpg, "--quick-gen-key", "millrace test", "ed25519", "sign", "never")
    assert made.returncode == 0, made.stderr
    yield run(*gpg, "--armor", "--export-secret-keys").stdout
    run("gpgconf", "--homedir", str(home), "--kill", "all")


def older(package, folder):
    """The same package as an earlier version: what an upgrade starts from."""
    files = folder / "files"
    assert run("dpkg-deb", "-R", package, str(files)).returncode == 0
    control = files / "DEBIAN" / "control"
    control.write_text(re.sub(r"^Version: [\d.]+", "Version: 0.0.9", control.read_text(), flags=re.M))
    (files / "usr/bin/millrace").write_text("older")
    made = folder / os.path.basename(package).replace(run(BINARY, "--version").stdout.split()[1], "0.0.9")
    assert run("dpkg-deb", "--root-owner-group", "-b", str(files), str(made)).returncode == 0
    return str(made)


@pytest.fixture(scope="module")
def site(packages, key, tmp_path_factory):
    """The repository, copied from a folder by apt."""
    folder = tmp_path_factory.mktemp("site")
    made = run(RELEASE, "apt", str(packages), str(folder), f"copy:{folder}", env={**os.environ, "MILLRACE_SIGNING_KEY": key})
    assert made.returncode == 0, made.stdout + made.stderr
    return folder


class Apt:
    """apt with folders of its own. It sees what is installed on this machine, so that dependencies are resolved."""

    def __init__(self, folder, sources):
        for name in ("lists/partial", "archives/partial", "parts"):
            (folder / name).mkdir(parents=True)
        self.archives = folder / "archives"
        settings = {"Dir::Etc::sourcelist": sources, "Dir::Etc::sourceparts": folder / "parts", "Dir::State::lists": folder / "lists",
                    "Dir::Cache": folder, "Dir::Cache::archives": self.archives, "APT::Sandbox::User": "", "Debug::NoLocking": "1",
                    "Dir::Etc::trusted": "/dev/null", "Dir::Etc::trustedparts": folder / "parts"}
        self.options = [word for name, value in settings.items() for word in ("-o", f"{name}={value}")]

    def get(self, *words):
        return run("apt-get", *self.options, *words)


def test_apt_installs_from_the_repository(packages, site, tmp_path):
    """As README's commands do: one file of sources, update, install; an older version is upgraded and keeps its configuration."""
    package = next(packages.glob("*.deb"))
    suite = package.name.split("+")[1].split("_")[0]
    apt = Apt(tmp_path, site / f"{suite}.sources")
    updated = apt.get("update", "--error-on=any")
    assert updated.returncode == 0 and "W:" not in updated.stderr, updated.stdout + updated.stderr
    planned = apt.get("install", "--simulate", "millrace")
    assert re.search(r"^Inst millrace .*millrace", planned.stdout, re.M), planned.stdout + planned.stderr
    assert apt.get("install", "--download-only", "--no-install-recommends", "-y", "millrace").returncode == 0
    fetched = next(apt.archives.glob("millrace_*.deb"))
    assert fetched.read_bytes() == package.read_bytes()

    root, dpkg = own_root(tmp_path)
    assert run(*dpkg, "-i", older(str(package), tmp_path)).returncode == 0
    config = root / "etc/millrace/config.toml"
    config.write_text(mine := config.read_text() + "# mine\n")
    upgraded = run(*dpkg, "--force-confold", "-i", str(fetched))
    assert upgraded.returncode == 0 and " over (0.0.9" in upgraded.stdout, upgraded.stdout + upgraded.stderr
    assert config.read_text() == mine and (root / "usr/bin/millrace").read_bytes() != b"older"


@pytest.mark.parametrize("place, said", [("dists/*/InRelease", "signature"), ("dists/*/main/binary-*/Packages*", "Hash Sum|unexpected size")])
def test_apt_refuses_a_repository_that_was_changed(site, tmp_path, place, said):
    copy = tmp_path / "site"
    assert run("cp", "-r", str(site), str(copy)).returncode == 0
    for path in copy.glob(place):
        path.write_bytes(path.read_bytes().replace(b"ain", b"iam", 1) if path.suffix != ".gz" else b"\x1f\x8b")
    sources = next(copy.glob("*.sources"))
    sources.write_text(sources.read_text().replace(str(site), str(copy)))
    refused = Apt(tmp_path / "apt", sources).get("update", "--error-on=any")
    assert refused.returncode != 0 and re.search(said, refused.stderr), refused.stdout + refused.stderr


def test_sums_are_signed_and_hold(packages, site, key, tmp_path):
    assert site.exists()
    home = tmp_path / "gpg"
    home.mkdir(mode=0o700)
    made = run(RELEASE, "sums", str(packages), env={**os.environ, "MILLRACE_SIGNING_KEY": key})
    assert made.returncode == 0, made.stderr
    named = {line.split()[1] for line in (packages / "SHA256SUMS").read_text().splitlines()}
    assert named == {path.name for path in packages.iterdir() if not path.name.startswith("SHA256SUMS")}
    assert any(name.endswith("-apt.tar.gz") for name in named)
    assert run("sha256sum", "-c", "--strict", "SHA256SUMS", cwd=packages).returncode == 0
    gpg = ("gpg", "--homedir", str(home), "--batch")
    assert run(*gpg, "--import", str(packages / "millrace.asc")).returncode == 0
    verify = (*gpg, "--verify", "SHA256SUMS.asc", "SHA256SUMS")
    assert run(*verify, cwd=packages).returncode == 0
    (packages / "SHA256SUMS").write_text("")
    assert run(*verify, cwd=packages).returncode == 1


def test_without_a_key_nothing_is_signed(packages, tmp_path):
    refused = run(RELEASE, "apt", str(packages), str(tmp_path / "site"), "file:/", env={**os.environ, "MILLRACE_SIGNING_KEY": ""})
    assert refused.returncode == 1 and "MILLRACE_SIGNING_KEY is not set" in refused.stderr
    assert not list(tmp_path.glob("site/dists/*"))
