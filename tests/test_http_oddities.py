"""Each address of the HTTP server, asked in each odd way: what RFC 9112 has a server refuse is refused, and nothing crashes. Run it with a
build that has sanitizers to see more (scripts/test.sh --sanitized)."""

import concurrent.futures
import pathlib
import re
import socket
import ssl

import pytest

from kit import eventually, http_get
from test_admin import free_port, self_signed

SOURCES = pathlib.Path(__file__).parent.parent / "src"
HOST = b"Host: localhost\r\n"
REFUSED = range(400, 600)
OF_OTHERS = range(400, 600)  # with a password, or a socket of this machine, any host will do
ANY = (*range(100, 600), None)  # None: the connection is closed without an answer


def addresses():
    """Those that the sources name, so that a new one is asked, too."""
    found = set()
    for name in ("control/pages.c", "daemon/profile_routes.c", "daemon/reload.c", "control/snapshot.c"):
        text = (SOURCES / name).read_text(encoding="utf-8")
        found.update(re.findall(r'(?:\{|\.path = )"(/[^" %]*)"', text))
    assert {"/", "/metrics", "/pprof/profile/report", "/api/reload", "/pprof/heap/reset", "/pprof/last-minute/flamegraph"} <= found, found
    return sorted(found)


def requests(path):
    """Names, requests, and the statuses that are right for them, whatever the address."""
    line, post = b"GET " + path + b" HTTP/1.1\r\n", b"POST " + path + b" HTTP/1.1\r\n"
    yield "two hosts", line + HOST + HOST + b"\r\n", [400]
    yield "a host of others behind ours", line + HOST + b"Host: evil.example\r\n\r\n", [400]
    yield "no host", line + b"\r\n", [400]
    yield "an empty host", line + b"Host:\r\n\r\n", OF_OTHERS
    yield "a list of hosts", line + b"Host: localhost, evil.example\r\n\r\n", OF_OTHERS
    yield "a host with a user", line + b"Host: localhost@evil.example\r\n\r\n", OF_OTHERS
    yield "a host of others", line + b"Host: evil.example\r\n\r\n", OF_OTHERS
    yield "a folded host", line + b"Host: localhost\r\n .evil.example\r\n\r\n", OF_OTHERS
    yield "a space before the colon", line + HOST + b"Host : evil.example\r\n\r\n", [400]
    yield "a space before the first header", line + b" Host: evil.example\r\n" + HOST + b"\r\n", REFUSED
    for whole in (b"http://evil.example", b"http://127.0.0.1.evil.example:80"):
        yield f"the whole address {whole}", b"GET " + whole + path + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", OF_OTHERS
    for whole in (b"http://", b"http://a@localhost", b"http://localhost%2f", b"http://localhost%00", b"http://localhost\\", b"http:/localhost",
                  b"//localhost", b"ftp://localhost", b"http://localhost#", b"http://" + b"a" * 300):
        yield f"the whole address {whole[:30]}", b"GET " + whole + path + b" HTTP/1.1\r\n" + HOST + b"\r\n", REFUSED
    yield "a whole address without a host", b"GET http://localhost" + path + b" HTTP/1.1\r\n\r\n", [400]
    yield "a whole address and two hosts", b"GET http://localhost" + path + b" HTTP/1.1\r\n" + HOST + HOST + b"\r\n", [400]
    for length in (b"+2", b"0x2", b"-2", b"9" * 30, b"2 2", b""):
        yield f"length {length}", post + HOST + b"Content-Length: " + length + b"\r\n\r\n{}", REFUSED
    yield "two lengths", post + HOST + b"Content-Length: 2\r\nContent-Length: 0\r\n\r\n{}", [400]
    yield "length and chunks", post + HOST + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", [400]
    yield "length and chunks of a GET", line + HOST + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", [400]
    for encoding in (b"gzip, chunked", b"identity", b"chunked, chunked", b"xchunked"):
        yield f"encoding {encoding}", post + HOST + b"Transfer-Encoding: " + encoding + b"\r\n\r\n0\r\n\r\n", [400]
    for chunk in (b"zz\r\n", b"-1\r\nab\r\n", b"f" * 18 + b"\r\n", b"2\r\nab", b";\r\n"):
        yield f"chunk {chunk}", post + HOST + b"Transfer-Encoding: chunked\r\n\r\n" + chunk, ANY
    for method in (b"PUT", b"DELETE", b"PATCH", b"OPTIONS", b"TRACE", b"CONNECT", b"get", b"G\xffT", b"X" * 3000):
        yield f"method {method[:9]}", method + b" " + path + b" HTTP/1.1\r\n" + HOST + b"\r\n", (*REFUSED, None)
    for version in (b"HTTP/2.0", b"HTTP/0.9", b"HTTP/1.1 x", b"", b"ICY"):
        yield f"version {version}", b"GET " + path + b" " + version + b"\r\n" + HOST + b"\r\n", (*REFUSED, None)
    for tail in (b"%00", b"%00.css", b"\0x", b"/..", b"/%2e%2e/", b"\\", b"%", b"%zz", b"\xc3\x28"):
        yield f"path and {tail}", b"GET " + path + tail + b" HTTP/1.1\r\n" + HOST + b"\r\n", ANY if tail == b"\0x" else (*REFUSED, None)
    for query in (b"a" * 8000, b"a=1&" * 900, b"tables=1e9&seconds=-1&after=x&frequency=0&lg_sample=99", b"seconds=99999999999999999999", b"seconds=1%00",
                  b"seconds=0&seconds=1", b"&&&=&=&", b"filter=" + b"%41" * 300, b"request=nan&tables=-0x1"):
        yield f"query {query[:12]}", b"GET " + path + b"?" + query + b" HTTP/1.1\r\n" + HOST + b"\r\n", ANY
    yield "a header of 8 kB", line + HOST + b"X: " + b"a" * 8000 + b"\r\n\r\n", ANY
    yield "a header of 20 kB", line + HOST + b"X: " + b"a" * 20000 + b"\r\n\r\n", (*REFUSED, None)
    yield "5000 headers", line + HOST + b"X: a\r\n" * 5000 + b"\r\n", (*REFUSED, None)
    for header in (b"Range: bytes=0-1,5-,-9", b"Expect: 100-continue", b"Expect: 1", b"Upgrade: websocket\r\nConnection: Upgrade", b"Connection: Host",
                   b"Accept-Encoding: gzip;q=;;,,q=1e999", b"Authorization: Basic " + b"=" * 500, b"Authorization: Basic", b"Cookie: a=\";;;=,\\",
                   b"Authorization: Digest username=\"", b"Content-Type: multipart/form-data; boundary=", b": empty", b"no colon", b"X: a\0b",
                   b"Origin: null", b"Sec-Fetch-Site: cross-site", b"Trailer: Host"):
        yield f"header {header[:20]}", line + HOST + header + b"\r\n\r\n", ANY
        yield f"POST, header {header[:20]}", post + HOST + header + b"\r\nContent-Length: 2\r\n\r\n{}", ANY
    yield "pipelined", (line + HOST + b"\r\n") * 20, ANY
    yield "ends of lines", line.replace(b"\r", b"") + HOST.replace(b"\r", b"") + b"\n", ANY
    yield "cut", line[:-4], ANY


