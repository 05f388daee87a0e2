"""Somebody who goes on, beside what a test does."""

import threading

from kit import connect, eventually


class Endless:
    """`write(connection, number)` on each of `count` threads, 0, 1, …: a generator that yields wherever it may end, and for how many
    seconds it rests there. It ends with the block, or by `end`."""

    def __init__(self, database, write, count=1):
        self.ends, self.rounds = threading.Event(), 0
        self.threads = [threading.Thread(target=self._go, args=(database, write, number), daemon=True) for number in range(count)]
        for thread in self.threads:
            thread.start()

    def _go(self, database, write, number):
        with connect(database.name, port=database.port) as connection:
            for rest_s in write(connection, number):
                self.rounds += 1
                if self.ends.wait(rest_s or 0):
                    return

    def more(self, count):
        """So many more rounds."""
        enough = self.rounds + count
        eventually(lambda: self.rounds >= enough or not self.are_alive(), 120, f"{count} more rounds of the writers")
        assert self.are_alive()  # none has failed

    def are_alive(self):
        return all(thread.is_alive() for thread in self.threads)

    def end(self, more=1):
        self.more(more)
        self.ends.set()
        for thread in self.threads:
            thread.join(60)
            assert not thread.is_alive()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.ends.set()
        for thread in self.threads:
            thread.join(60)
