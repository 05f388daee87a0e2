"""Logins to Kafka by OAUTHBEARER. The broker has Kafka's own validator; the identity provider is of this file: it signs tokens by RS256,
with the key that its /jwks has."""

import base64
import json
import os
import subprocess
import threading
import time
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import confluent_kafka
import pytest

from faults.servers import Broker, free_port
from kit import check, eventually, expect

CLIENT, SECRET = "millrace", "canary-secret%&"


def encoded(data):
    return base64.urlsafe_b64encode(data if isinstance(data, bytes) else json.dumps(data).encode()).rstrip(b"=").decode()


class Provider:
    """`down` and `up` close and open its port."""

    def __init__(self, folder):
        self.key, self.port = str(folder / "key.pem"), free_port()
        self.asked, self.seconds, self.audience = 0, 3600, "kafka"
        subprocess.run(["openssl", "genrsa", "-out", self.key, "2048"], check=True, capture_output=True, timeout=60)
        modulus = subprocess.run(["openssl", "rsa", "-in", self.key, "-noout", "-modulus"], check=True, capture_output=True, text=True,
                                 timeout=60).stdout.strip().split("=")[1]
        self.keys = {"keys": [{"kty": "RSA", "use": "sig", "alg": "RS256", "kid": "1", "e": "AQAB", "n": encoded(bytes.fromhex(modulus))}]}
        self.url, self.server = f"http://localhost:{self.port}", None
        self.up()

    def token(self, seconds=None):
        """A token, and when it ends."""
        now = int(time.time())
        end = now + (seconds or self.seconds)
        body = encoded({"alg": "RS256", "kid": "1"}) + "." + encoded(
            {"iss": self.url, "aud": self.audience, "sub": CLIENT, "scope": "kafka", "iat": now, "exp": end})
        signed = subprocess.run(["openssl", "dgst", "-sha256", "-sign", self.key], input=body.encode(), check=True, capture_output=True,
                                timeout=60).stdout
        return f"{body}.{encoded(signed)}", end

    def answer(self, login, form):
        self.asked += 1
        known = base64.b64decode(login.removeprefix("Basic ")).decode() == f"{CLIENT}:{SECRET}"
        if not known:
            return 401, {"error": "invalid_client", "error_description": "who is that?"}
        assert form["grant_type"] == ["client_credentials"] and form["scope"] == ["kafka"]
        return 200, {"access_token": self.token()[0], "token_type": "Bearer", "expires_in": self.seconds}

    def up(self):
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def reply(self, status, answer):
                text = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def do_GET(self):  # noqa: N802
                self.reply(200, provider.keys)

            def do_POST(self):  # noqa: N802
                form = urllib.parse.parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
                self.reply(*provider.answer(self.headers.get("Authorization", ""), form))

            def log_message(self, *_):
                pass

        ThreadingHTTPServer.allow_reuse_address = True
        self.server = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def down(self):
        self.server.shutdown()
        self.server.server_close()
        self.server = None


@pytest.fixture(scope="module")
def provider_and_broker(tmp_path_factory):
    """Its listener for millrace asks for OAUTHBEARER."""
    provider = Provider(tmp_path_factory.mktemp("provider"))
    listener, oauth = "listener_name_proxied", "org.apache.kafka.common.security.oauthbearer"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAVA_TOOL_OPTIONS", f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={provider.url}/jwks")
        broker = Broker(address="localhost", **{
            "listener_security_protocol_map": "DIRECT:PLAINTEXT,PROXIED:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
            f"{listener}_sasl_enabled_mechanisms": "OAUTHBEARER",
            f"{listener}_oauthbearer_sasl_jaas_config": f"{oauth}.OAuthBearerLoginModule required;",
            f"{listener}_oauthbearer_sasl_server_callback_handler_class": f"{oauth}.OAuthBearerValidatorCallbackHandler",
            f"{listener}_oauthbearer_connections_max_reauth_ms": "3600000",
            "sasl_oauthbearer_jwks_endpoint_url": f"{provider.url}/jwks", "sasl_oauthbearer_expected_issuer": provider.url,
            "sasl_oauthbearer_expected_audience": "kafka", "sasl_oauthbearer_clock_skew_seconds": "0"})
    yield provider, broker
    broker.close()


