"""A PostgreSQL that can lie: the real start-up and query protocol, answers to what millrace asks, and ways to spoil them.

It listens on loopback, one thread a connection. `Lie` says which answer is spoilt and how; `lied` is set once that was done.
The protocol: PostgreSQL documentation, "Message Formats"."""

import base64
import re
import socket
import ssl
import struct
import threading
import time

TEXT, BOOL, NUMBER = 25, 16, 20
PARAMETERS = {"server_version": "15.18", "server_encoding": "UTF8", "client_encoding": "UTF8", "DateStyle": "ISO, MDY",
              "integer_datetimes": "on", "standard_conforming_strings": "on", "TimeZone": "UTC"}

# What millrace asks, by a part of its text, in the order in which a start asks it; and what an honest server answers.
QUESTIONS = {
    "lock": (r"pg_try_advisory_lock", [["t"]]),
    "identity": (r"^IDENTIFY_SYSTEM", [["7000000000000000001", "1", "0/2000", "shop"]]),
    "state": (r"current_setting\('wal_level'\)",
              [["logical", "UTF8", None, None, "4711", "t", "logical", "pgoutput", "shop", None, "reserved", "0", "f", "0/1000",
                None, None, None, None, "t", "t", "t", "f"]]),
    "slots": (r"^SELECT slot_name, confirmed_flush_lsn", [["shop", "0/1000", None]]),
    "young": (r"^SELECT EXISTS \(SELECT FROM pg_publication p", [["f"]]),
    "tables": (r"SELECT c\.relkind, c\.relpersistence", [["r", "p", "d", "t", "t", "0", None, None, None]]),
    "unlogged parts": (r"fits AS \(SELECT DISTINCT", [["0", None]]),
    "unlisted": (r"FROM unlisted", [["0", None, "0", "0", "0", None, "0", None, "0", None, "0", None]]),
    "filters": (r"AS filter", [["public", "t", "(id > 0)", "id, v"]]),
    "end": (r"^SELECT CASE WHEN pg_is_in_recovery", [["0/2000", "0"]]),
    "captured": (r"WHEN l\.oid", [["16385", "2", "t", "0", None, None, None]]),
    "keys": (r"SELECT s\.\*, t\.\*", [["0/2000"] + [None] * 15]),
    "form": (r"^SELECT 0::bigint AS oid", [["0", None, None, "0", None, None, None, "t", "t", "t", "t", "f", "f"]]),
    "types": (r"t\.typbasetype", [["50000", "25", "-1", "0", "d", "mood"]]),
}
# Each way to spoil an answer: a name, and rows from rows.
SHAPES = {
    "no rows": lambda rows: [],
    "a row too many": lambda rows: rows + rows,
    "a column less": lambda rows: [row[:-1] for row in rows],
    "a column more": lambda rows: [row + ["x"] for row in rows],
    "nulls": lambda rows: [[None] * len(row) for row in rows],
    "wrong types": lambda rows: [["¿?"] * len(row) for row in rows],
    "long values": lambda rows: [["9" * 100_000] * len(row) for row in rows],
    "bytes that are not text": lambda rows: [[b"\xff\xfe\x80"] * len(row) for row in rows],
}


def message(kind, body=b""):
    return kind.encode() + struct.pack("!I", len(body) + 4) + body


def row_description(count):
    columns = b"".join(b"c\0" + struct.pack("!IHIhiH", 0, 0, TEXT, -1, -1, 0) for _ in range(count))
    return message("T", struct.pack("!H", count) + columns)


def data_row(values):
    body = struct.pack("!H", len(values))
    for value in values:
        if value is None:
            body += struct.pack("!i", -1)
        else:
            value = value if isinstance(value, bytes) else value.encode()
            body += struct.pack("!i", len(value)) + value
    return message("D", body)


