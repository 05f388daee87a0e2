"""Values for the witness: PostgreSQL's text of a value, and what an event of `types = "debezium"` has for it, each made the same Python value.
Written from docs/types.md, from the other end than the verifier: it asks the server for what an event should have, this reads what the event has."""

import base64
import collections
import fractions
import json
import re
import struct

Type = collections.namedtuple("Type", "name modifier array")

MODES = {"decimal_handling_mode": "precise", "time_precision_mode": "adaptive", "binary_handling_mode": "bytes", "interval_handling_mode": "numeric",
         "hstore_handling_mode": "json"}
DAY = 86400 * 10**6
LONG = 2**63 - 1
INFINITE_DAYS = {"infinity": 2146033979, "-infinity": -2147472691}
INFINITE_MILLIS = {"infinity": 9223372036825200000, "-infinity": -9223372036832400000}
INFINITE_LONG = {"infinity": LONG, "-infinity": -LONG - 1}
INFINITE_ISO = {"date": {"+5877611-06-21Z": "infinity", "-5877611-06-22Z": "-infinity"},
                "timestamp": {"+292278994-08-16T23:00:00Z": "infinity", "-292275055-05-16T23:00:00Z": "-infinity"}}
# Without a form of their own in Debezium's events; in arrays, too, the second.
ABSENT = set("xid xid8 cid pg_lsn tid tsquery gtsvector jsonpath refcursor txid_snapshot pg_snapshot aclitem int2vector oidvector regproc regprocedure"
             " regoper regoperator regclass regcollation regtype regrole regnamespace regconfig regdictionary int4multirange int8multirange"
             " nummultirange tsmultirange tstzmultirange datemultirange".split())
ABSENT_IN_ARRAYS = set("money interval char name xml tsvector varbit point lseg path box polygon line circle".split())
UNCOMPARED = {"sparsevec"}
UNCOMPARED_IN_ARRAYS = {"sparsevec", "vector", "halfvec"}
HIDDEN = {"geometry", "geography", "vector", "halfvec", "sparsevec"}  # what an update left alone is null
EXTENSIONS = set("citext ltree isbn isbn13 issn issn13 ismn ismn13 ean13 upc hstore geometry geography vector halfvec sparsevec".split())


def days(year, month, day):
    """Since 1970, counted year by year in whole cycles of 400; the year 0 is 1 BC."""
    cycles, year = divmod(year, 400)
    leap = year % 4 == 0 and (year % 100 != 0 or year == 0)
    whole = year * 365 + (year + 3) // 4 - (max(year - 1, 0)) // 100
    before = (0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334)[month - 1]
    return cycles * 146097 + whole + before + (leap and month > 2) + day - 1 - 719528


def clock(text):
    hours, minutes, seconds = text.split(":")
    return (int(hours) * 3600 + int(minutes) * 60) * 10**6 + int(fractions.Fraction(seconds) * 10**6)


def zone(text):
    """Of +HH[:MM[:SS]], or Z."""
    if text in ("Z", ""):
        return 0
    parts = [int(part) for part in text[1:].split(":")] + [0, 0]
    return (1 if text[0] == "+" else -1) * (parts[0] * 3600 + parts[1] * 60 + parts[2]) * 10**6


def moment(text):
    """Microseconds since 1970, of PostgreSQL's text or ISO 8601, or an infinity."""
    if "infinity" in text:
        return text
    year, month, day, time, shift, era = re.fullmatch(r"([+-]?\d{4,})-(\d\d)-(\d\d)(?:[ T]([\d:.]+))?(Z|[+-][\d:]+)?( BC)?", text).groups()
    year = 1 - int(year) if era else int(year)
    return days(year, int(month), int(day)) * DAY + (clock(time) if time else 0) - zone(shift or "")


def timetz(text):
    time, shift = re.fullmatch(r"([\d:.]+)(Z|[+-][\d:]+)", text).groups()
    micros = clock(time)
    return micros if micros == DAY and zone(shift) == 0 else (micros - zone(shift)) % DAY


def span(text):
    """(months, days, microseconds) of an interval."""
    if "infinity" in text:
        return text
    months = whole_days = micros = 0
    for number, unit in re.findall(r"([+-]?\d+) (year|mon|day)", text):
        months += int(number) * {"year": 12, "mon": 1, "day": 0}[unit]
        whole_days += int(number) if unit == "day" else 0
    time = re.search(r"([+-]?)(\d+:\d\d:\d\d(?:\.\d+)?)", text)
    if time:
        micros = clock(time[2]) * (-1 if time[1] == "-" else 1)
    return months, whole_days, micros


def iso_span(text):
    if "infinity" in text:
        return text
    parts = re.fullmatch(r"P(-?\d+)Y(-?\d+)M(-?\d+)DT(-?\d+)H(-?\d+)M(-?)(\d+(?:\.\d+)?)S", text).groups()
    seconds = fractions.Fraction(parts[6]) * (-1 if parts[5] else 1)
    return int(parts[0]) * 12 + int(parts[1]), int(parts[2]), int((int(parts[3]) * 3600 + int(parts[4]) * 60 + seconds) * 10**6)


