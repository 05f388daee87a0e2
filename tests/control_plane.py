"""A real control plane of Kubernetes: etcd, kube-apiserver, kube-controller-manager and kube-scheduler, but no kubelet. In its place threads post heartbeats of
nodes, say of pods that they are ready, and remove those that are to end. So no container runs: nothing asks probes, mounts files or sends signals."""

import contextlib
import http.client
import json
import os
import ssl
import subprocess
import threading
import time
import urllib.parse

from kit import eventually
from prometheus import Daemon, free_port

PROGRAMS = os.path.join(os.environ.get("MILLRACE_TOOLS_DIR", ""), "kubernetes")
NODES = ("node-0", "node-1", "node-2")
NODE_GRACE_S = 20  # without a heartbeat, a node counts as lost; Kubernetes' default is 50


def path_of(kind, namespace=None, name=None, api="v1"):
    """Of one object, or of all of a kind; `kind` as manifests have it."""
    plural = (kind.lower() + "s").replace("ys", "ies")
    parts = ["/api" if api == "v1" else "/apis", api, *(["namespaces", namespace] if namespace else []), plural, *([name] if name else [])]
    return "/".join(parts)


class Secure(Daemon):
    """It answers by TLS, with a certificate of its own."""

    def call(self, method, path, body=None, form="application/json", **query):
        """Status, what was answered, and what the answer warns of."""
        connection = http.client.HTTPSConnection("127.0.0.1", self.port, timeout=60, context=ssl._create_unverified_context())
        with contextlib.closing(connection):
            connection.request(method, path + "?" + urllib.parse.urlencode(query), json.dumps(body) if body else None,
                               {"Authorization": "Bearer secret", "Content-Type": form})
            answer = connection.getresponse()
            text = answer.read().decode()
        return answer.status, json.loads(text) if text.startswith("{") else text, answer.headers.get_all("Warning", [])

    def get(self, path, parameters=None):
        status, answer, _ = self.call("GET", path, **(parameters or {}))
        if status != 200:
            raise OSError(f"{path}: {status}")
        return answer