TRUSTING = ssl.create_default_context()
TRUSTING.check_hostname, TRUSTING.verify_mode = False, ssl.CERT_NONE


def connected(address, tls):
    if address.startswith("unix:"):
        client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        client.settimeout(60)
        client.connect(address.removeprefix("unix:"))
        return client
    host, port = address.rsplit(":", 1)
    client = socket.create_connection((host, int(port)), timeout=60)
    return TRUSTING.wrap_socket(client) if tls else client


def ask(address, request, waits=True, tls=False):
    """The status, or None: the connection was closed without one. The client sends nothing more, or is gone at once."""
    with connected(address, tls) as client:
        said = b""
        try:
            client.sendall(request)
            if not waits:
                return None
            if not tls:  # its end of TLS would be the end of both ways
                client.shutdown(socket.SHUT_WR)
            while len(said) < 12 and (part := client.recv(4096)):
                said += part
        except OSError:
            pass  # put out while it was still sending
        found = re.match(rb"HTTP/1\.[01] (\d{3})", said)
        assert found or not said, said
        return int(found[1]) if found else None


def ways(tmp_path, way):
    """Options, and the addresses that are asked: all where nothing but the way in is different."""
    if way == "password":
        secret = tmp_path / "password"
        secret.write_text("open sesame\n")
        secret.chmod(0o600)
        return {"http__username": '"ann"', "http__password": f'"file:{secret}"'}, ["/healthz", "/metrics", "/api/snapshot"]
    if way == "tls":
        certificate, key = self_signed(tmp_path)
        return {"http__tls_certificate": f'"{certificate}"', "http__tls_key": f'"{key}"', "http__required": "true",
                "http__address": f'"127.0.0.1:{free_port()}"'}, ["/healthz", "/metrics", "/api/snapshot"]
    if way == "socket":
        return {"http__address": f'"unix:{tmp_path}/http.sock"'}, ["/healthz", "/metrics", "/api/snapshot"]
    return {}, addresses()