@pytest.fixture
def provider(provider_and_broker):
    made = provider_and_broker[0]
    made.asked, made.seconds, made.audience = 0, 3600, "kafka"
    if made.server is None:
        made.up()
    return made


@pytest.fixture
def broker(provider_and_broker):
    return provider_and_broker[1]


@pytest.fixture
def of_broker(database, millrace, broker):
    """A millrace that logs in by tokens, with options for that."""
    database.run("CREATE TABLE t (id int PRIMARY KEY)")

    def make(properties=(), **options):
        words = {"broker.address.family": "v4", **dict(properties)}
        return millrace(sink__kafka__brokers=f'["{broker.proxied}"]', sink__kafka__sasl__mechanism='"OAUTHBEARER"',
                        **{f'sink__kafka__properties."{name}"': json.dumps(value) for name, value in words.items()},
                        **{f"sink__kafka__sasl__{name}": value for name, value in options.items()})
    return make


@pytest.fixture
def by_secret(of_broker, provider, tmp_path):
    def make(secret=SECRET):
        file = tmp_path / "client-secret"
        file.write_text(secret + "\n")
        file.chmod(0o600)
        return of_broker({"sasl.oauthbearer.client.id": CLIENT, "sasl.oauthbearer.scope": "kafka",
                          "sasl.oauthbearer.token.endpoint.url": f"{provider.url}/token"}, client_secret=json.dumps(f"file:{str(file)}"))
    return make


class Printer:
    """A program that prints what a file holds, and notes that it was asked."""

    def __init__(self, folder):
        self.path, self.file, self.asked = (str(folder / name) for name in ("program", "token", "asked"))
        self.write(f"cat {self.file}")

    def write(self, body):
        with open(self.path + ".new", "w", encoding="ascii") as file:
            file.write(f"#!/bin/sh\necho >> {self.asked}\n{body}\n")
        os.chmod(self.path + ".new", 0o755)
        os.rename(self.path + ".new", self.path)

    def put(self, text):
        with open(self.file + ".new", "w", encoding="ascii") as file:
            file.write(text)
        os.rename(self.file + ".new", self.file)

    def put_token(self, provider, seconds):
        token, end = provider.token(seconds)
        self.put(json.dumps({"token": token, "expires_ms": end * 1000}))

    def times(self):
        return os.path.getsize(self.asked) if os.path.exists(self.asked) else 0


@pytest.fixture
def printer(tmp_path):
    return Printer(tmp_path)


@pytest.fixture
def by_program(of_broker, printer):
    return lambda: of_broker(token_command=json.dumps([printer.path]))


