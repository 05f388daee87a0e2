"""Two requests of Kafka's protocol, as no client library sends them: a record of a transaction that nobody ends.

Formats: https://kafka.apache.org/protocol, InitProducerId version 1 and Produce version 3; record batches of version 2."""

import socket
import struct

INIT_PRODUCER_ID, PRODUCE = 22, 0
TRANSACTIONAL = 0x10


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def text(value):
    return struct.pack(">h", len(value)) + value.encode()


def varint(value):
    value = value << 1 ^ value >> 63
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def batch(key, value, producer, epoch, timestamp_ms):
    record = b"\0" + varint(0) + varint(0) + varint(len(key)) + key + varint(len(value)) + value + varint(0)
    body = struct.pack(">hiqqqhii", TRANSACTIONAL, 0, timestamp_ms, timestamp_ms, producer, epoch, 0, 1)
    body += varint(len(record)) + record
    behind_length = struct.pack(">ibI", -1, 2, crc32c(body)) + body
    return struct.pack(">qi", 0, len(behind_length)) + behind_length


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
    records = batch(key, value, producer, epoch, timestamp_ms)
    said = ask(address, PRODUCE, 3, text(transactional_id) + struct.pack(">hii", -1, 10000, 1) + text(topic)
               + struct.pack(">iii", 1, 0, len(records)) + records)
    error, = struct.unpack_from(">h", said, 4 + 2 + len(topic) + 4 + 4)
    assert error == 0, error