def real(text, short):
    value = float(text)
    try:
        return struct.pack("<f" if short else "<d", value)
    except OverflowError:  # more than a float holds, as nothing that PostgreSQL has
        return text


def number(text):
    return None if re.search("NaN|NAN|nfinity", text) else fractions.Fraction(text)


def clamped(value):
    return max(-LONG - 1, min(LONG, value))


def numbers(text):
    return [real(one, False) for one in re.findall(r"[^][(){}<>,]+", text)]


def of_wkb(text):
    """The numbers of a point, a line or a ring."""
    data = base64.b64decode(text, validate=True)
    assert data[0] == 1
    kind = struct.unpack_from("<I", data, 1)[0]
    at = {1: 5, 2: 9, 3: 13}[kind]
    assert kind == 1 or struct.unpack_from("<I", data, at - 4)[0] * 16 == len(data) - at
    return kind, [data[i:i + 8] for i in range(at, len(data), 8)]


def shape(name, text):
    """What an event has of PostgreSQL's text."""
    points = numbers(text)
    if name == "path":
        return 2, points, "false" if text[0] == "[" else "true"
    if name == "polygon":
        return 3, points + points[:2], None
    if name == "box":
        high, low = points[:2], points[2:]
        return 3, high + [high[0], low[1]] + low + [low[0], high[1]] + high, None
    return {"point": 1, "lseg": 2}.get(name), points, None


def event_shape(name, value):
    if name == "line":
        return None, [real(str(value[part]), False) for part in "abc"], None
    if name == "circle":
        return None, event_shape("point", value["center"])[1] + [real(str(value["radius"]), False)], None
    kind, points = of_wkb(value["wkb"])
    assert value["srid"] is None
    if name == "point":
        assert [real(str(value[part]), False) for part in "xy"] == points
        return kind, points, None
    assert value["extensions"].get("type") == name
    return kind, points, value["extensions"].get("closed")


def hstore(text):
    pairs = re.findall(r'"((?:[^"\\]|\\.)*)"=>(?:"((?:[^"\\]|\\.)*)"|(NULL))', text)
    plain = lambda one: re.sub(r"\\(.)", r"\1", one)  # noqa: E731
    return {plain(key): None if null else plain(value) for key, value, null in pairs}


def elements(text, delimiter):
    """Lists in lists of an array's text."""
    at = text.index("=") + 1 if text.startswith("[") else 0

    def one(at):
        if text[at] == "{":
            found = []
            at += 1
            while text[at] != "}":
                at += text[at] == delimiter
                item, at = one(at)
                found.append(item)
            return found, at + 1
        if text[at] == '"':
            end = re.compile(r'"((?:[^"\\]|\\.)*)"', re.S).match(text, at)
            return re.sub(r"\\(.)", r"\1", end[1], flags=re.S), end.end()
        end = re.compile(rf"[^{delimiter}}}]*").match(text, at)
        return None if end[0] == "NULL" else end[0], end.end()
    return one(at)[0]