class ControlPlane:
    def __init__(self, folder):
        self.folder, self.daemons = str(folder), []
        self.alive, self.is_held, self.ended = set(), False, threading.Event()
        key, tokens = (os.path.join(self.folder, name) for name in ("key", "tokens"))
        subprocess.run(["openssl", "genrsa", "-out", key, "2048"], check=True, capture_output=True)
        with open(tokens, "w", encoding="utf-8") as file:
            file.write("secret,test,test,system:masters\n")
        peers = f"http://127.0.0.1:{free_port()}"
        etcd = self._start(Daemon, "etcd", "/health", lambda port: [
            "etcd", "--data-dir", f"{self.folder}/etcd", "--listen-client-urls", f"http://127.0.0.1:{port}", "--advertise-client-urls", f"http://127.0.0.1:{port}",
            "--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers, "--initial-cluster", f"default={peers}"])
        self.api = self._start(Secure, "kube-apiserver", "/readyz", lambda port: [
            *self._serving("kube-apiserver", port), f"--etcd-servers=http://{etcd.address}", "--advertise-address=127.0.0.1", "--endpoint-reconciler-type=none",
            "--service-cluster-ip-range=10.0.0.0/24", "--authorization-mode=RBAC", f"--token-auth-file={tokens}", "--service-account-issuer=https://localhost",
            f"--service-account-key-file={key}", f"--service-account-signing-key-file={key}"])
        self.kubeconfig = os.path.join(self.folder, "kubeconfig")
        with open(self.kubeconfig, "w", encoding="utf-8", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
            json.dump({"apiVersion": "v1", "kind": "Config", "current-context": "x", "users": [{"name": "x", "user": {"token": "secret"}}],
                       "clusters": [{"name": "x", "cluster": {"server": f"https://{self.api.address}", "insecure-skip-tls-verify": True}}],
                       "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}]}, file)
        for name, options in (("kube-controller-manager", [f"--node-monitor-grace-period={NODE_GRACE_S}s", "--node-monitor-period=1s", "--kube-api-qps=200",
                                                           "--kube-api-burst=400"]), ("kube-scheduler", [])):
            self._start(Secure, name, "/healthz", lambda port, name=name, options=options: [
                *self._serving(name, port), f"--kubeconfig={self.kubeconfig}", "--leader-elect=false", *options])
        for node in NODES:
            self.made("POST", path_of("Node"), {"metadata": {"name": node, "labels": {"kubernetes.io/hostname": node}}})
            self.alive.add(node)
        for work, pause_s in ((self._beat, 1), (self._tend, 0.2)):
            threading.Thread(target=self._again_and_again, args=(work, pause_s), daemon=True).start()
        self._wait_for_nodes()

    def _start(self, kind, name, ready, command):
        """It ends with the test, however that ends."""
        self.daemons.append(kind(self.folder, name, lambda port: ["setpriv", "--pdeathsig", "KILL", *command(port)], ready))
        return self.daemons[-1]

    def _serving(self, name, port):
        return [os.path.join(PROGRAMS, name), f"--secure-port={port}", "--bind-address=127.0.0.1", f"--cert-dir={self.folder}/{name}"]

    def _again_and_again(self, work, pause_s):
        while not self.ended.wait(pause_s):
            with contextlib.suppress(OSError):
                work()

    def _beat(self):
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "lastHeartbeatTime": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}
        for node in tuple(self.alive):
            self.api.call("PATCH", path_of("Node", name=node) + "/status", {"status": {
                "allocatable": {"cpu": "64", "memory": "256Gi", "pods": "1000"}, "conditions": [ready]}}, "application/merge-patch+json")

    def _tend(self):
        for pod in self.all("Pod"):
            path = path_of("Pod", pod["metadata"]["namespace"], pod["metadata"]["name"])
            if pod["spec"].get("nodeName") not in self.alive:
                continue
            if "deletionTimestamp" in pod["metadata"]:
                self.api.call("DELETE", path, {"gracePeriodSeconds": 0, "preconditions": {"uid": pod["metadata"]["uid"]}})
            elif not is_ready(pod):
                self.api.call("PATCH", path + "/status", {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": str(not self.is_held)}]}},
                              "application/strategic-merge-patch+json")

    def _wait_for_nodes(self):
        """Until pods may go to each: a new one, or one that was lost, has a taint until the controllers know of it."""
        eventually(lambda: not any("taints" in one["spec"] for one in self.all("Node")), what="nodes without taints")

    def all(self, kind, namespace=None, api="v1"):
        return self.api.get(path_of(kind, namespace, api=api))["items"]

    def made(self, method, path, body, **query):
        """An object, as it is there then; of which nothing is warned."""
        form = "application/json" if method == "POST" else "application/apply-patch+yaml"
        status, answer, warnings = self.api.call(method, path, body, form, fieldValidation="Strict", **query)
        assert status in (200, 201) and not warnings, (answer, warnings)
        return answer

    def apply(self, one):
        kind, name, namespace = one["kind"], one["metadata"]["name"], one["metadata"].get("namespace")
        return self.made("PATCH", path_of(kind, namespace, name, one["apiVersion"]), one, fieldManager="test")

    @contextlib.contextmanager
    def held(self):
        """New pods run meanwhile, but are not ready."""
        self.is_held = True
        try:
            yield
        finally:
            self.is_held = False

    @contextlib.contextmanager
    def lost(self, node):
        """Nobody hears of a node meanwhile."""
        self.alive.remove(node)
        try:
            yield
        finally:
            self.alive.add(node)
        self._wait_for_nodes()

    def stop(self):
        """etcd last: the others end sooner if it answers."""
        self.ended.set()
        for daemon in reversed(self.daemons):
            daemon.stop()


def is_ready(pod):
    return any(one["type"] == "Ready" and one["status"] == "True" for one in pod["status"].get("conditions", ()))