@pytest.fixture
def delivered(database, broker):
    """Whether that many records have come."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": broker.direct, "group.id": database.name, "log_level": 0})
    records = []

    def come(count, limit_s=90):
        wanted = database.topic("t")
        eventually(lambda: wanted in consumer.list_topics(timeout=5).topics, limit_s, "the topic")
        if not records:
            consumer.assign([confluent_kafka.TopicPartition(wanted, 0, 0)])

        def all_there():
            record = consumer.poll(0.5)
            records.extend([record] if record is not None and record.error() is None else [])
            return len(records) >= count
        eventually(all_there, limit_s, f"{count} records")
        return [json.loads(record.value())["after"]["id"] for record in records]
    yield come
    consumer.close()


def said(process):
    return "".join(process.lines)


def test_openid_connect(database, provider, by_secret, delivered):
    """check, the stream, and tokens of fifteen seconds: each is replaced while the stream runs. (With shorter ones a connection may be
    made, where the machine is slow, that has to log in again within a second, which Kafka refuses: KafkaChannel,
    MIN_REAUTH_INTERVAL_ONE_SECOND_NANOS.)"""
    provider.seconds = 15
    process = by_secret()
    text = expect(check(process), 0)
    process.start().streaming()
    begun = provider.asked
    for n in range(1, 27):
        database.run("INSERT INTO t VALUES (%s)", [n])
        time.sleep(1)
    assert delivered(26) == list(range(1, 27))
    assert provider.asked >= begun + 2
    assert process.stop() == 0
    assert "canary" not in said(process) + text and not process.log("sink_session_lost")


def test_the_provider_is_away(database, provider, by_secret, delivered):
    """At the start: rows wait, and come once it is back. In the middle: the token at hand is good for a while."""
    provider.down()
    process = by_secret()
    expect(check(process), 69, "see that the token endpoint")
    process.start()
    eventually(lambda: "see that the token endpoint" in said(process), what="the warning")
    provider.seconds = 10
    provider.up()
    process.streaming()
    database.run("INSERT INTO t VALUES (1)")
    assert delivered(1) == [1]
    provider.down()
    database.run("INSERT INTO t VALUES (2)")
    assert delivered(2) == [1, 2]
    time.sleep(12)
    database.run("INSERT INTO t VALUES (3)")
    provider.up()
    assert delivered(3)[:3] == [1, 2, 3]
    assert process.stop() == 0


def test_the_provider_refuses(by_secret):
    process = by_secret(secret="canary-wrong")
    expect(check(process), 77, "check the client secret", without="canary")
    text = expect(process.run_to_end(120), 77, "invalid_client", "check the client secret", without="canary")
    assert "millrace help E-token" in text


def test_the_broker_refuses(provider, by_secret):
    provider.audience = "somebody else"
    expect(by_secret().run_to_end(120), 77, "the broker must accept the token's issuer, audience and scope")


def test_a_program_prints_tokens(database, provider, by_program, printer, delivered):
    """check, the stream, and a program that has a new token each time; it fails for a while, and what it had is good until then."""
    printer.put_token(provider, 10)
    process = by_program()
    expect(check(process), 0)
    process.start().streaming()
    assert process.log("started")[0]["confined_syscalls"] in ("yes", "not possible here")
    begun = printer.times()
    for n in range(1, 12):
        database.run("INSERT INTO t VALUES (%s)", [n])
        printer.put_token(provider, 10)
        time.sleep(1)
    assert delivered(11) == list(range(1, 12))
    assert printer.times() > begun
    printer.put_token(provider, 12)
    printer.write("exit 1")
    eventually(lambda: "run it as millrace's user" in said(process), 130, "the warning")  # a standstill that lasts is said again after a minute
    printer.put_token(provider, 3600)
    printer.write(f"cat {printer.file}")
    database.run("INSERT INTO t VALUES (12)")
    assert delivered(12)[:12] == list(range(1, 13))
    assert process.stop() == 0
    assert provider.token()[0][:20] not in said(process)


PRINTED = {"no JSON": "canary", "no end": '{"token":"canary"}', "an old token": '{"token":"canary","expires_ms":1000}',
           "a token with a line's end": '{"token":"can\\nary\\u0001","expires_ms":9999999999999}', "two lines": "{\n}",
           "a number that is none": '{"token":"canary","expires_ms":1e300}'}


@pytest.mark.parametrize("what", PRINTED)
def test_a_program_prints_something_else(by_program, printer, what):
    printer.put(PRINTED[what])
    process = by_program()
    code, text = process.run_to_end(60)
    expected = "printed more than one line" if what == "two lines" else "printed no token that is good now"
    assert code == 77 and expected in text and "canary" not in text, text


@pytest.mark.parametrize("body", ["exit 4", "sleep 600"])
def test_a_program_that_gives_none(database, provider, by_program, printer, delivered, body):
    printer.write(body)
    process = by_program()
    expect(check(process), 69, "run it as millrace's user")
    process.start()
    eventually(lambda: "run it as millrace's user" in said(process), 130, "the warning")  # a standstill that lasts is said again after a minute
    printer.put_token(provider, 3600)
    printer.write(f"cat {printer.file}")
    process.streaming()
    database.run("INSERT INTO t VALUES (1)")
    assert delivered(1) == [1]
    assert process.stop() == 0


def test_a_stop_does_not_wait_for_the_program(database, provider, by_program, printer, delivered):
    """It hangs when the next token is due; what was read is delivered by the one before."""
    printer.put_token(provider, 15)
    process = by_program().start().streaming()
    begun = printer.times()
    printer.write("sleep 600")
    eventually(lambda: printer.times() > begun, 60, "the program's next run")
    database.run("INSERT INTO t VALUES (1)")
    assert delivered(1) == [1]
    begun = time.monotonic()
    assert process.stop() == 0
    assert time.monotonic() - begun < 4
