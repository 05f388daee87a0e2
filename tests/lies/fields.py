"""Messages as lists of fields, and what can be wrong about each: the part of a lie that knows no protocol.

A lie changes one thing of one message. `Message.lies` lists them by name; `Message.told` makes the bytes."""

import random
import struct

SIGNED = {"i8": 1, "i16": 2, "i32": 4, "i64": 8, "error": 2, "count": 4}
PLAIN = {"u8": 1, "u16": 2, "u32": 4, "u64": 8, "lsn": 8, "length": 4, "count16": 2, "time": 8}
FORMS = {1: ">B", 2: ">H", 4: ">I", 8: ">Q"}


def number(size, value):
    return struct.pack(FORMS[size], value & (1 << 8 * size) - 1)


class Field:
    """kind: a number of SIGNED or PLAIN, `char` (one byte), `name` (ends with a zero), `bytes`, or `text` (Kafka's
    string, its length before it)."""

    def __init__(self, kind, value, label, plain=False):
        self.kind, self.value, self.label = kind, value, label
        self.plain = plain  # nobody lies about it

    def encode(self):
        size = SIGNED.get(self.kind) or PLAIN.get(self.kind)
        if size:
            return number(size, self.value)
        value = self.value if isinstance(self.value, bytes) else self.value.encode()
        if self.kind == "text":
            return number(2, len(value)) + value
        return value + b"\0" if self.kind == "name" else value

    def lies(self):
        """{name: bytes}, none of them the truth."""
        size = SIGNED.get(self.kind) or PLAIN.get(self.kind)
        told = self.numbers(size) if size else getattr(self, "lies_" + self.kind)()
        return {} if self.plain else {how: data for how, data in told.items() if data != self.encode()}

    def numbers(self, size):
        top = 1 << 8 * size - 1
        values = {"0": 0, "1": 1, "minus 1": -1, "highest": top - 1, "lowest": top, "1 more": self.value + 1,
                  "1 less": self.value - 1}
        if self.kind == "lsn":
            values = {"0": 0, "backward": self.value - 0x180, "highest": -1, "sign": top, "far": self.value + (1 << 40)}
        if self.kind == "error":
            values = {f"error {code}": code for code in (*range(-1, 108), 9999, -32768)}
        return {how: number(size, value) for how, value in values.items()}

    def lies_char(self):
        return {f"{other!r}": other for other in (b"\0", b"\xff", b"Z", b"n", b"t", b"K", b"O", b"E")}

    def lies_name(self):
        return {"empty": b"\0", "without end": self.encode()[:-1], "long": b"x" * 70_000 + b"\0", "no text": b"\xff\xfe\x80\0",
                "quotes": b"a\"b'c\\d\n\x01\0"}

    def lies_bytes(self):
        value = self.encode()
        return {"zeros": bytes(len(value)), "ones": b"\xff" * len(value), "shorter": value[:-1], "longer": value + b"x",
                "quotes": (b'","evil":1,"' * len(value))[:len(value)], "none": b""}

    def lies_text(self):
        value = self.encode()
        return {"empty": b"\0\0", "null": b"\xff\xff", "length huge": b"\x7f\xff" + value[2:],
                "length lowest": b"\x80\x00" + value[2:], "long": b"\x75\x30" + b"x" * 30_000,
                "no text": number(2, len(value) - 2) + b"\xff" * (len(value) - 2),
                "zeros": number(2, len(value) - 2) + bytes(len(value) - 2)}


class Message:
    """What a server says at one place. `frame(body, length=None)` puts head and length before it."""

    def __init__(self, name, fields, frame):
        self.name, self.fields, self.frame = name, fields, frame

    def body(self, changed=None, by=b""):
        return b"".join(by if i == changed else field.encode() for i, field in enumerate(self.fields))

    def encode(self):
        return self.frame(self.body())

    def field_lies(self):
        """(name, bytes) of the whole message. The frame is right, so that the reader gets as far as the field."""
        for i, field in enumerate(self.fields):
            for how, data in field.lies().items():
                yield f"{field.label}: {how}", lambda i=i, data=data: self.frame(self.body(i, data))

    def body_lies(self):
        body = self.body()
        yield "body of zeros", lambda: self.frame(bytes(len(body)))
        yield "body of ones", lambda: self.frame(b"\xff" * len(body))
        yield "no body", lambda: self.frame(b"")
        yield "half a body", lambda: self.frame(body[:len(body) // 2])
        yield "a byte less", lambda: self.frame(body[:-1])
        yield "a byte more", lambda: self.frame(body + b"\0")
        yield "4 MB more", lambda: self.frame(body + b"x" * 4_000_000)
        for seed in range(6):
            yield f"bits turned {seed}", lambda seed=seed: self.frame(turned(body, seed))


def turned(data, seed):
    """Some bits the other way round."""
    chance = random.Random(f"{seed} {len(data)}")
    data = bytearray(data)
    for _ in range(min(len(data), 1 + seed)):
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    return bytes(data)


def garbage(size, seed=0):
    return random.Random(seed).randbytes(size)
