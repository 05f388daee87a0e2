"""A TCP proxy that breaks the network on request. A process of its own, so that a busy test does not slow it.

    python proxy.py LISTEN_PORT TARGET_PORT

One command a line on standard input; each is answered with one line. It ends when its input does.

    pass       forward both ways, also what was held back meanwhile
    hold       forward nothing: a black hole, connections stay open, new ones are accepted and stay silent
    hold-down  forward what clients send, hold back what the server answers (acknowledgements are late)
    delay N    forward both ways, each piece N ms after it came; in order, at any rate
    rate N     forward both ways, N kB a second in all
    target N   new connections lead to port N
    reset      close every connection with a reset; what was held back is lost; then as pass
"""

import collections
import selectors
import socket
import struct
import sys
import time

CHUNK = 1 << 18
SHARES = 100           # of a second's bytes, one at a time
PENDING_MAX = 1 << 20  # then the side that sends is no longer read,
FAR_MAX = 1 << 26      # or, where pieces are on a long way, then


class Side:
    """One socket of a pair. `pending` is what its peer sent for it."""

    def __init__(self, sock, is_client):
        self.sock, self.is_client = sock, is_client
        self.peer = None
        self.pending = bytearray()
        self.way = collections.deque()  # of what is on a long way: when it arrives, and the piece
        self.connecting = False


class Proxy:
    def __init__(self, listen_port, target_port):
        self.target = ("127.0.0.1", target_port)
        self.mode = "pass"
        self.delay_s = self.rate = 0
        self.sides = set()
        self.selector = selectors.DefaultSelector()
        self.listener = socket.socket()
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.listener.bind(("127.0.0.1", listen_port))
        self.listener.listen(128)
        self.listener.setblocking(False)
        self.selector.register(self.listener, selectors.EVENT_READ)
        self.selector.register(sys.stdin, selectors.EVENT_READ)

    def may_pass(self, side):
        """Whether what waits for that side may go to it."""
        return self.mode in ("pass", "delay", "rate") or (self.mode == "hold-down" and not side.is_client)

    def watch(self, side):
        if side not in self.sides:
            return
        events = 0
        if side.connecting or (side.pending and self.may_pass(side)):
            events |= selectors.EVENT_WRITE
        far = sum(len(piece) for _, piece in side.peer.way)
        if not side.connecting and len(side.peer.pending) < PENDING_MAX and far < FAR_MAX:
            events |= selectors.EVENT_READ
        known = side.sock in self.selector.get_map()
        if events and known:
            self.selector.modify(side.sock, events, side)
        elif events:
            self.selector.register(side.sock, events, side)
        elif known:
            self.selector.unregister(side.sock)

    def watch_all(self):
        for side in list(self.sides):
            self.watch(side)

    def accept(self):
        client = Side(self.listener.accept()[0], True)
        server = Side(socket.socket(), False)
        client.peer, server.peer = server, client
        server.connecting = True
        for side in (client, server):
            side.sock.setblocking(False)
            side.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.sides.add(side)
        server.sock.connect_ex(self.target)
        self.watch(client)
        self.watch(server)

    def close(self, side, reset=False):
        for one in (side, side.peer):
            if one not in self.sides:
                continue
            self.sides.discard(one)
            if one.sock in self.selector.get_map():
                self.selector.unregister(one.sock)
            if reset:
                one.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            one.sock.close()

    def read(self, side):
        data = side.sock.recv(CHUNK)
        if data and (self.delay_s or side.peer.way):
            side.peer.way.append((time.monotonic() + self.delay_s, data))
        elif data:
            side.peer.pending += data
            self.write(side.peer)
        else:
            # What the peer has not got yet goes out first, if it may.
            self.write(side.peer)
            self.close(side)
            return
        self.watch(side)
        self.watch(side.peer)

    def arrive(self):
        """What has come a long way by now. The seconds until the next piece does; None: none is on its way."""
        now, next_s = time.monotonic(), None
        for side in list(self.sides):
            arrived = False
            while side.way and side.way[0][0] <= now:
                side.pending += side.way.popleft()[1]
                arrived = True
            if side.way:
                left_s = side.way[0][0] - now
                next_s = left_s if next_s is None else min(next_s, left_s)
            if arrived:
                self.serve(side, 0 if side.connecting else selectors.EVENT_WRITE)
        return next_s

    def write(self, side):
        if side.connecting:
            return
        while side.pending and self.may_pass(side):
            piece = side.pending[:self.rate or CHUNK]
            try:
                sent = side.sock.send(piece)
            except BlockingIOError:
                return
            del side.pending[:sent]
            if self.rate:
                time.sleep(sent / self.rate / SHARES)
                return  # the others have their turn

    def serve(self, side, events):
        try:
            if side.connecting and events & selectors.EVENT_WRITE:
                if side.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) != 0:
                    self.close(side)
                    return
                side.connecting = False
            if events & selectors.EVENT_WRITE:
                self.write(side)
                self.watch(side)
                self.watch(side.peer)
            if side in self.sides and events & selectors.EVENT_READ:
                self.read(side)
        except BlockingIOError:
            pass
        except OSError:
            self.close(side)

    def command(self, text):
        if text == "reset":
            for side in list(self.sides):
                self.close(side, reset=True)
        if text.startswith("target "):
            self.target = ("127.0.0.1", int(text.split()[1]))
        else:
            self.mode = "pass" if text == "reset" else text.split()[0]
            self.delay_s = float(text.split()[1]) / 1000 if self.mode == "delay" else 0
            self.rate = int(text.split()[1]) * 1000 // SHARES if self.mode == "rate" else 0
        self.watch_all()
        print("done", flush=True)

    def run(self):
        print("listening", flush=True)
        while True:
            for key, events in self.selector.select(self.arrive()):
                if key.fileobj is self.listener:
                    self.accept()
                elif key.fileobj is sys.stdin:
                    line = sys.stdin.readline()
                    if not line:
                        return
                    self.command(line.strip())
                else:
                    self.serve(key.data, events)


if __name__ == "__main__":
    Proxy(int(sys.argv[1]), int(sys.argv[2])).run()