@pytest.mark.parametrize("way", ["open", "password", "tls", "socket"])
def test_each_address_is_asked_in_each_odd_way(database, millrace, tmp_path, way):
    """By many clients at once: a request that never ends is waited for until the server gives it up."""
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    options, paths = ways(tmp_path, way)
    process = millrace(profiling__endpoints="true", **options).start().streaming()
    address = process.address()

    def wrong(path, name, request, good):
        if way in ("password", "socket") and good is OF_OTHERS:
            good = ANY
        status = ask(address, request, waits=good is not ANY or "pprof" not in path, tls=way == "tls")  # a profile takes seconds
        return "" if status in good else f"{path}, {name}: {status}"
    with concurrent.futures.ThreadPoolExecutor(24) as clients:  # fewer than the 64 that there may be, for the server makes room for one more by closing one
        said = [clients.submit(wrong, path, *one) for path in paths for one in requests(path.encode())]
        found = [text for one in said if (text := one.result())]
    assert process.process.poll() is None, "".join(process.lines[-40:])
    assert not found, "\n".join(found)
    tls = TRUSTING if way == "tls" else None
    assert eventually(lambda: http_get(address, "/healthz", tls=tls).status == 200)
    assert process.stop() == 0, "".join(process.lines[-40:])
    assert "anitizer" not in "".join(process.lines) and "runtime error" not in "".join(process.lines)


def get(address, target, *headers, tls=False):
    return ask(address, b"GET " + target + b" HTTP/1.1\r\n" + b"".join(header + b"\r\n" for header in headers) + b"\r\n", tls=tls)


@pytest.mark.parametrize("way", ["open", "tls", "socket"])
def test_a_target_may_be_the_whole_address(database, millrace, tmp_path, way):
    """RFC 9112, 3.2.2: a server accepts it, and its host counts in place of Host. RFC 9110, 7.4: https asks for TLS."""
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    process = millrace(**ways(tmp_path, way)[0]).start().streaming()
    address, tls, any_host = process.address(), way == "tls", way == "socket"
    own = b"Host: localhost"
    for target in (b"http://localhost/healthz", b"HTTP://LOCALHOST/healthz", b"http://127.0.0.1:80/healthz", b"http://[::1]:80/healthz?a=1",
                   b"http://localhost", b"http://localhost?a=1", b"http://localhost/%68ealthz"):
        assert get(address, target, own, tls=tls) == 200, target
    assert get(address, b"http://localhost/nothing", own, tls=tls) == 404
    assert get(address, b"http://localhost/healthz", b"Host: evil.example", tls=tls) == 200
    assert get(address, b"http://evil.example/healthz", own, tls=tls) == (200 if any_host else 403)
    assert get(address, b"https://localhost/healthz", own, tls=tls) == (200 if tls else 421)
    post = b"POST http://localhost/api/reload HTTP/1.1\r\nHost: evil.example\r\nOrigin: http://%s\r\nContent-Length: 0\r\n\r\n"
    assert ask(address, post % b"evil.example", tls=tls) == 403
    assert ask(address, post % b"localhost", tls=tls) < 300
