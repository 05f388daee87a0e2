"""Two requests of Kafka's protocol, as no client library sends them: a record of a transaction that nobody ends.

Formats: https://kafka.apache.org/protocol, InitProducerId version 1 and Produce version 3; record batches of version 2."""

import os
import socket
import struct
import sys

sys.path.append(os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "lies"))

from lying_kafka import batch_of  # noqa: E402 # pylint: disable=wrong-import-position

INIT_PRODUCER_ID, PRODUCE = 22, 0
TRANSACTIONAL = 0x10


def text(value):
    return struct.pack(">h", len(value)) + value.encode()


def ask(address, kind, version, body):
    host, port = address.rsplit(":", 1)
    with socket.create_connection((host, int(port)), 10) as connection:
        message = struct.pack(">hhi", kind, version, 1) + text("raw") + body
        connection.sendall(struct.pack(">i", len(message)) + message)
        answer = connection.makefile("rb")
        size, _ = struct.unpack(">ii", answer.read(8))
        return answer.read(size - 4)


def leave_open(address, transactional_id, topic, key, value, timestamp_ms):
    """One record at the end of partition 0, of a transaction that the coordinator knows nothing of. The broker must not
    verify (transaction.partition.verification.enable=false)."""
    said = ask(address, INIT_PRODUCER_ID, 1, text(transactional_id) + struct.pack(">i", 60000))
    _, error, producer, epoch = struct.unpack(">ihqh", said)
    assert error == 0, error
    records = batch_of((key, value), producer=(producer, epoch, 0), attributes=TRANSACTIONAL, timestamp_ms=timestamp_ms).data
    said = ask(address, PRODUCE, 3, text(transactional_id) + struct.pack(">hii", -1, 10000, 1) + text(topic)
               + struct.pack(">iii", 1, 0, len(records)) + records)
    error, = struct.unpack_from(">h", said, 4 + 2 + len(topic) + 4 + 4)
    assert error == 0, error
