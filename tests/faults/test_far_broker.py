"""A broker that is far away: every piece of data takes its time, both ways, so requests and the pool grow. Killed and cut meanwhile,
nothing is missing, nothing is out of order, and with exactly-once nothing comes twice."""

import os

import pytest

from ledger import TABLE, Check, Writers
from servers import Proxy

ROWS = 1000
BACKLOG = 12000       # of one writer, in one transaction
NEAR_POOL = 32 << 17  # bytes, exactly once; at least once has half of it


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
    process = millrace(sink__kafka__brokers=f'["127.0.0.1:{far.port}"]', sink__kafka__delivery=f'"{delivery}"').start().streaming()
    database.run("INSERT INTO t SELECT 9, g, repeat('x', 1500) FROM generate_series(1, %s) g", [BACKLOG])
    writers = Writers(database, count=3, rows_each=ROWS).start()
    check, pools, told = Check(topic(name)), [], []
    for count in (BACKLOG // 4, BACKLOG // 2, BACKLOG + ROWS):
        check.read_until(count)
        pools.append(process.figure("millrace_arena_high_water_bytes"))
        told += process.log("kafka_far")
        process.kill().start().streaming()
    far.set("reset")
    far.set("delay 30")
    writers.finish()
    check.expect_all(database)
    assert delivery == "at-least-once" or check.repeats == 0
    assert told and max(pools) > NEAR_POOL, pools
    database.all_confirmed()
    assert process.stop() == 0
