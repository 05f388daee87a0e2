"""A real Prometheus with grafana/prometheus's own configuration, pointed at targets of this machine."""

import http.server
import json
import os
import re
import shutil
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.parse
import urllib.request

from kit import eventually

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
CONFIGURATION = os.path.join(ROOT, "grafana", "prometheus")


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Daemon:
    """A program that listens on a port of 127.0.0.1. The port is free when it is chosen; a program that ends
    because somebody was quicker is started again with another."""

    def __init__(self, folder, name, command, ready_path, environment=None):
        self.command, self.ready_path = command, ready_path
        self.environment = {**os.environ, **(environment or {})}
        self.log_path = os.path.join(folder, name + ".log")
        for _ in range(5):
            self.port = free_port()
            with open(self.log_path, "ab") as log:
                self.process = subprocess.Popen(self.command(self.port), env=self.environment, cwd="/",
                                                stdout=log, stderr=log)
            if eventually(self._ready_or_ended, 90, f"an answer of {name}") == "ready":
                return
        with open(self.log_path, encoding="utf-8", errors="replace") as log:
            raise AssertionError(f"{name} does not start: {log.read()[-2000:]}")

    def _ready_or_ended(self):
        if self.process.poll() is not None:
            return "ended"
        try:
            self.get(self.ready_path)
            return "ready"
        except OSError:
            return None

    def get(self, path, parameters=None):
        query = "?" + urllib.parse.urlencode(parameters) if parameters else ""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}{query}", timeout=30) as answer:
            return answer.read().decode()

    @property
    def address(self):
        return f"127.0.0.1:{self.port}"

    def stop(self):
        self.process.kill()
        self.process.wait()


class Exporter:
    """Serves what `text()` says as /metrics."""

    def __init__(self, text):
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                body = text().encode()
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *arguments):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def stop(self):
        self.server.shutdown()
        self.server.server_close()


class Sample(Exporter):
    """A file of tests/samples. "A+Bt" in it is A, and B more each second."""

    def __init__(self, name):
        with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "samples", name + ".txt"),
                  encoding="utf-8") as file:
            text = file.read()
        start = time.monotonic()

        def now(match):
            return f" {float(match[1]) + float(match[2]) * (time.monotonic() - start)}"
        super().__init__(lambda: re.sub(r" ([0-9.]+)\+([0-9.]+)t$", now, text, flags=re.MULTILINE))


def postgres_exporter(folder, url):
    return Daemon(folder, "postgres-exporter",
                  lambda port: ["prometheus-postgres-exporter", f"--web.listen-address=127.0.0.1:{port}"],
                  "/metrics", {"DATA_SOURCE_NAME": url + "?sslmode=disable"})


class Prometheus(Daemon):
    """targets: address by the name that stands in prometheus.yml ("millrace:9464")."""

    def __init__(self, folder, targets):
        folder = str(folder)
        self.folder = os.path.join(folder, "prometheus")
        os.mkdir(self.folder)
        shutil.copy(os.path.join(CONFIGURATION, "rules.yml"), self.folder)
        with open(os.path.join(CONFIGURATION, "prometheus.yml"), encoding="utf-8") as file:
            text = file.read()
        for name, address in targets.items():
            assert f'["{name}"]' in text, f"prometheus.yml has no target {name}"
            text = text.replace(f'["{name}"]', f'["{address}"]')
        path = os.path.join(self.folder, "prometheus.yml")
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        super().__init__(folder, "prometheus", lambda port: [
            "prometheus", f"--config.file={path}", f"--storage.tsdb.path={self.folder}/data",
            f"--web.listen-address=127.0.0.1:{port}"], "/-/ready")

    def api(self, path, **parameters):
        try:
            return json.loads(self.get("/api/v1/" + path, parameters))["data"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{parameters}: {error.read().decode()}") from None

    def query(self, text):
        """Labels and values now."""
        result = self.api("query", query=text)
        if result["resultType"] == "scalar":
            return [({}, float(result["result"][1]))]
        return [(each["metric"], float(each["value"][1])) for each in result["result"]]
