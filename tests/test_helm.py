"""The Helm chart, rendered by Helm and read by PyYAML: one pipeline, a pair, five hundred; each configuration goes through millrace's parser.
Only with MILLRACE_TEST_HELM=1, after `scripts/setup.sh --helm`, which builds Helm for minutes. On a control plane: test_kubernetes_plane.py."""

import json
import os
import subprocess
import time
import tomllib

import pytest

from kit import BINARY
from prometheus import CONFIGURATION, ROOT, free_port
from test_fleet import TEMPLATE, flat, from_yaml
from test_recover import Scene

pytestmark = pytest.mark.skipif("MILLRACE_TEST_HELM" not in os.environ, reason="MILLRACE_TEST_HELM is not set")

CHART = os.path.join(ROOT, "packaging", "helm", "millrace")
HELM = os.path.join(os.environ.get("MILLRACE_TOOLS_DIR", os.path.join(ROOT, ".stand")), "helm", "helm")

CONFIG = {"topic_prefix": "{name}", "tables": ["public.*"], "source.postgres.connection": "host=pg1 dbname={name} user=m",
          "source.postgres.password": "file:/run/secrets/pg1/password", "source.postgres.slot_name": "mr_{name}",
          "sink.kafka.brokers": ["kafka:9092"], "sink.kafka.state_topic": "__millrace_state.{name}", "sink.kafka.create_topics": True,
          'sink.kafka.properties."client.rack"': "a"}


def helm(*arguments, values, refused=False):
    done = subprocess.run([HELM, *arguments, "--kube-version", "1.36.3", "-f", "-"], input=json.dumps({"image": {"repository": "example/millrace"}, **values}), capture_output=True,
                          text=True, timeout=300, check=False)
    assert (done.returncode != 0) == refused, done.stdout + done.stderr
    return done.stderr if refused else done.stdout


def rendered(release="rel", **values):
    return helm("template", release, CHART, values={"config": CONFIG, **values})


def template(**values):
    """{(kind, name): object}"""
    made = from_yaml(rendered(**values))
    found = {(one["kind"], one["metadata"]["name"]): one for one in made}
    assert len(found) == len(made)
    return found


def config_of(objects, name):
    return tomllib.loads(objects["ConfigMap", name]["data"]["config.toml"])


def hash_of(objects, name):
    return objects["Deployment", name]["spec"]["template"]["metadata"]["annotations"]["millrace/restart"]


def check_object(objects, name, replicas):
    """What holds for each pipeline."""
    deployment = objects["Deployment", name]["spec"]
    pod, labels = deployment["template"]["spec"], deployment["template"]["metadata"]["labels"]
    (container,) = pod["containers"]
    assert deployment["replicas"] == replicas and deployment["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
    assert deployment["selector"]["matchLabels"] == labels == {
        "app.kubernetes.io/name": "millrace", "app.kubernetes.io/instance": "rel", "app.kubernetes.io/component": name}
    # Pod Security Standards, "Restricted".
    assert pod["securityContext"]["runAsNonRoot"] and pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}
    assert pod["automountServiceAccountToken"] is False and ("ServiceAccount", pod["serviceAccountName"]) in objects
    assert {one["tolerationSeconds"] for one in pod["tolerations"]} == {30}
    volumes = {one["name"]: one for one in pod["volumes"]}
    mounts = {one["name"]: one for one in container["volumeMounts"]}
    assert len(volumes) == len(pod["volumes"]) and volumes.keys() == mounts.keys() and not any("subPath" in one for one in mounts.values())
    assert volumes["config"]["configMap"]["name"] == name and mounts["config"]["mountPath"] == "/etc/millrace"
    ports = {one["name"]: one["containerPort"] for one in container["ports"]}
    assert f':{ports["http"]}' == flat(config_of(objects, name))["http.address"]
    for probe, path in (("startupProbe", "/healthz"), ("livenessProbe", "/healthz"), ("readinessProbe", "/readyz")):
        assert container[probe]["httpGet"] == {"path": path, "port": "http"}
    return pod, container