def error(sqlstate, text):
    return message("E", b"".join(f"{field}{value}\0".encode() for field, value in
                                 (("S", "FATAL"), ("V", "FATAL"), ("C", sqlstate), ("M", text))) + b"\0")


READY = message("Z", b"I")
NOTIFICATION = message("A", struct.pack("!I", 1) + b"channel\0" + b"x" * 4000 + b"\0")


class FakePostgres:
    """`lie`: (question, how); `how` is a name of SHAPES or a method that is called spoil_<how>. For `login` see below."""

    def __init__(self, question=None, how=None, login="trust"):
        self.question, self.how, self.login = question, how, login
        self.lied = threading.Event()
        self.connections = self.flooded = 0
        self.asked = []
        self.asked_on, self.asked_of_sender = {}, []  # by connection; of the one that streams
        self.passwords = []
        self.start_up = []
        self.server = socket.create_server(("127.0.0.1", 0))
        self.port = self.server.getsockname()[1]
        self.stopped = False
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stopped = True
        self.server.close()

    def dsn(self, host="127.0.0.1"):
        return f"postgresql://someone:fake-secret@{host}:{self.port}/shop"

    def _accept(self):
        while not self.stopped:
            try:
                connection, _ = self.server.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection):
        try:
            with connection:
                self._talk(connection)
        except (OSError, EOFError, ssl.SSLError):
            pass

    # ---- start-up ----

    def _take(self, connection, count):
        data = b""
        while len(data) < count:
            more = connection.recv(count - len(data))
            if not more:
                raise EOFError
            data += more
        return data

    def _take_message(self, connection):
        kind, length = struct.unpack("!cI", self._take(connection, 5))
        return kind.decode(), self._take(connection, length - 4)

    def _talk(self, connection):
        while True:
            length, code = struct.unpack("!II", self._take(connection, 8))
            body = self._take(connection, length - 8)
            if code == 80877103:  # SSLRequest
                connection.sendall(b"N")
            elif code == 80877102:  # CancelRequest
                return
            else:
                break
        self.start_up.append(body.decode().split("\0"))
        if not self._log_in(connection):
            return
        connection.sendall(message("R", struct.pack("!I", 0))
                           + b"".join(message("S", f"{name}\0{value}\0".encode()) for name, value in PARAMETERS.items())
                           + message("K", struct.pack("!II", 4711, 1)) + READY)
        while True:
            kind, body = self._take_message(connection)
            if kind == "Q":
                self._answer(connection, body[:-1].decode())
            elif kind == "X":
                return

    def _log_in(self, connection):
        if self.login == "cleartext":
            connection.sendall(message("R", struct.pack("!I", 3)))
            self.passwords.append(self._take_message(connection)[1].rstrip(b"\0").decode())
        elif self.login == "scram":
            return self._endless_scram(connection)
        elif self.login == "talk":
            number = 0
            while True:
                number += 1
                connection.sendall(message("R", struct.pack("!I", 0)) if number == 1 else
                                   message("S", f"p{number}\0".encode() + b"v" * 4000 + b"\0"))
                self.lied.set()
        elif self.login == "silence":
            self.lied.set()
            self._sleep()
        elif self.login != "trust":
            connection.sendall(error(*self.login))
            return False
        return True

    def _endless_scram(self, connection):
        """An honest server names 4096 iterations."""
        connection.sendall(message("R", struct.pack("!I", 10) + b"SCRAM-SHA-256\0\0"))
        first = self._take_message(connection)[1]
        nonce = re.search(rb"r=([^,]+)", first).group(1).decode()
        salt = base64.b64encode(b"salt" * 4).decode()
        connection.sendall(message("R", struct.pack("!I", 11) + f"r={nonce}xyz,s={salt},i=2000000000".encode()))
        self.lied.set()
        self._sleep()
        return False

    def _sleep(self):
        while not self.stopped:
            time.sleep(0.1)

    # ---- questions ----

    def _answer(self, connection, text):
        self.asked.append(text)
        self.asked_on.setdefault(connection, []).append(text)
        name = next((name for name, (pattern, _) in QUESTIONS.items() if re.search(pattern, text)), None)
        if text.startswith("START_REPLICATION"):
            self.asked_of_sender = self.asked_on[connection]
            self._stream(connection)
            return
        rows = QUESTIONS[name][1] if name else []
        if name is not None and name == self.question:
            if self.how not in SHAPES:
                getattr(self, "spoil_" + self.how)(connection, rows)
                self.lied.set()
                return
            rows = SHAPES[self.how](rows)
            self._send_rows(connection, rows, len(QUESTIONS[name][1][0]))
            self.lied.set()
            return
        self._send_rows(connection, rows, len(rows[0]) if rows else 0)

    def _send_rows(self, connection, rows, columns):
        columns = len(rows[0]) if rows else columns
        connection.sendall((row_description(columns) if columns else b"") + b"".join(map(data_row, rows))
                           + message("C", f"SELECT {len(rows)}\0".encode()) + READY)

    def _stream(self, connection):
        connection.sendall(message("W", struct.pack("!BH", 0, 0)))
        if self.question == "stream":
            self.lied.set()
            getattr(self, "spoil_" + self.how)(connection, [["x"]])
        while True:
            connection.sendall(message("d", struct.pack("!cQQB", b"k", 0x2000, 0, 0)))
            time.sleep(0.2)

    # ---- lies that are no rows ----

    def spoil_endless_rows(self, connection, rows):
        connection.sendall(row_description(len(rows[0])))
        row = data_row(rows[0]) * 500
        self._flood(connection, row)

    def spoil_one_endless_row(self, connection, rows):
        connection.sendall(row_description(len(rows[0])))
        connection.sendall(b"D" + struct.pack("!IHi", 1_500_000_000, len(rows[0]), 1_400_000_000))
        self._flood(connection, b"x" * 16_000_000)

    def spoil_notifications(self, connection, _):
        self._flood(connection, NOTIFICATION * 100)

    def spoil_notices(self, connection, _):
        notice = message("N", b"SNOTICE\0C00000\0M" + b"x" * 4000 + b"\0\0")
        self._flood(connection, notice * 100)

    def spoil_wide_relations(self, connection, _):
        def column(name, is_key):
            return struct.pack("!B63sBIi", is_key, name.encode().ljust(63, b"x"), 0, TEXT, -1)
        columns = b"".join(column(f"c{n:04}", False) for n in range(1, 1600))  # one more differs, or they would be shared
        begin = struct.pack("!cQQI", b"B", 0x2000, 0, 4711)
        relations = (struct.pack("!cI", b"R", 20000 + n) + b"public\0t\0d"
                     + struct.pack("!H", 1600) + column(f"k{n:04}", True) + columns for n in range(1500))
        for data in (begin, *relations):
            connection.sendall(message("d", struct.pack("!cQQQ", b"w", 0x2000, 0x2000, 0) + data))

    def spoil_copy(self, connection, _):
        connection.sendall(message("H", struct.pack("!BH", 0, 0)) + message("d", b"x" * 100) * 10)

    def spoil_results_without_end(self, connection, _):
        self._flood(connection, message("C", b"SELECT 0\0") * 1000)

    def spoil_error(self, connection, _):
        connection.sendall(error("XX000", "no") + READY)

    def spoil_silence(self, connection, _):
        self.lied.set()
        self._sleep()

    def spoil_nonsense(self, connection, _):
        connection.sendall(b"\x00\xff" * 5000)

    def spoil_hang_up(self, connection, _):
        connection.shutdown(socket.SHUT_RDWR)

    def _flood(self, connection, data):
        """Until the other side has had enough, or 3 GB."""
        self.lied.set()
        for _ in range(3_000_000_000 // len(data)):
            connection.sendall(data)
            self.flooded += len(data)
