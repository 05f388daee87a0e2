"""A server like Pyroscope's /ingest, for whoever pushes profiles."""

import http.server
import threading
import urllib.parse


class PushServer(http.server.ThreadingHTTPServer):
    """Answers each POST with `status` and keeps what it gets: (split address, headers, body)."""

    daemon_threads = True

    def __init__(self, keep=1000):
        super().__init__(("127.0.0.1", 0), Handler)
        self.got, self.status, self.keep = [], 200, keep
        self.url = f"http://127.0.0.1:{self.server_port}"
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def handle_error(self, request, client_address):
        """A client that was ended while it sent is no news."""

    def close(self):
        self.shutdown()
        self.server_close()


class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):  # pylint: disable=invalid-name # http.server calls it so
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if len(self.server.got) < self.server.keep:
            self.server.got.append((urllib.parse.urlsplit(self.path), self.headers, body))
        self.send_response(self.server.status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass
