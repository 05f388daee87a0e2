"""The Helm chart, and docs/deploy/kubernetes.yaml, on a real control plane (control_plane.py says what it lacks): what the API server takes and warns of, which
pods the controllers make anew, what a drain may evict, where pods go whose node is lost. Each namespace admits pods of the standard `restricted` alone.
Only with MILLRACE_TEST_KUBERNETES=1, after `scripts/setup.sh --kubernetes`, which builds Kubernetes for many minutes."""

import collections
import json
import os
import subprocess
import time

import pytest

from control_plane import PROGRAMS, ControlPlane, is_ready, path_of
from kit import eventually
from prometheus import CONFIGURATION, ROOT
from test_fleet import from_yaml
from test_helm import CHART, CONFIG, HELM

pytestmark = pytest.mark.skipif("MILLRACE_TEST_KUBERNETES" not in os.environ, reason="MILLRACE_TEST_KUBERNETES is not set")

MONITORING = "monitoring.coreos.com/v1"
RULES = os.path.join(CONFIGURATION, "rules.yml")


@pytest.fixture(scope="module")
def plane(tmp_path_factory):
    plane = ControlPlane(tmp_path_factory.mktemp("plane"))
    yield plane
    plane.stop()


class Release:
    """Of the chart, in a namespace of its own."""

    def __init__(self, plane, namespace, name="rel"):
        self.plane, self.namespace, self.name = plane, namespace, name
        plane.made("POST", path_of("Namespace"), {"metadata": {"name": namespace, "labels": {
            f"pod-security.kubernetes.io/{what}": "restricted" for what in ("enforce", "warn")}}})

    def helm(self, *arguments, values=None, refused=False):
        """What it says on standard error, where the server's warnings are, too."""
        done = subprocess.run([HELM, "-n", self.namespace, "--kubeconfig", self.plane.kubeconfig, *arguments], input=json.dumps(values), capture_output=True,
                              env={**os.environ, "HOME": self.plane.folder}, text=True, timeout=280, check=False)
        assert (done.returncode != 0) == refused, done.stdout + done.stderr
        return done.stderr

    def upgrade(self, *options, refused=False, **values):
        said = self.helm("upgrade", "--install", self.name, CHART, "-f", "-", *options, refused=refused,
                         values={"image": {"repository": "example/millrace"}, "config": CONFIG, **values})
        assert refused or said == ""
        return said

    def all(self, kind, api="v1"):
        return {one["metadata"]["name"]: one for one in self.plane.all(kind, self.namespace, api)}

    def pods(self):
        """Of each Deployment's name."""
        found = collections.defaultdict(list)
        for pod in self.all("Pod").values():
            found[pod["metadata"]["labels"]["app.kubernetes.io/component"]].append(pod)
        return found

    def generations(self):
        """Another one of a Deployment means that Helm has changed it."""
        return {name: one["metadata"]["generation"] for name, one in self.all("Deployment", "apps/v1").items()}

    def rolled(self):
        """The pods' ids of each Deployment, once all are there, and no other pod."""
        def pods():
            deployments, made = self.all("Deployment", "apps/v1"), {name: set(map(uid, pods)) for name, pods in self.pods().items()}
            for name, one in deployments.items():
                status, wanted = one["status"], one["spec"]["replicas"]
                counts = {status.get(count, 0) for count in ("replicas", "updatedReplicas", "availableReplicas")} | {len(made.setdefault(name, set()))}
                if status.get("observedGeneration") != one["metadata"]["generation"] or counts != {wanted}:
                    return None
            return made if made.keys() == deployments.keys() else None
        return eventually(pods, 120, "a roll-out")

    def evict(self, pod):
        """The answer's status."""
        name = pod["metadata"]["name"]
        return self.plane.api.call("POST", path_of("Pod", self.namespace, name) + "/eviction", {
            "apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}})[0]


def uid(pod):
    return pod["metadata"]["uid"]


def different(before, after):
    assert before.keys() == after.keys()
    return {name for name in before if before[name] != after[name]}


def test_one_and_sixty(plane):
    """Helm's upgrades make those pods anew that must be, and no other."""
    release = Release(plane, "sixty")
    release.upgrade(pipelines={"db_0": {}})
    one = release.rolled()
    (pod,) = release.pods()["rel-db-0"]
    assert {volume["name"] for volume in pod["spec"]["volumes"]} == {"config", "tmp"}  # none with a token of Kubernetes'
    assert {rule["tolerationSeconds"] for rule in pod["spec"]["tolerations"]} == {30}  # not admission's 300
    sixty, begun = {f"db_{n}": {} for n in range(60)}, time.monotonic()
    release.upgrade(pipelines=sixty)
    installed, before = time.monotonic() - begun, release.rolled()
    print(f"sixty: helm {installed:.1f} s, all ready after {time.monotonic() - begun:.1f} s")
    assert len(before) == 60 and before["rel-db-0"] == one["rel-db-0"]

    made = release.generations()
    release.upgrade(config={**CONFIG, "tables": ["public.other"]}, pipelines=sixty)
    assert all('tables = ["public.other"]' in release.all("ConfigMap")[name]["data"]["config.toml"] for name in ("rel-db-0", "rel-db-59"))
    assert release.generations() == made and release.rolled() == before
    release.helm("rollback", release.name)
    assert 'tables = ["public.*"]' in release.all("ConfigMap")["rel-db-0"]["data"]["config.toml"] and release.generations() == made

    with plane.held():
        sixty["db_7"] = {"config": {"topic_prefix": "other"}}
        release.upgrade(pipelines=sixty)
        assert different(made, release.generations()) == {"rel-db-7"}
        old, new = eventually(lambda: len(pods := release.pods()["rel-db-7"]) == 2 and sorted(pods, key=is_ready, reverse=True), what="a second pod")
        eventually(lambda: release.all("Deployment", "apps/v1")["rel-db-7"]["status"].get("unavailableReplicas") == 1, what="a roll-out that waits")
        assert {uid(old)} == before["rel-db-7"] and "deletionTimestamp" not in release.all("Pod")[old["metadata"]["name"]]["metadata"]
    after = release.rolled()
    assert different(before, after) == {"rel-db-7"} and after["rel-db-7"] == {uid(new)}

    del sixty["db_8"]
    sixty["db_9"] = {"paused": True}
    release.upgrade(pipelines=sixty)
    after = release.rolled()
    assert "rel-db-8" not in after and after["rel-db-9"] == set() and "rel-db-9" in release.all("ConfigMap")
    assert "unknown" in release.upgrade(pipelines={"db_0": {"unknown": 1}}, refused=True) and release.rolled() == after
    release.helm("uninstall", release.name)
    eventually(lambda: not release.all("Pod") and not release.all("ReplicaSet", "apps/v1"), what="an empty namespace")
    assert not release.all("NetworkPolicy", "networking.k8s.io/v1") and release.all("ServiceAccount").keys() == {"default"}


def test_a_pair(plane):
    """A drain gets one of two, until both are ready again; but what is not ready holds none up."""
    release, values = Release(plane, "pair"), {"pair": True, "pipelines": {"a": {}, "single": {"pair": False}}}
    release.upgrade(**values)
    before = release.rolled()
    first, second = release.pods()["rel-a"]
    assert first["spec"]["nodeName"] != second["spec"]["nodeName"] and len(before["rel-single"]) == 1
    with plane.held():
        eventually(lambda: release.evict(first) == 201, what="the first eviction")
        assert release.evict(second) == 429
        eventually(lambda: before["rel-a"] - set(map(uid, release.pods()["rel-a"])) == {uid(first)} and len(release.pods()["rel-a"]) == 2, what="another pod")
        assert release.evict(second) == 429
        assert release.evict(*release.pods()["rel-single"]) == 201
    release.rolled()
    eventually(lambda: release.evict(second) == 201, what="an eviction, as two are ready again")
    before, made = release.rolled(), release.generations()
    release.upgrade(**values, config={**CONFIG, "tables": ["public.other"]})
    assert different(made, release.generations()) == {"rel-a"} and not before["rel-a"] & release.rolled()["rel-a"]
    with plane.held():
        release.upgrade(pair=True, pipelines={"b": {}})
        running = eventually(lambda: [pod for pod in release.pods()["rel-b"] if pod["status"]["phase"] == "Running"], what="a pod that runs")
        assert release.evict(running[0]) == 201


def test_a_node_is_lost(plane):
    """Its pod stays, for nobody says that it has ended, and another one is made."""
    release = Release(plane, "node")
    release.upgrade(tolerationSeconds=3, pipelines={"a": {}})
    before = release.rolled()["rel-a"]
    (old,) = release.pods()["rel-a"]
    with plane.lost(old["spec"]["nodeName"]):
        begun = time.monotonic()
        (new,) = eventually(lambda: [pod for pod in release.pods()["rel-a"] if is_ready(pod) and uid(pod) not in before], 90, "another pod")
        print(f"lost node: another pod is ready after {time.monotonic() - begun:.1f} s")
        assert new["spec"]["nodeName"] != old["spec"]["nodeName"] and "deletionTimestamp" in release.all("Pod")[old["metadata"]["name"]]["metadata"]
    assert release.rolled()["rel-a"] == {uid(new)}


def test_monitoring(plane):
    """Without the operator's kinds nothing is installed by halves; with them, as the operator defines them, all of it is taken."""
    release = Release(plane, "monitoring")
    values = {"podMonitor": {"enabled": True, "interval": "5s", "labels": {"release": "prometheus"}}, "pipelines": {"a": {}}}
    with_rules = ("--set-file", f"podMonitor.rules={RULES}")
    assert 'no matches for kind "PodMonitor"' in release.upgrade(*with_rules, refused=True, **values) and not release.generations()
    for kind in ("podmonitors", "prometheusrules"):
        with open(os.path.join(PROGRAMS, f"{kind}-crd.json"), encoding="utf-8") as file:
            plane.made("POST", path_of("CustomResourceDefinition", api="apiextensions.k8s.io/v1"), json.load(file))
    eventually(lambda: not release.all("PodMonitor", MONITORING) and not release.all("PrometheusRule", MONITORING), what="the kinds", not_yet=OSError)
    release.upgrade(*with_rules, **values)
    (monitor,) = release.all("PodMonitor", MONITORING).values()
    (rules,) = release.all("PrometheusRule", MONITORING).values()
    assert monitor["metadata"]["labels"]["release"] == rules["metadata"]["labels"]["release"] == "prometheus"
    with open(RULES, encoding="utf-8") as file:
        assert rules["spec"] == from_yaml(file.read())[0]


def test_five_hundred(plane):
    """Paused, for their pods would show nothing that those of sixty don't."""
    release = Release(plane, "hundreds")
    values = {"pipelines": {f"db_{n}": {"paused": True} for n in range(500)}}
    for options in (("--dry-run=server",), ()):
        begun = time.monotonic()
        release.upgrade(*options, **values)
        print(f"five hundred {options}: {time.monotonic() - begun:.1f} s")
    assert len(release.rolled()) == 500
    (kept,) = (len(one["data"]["release"]) for one in release.all("Secret").values())
    print(f"five hundred: a release is {kept} bytes of 1,048,576")
    assert kept < 262144


def test_the_file_of_a_pair(plane):
    """docs/deploy/kubernetes.yaml, with the ServiceMonitor left out as the page says."""
    with open(os.path.join(ROOT, "docs", "deploy", "kubernetes.yaml"), encoding="utf-8") as file:
        objects = [one for one in from_yaml(file.read()) if one["kind"] != "ServiceMonitor"]
    for one in objects:
        plane.apply(one)
    budget = path_of("PodDisruptionBudget", "millrace", "millrace", "policy/v1")
    eventually(lambda: plane.api.get(budget)["status"].get("disruptionsAllowed") == 1, what="a pair")
    assert len({pod["spec"]["nodeName"] for pod in plane.all("Pod", "millrace")}) == 2
    with open(os.path.join(ROOT, "docs", "deploy", "recover.yaml"), encoding="utf-8") as file:
        (job,) = from_yaml(file.read())
    plane.apply(job)
    eventually(lambda: len(plane.all("Pod", "millrace")) == 3, what="the pod of recover")
    assert plane.api.get(budget)["status"]["disruptionsAllowed"] == 1