def test_one(tmp_path):
    objects = template(secrets=["pg1"], env={"PG": {"secret": "pg1", "key": "url"}, "NO": {"secret": "all", "key": "k"}},
                       config={**CONFIG, "log.format": "text", "http.address": "127.0.0.1:0", "http.required": False, "pipeline.shutdown_deadline": "2m"},
                       pipelines={"shop_a": {"config": {"sink.kafka.create_topics": False}, "secrets": ["kafka.own", "kafka-own"],
                                             "env": {"NO": {"secret": "own", "key": "k"}}}})
    assert {kind for kind, _ in objects} == {"ServiceAccount", "NetworkPolicy", "ConfigMap", "Deployment"}
    pod, container = check_object(objects, "rel-shop-a", 1)
    assert "affinity" not in pod and container["image"] == "example/millrace:" + chart()["appVersion"]
    assert {one["mountPath"] for one in container["volumeMounts"]} == {"/etc/millrace", "/var/tmp", "/run/secrets/pg1", "/run/secrets/kafka.own",
                                                                       "/run/secrets/kafka-own"}
    assert {one["name"]: one["valueFrom"]["secretKeyRef"] for one in container["env"]} == {
        "PG": {"name": "pg1", "key": "url"}, "NO": {"name": "own", "key": "k"}}
    assert pod["terminationGracePeriodSeconds"] == 130
    assert all(one["secret"]["defaultMode"] == 0o440 for one in pod["volumes"] if "secret" in one)
    got = flat(config_of(objects, "rel-shop-a"))
    assert got == {**flat({key.replace('"', ""): json.loads(json.dumps(value).replace("{name}", "shop_a")) for key, value in CONFIG.items()}),
                   "sink.kafka.create_topics": False, "pipeline.shutdown_deadline": "2m", "http.address": ":9464", "http.required": True, "log.format": "text", "reload.watch": "10s", "source.postgres.handover": "60s"}
    parsed(objects, tmp_path)


