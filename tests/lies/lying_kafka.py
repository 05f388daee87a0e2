"""A Kafka broker that tells one lie: the requests of librdkafka's producer, transactions, reader and admin client, answered by
lists of fields (fields.py), one of which is sent otherwise. Records are decoded here and kept.

Formats: https://kafka.apache.org/protocol, record batches of version 2. Versions are the highest that librdkafka 2.0.2 speaks
without compact strings; ApiVersions is asked for in version 3, which has them."""

import gzip
import itertools
import re
import select
import socket
import struct
import threading

from fields import Field, Message, garbage, number, turned
from listener import Listener

NODE = 1
VERSIONS = {0: (3, 7), 1: (4, 11), 2: (1, 2), 3: (1, 4), 10: (0, 2), 17: (0, 1), 18: (0, 3), 19: (0, 4), 22: (0, 1), 24: (0, 0),
            26: (0, 1), 32: (0, 1), 36: (0, 1)}
STATE_TOPIC = "__millrace_state"
UNKNOWN_TOPIC, NO_LEADER, NOT_LEADER, SEQUENCE, EXISTS, WRITTEN_BEFORE = 3, 5, 6, 45, 36, 46


# ---- reading ----

class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, count):
        if count < 0 or self.at + count > len(self.data):
            raise ValueError("too short")
        self.at += count
        return self.data[self.at - count:self.at]

    def number(self, size):
        return int.from_bytes(self.take(size), "big", signed=True)

    def text(self):
        length = self.number(2)
        return None if length < 0 else self.take(length).decode()

    def bytes(self):
        length = self.number(4)
        return b"" if length < 0 else self.take(length)

    def list(self, one):
        return [one() for _ in range(max(0, self.number(4)))]

    def varint(self):
        value = shift = 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value >> 1 ^ -(value & 1)

    def counted(self):
        length = self.varint()
        return None if length < 0 else self.take(length)


def crc32c_table():
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return table


CRC32C = crc32c_table()


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ CRC32C[(crc ^ byte) & 255]
    return crc ^ 0xFFFFFFFF


class Batch:
    """A record batch as it came, and its records: [(key, value, headers)]."""

    def __init__(self, data):
        reader = Reader(data)
        reader.take(8)
        length = reader.number(4)
        assert length == len(data) - 12, "one batch a partition"
        reader.take(4)
        assert reader.number(1) == 2
        assert reader.number(4) & 0xFFFFFFFF == crc32c(data[21:]), "check sum"
        attributes = reader.number(2)
        reader.take(4 + 8 + 8)
        self.data = data
        self.producer, self.epoch, self.sequence = reader.number(8), reader.number(2), reader.number(4)
        self.transactional = bool(attributes & 16)
        count = reader.number(4)
        rest = data[reader.at:]
        codec = attributes & 7
        assert codec in (0, 1), "gzip, or none"
        reader = Reader(gzip.decompress(rest) if codec else rest)
        self.records = [self.record(reader) for _ in range(count)]
        assert reader.at == len(reader.data), "bytes behind the records"

    @staticmethod
    def record(reader):
        inner = Reader(reader.take(reader.varint()))
        inner.take(1)
        inner.varint()
        inner.varint()
        key, value = inner.counted(), inner.counted()
        headers = {inner.counted().decode(): inner.counted() for _ in range(inner.varint())}
        return key, value, headers

    def placed(self, offset):
        """As a reader gets it: the base offset is the broker's."""
        return struct.pack(">q", offset) + self.data[8:]


def varint(value):
    value = value << 1 ^ value >> 63
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def batch_of(*records, producer=(-1, -1, -1), attributes=0, timestamp_ms=0):
    """Pairs of key and value, None for neither. `producer`: its number, its epoch, and that of the first record."""
    def counted(data):
        return varint(-1) if data is None else varint(len(data)) + data

    def record(i, key, value):
        data = b"\0" + varint(0) + varint(i) + counted(key) + counted(value) + varint(0)
        return varint(len(data)) + data
    body = struct.pack(">hiqqqhii", attributes, len(records) - 1, timestamp_ms, timestamp_ms, *producer, len(records)) + b"".join(
        record(i, *pair) for i, pair in enumerate(records))
    behind_length = struct.pack(">ibI", -1, 2, crc32c(body)) + body
    return Batch(struct.pack(">qi", 0, len(behind_length)) + behind_length)


