"""A schema registry that follows Confluent's documented API ("Schema Registry API Reference"), as far as millrace asks: it numbers
schemas, keeps versions of subjects, and can refuse, fail, be silent, answer too much, or ask for a password."""

import base64
import io
import json
import threading
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import fastavro

GARBAGE = b"\x00<html>\xff{\"id\":"
ENDLESS = b" " * 65536


class Registry:
    """`password`: "user:password"; `tls`: an ssl context; `fault`: what it answers in place of what is right, a pair of status and
    object, GARBAGE, ENDLESS, or an event that it waits for before it closes the connection."""

    def __init__(self, password=None, tls=None, fault=None):
        self.schemas, self.subjects, self.asked, self.fault = {}, {}, [], fault
        self.password = password
        self.first = threading.Event()  # somebody has asked
        self.lock = threading.Lock()
        registry = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):  # noqa: N802
                registry.serve(self, json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

            def do_GET(self):  # noqa: N802
                registry.serve(self, None)

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        if tls is not None:
            self.server.socket = tls.wrap_socket(self.server.socket, server_side=True)
        self.url = f"http{'s' if tls else ''}://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def serve(self, request, body):
        with self.lock:
            status, answer = self.answer(request.path, request.headers, body)
        self.first.set()
        try:
            if isinstance(answer, threading.Event):
                answer.wait(120)
                return
            text = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
            request.send_response(status)
            request.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            request.send_header("Content-Length", str(len(text) * (1600 if answer is ENDLESS else 1)))
            request.end_headers()
            for _ in range(1600 if answer is ENDLESS else 1):
                request.wfile.write(text)
        except OSError:
            pass  # the client has had enough

    def answer(self, path, headers, body):
        self.asked.append((path, body and body["schema"]))
        if self.password is not None and headers.get("Authorization") != "Basic " + base64.b64encode(self.password.encode()).decode():
            return 401, {"error_code": 40101, "message": "Unauthorized"}
        if self.fault is not None:
            return self.fault if isinstance(self.fault, tuple) else (200, self.fault)
        parts = [urllib.parse.unquote(part) for part in path.strip("/").split("/")]
        if parts[:2] == ["schemas", "ids"]:
            found = self.schemas.get(int(parts[2]))
            return (200, {"schema": found[0]}) if found else (404, {"error_code": 40403, "message": "Schema not found"})
        assert parts[0] == "subjects", path
        if body is None:
            return 200, list(self.subjects)
        assert parts[2:] in ([], ["versions"]), path
        text = body["schema"]
        parsed = fastavro.parse_schema(json.loads(text))
        known = {schema: number for number, (schema, _) in self.schemas.items()}
        versions = self.subjects.get(parts[1], [])
        if parts[2:] == []:
            if known.get(text) not in versions:
                return 404, {"error_code": 40403, "message": "Schema not found"}
        elif text not in known:
            # Above 16 bits, so that bytes in the wrong order are seen.
            known[text] = 0x01020304 + len(self.schemas)
            self.schemas[known[text]] = (text, parsed)
        if known[text] not in versions:
            self.subjects[parts[1]] = versions + [known[text]]
        return 200, {"id": known[text]}

    def decode(self, data):
        """What a framed value is, and its schema."""
        assert data[0] == 0, data[:5]
        text, parsed = self.schemas[int.from_bytes(data[1:5], "big")]
        stream = io.BytesIO(data[5:])
        value = fastavro.schemaless_reader(stream, parsed)
        assert stream.read() == b"", "bytes behind the value"
        return value, json.loads(text)

    def close(self):
        self.server.shutdown()
        self.server.server_close()