def test_a_pair(tmp_path):
    with open(os.path.join(CONFIGURATION, "rules.yml"), encoding="utf-8") as file:
        rules = file.read()
    objects = template(pair=True, podMonitor={"enabled": True, "rules": rules}, pipelines={"a": {}, "single": {"pair": False}, "b": {"paused": True}})
    for name, replicas in (("rel-a", 2), ("rel-b", 0), ("rel-single", 1)):
        pod, _ = check_object(objects, name, replicas)
        assert pod["terminationGracePeriodSeconds"] == 40
        assert ("affinity" in pod) == (("PodDisruptionBudget", name) in objects) == (name != "rel-single")
    (term,) = objects["Deployment", "rel-a"]["spec"]["template"]["spec"]["affinity"]["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    labels = objects["Deployment", "rel-a"]["spec"]["selector"]["matchLabels"]
    assert term["podAffinityTerm"] == {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": labels}}
    budget = objects["PodDisruptionBudget", "rel-a"]["spec"]
    assert budget == {"maxUnavailable": 1, "unhealthyPodEvictionPolicy": "AlwaysAllow", "selector": {"matchLabels": labels}}
    monitor = objects["PodMonitor", "rel"]["spec"]
    assert monitor["selector"]["matchLabels"].items() < labels.items() and monitor["podMetricsEndpoints"][0]["port"] == "http"
    assert objects["PrometheusRule", "rel"]["spec"] == from_yaml(rules)[0]
    parsed(objects, tmp_path)


def test_one_transaction_is_left_out():
    objects = template(pipelines={"a": {"skip": "16/B374D848"}, "b": {}})
    args = {name: objects["Deployment", f"rel-{name}"]["spec"]["template"]["spec"]["containers"][0]["args"] for name in "ab"}
    assert args["a"] == [*args["b"], "--skip-commit-lsn", "16/B374D848"]


def test_a_job_recovers_in_place_of_the_pods(database, millrace, tmp_path):
    """With what the pods have, and what they are selected by not; its command, run with its configuration, closes a gap."""
    scene = Scene(database, millrace).lose("gone")
    with open(scene.process.path, "rb") as file:
        config = flat(tomllib.load(file))
    objects = template(pair=True, secrets=["pg1"], config=config, pipelines={"a": {"recover": "differing"}, "b": {"recover": "look"}, "c": {}})
    ran = {}
    for name, way in (("a", "differing"), ("b", "look")):
        deployment, job = objects["Deployment", f"rel-{name}"]["spec"], objects["Job", f"rel-{name}-recover-{way}"]["spec"]
        pod, labels = job["template"]["spec"], job["template"]["metadata"]["labels"]
        (container,), (theirs,) = pod["containers"], deployment["template"]["spec"]["containers"]
        assert deployment["replicas"] == 0 and pod["restartPolicy"] == "Never" and job["backoffLimit"] == (0 if way == "look" else 6)
        assert not deployment["selector"]["matchLabels"].items() <= labels.items()
        assert objects["NetworkPolicy", "rel"]["spec"]["podSelector"]["matchLabels"].items() < labels.items()
        assert {**container, "args": 0} == {key: value for key, value in {**theirs, "args": 0}.items() if "Probe" not in key and key != "ports"}
        assert pod["volumes"] == deployment["template"]["spec"]["volumes"]
        path = tmp_path / f"{name}.toml"
        path.write_text(objects["ConfigMap", f"rel-{name}"]["data"]["config.toml"].replace(":9464", f":{free_port()}"))
        ran[way] = [BINARY, *(word.replace("/etc/millrace/config.toml", str(path)) for word in container["args"])]
    assert not any(kind == "Job" and "rel-c" in name for kind, name in objects)
    for way, code, part in (("look", 10, "Nothing was changed."), ("differing", 0, "Done, and kept in the state topic")):
        done = subprocess.run(ran[way], env=scene.process.environment, capture_output=True, text=True, timeout=240, check=False, stdin=subprocess.DEVNULL)
        assert done.returncode == code and part in done.stdout, (done.stdout, done.stderr)
    scene.goes_on(set())


def test_a_proof_on_a_schedule():
    """Of each pipeline that runs, with its configuration and secrets; none by default."""
    values = {"secrets": ["pg1"], "pipelines": {"a": {}, "b": {"paused": True}}}
    assert not [kind for kind, _ in template(**values) if kind == "CronJob"]
    objects = template(**values, verify={"schedule": "0 3 * * *", "rate": 5000000})
    ((_, name),) = [key for key in objects if key[0] == "CronJob"]
    job = objects["CronJob", name]["spec"]
    pod, deployed = job["jobTemplate"]["spec"]["template"]["spec"], objects["Deployment", "rel-a"]["spec"]["template"]
    assert (name, job["schedule"], job["concurrencyPolicy"]) == ("rel-a-verify", "0 3 * * *", "Forbid")
    (container,), (streams,) = pod["containers"], deployed["spec"]["containers"]
    assert container["args"] == ["verify", "--json", "--rate", "5000000", "--config", "/etc/millrace/config.toml"]
    assert (container["volumeMounts"], pod["volumes"]) == (streams["volumeMounts"], deployed["spec"]["volumes"])
    assert (container["securityContext"], pod["securityContext"]) == (streams["securityContext"], deployed["spec"]["securityContext"])
    assert job["jobTemplate"]["spec"]["template"]["metadata"]["labels"] != deployed["metadata"]["labels"]


def test_pods_reach_what_they_need_alone():
    objects = template(pipelines={"a": {}}, networkPolicy={"postgres": [{"namespace": "db", "port": 5433}, {"cidr": "10.1.0.0/16", "port": 5432}],
                                                           "kafka": [], "egress": [{"ports": [{"port": 8081}]}]})
    policy = objects["NetworkPolicy", "rel"]["spec"]
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    assert policy["podSelector"]["matchLabels"].items() < objects["Deployment", "rel-a"]["spec"]["selector"]["matchLabels"].items()
    assert [[port["port"] for port in rule["ports"]] for rule in policy["ingress"]] == [[9464]]
    assert [[port["port"] for port in rule["ports"]] for rule in policy["egress"]] == [[53, 53], [5433], [5432], [9092], [8081]]
    assert policy["egress"][1]["to"] == [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "db"}}}]
    assert policy["egress"][2]["to"] == [{"ipBlock": {"cidr": "10.1.0.0/16"}}] and "to" not in policy["egress"][3]
    assert not any(kind == "NetworkPolicy" for kind, _ in template(pipelines={"a": {}}, networkPolicy={"enabled": False}))


