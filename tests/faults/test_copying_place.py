"""The connection that existing rows are read by leads elsewhere than the stream's: to a standby, to a server that was promoted, to another
cluster. (Another database: test_copying_role.py.)"""

import os
import threading

import pytest

from kit import Database, check, dsn, eventually, expect
from pair import Pair
from test_incremental import command


@pytest.fixture(name="pair")
def fixture_pair():
    servers = Pair()
    try:
        yield servers.start(standby_slots="")
    finally:
        servers.close()


def test_another_server_than_the_streams(pair, millrace_for):
    """Before a first copy that ends millrace, and no slot is made. Beside the stream another cluster ends the copy; another timeline has it
    wait, for the stream may be about to follow."""
    database = Database(port=pair.primary.port)
    database.run("CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1), (2)")
    process = millrace_for(database, snapshot__mode='"initial"', snapshot__connection='"env:COPY_URL"')

    def refused(said, url):
        process.environment["COPY_URL"] = url
        expect(check(process), 78, said)
        assert process.start().ended(60) == 78 and said in "".join(process.lines)
        assert not database.run("SELECT FROM pg_replication_slots WHERE slot_name LIKE %s", [database.slot + "%"])

    def on_standby():
        return pair.standby.run("SELECT count(*) FROM t", database.name) == [(2,)]

    standby = dsn(database.name, pair.standby.port)
    eventually(on_standby, 60, "the rows on the standby", Exception)
    refused("leads to a standby", standby)
    refused("leads to another cluster", os.environ["MILLRACE_PG_URL"])
    pair.promote()
    refused("leads to a server on timeline 2, and the stream is of one on timeline 1", standby)
    process.configure(snapshot__connection='"env:COPY_URL"', pipeline__reconnect_max='"500ms"').start().streaming()
    asks = threading.Thread(target=command, args=(process, "t"))
    asks.start()
    assert "leads to a server on timeline 2" in process.wait_for("incremental_waits")["message"]
    assert process.stop() == 0
    asks.join()
    process.environment["COPY_URL"] = os.environ["MILLRACE_PG_URL"]
    process.start().streaming()
    assert "leads to another cluster" in process.wait_for("incremental_failed")["message"]
    assert process.stop() == 0
