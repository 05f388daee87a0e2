"""A broker that is far away: every piece of data takes its time, both ways. Killed and cut meanwhile, nothing is missing, nothing
is out of order, and with exactly-once nothing comes twice."""

import os

import pytest

from kit import eventually
from ledger import TABLE, Check, Writers
from servers import Proxy

ROWS = 1000


@pytest.fixture
def far():
    """The way to the stand's broker that a proxy stands in: 30 ms there, and 30 back."""
    proxy = Proxy(int(os.environ["KAFKA_PROXIED_PORT"]), int(os.environ["KAFKA_PROXY_PORT"]))
    proxy.set("delay 30")
    yield proxy
    proxy.close()


@pytest.mark.parametrize("delivery", ["at-least-once", "exactly-once"])
def test_killed_and_cut_with_a_far_broker(database, millrace, topic, far, delivery):
    database.run(TABLE)
    name = database.make_topic("t")
    process = millrace(sink__kafka__brokers=f'["127.0.0.1:{far.port}"]', sink__kafka__delivery=f'"{delivery}"',
                       sink__kafka__batch_size='"16KiB"').start().streaming()
    writers = Writers(database, count=3, rows_each=ROWS).start()
    check = Check(topic(name))
    for count in (ROWS // 2, ROWS):
        check.read_until(count)
        process.kill()
        process.start().streaming()
    far.set("reset")
    far.set("delay 30")
    writers.finish()
    check.expect_all(database)
    assert delivery == "at-least-once" or check.repeats == 0
    end = database.run("SELECT pg_current_wal_lsn()")[0][0]
    eventually(lambda: database.slot_row(f"confirmed_flush_lsn >= '{end}'"), 60, "confirmation of everything")
    assert process.stop() == 0
