"""A schema registry that tells one lie: what it answers in place of the number of a schema, in HTTP/1.1 (RFC 9112) or in what
is none. An honest one numbers schemas by their texts, as Confluent's does ("Schema Registry API Reference")."""

import gzip
import json
import threading
import time

from fields import garbage
from listener import Listener

FLOOD = 40_000_000
PIECE = b"x" * 65536


def said(body, status="200 OK", *heads, length=True):
    body = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [f"HTTP/1.1 {status}", "Content-Type: application/vnd.schemaregistry.v1+json", *heads]
    lines += [f"Content-Length: {len(body)}"] if length else []
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def flood(head, piece=PIECE):
    """Until the other side has had enough."""
    yield head
    for _ in range(FLOOD // len(piece)):
        yield piece


def drip(data):
    """A byte at a time, for longer than an answer may take."""
    for byte in data:
        yield bytes([byte])
        time.sleep(0.05)


CHUNKED = "Transfer-Encoding: chunked"
IDS = {"minus 1": -1, "lowest": -(1 << 31), "highest and 1": 1 << 31, "64 bits": 1 << 63, "a fraction": 1.5, "text": "1", "null": None,
       "a list": [1], "an object": {"id": 1}, "true": True}
ANSWERS = {
    **{f"id: {how}": lambda number, value=value: said({"id": value}) for how, value in IDS.items()},
    "id: beyond all numbers": lambda number: said(b'{"id":1e400}'),
    "id: many digits": lambda number: said(b'{"id":' + b"9" * 100_000 + b"}"),
    "id twice": lambda number: said(b'{"id":%d,"id":%d}' % (number, number + 1)),
    "the same id for all": lambda number: said({"id": 7}),
    "no id": lambda number: said({}), "an empty body": lambda number: said(b""), "a list": lambda number: said([{"id": 1}]),
    "HTML": lambda number: said(b"<html><body>Welcome</body></html>"), "no text": lambda number: said(garbage(5000)),
    "zeros": lambda number: said(bytes(5000)), "deep": lambda number: said(b"[" * 100_000), "deep objects": lambda number: said(b'{"id":' * 40_000),
    "too large": lambda number: said(b" " * 270_000 + b'{"id":1}'), "a long message": lambda number: said(
        {"error_code": 1, "message": "\x1b[31m\n\u20ac" * 20_000}, "500 Oops"),
    "a body without end": lambda number: flood(said(b"", length=False, *["200 OK", "Content-Length: 9000000000"])),
    "a body until the end": lambda number: flood(said(b"", length=False)),
    "chunks without end": lambda number: flood(said(b"", "200 OK", CHUNKED, length=False), b"1000\r\n" + b" " * 4096 + b"\r\n"),
    "empty lines of chunks": lambda number: flood(said(b"", "200 OK", CHUNKED, length=False), b"0" * 65536),
    "a chunk beyond all": lambda number: said(b"FFFFFFFFFFFFFFFFF\r\nx", "200 OK", CHUNKED, length=False),
    "a chunk below 0": lambda number: said(b"-5\r\nhello\r\n0\r\n\r\n", "200 OK", CHUNKED, length=False),
    "trailers without end": lambda number: flood(said(b"0\r\n", "200 OK", CHUNKED, length=False), b"X: " + b"y" * 1000 + b"\r\n"),
    "heads without end": lambda number: flood(b"HTTP/1.1 200 OK\r\n", b"X-Head: " + b"y" * 1000 + b"\r\n"),
    "a head without end": lambda number: flood(b"HTTP/1.1 200 OK\r\nX: "), "continue without end": lambda number: flood(
        b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 1000),
    "a status without end": lambda number: flood(b"HTTP/1.1 200 "), "zeros in heads": lambda number: said({"id": 1}, "200 OK", "X\0Y: \0"),
    "cookies without end": lambda number: flood(b"HTTP/1.1 200 OK\r\n", b"Set-Cookie: a=b\r\n" * 500),
    "length below 0": lambda number: said({"id": 1}, "200 OK", "Content-Length: -1", length=False),
    "length beyond all": lambda number: said({"id": 1}, "200 OK", "Content-Length: 99999999999999999999", length=False),
    "two lengths": lambda number: said({"id": 1}, "200 OK", "Content-Length: 2"),
    "length and chunks": lambda number: said({"id": 1}, "200 OK", CHUNKED),
    "a bomb": lambda number: said(gzip.compress(bytes(30_000_000)), "200 OK", "Content-Encoding: gzip"),
    "a bomb on the way": lambda number: said(gzip.compress(bytes(30_000_000)), "200 OK", "Transfer-Encoding: gzip"),
    "slowly": lambda number: drip(said({"id": number}, "200 OK", "X: " + "y" * 200)),
    "elsewhere": lambda number: said(b"", "301 Moved", "Location: http://127.0.0.1:1/subjects"),
    "a file": lambda number: said(b"", "302 Found", "Location: file:///etc/passwd"),
    "itself": lambda number: said(b"", "307 Again", "Location: /subjects/x/versions"),
    **{f"status {status}": lambda number, status=status: said({"error_code": status, "message": "no"}, f"{status} No")
       for status in (100, 101, 204, 304, 400, 401, 404, 407, 409, 418, 422, 429, 500, 503, 999)},
    **{f"redirect {status}": lambda number, status=status: said(b"", f"{status} Gone", "Location: http://127.0.0.1:ELSEWHERE/x")
       for status in (301, 302, 303, 307, 308)},
    "asks who": lambda number: said(b"", "401 Who", "WWW-Authenticate: Negotiate", 'WWW-Authenticate: Digest realm="r", nonce="n"'),
    "no HTTP": lambda number: garbage(50_000), "HTTP of old": lambda number: b'{"id":1}\n', "HTTP/2": lambda number: b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "closed": lambda number: None, "half": lambda number: said({"id": number})[:40],
    "twice": lambda number: said({"id": number}) * 2, "another answer behind": lambda number: said({"id": number}) + said({"id": 9}),
}
SILENT = "silence"


class Lie:
    def __init__(self, how, always):
        self.target, self.how, self.always = "schema", how, always
        self.name = f"{how} | {'always' if always else 'once'}"


def all_lies():
    for how in (*ANSWERS, SILENT):
        for always in (False, True):
            yield Lie(how, always)


class LyingRegistry(Listener):
    """`texts`: what each number was told for."""

    def __init__(self, lie=None):
        self.lie, self.texts, self.known = lie, {}, {}
        self.told, self.lock = threading.Event(), threading.Lock()
        self.logins, self.visited = 0, False
        self.listen(2)  # the second is where redirects lead
        self.url = f"http://127.0.0.1:{self.ports[0]}"

    def _serve(self, connection):
        self.visited = self.visited or connection.getsockname()[1] == self.ports[1]
        try:
            with connection, connection.makefile("rb") as asked:
                while asked.readline():
                    self._answer(connection, self._body(asked))
        except (OSError, EOFError):
            pass

    def _body(self, asked):
        length = 0
        while (line := asked.readline().strip()):
            name, _, value = line.partition(b":")
            length = int(value) if name.lower() == b"content-length" else length
            self.logins += name.lower() == b"authorization"
        return json.loads(asked.read(length) or b"{}").get("schema")

    def _number(self, text):
        with self.lock:
            return self.known.setdefault(text, 0x01020304 + len(self.known))

    def _note(self, data, text):
        """Which number this answer may be taken for."""
        try:
            # Of two members of a name the first: that is what millrace's reader takes.
            number = json.loads(data.partition(b"\r\n\r\n")[2], object_pairs_hook=lambda pairs: dict(reversed(pairs)))["id"]
        except (ValueError, KeyError, TypeError, RecursionError):
            return
        with self.lock:
            if isinstance(number, int):
                self.texts.setdefault(number, set()).add(text)

    def _answer(self, connection, text):
        number = self._number(text)
        lies = self.lie is not None and (self.lie.always or not self.told.is_set())
        if not lies:
            honest = said({"id": number})
            self._note(honest, text)
            connection.sendall(honest)
            return
        if self.lie.how == SILENT:
            self.told.set()
            while connection.recv(65536):
                pass
            raise EOFError
        made = ANSWERS[self.lie.how](number)
        if isinstance(made, bytes):
            made = made.replace(b"ELSEWHERE", str(self.ports[1]).encode())
            self._note(made, text)
        try:
            for piece in [made] if isinstance(made, bytes) else made or ():
                connection.sendall(piece)
        finally:
            self.told.set()
        if self.lie.how not in ("twice", "another answer behind") and not self.lie.how.startswith(("id", "status", "the same")):
            raise EOFError
