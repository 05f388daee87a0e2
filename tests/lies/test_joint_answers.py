"""A request of several partitions (scripts/librdkafka.patch), and answers to it that say something else of each: what one of them leaves out or refuses
comes again, what was not acknowledged is not confirmed."""

import contextlib
import json

import pytest

from fields import Field
from kit import eventually
from lying_kafka import Lie, LyingKafka, listed
from test_lying_kafka import into, rows

TABLES, PARTITIONS, ROWS = tuple(f"t{i}" for i in range(5)), 3, 60
# What refuses a batch for now, or for good, or its producer; or says that it was taken before.
ERRORS = (3, 6, 7, 10, 19, 32, 45, 46, 47, 87, -1)


def taken_apart(message):
    """[(topic, [each partition's fields])], and what follows."""
    left = list(message.fields)
    topics = []
    for _ in range(left.pop(0).value):
        name = left.pop(0).value
        topics.append((name, [[left.pop(0) for _ in range(5)] for _ in range(left.pop(0).value)]))
    return topics, left


def put_together(message, topics, rest):
    fields = listed("topics", [[Field("text", name, "topic"), *listed("partitions", partitions)] for name, partitions in topics]) + rest
    return message.frame(b"".join(field.encode() for field in fields))


def failing(code):
    """Each second partition."""
    def tell(topics):
        for described in [one for _, partitions in topics for one in partitions][::2]:
            described[1:3] = [Field("error", code, "error"), Field("i64", -1, "offset")]
        return topics
    return tell


def without_offsets(topics):
    for _, partitions in topics:
        for described in partitions[::2]:
            described[2] = Field("i64", -1, "offset")
    return topics


ANSWERS = {
    **{f"error {code}": failing(code) for code in ERRORS},
    "a topic less": lambda topics: topics[1:],
    "a partition less": lambda topics: [(topics[0][0], topics[0][1][1:]), *topics[1:]],
    "no partition": lambda topics: [(name, []) for name, _ in topics],
    "nothing": lambda topics: [],
    "a partition twice": lambda topics: [(topics[0][0], topics[0][1][:1] + topics[0][1]), *topics[1:]],
    "a topic twice": lambda topics: topics + topics[:1],
    "another order": lambda topics: [(name, partitions[::-1]) for name, partitions in topics[::-1]],
    "a topic for each partition": lambda topics: [(name, [one]) for name, partitions in topics for one in partitions],
    "another topic": lambda topics: [("other", topics[0][1][:1]), *topics],
    "another partition": lambda topics: [(topics[0][0], [[Field("i32", 77, "partition"), *topics[0][1][0][1:]], *topics[0][1]]), *topics[1:]],
    "names exchanged": lambda topics: [(topics[-1][0], topics[0][1]), *topics[1:-1], (topics[0][0], topics[-1][1])],
    "no offsets": without_offsets,
}
FRAMES = {
    "half, closed": lambda message: (message.encode()[:len(message.encode()) // 2], "close"),
    "closed": lambda message: (b"", "close"),
    "half a body": lambda message: message.frame(message.body()[:len(message.body()) // 2]),
}


def joint_lie(name, times):
    """Told to so many answers of several topics."""
    lie = Lie("produce rows", name, None, "joint", always=True)
    lie.left = times

    def make(message):
        topics, rest = taken_apart(message)
        if lie.left == 0 or len(topics) < 2:
            return None
        lie.left -= 1
        return FRAMES[name](message) if name in FRAMES else put_together(message, ANSWERS[name](topics), rest)
    lie.make = make
    return lie


def tell_all(server, database, millrace, delivery):
    database.run(";".join(f"CREATE TABLE {table} (id int PRIMARY KEY, v text)" for table in TABLES))
    process = millrace(TABLES, **into(server, sink__kafka__delivery=json.dumps(delivery), pipeline__reconnect_max='"100ms"')).start().streaming()

    def confirmed(name, lie):
        end = database.run("SELECT pg_current_wal_insert_lsn()")[0][0]

        def there():
            assert process.process.poll() is None, (name, process.lines[-3:])
            return database.slot_row(f"confirmed_flush_lsn >= '{end}'")
        eventually(there, 60, f"all rows with {name}")
        return lie.left == 0
    count = 0
    for name in [*ANSWERS, *FRAMES]:
        lie = server.lie = joint_lie(name, 2)
        for _ in range(20):
            database.run(";".join(f"INSERT INTO {table} SELECT n, 'x' FROM generate_series({count + 1}, {count + ROWS}) n" for table in TABLES))
            count += ROWS
            if confirmed(name, lie):
                break
        assert lie.left == 0, f"{name} was never told"
        for table in TABLES:
            acknowledged = {json.loads(value)["after"]["id"] for _, value in server.acknowledged[database.topic(table)]}
            assert acknowledged == set(range(1, count + 1)), name
    for table in TABLES:
        for partition in rows(server, database.topic(table)):
            positions = list(dict.fromkeys(position for _, _, position in partition))
            assert positions == sorted(positions) and (delivery == "at-least-once" or len(positions) == len(partition))
    assert process.stop() == 0


@pytest.mark.timeout(600)
@pytest.mark.parametrize("delivery", ["at-least-once", "exactly-once"])
def test_each_partition_is_answered_by_itself(database, millrace, delivery):
    with contextlib.closing(LyingKafka(partitions=PARTITIONS)) as server:
        tell_all(server, database, millrace, delivery)