# ---- what is answered ----

def text(value, label):
    return Field("i16", -1, label) if value is None else Field("text", value, label)


def listed(label, items):
    """An array: its count, and what each item is made of."""
    return [Field("count", len(items), label), *(field for item in items for field in item)]


THROTTLE = Field("i32", 0, "throttle")


def compact(items):
    """Of version 3 of ApiVersions: counts of one more, and no tags."""
    fields = [Field("u8", len(items) + 1, "count")]
    for key, (low, high) in items:
        plain = key not in (0, 18, 22)
        fields += [Field("i16", key, f"key {key}", plain), Field("i16", low, f"lowest of {key}", plain),
                   Field("i16", high, f"highest of {key}", plain), Field("u8", 0, f"tags of {key}", plain)]
    return fields


class Partition:
    def __init__(self):
        self.batches = []  # (offset, Batch)
        self.end = 0
        self.last = {}     # producer: (epoch, sequence, offset, records)

    def append(self, batch):
        """The base offset, or minus an error: numbers of a producer follow one another."""
        known = self.last.get(batch.producer) if batch.producer >= 0 else None
        if known and known[0] == batch.epoch:
            if known[1] == batch.sequence:
                return known[2]
            if known[1] + known[3] != batch.sequence:
                return -SEQUENCE
        offset = self.end
        self.batches.append((offset, batch))
        self.end += len(batch.records)
        self.last[batch.producer] = (batch.epoch, batch.sequence, offset, len(batch.records))
        return offset

    def cut(self, offset):
        """What begins there, and all behind it."""
        self.batches = [placed for placed in self.batches if placed[0] < offset]
        self.end = min(self.end, offset)

    def since(self, offset):
        return b"".join(batch.placed(at) for at, batch in self.batches if at + len(batch.records) > offset)


class Lie:
    def __init__(self, target, how, make, kind, skip=0, always=False):
        self.target, self.how, self.make, self.kind = target, how, make, kind
        self.skip, self.always = skip, always
        self.name = f"{kind}: {target} | {how}" + (f" | number {skip + 1}" if skip else "") + (
            " | always" if always else "")


class LyingKafka(Listener):
    """`lie` None: an honest one. `acknowledged`: the records that the other side may count as safe: {name: [(key, value)]}
    by topic; what it can have read as an answer without an error counts, whatever else was wrong with it."""

    def __init__(self, lie=None, partitions=1, leaders=1):
        self.lie, self.partitions = lie, partitions
        self.topics = {}
        self.acknowledged = {}
        self.uncommitted = {}  # transactional id: [(topic, key, value)], acknowledged
        self.committed = {}    # the same, of transactions of whose end nobody was told yet
        self.ongoing = {}      # transactional id: [(Partition, offset)], of batches whose transaction has not ended
        self.producers = 0
        self.said = 0          # messages of the lie's kind so far
        self.told = threading.Event()
        self.lock = threading.Lock()
        self.asked = {}        # name: how often
        self.users = []
        self.seen = {}         # name: the fullest message of it
        # As Kafka 4.3.1 answers when it ends in order, three of three times: 80 ms before its connections end it leads nothing, and in the
        # last 10 ms there is no broker.
        self.leaves = False
        self.listen(leaders)

    def has_state(self, key, value):
        """A position that was stored before."""
        self.topics[STATE_TOPIC] = [Partition()]
        self.topics[STATE_TOPIC][0].append(batch_of((key, value)))

    def address(self):
        return f"127.0.0.1:{self.ports[0]}"

    def _serve(self, connection):
        try:
            with connection:
                Session(self, connection).run()
        except (OSError, EOFError):
            pass

    def records(self, topic):
        """All that was taken, by partition."""
        with self.lock:
            return [[record for _, batch in partition.batches for record in batch.records]
                    for partition in self.topics.get(topic, [])]

    def spoils(self, name):
        """Whether the next message of that name is the one to be told otherwise."""
        lie = self.lie
        if lie is None or lie.target != name:
            return False
        with self.lock:
            self.said += 1
            return self.said > lie.skip and (lie.always or not self.told.is_set())

    def end(self, name, committed):
        """Of a transaction; what is given up is not there any more, as for readers of committed records."""
        for partition, offset in self.ongoing.pop(name, []):
            if not committed:
                partition.cut(offset)
        records = self.uncommitted.pop(name, [])
        self.committed.setdefault(name, []).extend(records if committed else [])

    def tell_end(self, name):
        """Who begins again can read what was committed."""
        for record in self.committed.pop(name, []):
            self.acknowledge(*record)

    def acknowledge(self, topic, key, value):
        self.acknowledged.setdefault(topic, []).append((key, value))


