"""The files of docker-compose.yml and docs/deploy, as far as they can be tried without their images."""

import os
import re
import shutil
import subprocess
import tomllib

import psycopg
import pytest

from kit import BOOTSTRAP, dsn
from prometheus import ROOT


def path(*parts):
    return os.path.join(ROOT, *parts)


def read(*parts):
    with open(path(*parts), encoding="utf-8") as file:
        return file.read()


def services():
    """Text of each service of docker-compose.yml, by name."""
    text = read("docker-compose.yml").split("\nservices:\n")[1].split("\nvolumes:\n")[0]
    parts = re.split(r"^  ([a-z-]+):\n", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2]))


def test_systemd_unit_is_hardened():
    result = subprocess.run(["systemd-analyze", "security", "--offline=true", "--no-pager",
                             path("docs", "deploy", "millrace.service")], capture_output=True, text=True, check=True)
    exposure = float(re.search(r"Overall exposure level for \S+: ([0-9.]+)", result.stdout)[1])
    assert exposure <= 1.5


def test_images_have_fixed_versions():
    for name, text in services().items():
        image = re.search(r"image: (\S+)", text)[1]
        assert image in ("millrace:local", "millrace:profiling") or re.search(r":v?\d+\.\d+", image), (name, image)


def test_the_image_gets_all_that_its_build_needs(tmp_path):
    """CMake is content with the files that the Dockerfile copies and .dockerignore lets through."""
    dockerfile = read("Dockerfile").replace("\\\n", "").split("\nFROM ")[1]
    let_through = {line[1:] for line in read(".dockerignore").splitlines() if line.startswith("!")}
    for names in re.findall(r"^COPY (.+) \S+$", dockerfile, re.MULTILINE):
        for name in names.split():
            assert name in let_through, name
            target = tmp_path / name
            target.parent.mkdir(parents=True, exist_ok=True)
            (shutil.copytree if os.path.isdir(path(name)) else shutil.copy)(path(name), target)
    configure = re.search(r"^RUN (cmake --preset .+?) *&&", dockerfile, re.MULTILINE)[1]
    subprocess.run(configure.split(), cwd=tmp_path, check=True, capture_output=True, text=True)


def test_every_server_has_its_health_check_and_limit():
    for name, text in services().items():
        assert "mem_limit: " in text, name
        if name not in ("millrace", "bench", "debezium-connector", "profiler"):
            assert "healthcheck:" in text, name
    assert "HEALTHCHECK" in read("Dockerfile")  # millrace's is part of its image


def test_only_the_profiler_has_privileges():
    for name, text in services().items():
        for word in ("cap_add", "seccomp:unconfined", "privileged", "pid:"):
            assert name == "profiler" or word not in text, (name, word)
    assert "profiles: [profiling]" in services()["profiler"]


def test_mounted_files_exist():
    for mount in re.findall(r"\./([\w/.-]+):/", read("docker-compose.yml")):
        assert os.path.exists(path(mount)), mount


def psql(database, *arguments):
    subprocess.run([os.path.join(os.environ["MILLRACE_PG_BIN"], "psql"), "-qX", "-v", "ON_ERROR_STOP=1", *arguments,
                    dsn(database.name)], check=True, capture_output=True, text=True,
                   env={**os.environ, "MILLRACE_PASSWORD": "millrace's", "EXPORTER_PASSWORD": "exporter's"})


@pytest.fixture
def shop(database):
    """A database as the compose file's PostgreSQL makes it."""
    psql(database, "-f", path("docker", "postgres", "10-shop.sql"))
    yield database
    database.run("DROP OWNED BY millrace, exporter; DROP ROLE millrace, exporter")


def test_the_shop_flows_with_its_roles(shop, millrace, topic):
    """The compose file's SQL, configuration and load, with the roles' own grants."""
    text = read("docker", "millrace.toml").replace('"kafka:9092"', f'"{BOOTSTRAP}"').replace('":9464"', '"127.0.0.1:0"')
    text = text.replace('topic_prefix = "millrace"', f'topic_prefix = "{shop.prefix}"')
    text = text.replace("[source.postgres]", f'[source.postgres]\nslot_name = "{shop.slot}"')
    assert tomllib.loads(text)["topic_prefix"] == shop.prefix
    process = millrace(text=text)
    process.environment["DATABASE_URL"] = re.sub(r"//[^@]*@", "//millrace:millrace%27s@", dsn(shop.name))
    process.start().streaming()
    subprocess.run([os.path.join(os.environ["MILLRACE_PG_BIN"], "pgbench"), "-n", "-f", path("docker", "bench", "orders.sql"),
                    "-t", "20", dsn(shop.name)], check=True, capture_output=True)
    rows = shop.run("SELECT count(*) FROM orders")[0][0]
    assert rows > 0
    records = topic(shop.topic("orders")).take(60)
    assert {record.json["op"] for record in records if record.value} <= {"c", "u", "d"}
    assert process.stop() == 0

    exporter = re.sub(r"//[^@]*@", "//exporter:exporter%27s@", dsn(shop.name))
    with psycopg.connect(exporter) as connection:
        assert connection.execute("SELECT slot_name FROM pg_replication_slots WHERE slot_name = %s", [shop.slot]).fetchone()
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("SELECT * FROM orders")


# ---- the repository's own workflows ----

def workflows():
    folder = path(".github", "workflows")
    return {name: read(".github", "workflows", name) for name in sorted(os.listdir(folder))}


def test_no_code_of_a_pull_request_runs_where_something_can_be_written():
    """Neither a token that writes nor pull_request_target; what comments runs nothing that it was given."""
    for name, text in workflows().items():
        assert "pull_request_target" not in text, name
        if re.search(r"^  pull_request:", text, re.MULTILINE):
            granted = set(re.findall(r"^\s+([\w-]+): write", text, re.MULTILINE))
            assert granted <= ({"security-events"} if name == "codeql.yml" else set()), (name, granted)
        if "workflow_run:" in text:
            assert "checkout" not in text and "run: " not in text, name
        assert re.search(r"^permissions:", text, re.MULTILINE), name


def test_checkouts_leave_no_token_behind():
    for name, text in workflows().items():
        assert text.count("actions/checkout@") == text.count("persist-credentials: false"), name


def test_actions_have_fixed_versions():
    for name, text in workflows().items():
        for action in re.findall(r"uses: (\S+)", text):
            assert re.search(r"@(v\d+(\.\d+)*|[0-9a-f]{40})$", action), (name, action)


def test_kubernetes_pods_reach_only_what_they_need():
    policy = read("docs", "deploy", "kubernetes.yaml").split("kind: NetworkPolicy")[1]
    assert "policyTypes: [Ingress, Egress]" in policy and "port: 9464" in policy
    assert set(re.findall(r"port: (\d+)", policy)) == {"9464", "53", "5432", "9092"}


def test_python_packages_are_pinned_with_hashes():
    wanted = re.findall(r"^([\w.-]+)(?:\[\w+\])?==", read("tests", "requirements.in"), re.MULTILINE)
    pinned = re.findall(r"^([\w.-]+)(?:\[\w+\])?==\S+ \\\n +--hash=sha256:", read("tests", "requirements.txt"), re.MULTILINE)
    assert {name.lower() for name in wanted} <= {name.lower() for name in pinned}
