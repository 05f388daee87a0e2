"""A network of millrace's own, in which packets can be dropped: a true black hole, where no side hears of the other's
end. A proxy can't make that one: it answers for who is away.

Needs the right to make network namespaces and interfaces (root, and in a container CAP_NET_ADMIN and CAP_SYS_ADMIN).
Nothing has to be cleaned up: when the process that holds the namespace ends, interfaces, addresses and rules go."""

import os
import random
import subprocess

from servers import end_with_parent

RULES = """
table inet cut {
    chain input { type filter hook input priority 0; }
    chain output { type filter hook output priority 0; }
}
"""


class Network:
    """`inside`: the prefix of commands that run in it. They reach this machine as `here`."""

    def __init__(self):
        # From the range for tests between networks (RFC 2544), which is routed nowhere.
        net = random.SystemRandom().randrange(0, 1 << 15)
        base = f"198.{18 + net // (1 << 14)}.{net // 64 % 256}."
        first = net % 64 * 4
        self.here, self.there = f"{base}{first + 1}", f"{base}{first + 2}"
        self.keeper = subprocess.Popen(["unshare", "--net", "sh", "-c", "echo made && exec sleep infinity"],
                                       stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                       preexec_fn=end_with_parent)
        try:
            self._needs(self.keeper.stdout.readline() == "made\n", "a network namespace", self._reason)
            self.inside = ["nsenter", "--target", str(self.keeper.pid), "--net"]
            name = f"mr{self.keeper.pid}"
            self._run("ip", "link", "add", name, "type", "veth", "peer", "name", "outside", "netns",
                      str(self.keeper.pid))
            self._run("ip", "address", "add", f"{self.here}/30", "dev", name)
            self._run("ip", "link", "set", name, "up")
            self._run(*self.inside, "ip", "address", "add", f"{self.there}/30", "dev", "outside")
            for device in ("lo", "outside"):
                self._run(*self.inside, "ip", "link", "set", device, "up")
            self._run(*self.inside, "nft", "-f", "-", text=RULES)
        except BaseException:
            self.close()
            raise

    def _reason(self):
        self.keeper.kill()
        return self.keeper.stderr.read().strip()

    @staticmethod
    def _needs(fine, what, reason):
        if not fine:
            raise PermissionError(f"{what} can't be made here (root is needed, and in a container CAP_NET_ADMIN and "
                                  f"CAP_SYS_ADMIN): {reason()}")

    def _run(self, *command, text=None):
        done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=60, check=False)
        self._needs(done.returncode == 0, f"a network namespace ({' '.join(command)})", done.stderr.strip)

    def cut(self, port, way, of_client=None):
        """Drops packets between the namespace and `port` here. `way`: "both", "out" (what millrace sends) or "in".
        `of_client`: only those of the connection from that port."""
        client = {"out": "", "in": ""} if of_client is None else {"out": f"tcp sport {of_client} ",
                                                                   "in": f"tcp dport {of_client} "}
        rules = {"out": f"add rule inet cut output tcp dport {port} {client['out']}drop\n",
                 "in": f"add rule inet cut input tcp sport {port} {client['in']}drop\n"}
        self._run(*self.inside, "nft", "-f", "-", text=rules.get(way) or rules["out"] + rules["in"])

    def mend(self):
        self._run(*self.inside, "nft", "flush", "table", "inet", "cut")

    def close(self):
        self.keeper.kill()
        self.keeper.wait(30)
        self.keeper.stdout.close()
        self.keeper.stderr.close()


def required():
    """Whether a machine that can't make namespaces fails the tests rather than leaving these out."""
    return os.environ.get("MILLRACE_TEST_NETWORK") == "1"