def kind_of(topic):
    return "state" if topic == STATE_TOPIC else "rows"


class Session:
    def __init__(self, server, connection):
        self.server, self.connection = server, connection
        self.received = b""
        self.late = b""
        self.waiting = {}  # correlation id: what a good answer to it makes safe

    def take(self, count):
        while len(self.received) < count:
            more = self.connection.recv(1 << 20)
            if not more:
                raise EOFError
            self.received += more
        taken, self.received = self.received[:count], self.received[count:]
        return taken

    def run(self):
        while True:
            reader = Reader(self.take(struct.unpack(">i", self.take(4))[0]))
            api, version, correlation = reader.number(2), reader.number(2), reader.number(4)
            reader.text()
            if api == 18 and version >= 3:
                reader.take(1)
            name, fields, safe = getattr(self, f"on_{api}")(reader, version)
            self.server.asked[name] = self.server.asked.get(name, 0) + 1
            self.waiting[correlation] = (name, version, safe)
            message = framed(name, correlation, fields)
            known = self.server.seen.get(name)
            if known is None or len(known.fields) < len(fields):
                self.server.seen[name] = message
            self.say(message)

    def say(self, message):
        if not self.server.spoils(message.name):
            self.send(message.encode())
            return
        spoilt = self.server.lie.make(message)
        if spoilt is None:
            self.send(message.encode())
            return
        self.server.told.set()
        if spoilt == "late":
            self.late = message.encode()
            return
        spoilt, then = spoilt if isinstance(spoilt, tuple) else (spoilt, None)
        self.send(spoilt)
        if then == "close":
            self.connection.shutdown(socket.SHUT_RDWR)
            raise EOFError
        while then == "silence" and not self.server.stopped:
            if select.select([self.connection], [], [], 0.5)[0] and not self.connection.recv(65536):
                raise EOFError

    def send(self, data):
        self.mark_safe(data)
        late, self.late = self.late, b""
        self.connection.sendall(data)
        if late:
            self.mark_safe(late)
            self.connection.sendall(late)

    def mark_safe(self, data):
        """Before it is sent: whatever in it can be read as a good answer to a request that waits."""
        at = 0
        while at + 8 <= len(data):
            length, correlation = struct.unpack_from(">iI", data, at)
            name, version, safe = self.waiting.get(correlation, ("", 0, None))
            good = answered_well(name, version, data[at + 8:]) if safe is not None else None
            if good:
                with self.server.lock:
                    safe(good)
                del self.waiting[correlation]
            if length < 4:
                break
            at += 4 + length

    # ---- each request: its name, the answer's fields, and what a good answer makes safe ----

    def on_18(self, _reader, version):
        if version >= 3:
            return "api versions", [Field("error", 0, "error"), *compact(sorted(VERSIONS.items())), THROTTLE,
                                    Field("u8", 0, "tags")], None
        items = [[Field("i16", key, "key"), Field("i16", low, "lowest"), Field("i16", high, "highest")]
                 for key, (low, high) in sorted(VERSIONS.items())]
        return "api versions", [Field("error", 0, "error"), *listed("versions", items), *([THROTTLE] if version else [])], None

    def on_17(self, reader, _version):
        mechanism = reader.text()
        return "sasl handshake", [Field("error", 0, "error"),
                                  *listed("mechanisms", [[Field("text", mechanism, "mechanism")]])], None

    def on_36(self, reader, version):
        self.server.users.append(reader.bytes())
        return "sasl authenticate", [Field("error", 0, "error"), text(None, "message"), Field("length", 0, "length"),
                                     *([Field("i64", 0, "lifetime")] if version else [])], None

    def on_3(self, reader, version):
        count = reader.number(4)
        names = list(self.server.topics) if count < 0 else [reader.text() for _ in range(count)]
        leaves = self.server.leaves
        leader = -1 if leaves else 1 + self.server.asked.get("metadata", 0) % len(self.server.ports)
        topics = []
        for name in names:
            partitions = self.server.topics.get(name)
            described = [[Field("error", NO_LEADER if leaves else 0, f"error of partition {i}"), Field("i32", i, f"partition {i}"),
                          Field("i32", leader, f"leader of {i}"),
                          *listed("replicas", [[Field("i32", leader, "replica")]]),
                          *listed("in sync", [[Field("i32", leader, "in sync")]])] for i in range(len(partitions or []))]
            topics.append([Field("error", 0 if partitions else UNKNOWN_TOPIC, "error"), Field("text", name, "topic"),
                           Field("u8", 0, "internal"), *listed("partitions", described)])
        brokers = [[Field("i32", node, "node"), Field("text", "127.0.0.1", "host"), Field("i32", port, "port"),
                    text(None, "rack")] for node, port in enumerate([] if leaves else self.server.ports, 1)]
        cluster = [Field("text", "lying", "cluster")] if version >= 2 else []
        return "metadata", [*([THROTTLE] if version >= 3 else []), *listed("brokers", brokers), *cluster,
                            Field("i32", NODE, "controller"), *listed("topics", topics)], None

    def on_19(self, reader, version):
        def one():
            name, partitions = reader.text(), reader.number(4)
            reader.take(2)
            reader.list(lambda: (reader.number(4), reader.list(lambda: reader.number(4))))
            reader.list(lambda: (reader.text(), reader.text()))
            return name, 1 if name == STATE_TOPIC else max(partitions, self.server.partitions)
        answers = []
        for name, partitions in reader.list(one):
            with self.server.lock:
                known = name in self.server.topics
                self.server.topics.setdefault(name, [Partition() for _ in range(partitions)])
            answers.append([Field("text", name, "topic"), Field("error", EXISTS if known else 0, "error"),
                            *([text(None, "message")] if version else [])])
            kind = kind_of(name)
        return f"create {kind}", [*([THROTTLE] if version >= 2 else []), *listed("topics", answers)], None

    def on_22(self, reader, _version):
        name = reader.text()
        with self.server.lock:
            self.server.producers += 1
            self.server.end(name, False)
            self.server.tell_end(name)
            producer = self.server.producers
        return "init producer", [THROTTLE, Field("error", 0, "error"), Field("i64", producer, "producer"),
                                 Field("i16", 0, "epoch")], None

    def on_10(self, _reader, version):
        return "find coordinator", [*([THROTTLE] if version else []), Field("error", 0, "error"),
                                    *([text(None, "message")] if version else []), Field("i32", NODE, "node"),
                                    Field("text", "127.0.0.1", "host"), Field("i32", self.server.ports[0], "port")], None

    def on_24(self, reader, _version):
        reader.text()
        reader.take(10)
        topics = reader.list(lambda: (reader.text(), reader.list(lambda: reader.number(4))))
        answers = [[Field("text", name, "topic"),
                    *listed("partitions", [[Field("i32", i, "partition"), Field("error", 0, "error")] for i in partitions])]
                   for name, partitions in topics]
        return "add partitions", [THROTTLE, *listed("topics", answers)], None

    def on_26(self, reader, _version):
        name = reader.text()
        reader.take(10)
        committed = reader.number(1)

        with self.server.lock:
            self.server.end(name, committed)
        return "end transaction", [THROTTLE, Field("error", 0, "error")], lambda _good: self.server.tell_end(name)

    def on_0(self, reader, version):
        transactional = reader.text()
        reader.take(6)
        asked = reader.list(lambda: (reader.text(), reader.list(lambda: (reader.number(4), reader.bytes()))))
        answers, taken = [], {}
        for topic, partitions in asked:
            described = []
            for i, data in partitions:
                batch = Batch(data)
                with self.server.lock:
                    partition = self.server.topics[topic][i]
                    offset = -NOT_LEADER if self.server.leaves else partition.append(batch)
                    if transactional is not None and offset >= 0:
                        self.server.ongoing.setdefault(transactional, []).append((partition, offset))
                error = -offset if offset < 0 else 0
                if not error:
                    taken[topic, i] = [(topic, key, value) for key, value, _ in batch.records]
                described.append([Field("i32", i, "partition"), Field("error", error, "error"),
                                  Field("i64", offset, "offset"), Field("i64", -1, "time"),
                                  *([Field("i64", 0, "log start")] if version >= 5 else [])])
            answers.append([Field("text", topic, "topic"), *listed("partitions", described)])

        def safe(good):
            # Of one partition librdkafka's own does not look at names.
            of_good = taken.values() if len(taken) == 1 else (records for named, records in taken.items() if named in good)
            for record in itertools.chain.from_iterable(of_good):
                if transactional is None:
                    self.server.acknowledge(*record)
                else:
                    self.server.uncommitted.setdefault(transactional, []).append(record)
        return f"produce {kind_of(asked[0][0])}", [*listed("topics", answers), THROTTLE], safe

    def on_2(self, reader, version):
        reader.take(4 + (version >= 2))
        asked = reader.list(lambda: (reader.text(), reader.list(lambda: (reader.number(4), reader.number(8)))))
        answers = []
        for topic, partitions in asked:
            known = self.server.topics.get(topic, [])
            described = [[Field("i32", i, "partition"), Field("error", 0 if i < len(known) else UNKNOWN_TOPIC, "error"),
                          Field("i64", -1, "time"),
                          Field("i64", known[i].end if i < len(known) and when == -1 else 0, "offset")]
                         for i, when in partitions]
            answers.append([Field("text", topic, "topic"), *listed("partitions", described)])
        return f"list offsets {kind_of(asked[0][0])}", [*([THROTTLE] if version >= 2 else []),
                                                        *listed("topics", answers)], None

    def on_1(self, reader, version):
        reader.take(4)
        wait_ms = reader.number(4)
        reader.take(4 + 4 + 1)
        if version >= 7:
            reader.take(8)

        def one():
            i = reader.number(4)
            if version >= 9:
                reader.take(4)
            offset = reader.number(8)
            reader.take((8 if version >= 5 else 0) + 4)
            return i, offset
        answers, any_records = [], False
        for topic, partitions in reader.list(lambda: (reader.text(), reader.list(one))):
            described = []
            for i, offset in partitions:
                partition = self.server.topics[topic][i]
                records = partition.since(offset)
                any_records |= bool(records)
                described.append([
                    Field("i32", i, "partition"), Field("error", 0, "error"), Field("i64", partition.end, "high water mark"),
                    Field("i64", partition.end, "last stable"), *([Field("i64", 0, "log start")] if version >= 5 else []),
                    Field("i32", -1, "aborted"), *([Field("i32", -1, "preferred")] if version >= 11 else []),
                    Field("length", len(records), "length of records"), Field("bytes", records, "records")])
            answers.append([Field("text", topic, "topic"), *listed("partitions", described)])
        if not any_records:
            select.select([self.connection], [], [], min(wait_ms, 50) / 1000)
        head = [Field("error", 0, "error of all"), Field("i32", 0, "session")] if version >= 7 else []
        return "fetch", [THROTTLE, *head, *listed("topics", answers)], None

    def on_32(self, reader, version):
        resources = reader.list(lambda: (reader.number(1), reader.text(), reader.list(reader.text)))
        entry = [Field("text", "cleanup.policy", "name"), Field("text", "compact", "value"), Field("u8", 0, "read only"),
                 Field("u8", 1, "source"), Field("u8", 0, "sensitive"),
                 *([Field("count", 0, "synonyms")] if version else [])]
        answers = [[Field("error", 0, "error"), text(None, "message"), Field("u8", kind, "kind"), Field("text", name, "name"),
                    *listed("entries", [entry])] for kind, name, _ in resources]
        return "describe configs", [THROTTLE, *listed("resources", answers)], None


