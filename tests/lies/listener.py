"""What the lying servers have in common: ports, and a thread for each connection."""

import socket
import threading


class Listener:
    """Who inherits has `_serve(connection)`, and calls `listen` once it is ready to; `ports` are those that it got."""

    def listen(self, count=1, backlog=64, host="127.0.0.1"):
        self.stopped, self.open = False, []
        self.servers = [socket.create_server((host, 0), backlog=backlog) for _ in range(count)]
        self.ports = [server.getsockname()[1] for server in self.servers]
        for server in self.servers:
            threading.Thread(target=self._accept, args=(server,), daemon=True).start()

    def close(self):
        self.stopped = True
        for server in self.servers:
            server.close()

    def cut(self):
        """Ends all connections that there are."""
        while self.open:
            try:
                self.open.pop().shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # it has ended

    def _accept(self, server):
        while not self.stopped:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            self.open.append(connection)
            self._accepted()
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _accepted(self):
        """One by one, before the connection is served."""