def chart():
    with open(os.path.join(CHART, "Chart.yaml"), encoding="utf-8") as file:
        return from_yaml(file.read())[0]


def parsed(objects, folder):
    """Each configuration, by the parser of millrace that wants no files: as a fleet of its own, by hand."""
    own = "".join(f"[pipeline.{name}]\n{item['data']['config.toml']}" for (kind, name), item in objects.items() if kind == "ConfigMap")
    (folder / "fleet.toml").write_text(f'[fleet]\nname = "rendered"\n[template]\n{own}')
    done = subprocess.run([BINARY, "fleet", "render", "--out", "made"], cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    for (kind, name), item in objects.items():
        if kind == "ConfigMap":
            made = (folder / "made" / f"{name}.toml").read_text()
            assert tomllib.loads(made) == tomllib.loads(item["data"]["config.toml"])


def test_five_hundred(tmp_path):
    """Twice as many take about twice as long, not four times."""
    def seconds(count):
        begun = time.monotonic()
        rendered(pipelines={f"db_{n}": {} for n in range(count)})
        return time.monotonic() - begun

    seconds(1)
    half, whole = (min(seconds(count) for _ in range(3)) for count in (250, 500))
    assert whole < 3 * half, (half, whole)
    objects = template(pipelines={f"db_{n}": {} for n in range(500)})
    assert sum(kind == "Deployment" for kind, _ in objects) == 500
    for n in range(500):
        check_object(objects, f"rel-db-{n}", 1)
    parsed(objects, tmp_path)


def test_what_means_new_pods():
    """The hash is of what a running millrace does not take up."""
    def hashes(pair, **config):
        objects = template(pair=pair, config={**CONFIG, **config}, pipelines={"a": {}, "b": {"config": {"topic_prefix": "b"}}})
        return hash_of(objects, "rel-a"), hash_of(objects, "rel-b")

    for pair in (False, True):
        before = hashes(pair)
        assert before[0] != before[1]
        assert hashes(pair, **{"log.level": "debug"}) == before
        assert (hashes(pair, tables=["public.other"]) == before) == (not pair)
        one, other = hashes(pair, topic_prefix="other")
        assert one != before[0] and other == before[1]  # that pipeline alone
        assert all(a != b for a, b in zip(hashes(pair, **{"pipeline.memory": "512MiB"}), before))


@pytest.mark.parametrize("values, part", [
    ({"image": {"repository": ""}}, "repository"),
    ({"pipelnes": {}}, "pipelnes"),
    ({"config": {"source": {"postgres": {"slot_name": "x"}}}}, "source"),
    ({"pipelines": {"a": {"replicas": 3}}}, "replicas"),
    ({"pipelines": {"a": {"recover": "all"}}}, "recover"),
    ({"pipelines": {"a": {"skip": "16/B374D848 --replay"}}}, "skip"),
    ({"watch": 10}, "watch"),
    ({"pipelines": {"a b": {}}}, "a b"),
    ({"networkPolicy": {"kafka": [{"port": 9092}]}}, "kafka"),
    ({"networkPolicy": {"egress": [{"port": 8081}]}}, "port"),  # which the server would take, with a warning, for a rule that lets all out
    ({"networkPolicy": {"postgres": [{"cidr": "10.0.0.1", "port": 1}]}}, "10.0.0.1"),
    ({"networkPolicy": {"monitoring": "a b"}}, "a b"),
    ({"secrets": ["a..b"]}, "a..b"),
    ({"env": {"A": {"secret": "a", "key": "k k"}}}, "k k"),
    ({"resources": {"memory": "1Gi"}}, "memory"),
    ({"pipelines": {"a_b": {}, "a.b": {}}}, "are both called rel-a-b"),
    ({"pipelines": {}}, "set empty: true"),
    ({"config": {"http.tls_certificate": "c"}, "pipelines": {"a": {}}}, "leave http.tls_"),
    ({"config": {"http.tls_key": "/run/secrets/k"}, "pipelines": {"a": {}}}, "leave http.tls_"),
    ({"pipelines": {"a_": {}}}, "a_"),
    ({"pipelines": {"x" * 63: {}}}, "is longer than 63 characters"),
])
def test_values_that_are_refused(values, part):
    assert part in helm("template", "rel", CHART, values=values, refused=True)


def test_names_that_look_like_something_else():
    """Numbers, truths and times in YAML."""
    objects = template(release="2026-11", pipelines={"27": {}, "1e3": {}, "NULL": {}}, secrets=["1e3", "true"], image={"repository": "x", "tag": "10", "pullSecrets": ["123"]})
    assert {name for kind, name in objects if kind == "Deployment"} == {"2026-11-27", "2026-11-1e3", "2026-11-null"}
    pod = objects["Deployment", "2026-11-27"]["spec"]["template"]["spec"]
    assert (pod["serviceAccountName"], pod["imagePullSecrets"]) == ("2026-11", [{"name": "123"}])
    assert [one["secret"]["secretName"] for one in pod["volumes"] if "secret" in one] == ["1e3", "true"]


def test_none_at_all_if_that_is_meant():
    assert not any(kind == "Deployment" for kind, _ in template(pipelines={}, empty=True))


@pytest.mark.parametrize("change", [{"tables": ["public.other"]}, {"skipped_operations": ["update"]}, {"skipped_operations": ["message"]},
                                    {"log.level": "debug"}, {"pipeline.memory": "512MiB"}, {"topic_prefix": "o"}], ids=str)
def test_plan_and_chart_agree(tmp_path, change):
    """On whether a change needs a restart."""
    config = {**CONFIG, "messages.prefixes": ["x"]}

    def fleet(config, *arguments):
        lines = "".join(f"{path} = {json.dumps(value)}\n" for path, value in config.items())
        (tmp_path / "fleet.toml").write_text(f'[fleet]\nname = "x"\n[pipeline.a]\n[template]\n{lines}')
        return subprocess.run([BINARY, "fleet", *arguments], cwd=tmp_path, capture_output=True, text=True, check=False)

    assert fleet(config, "render", "--out", "out").returncode == 0
    plan = fleet({**config, **change}, "plan", "out").stdout
    before, after = (hash_of(template(config=one, pipelines={"a": {}}), "rel-a") for one in (config, {**config, **change}))
    assert " a: " in plan and plan.startswith("~reload") == (before == after), plan


def test_lint():
    said = helm("lint", "--strict", CHART, values={"config": CONFIG, "pipelines": {"a": {}, "b": {"pair": True}}, "podMonitor": {"enabled": True}})
    assert "0 chart(s) failed" in said


def test_values_of_a_fleet(tmp_path):
    """millrace fleet render --helm | helm template: the files' options, and what the chart adds."""
    (tmp_path / "fleet.toml").write_text('[fleet]\nname = "shop"\n[template]\n' + TEMPLATE + "".join(
        f'[pipeline.shop_{n}]\ndatabase = "d{n}"\nserver = "pg1"\n' for n in range(3)))
    made = subprocess.run([BINARY, "fleet", "render", "--out", "out", "--helm"], cwd=tmp_path, capture_output=True, text=True, check=True)
    objects = template(config={}, **from_yaml(made.stdout)[0])
    for n in range(3):
        own = tomllib.loads((tmp_path / "out" / f"shop_{n}.toml").read_text())
        del own["http"]["address"]  # it is the chart's
        assert flat(own).items() <= flat(config_of(objects, f"rel-shop-{n}")).items()
    (tmp_path / "parsed").mkdir()
    parsed(objects, tmp_path / "parsed")
