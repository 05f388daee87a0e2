"""What the director does to the ways to both servers. network.py has what the tests do to packets."""

import time


class NetworkFaults:
    """Part of director.Scene."""

    def _cut(self, proxy, mode, low_s, high_s):
        proxy.set(mode)
        try:
            time.sleep(self.chance.uniform(low_s, high_s))
        finally:
            proxy.set(self.chance.choice(["pass", "reset"]))
        self.counts["cuts"] += 1

    def cut_kafka(self):
        self._cut(self.broker.proxy, "hold", 0.5, 4)

    def cut_kafka_answers(self):
        """Records arrive, acknowledgements do not; often they are lost altogether."""
        self._cut(self.broker.proxy, "hold-down", 0.5, 4)

    def cut_pg(self):
        self._cut(self.pg_proxy, "hold", 0.2, 3)

    def cut_pg_answers(self):
        self._cut(self.pg_proxy, "hold-down", 0.2, 3)

    def cut_and_kill(self):
        """What millrace was told, and what not, differs most when it dies behind a cut."""
        self.broker.proxy.set(self.chance.choice(["hold", "hold-down"]))
        try:
            time.sleep(self.chance.uniform(1, 2.5))
            self.kill()
        finally:
            self.broker.proxy.set("reset")
        self.counts["cuts"] += 1

    def reset(self):
        self.chance.choice([self.broker.proxy, self.pg_proxy]).set("reset")
        self.counts["cuts"] += 1
