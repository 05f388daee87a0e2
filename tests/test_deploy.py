"""The files of docker-compose.yml and docs/deploy, as far as they can be tried without their images."""

import os
import re
import shutil
import subprocess
import tomllib

import psycopg
import pytest

from kit import BINARY, BOOTSTRAP, dsn
from prometheus import ROOT
from test_fleet import from_yaml


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


def test_the_chart_knows_what_is_taken_up():
    """The options whose change means no new pod are those that the program names."""
    reference = subprocess.run([BINARY, "reference", "reload"], capture_output=True, text=True, check=True).stdout
    rows = [re.findall(r"`([a-z_.]+)`", row.split("|")[1]) for row in reference.splitlines() if row.startswith("| `")]
    helpers = read("packaging", "helm", "millrace", "templates", "_helpers.tpl")
    lists = {name: re.search(rf'define "millrace.{name}" -}}}}\n(.*)\n', helpers)[1].split() for name in ("atOnce", "between")}
    assert sorted(lists["between"]) == sorted(rows[0] + rows[1]) and sorted(lists["atOnce"]) == sorted(rows[2]) and len(rows) == 3


@pytest.mark.parametrize("unit, name", [("millrace.service", "millrace.service"), ("millrace@.service", "millrace@shop.service")])
def test_systemd_unit_is_hardened(tmp_path, unit, name):
    shutil.copy(path("docs", "deploy", unit), tmp_path / name)
    result = subprocess.run(["systemd-analyze", "security", "--offline=true", "--no-pager", str(tmp_path / name)], capture_output=True,
                            text=True, check=True)
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


def client(name):
    """A client of PostgreSQL's: the server's own, or, where that has none (the npm packages), the system's."""
    own = os.path.join(os.environ["MILLRACE_PG_BIN"], name)
    return own if os.path.exists(own) else f"/usr/lib/postgresql/15/bin/{name}"


def psql(database, *arguments):
    subprocess.run([client("psql"), "-qX", "-v", "ON_ERROR_STOP=1", *arguments,
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
    subprocess.run([client("pgbench"), "-n", "-f", path("docker", "bench", "orders.sql"),
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


def test_ports_are_variables():
    for name, text in services().items():
        for port in re.findall(r"ports: \[(.+)\]", text):
            assert re.fullmatch(r'"127\.0\.0\.1:\$\{[A-Z]+_PORT:-(\d+)\}:\1"', port), (name, port)


def test_unit_leaves_room_for_what_is_configured():
    """A folder to write to, and a limit of memory above the budget."""
    unit = dict(line.split("=", 1) for line in read("docs", "deploy", "millrace.service").splitlines() if re.match(r"\w+=", line))
    assert unit["StateDirectory"] == "millrace"
    budget = re.search(r'"pipeline\.memory", SIZE, memory, NOWHERE, "(\d+)MiB"', read("src", "options", "options.def"))[1]
    assert int(unit["MemoryMax"].rstrip("M")) > int(unit["MemoryHigh"].rstrip("M")) > int(budget)


def test_the_template_is_the_unit_for_a_named_configuration():
    def settings(name):
        return [line for line in read("docs", "deploy", name).splitlines() if not line.startswith("#")]
    named = {"LoadCredential=postgres:/etc/millrace/postgres.password": ["LoadCredential=secrets:/etc/millrace/secrets/%i", "Slice=millrace.slice"],
             "StateDirectory=millrace": ["StateDirectory=millrace-%i"], "StateDirectoryMode=0700": ["StateDirectoryMode=0700", "RuntimeDirectory=millrace/%i"],
             "Wants=network-online.target": ["Wants=network-online.target", "PartOf=millrace.target"],
             "WantedBy=multi-user.target": ["WantedBy=multi-user.target millrace.target"]}
    single = [line.replace("config.toml", "%i.toml") for line in settings("millrace.service")]
    single = [line + " (%i)" if line.startswith("Description=") else line for line in single]
    assert [new for line in single for new in named.get(line, [line])] == settings("millrace@.service")


def test_units_are_what_systemd_takes(tmp_path):
    """With /bin/true in place of a program that need not be installed here."""
    for name in ("millrace.service", "millrace@.service", "millrace.target", "millrace.slice"):
        text = read("docs", "deploy", name)
        (tmp_path / name.replace("@", "@shop")).write_text(text.replace("/usr/bin/millrace ", "/bin/true "))
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", *map(str, tmp_path.iterdir())], capture_output=True, text=True,
                          env={**os.environ, "SYSTEMD_UNIT_PATH": f"{tmp_path}:/usr/lib/systemd/system"}, check=False)
    said = [line for line in done.stderr.splitlines() if str(tmp_path) in line or "millrace" in line]
    assert done.returncode == 0 and not said, done.stderr


def test_image_is_built_with_the_pinned_librdkafka():
    text = read("Dockerfile")
    assert "COPY scripts/setup.sh scripts/librdkafka.sh scripts/librdkafka.patch scripts/" in text and "scripts/setup.sh --build-only" in text
    assert "MILLRACE_LIBRDKAFKA" not in text


def kubernetes_configuration():
    text = read("docs", "deploy", "kubernetes.yaml").split("config.toml: |\n")[1].split("\n---")[0]
    return "".join(line[4:] if line.startswith("    ") else line for line in text.splitlines(keepends=True))


def test_kubernetes_configuration_is_taken(tmp_path):
    """By this very program, with files in place of the volumes'."""
    secret = tmp_path / "secret"
    secret.write_text("x")
    secret.chmod(0o600)
    text = re.sub(r'"file:/run/secrets/millrace/[\w-]+"', f'"file:{secret}"', kubernetes_configuration())
    assert text.count(str(secret)) == 2
    text = text.replace("/var/lib/millrace/profiles", str(tmp_path))
    (tmp_path / "config.toml").write_text(text)
    done = subprocess.run([BINARY, "check", "--config", str(tmp_path / "config.toml")], capture_output=True, text=True,
                          timeout=120, check=False)
    assert not re.search(r"config\.toml:\d*:? (?!warning)", done.stderr), done.stderr
    assert "postgres.your-database.svc" in done.stdout + done.stderr


def test_the_job_of_recover_has_the_pod_of_the_deployment():
    deployment, job = ({one["kind"]: one for one in from_yaml(read("docs", "deploy", name))} for name in ("kubernetes.yaml", "recover.yaml"))
    pods = [deployment["Deployment"]["spec"]["template"]["spec"], job["Job"]["spec"]["template"]["spec"]]
    for name in ("serviceAccountName", "automountServiceAccountToken", "enableServiceLinks", "terminationGracePeriodSeconds", "securityContext", "volumes"):
        assert pods[0][name] == pods[1][name], name
    containers = [pod["containers"][0] for pod in pods]
    for name in ("name", "image", "resources", "securityContext", "volumeMounts"):
        assert containers[0][name] == containers[1][name], name
    assert containers[1]["args"][1:3] == containers[0]["args"]
    assert job["Job"]["spec"]["template"]["metadata"]["labels"] != deployment["Deployment"]["spec"]["selector"]["matchLabels"]
    done = subprocess.run([BINARY, *containers[1]["args"]], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 78 and "/etc/millrace/config.toml" in done.stderr, done.stderr


def test_kubernetes_pods_reach_only_what_they_need():
    policy = read("docs", "deploy", "kubernetes.yaml").split("kind: NetworkPolicy")[1]
    assert "policyTypes: [Ingress, Egress]" in policy and "port: 9464" in policy
    assert set(re.findall(r"port: (\d+)", policy)) == {"9464", "53", "5432", "9092"}
