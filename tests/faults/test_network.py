"""A true black hole between millrace and its servers, both ways and one way: found out, waited for, and behind it
nothing is missing and nothing comes twice."""

import os
import time

import pytest
from confluent_kafka.admin import NewTopic

from checker import Checker
from kit import Database, cannot_try, dsn, eventually
from network import Network, required
from servers import Broker, OtherServer

# What a dead connection costs at most with millrace's own settings; the tests ask for less by libpq's words.
MINUTE = 60
QUICK = "?tcp_user_timeout=4000&keepalives_idle=1&keepalives_interval=1&keepalives_count=4"
SENDER_TIMEOUT_S = 10
# The server's own limit is off: what millrace asks of it (shorter here) counts.
NO_SENDER_TIMEOUT = QUICK + "&options=" + "%20".join(f"-c%20{setting}" for setting in (
    "wal_sender_timeout%3D0", "tcp_user_timeout%3D8000", "tcp_keepalives_idle%3D8", "tcp_keepalives_interval%3D1"))
WAYS = [("both", "at-least-once"), ("both", "exactly-once"), ("in", "exactly-once"), ("out", "exactly-once")]


class Place:
    """millrace in a network of its own; PostgreSQL and Kafka, nobody else's, on this machine."""

    def __init__(self):
        self.network = self.server = self.broker = None
        try:
            self.network = Network()
            self.broker = Broker(address=self.network.here)
            self.server = OtherServer()
            self.server.stand("pg-start")
            self._open_server()
        except BaseException:
            self.close()
            raise

    def _open_server(self):
        database = Database(port=self.server.port)
        hba = database.run("SHOW hba_file")[0][0]
        with open(hba, "a", encoding="ascii") as file:
            file.write(f"host all all {self.network.there}/32 scram-sha-256\n")
        database.run(f"ALTER SYSTEM SET listen_addresses = '127.0.0.1,{self.network.here}'")
        database.run(f"ALTER SYSTEM SET wal_sender_timeout = '{SENDER_TIMEOUT_S}s'")
        database.drop()
        self.server.stand("pg-restart")

    def close(self):
        for made in (self.server, self.broker, self.network):
            if made is not None:
                made.close()


@pytest.fixture(scope="module")
def place():
    try:
        place = Place()
    except PermissionError as error:
        if required():
            raise
        cannot_try(error)
    yield place
    place.close()


class Stream:
    """A table with its topic, and a millrace behind the network."""

    def __init__(self, place, database, process):
        self.place, self.database, self.process = place, database, process
        self.rows = 0

    def start(self):
        self.process.start().streaming()

    def insert(self, count=500):
        self.database.run("INSERT INTO t SELECT g, 'row' FROM generate_series(%s::int, %s::int) g",
                          [self.rows + 1, self.rows + count])
        self.rows += count

    def confirmed(self, limit_s=120):
        self.database.all_confirmed(limit_s)

    def client_port(self):
        """Of the connection that streams."""
        return self.database.run("SELECT client_port FROM pg_stat_replication WHERE pid = %s",
                                 [self.database.slot_row("active_pid")])[0][0]

    def check(self):
        """Everything is there, in order, once."""
        checker = Checker(self.place.broker.direct, self.database.prefix, ["t"])
        checker.check_transactions()
        checker.check_fold("t", "id", [{"id": str(n), "v": "row"} for n in range(1, self.rows + 1)])
        checker.report.expect_clean()
        assert checker.report.events == self.rows and checker.report.duplicates == 0, checker.report.line()


@pytest.fixture
def stream(place, millrace_for):
    """Makes a stream that has delivered and confirmed some rows."""
    made = []

    def make(delivery, words=QUICK):
        database = Database(port=place.server.port)
        made.append(database)
        database.run("CREATE TABLE t (id int PRIMARY KEY, v text)")
        topic = database.topic("t")
        place.broker.admin.create_topics([NewTopic(topic, 3)])[topic].result()
        process = millrace_for(database, sink__kafka__brokers=f'["{place.broker.proxied}"]',
                               sink__kafka__delivery=f'"{delivery}"', pipeline__reconnect_max='"1s"',
                               source__postgres__insecure_tls="true")
        process.inside = place.network.inside
        process.environment["TEST_URL"] = dsn(database.name, place.server.port).replace(
            "127.0.0.1", place.network.here) + words
        stream = Stream(place, database, process)
        stream.start()
        stream.insert()
        stream.confirmed()
        return stream

    yield make
    place.network.mend()
    for database in made:
        eventually(lambda database=database: database.drop() or True, 60, "dropping the database")


@pytest.mark.timeout(600)
@pytest.mark.parametrize("way,delivery", WAYS)
def test_black_hole_to_postgres(place, stream, way, delivery):
    """It is not the server's end that tells: there is none. The other side of a one-way cut even looks alive."""
    stream = stream(delivery)
    place.network.cut(place.server.port, way)
    began = time.monotonic()
    stream.insert()
    stream.process.wait_for("source_lost", 4 * MINUTE)
    took = time.monotonic() - began
    assert stream.process.process.poll() is None
    place.network.mend()
    stream.insert()
    stream.process.wait_for("source_connected", 2 * MINUTE, times=2)
    stream.confirmed()
    assert stream.process.stop() == 0
    stream.check()
    print(f"found out after {took:.0f} s")
    assert took < MINUTE or os.getloadavg()[0] > 4, f"the dead connection was found out after {took:.0f} s"


@pytest.mark.timeout(600)
@pytest.mark.parametrize("way,delivery", WAYS)
def test_black_hole_to_kafka(place, stream, way, delivery):
    """Acknowledgements, or records, are lost; what is not acknowledged is not confirmed."""
    stream = stream(delivery)
    place.network.cut(place.broker.inner_port, way)
    stream.insert()
    end = stream.database.run("SELECT pg_current_wal_insert_lsn()")[0][0]
    stream.insert()
    time.sleep(8)
    assert not stream.database.slot_row(f"confirmed_flush_lsn >= '{end}'")
    assert stream.process.process.poll() is None
    place.network.mend()
    stream.insert()
    stream.confirmed(4 * MINUTE)
    assert stream.process.stop() == 0
    stream.check()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("words", [QUICK, NO_SENDER_TIMEOUT], ids=["sender_timeout", "keepalives"])
def test_server_believes_in_a_dead_connection(place, stream, words):
    """millrace died behind the cut, and comes back at once: the slot is still in use by the process that serves the
    dead connection. It waits, says so once, and goes on when the server has noticed."""
    stream = stream("exactly-once", words)
    old = stream.client_port()
    backend = stream.database.slot_row("active_pid")
    place.network.cut(place.server.port, "both", of_client=old)
    stream.process.kill()
    stream.insert()
    stream.process.start()
    stream.process.wait_for("standby")
    assert stream.database.slot_row("active_pid") == backend
    stream.process.wait_for("source_connected", 2 * MINUTE)
    assert len(stream.process.log("standby")) == 1 and not stream.process.log("source_lost")
    stream.insert()
    stream.confirmed()
    assert stream.process.stop() == 0
    stream.check()