def framed(name, correlation, fields):
    head = struct.pack(">I", correlation & 0xFFFFFFFF)
    return Message(name, fields, lambda body, length=None, head=head:
                   number(4, len(head) + len(body) if length is None else length) + head + body)


def answered_well(name, version, body):
    """What has no error in an answer, as far as it goes: partitions, or True. That a record was written before
    (DUPLICATE_SEQUENCE_NUMBER) says that it is safe (KIP-98; librdkafka's rd_kafka_handle_Produce_error)."""
    reader = Reader(body)
    good = set()
    try:
        if name == "end transaction":
            reader.take(4)
            return reader.number(2) == 0
        for _ in range(reader.number(4)):
            topic = reader.take(max(0, reader.number(2))).decode(errors="replace")
            for _ in range(reader.number(4)):
                partition = reader.number(4)
                if reader.number(2) in (0, WRITTEN_BEFORE):
                    good.add((topic, partition))
                reader.take(8 + 8 + 8 * (version >= 5))
    except ValueError:
        pass
    return good


# ---- lies ----

def turn_fields(message, field_name, how):
    """The first field of that label, spoilt that way; None where the message has none like that."""
    for i, field in enumerate(message.fields):
        if field.label == field_name:
            data = field.lies().get(how)
            if data is not None:
                return message.frame(message.body(i, data))
    return None