class Values:
    """Of a configuration's modes."""

    def __init__(self, modes):
        self.modes = {**MODES, **modes}
        self.is_flat = "avro" in modes  # arrays are: all elements in one list

    def unit(self, kind):
        """Of time and timestamp: microseconds in it; 0: text."""
        mode = self.modes["time_precision_mode"]
        coarse = 0 <= kind.modifier <= 3 and (mode == "adaptive" or kind.name == "timestamp")
        return {"connect": 1000, "isostring": 0, "microseconds": 1, "nanoseconds": fractions.Fraction(1, 1000)}.get(mode, 1000 if coarse else 1)

    def is_absent(self, kind):
        return kind.name in ABSENT or kind.name == "?" or kind.array and kind.name in ABSENT_IN_ARRAYS

    @staticmethod
    def is_compared(kind):
        return kind.name not in (UNCOMPARED_IN_ARRAYS if kind.array else UNCOMPARED)

    def of_table(self, kind, text):
        """What an event is expected to have, as a Python value."""
        if text is None:
            return None
        if kind.array:
            return self.mapped(kind, elements(text, ":" if kind.name in ("geometry", "geography") else ","), self.of_table)
        return self.table_value(kind, text)

    def of_event(self, kind, value):
        if value is None:
            return None
        if isinstance(value, bool):
            value = "t" if value else "f"
        if kind.array:
            assert isinstance(value, list)
            return self.mapped(kind, value, self.of_event)
        return self.event_value(kind, value)

    def mapped(self, kind, items, what):
        if self.is_flat:
            items = [one for item in items for one in (self.mapped(kind, item, lambda _, one: one) if isinstance(item, list) else [item])]
        return [self.mapped(kind, item, what) if isinstance(item, list) else what(kind._replace(array=False), item) for item in items]

    def table_value(self, kind, text):  # pylint: disable=too-many-return-statements,too-many-branches
        name = kind.name
        if name in ("float4", "float8"):
            return real(text, name == "float4")
        if name in ("numeric", "money"):
            text = re.sub(r"[$,]", "", text)
            if self.modes["decimal_handling_mode"] == "double":
                return real(text, False)
            if self.modes["decimal_handling_mode"] == "string":
                return {"NaN": "NAN", "Infinity": "POSITIVE_INFINITY", "-Infinity": "NEGATIVE_INFINITY"}.get(text, text)
            return number(text)
        if name == "bytea":
            return bytes.fromhex(text[2:])
        if name in ("bit", "varbit"):
            return (text == "1" if text else None) if kind.modifier == 1 else int(text or "0", 2)
        if name == "date":
            if "infinity" in text:
                return INFINITE_DAYS[text] if self.unit(kind._replace(name="timestamp")) else text
            return moment(text) // DAY
        if name == "time":
            return clock(text) % (2 * DAY if self.unit(kind) else DAY) // (self.unit(kind) or 1)
        if name == "timetz":
            return timetz(text)
        if name == "timestamp":
            unit, value = self.unit(kind), moment(text)
            if isinstance(value, str):
                return INFINITE_MILLIS[value] if unit == 1000 else INFINITE_LONG[value] if unit else value
            if not unit or unit == 1000:
                return value // (unit or 1)
            return clamped(value) if unit == 1 else value * 1000 if abs(value * 1000) <= LONG else None
        if name == "timestamptz":
            return moment(text)
        if name == "interval":
            value = span(text)
            if self.modes["interval_handling_mode"] == "string":
                return value
            if isinstance(value, str):
                return INFINITE_LONG[value]
            return clamped(value[0] * 2629800 * 10**6 + value[1] * DAY + value[2])
        if name in ABSENT_IN_ARRAYS and name not in ("char", "name", "xml", "tsvector"):
            return shape(name, text)
        if name == "hstore":
            return hstore(text)
        if name in ("geometry", "geography"):
            return bytes.fromhex(text)
        if name in ("vector", "halfvec"):
            return [real(one, name == "halfvec") for one in text.strip("[]").split(",")]
        return text

    def event_value(self, kind, value):  # pylint: disable=too-many-return-statements,too-many-branches
        name = kind.name
        if name in ("float4", "float8"):
            return real(str(value), name == "float4")
        if name in ("numeric", "money"):
            return self.decimal(kind, value)
        if name == "bytea":
            mode = self.modes["binary_handling_mode"]
            return bytes.fromhex(value) if mode == "hex" else base64.b64decode(value, b"-_" if mode.endswith("safe") else b"+/", validate=True)
        if name in ("bit", "varbit"):
            return value == "t" if kind.modifier == 1 else int.from_bytes(base64.b64decode(value, validate=True), "little")
        if name == "date":
            if self.unit(kind._replace(name="timestamp")):
                return int(value)
            return INFINITE_ISO["date"].get(value) or moment(value) // DAY
        if name == "time":
            return int(value) if self.unit(kind) else clock(value.removesuffix("Z"))
        if name == "timetz":
            assert value.endswith("Z")
            return timetz(value)
        if name == "timestamp":
            if self.unit(kind):
                return int(value)
            assert value.endswith("Z")
            return INFINITE_ISO["timestamp"].get(value) or moment(value)
        if name == "timestamptz":
            digits = re.search(r"(?:\.(\d+))?Z$", value)
            assert "infinity" in value or len(digits[1] or "") == (kind.modifier if kind.modifier >= 0 else 6)
            return moment(value)
        if name == "interval":
            return iso_span(value) if self.modes["interval_handling_mode"] == "string" else int(value)
        if name in ABSENT_IN_ARRAYS and name not in ("char", "name", "xml", "tsvector"):
            return event_shape(name, value)
        if name == "hstore":
            return value if self.modes["hstore_handling_mode"] == "map" else json.loads(value)
        if name in ("geometry", "geography"):
            data = base64.b64decode(value["wkb"], validate=True)
            assert value["srid"] is None if not data[4] & 32 else int(value["srid"]) == struct.unpack_from("<i", data, 5)[0]
            return data
        if name in ("vector", "halfvec"):
            return [real(str(one), name == "halfvec") for one in value]
        return value

    def decimal(self, kind, value):
        mode = self.modes["decimal_handling_mode"]
        if mode != "precise":
            return real(value, False) if mode == "double" else value
        if isinstance(value, dict) and "text" in value:  # in a key
            return value["text"]
        scale = 2 if kind.name == "money" else ((kind.modifier - 4 & 0x7FF) ^ 0x400) - 0x400 if kind.modifier >= 0 else None
        if scale is None:
            scale, value = int(value["scale"]), value["value"]
        return fractions.Fraction(int.from_bytes(base64.b64decode(value, validate=True), "big", signed=True), 10**max(scale, 0))


def placeholders(text):
    coded = base64.b64encode(text.encode()).decode()
    return text, coded, [text], [coded], [str(byte) for byte in text.encode()]