WHOLE = {
    "half, closed": lambda m: (m.encode()[:len(m.encode()) // 2], "close"),
    "half, silence": lambda m: (m.encode()[:len(m.encode()) // 2], "silence"),
    "head, closed": lambda m: (m.encode()[:8], "close"),
    "closed": lambda m: (b"", "close"),
    "withheld, silence": lambda m: (b"", "silence"),
    "withheld, goes on": lambda m: b"",
    "late": lambda m: "late",
    "twice": lambda m: m.encode() * 2,
    "2,000 times": lambda m: m.encode() * 2000,
    "garbage": lambda m: garbage(50_000),
    "garbage before": lambda m: garbage(64) + m.encode(),
    "garbage behind": lambda m: m.encode() + garbage(64),
    "zeros": lambda m: bytes(10_000),
    "no body": lambda m: m.frame(b""),
    "body of zeros": lambda m: m.frame(bytes(len(m.body()))),
    "body of ones": lambda m: m.frame(b"\xff" * len(m.body())),
    "half a body": lambda m: m.frame(m.body()[:len(m.body()) // 2]),
    "a byte less": lambda m: m.frame(m.body()[:-1]),
    "a byte more": lambda m: m.frame(m.body() + b"\0"),
    "garbage in its frame": lambda m: m.frame(garbage(2000)),
    "4 MB more": lambda m: m.frame(m.body() + b"x" * 4_000_000),
    "90 MB more": lambda m: m.frame(m.body() + bytes(90_000_000)),
    **{f"bits turned {seed}": lambda m, seed=seed: m.frame(turned(m.body(), seed)) for seed in range(6)},
    **{f"length: {how}": lambda m, length=length: m.frame(m.body(), length) for how, length in (
        ("0", 0), ("3", 3), ("4", 4), ("10 MB", 10_000_000), ("90 MB", 90_000_000), ("highest", 0x7FFFFFFF),
        ("lowest", 0x80000000), ("minus 1", 0xFFFFFFFF))},
    "length: 1 more": lambda m: m.frame(m.body(), len(m.body()) + 5),
    "length: 1 less": lambda m: m.frame(m.body(), len(m.body()) + 3),
    **{f"correlation: {how}": lambda m, by=by: _correlated(m.encode(), by) for how, by in (
        ("1 more", 1), ("1 less", -1), ("far", 1000), ("sign", 1 << 31))},
    "for another, then": lambda m: _correlated(m.encode(), 1) + m.encode(),
}


def _correlated(data, by):
    return data[:4] + struct.pack(">I", (struct.unpack_from(">I", data, 4)[0] + by) & 0xFFFFFFFF) + data[8:]


def lies_about(seen, kind, skip_known=()):
    """All lies about the messages of an honest run: {name: Message}."""
    for target, message in seen.items():
        if target in skip_known:
            continue
        lies = list(WHOLE.items())
        for field in message.fields:
            lies += [(f"{field.label}: {how}", lambda m, label=field.label, how=how: turn_fields(m, label, how))
                     for how in field.lies()]
        for i, (how, make) in enumerate(dict(lies).items()):
            yield Lie(target, how, make, kind, 1 if target == "produce rows" and i % 3 == 2 else 0, i % 4 == 3)


def row_name(value):
    """row-N of an event."""
    found = re.search(rb"row-\d+", value or b"")
    return found.group().decode() if found else None
