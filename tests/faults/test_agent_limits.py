"""A whole agent with real pipelines on a kernel where limits of memory hold, whatever this machine lends: one of user mode (tests/test_cgroup.py), which is a host of its own in a
network that ends here. Servers and broker are this machine's."""

import os
import subprocess

import pytest

from agents import Fleet
from kit import eventually
from test_agents import made_place
from test_cgroup import kernel

ABOVE = 'limits = {memory = "300MiB", cpu_weight = 50}\n'


@pytest.fixture
def place():
    with made_place("1") as made:
        # The kernel of user mode has the address, and answers for it.
        subprocess.run([*made.network.inside, "ip", "address", "flush", "dev", "outside"], check=True)
        yield made


@pytest.fixture
def fleet(place):
    fleet = Fleet(2, ports=[place.servers[0].port], bootstrap=place.broker.direct, inner=place.broker.proxied, host=place.network.here,
                  options="source.postgres.insecure_tls = true\n")
    yield fleet
    fleet.close()


def test_one_that_needs_too_much_ends_alone(place, fleet, tmp_path):
    """From its first moment on: it is killed at its start, again and again, beside one that streams; with another definition it has room."""
    small, large = fleet.sources
    fleet.define(p0='limits = {memory = "4MiB"}\n', p1=ABOVE)
    fleet.apply()
    folder = os.path.join(fleet.folder, "a")
    os.mkdir(folder)
    host = kernel(tmp_path, f"mount -t tmpfs none {folder}\nip address add {place.network.there}/30 dev vec0\nip link set vec0 up\nip link set lo up",
                  "con0=null,fd:2", "quiet", "vec0:transport=raw,ifname=outside,depth=64,gro=1")
    agent = fleet.agent("a", inside=[*place.network.inside, *host]).start()
    ended = agent.wait_for("fleet_pipeline_ended", 120, times=3, pipeline=small)
    assert (ended["exit_code"], ended["state"]) == (128 + 9, "backoff"), ended
    eventually(lambda: fleet.served() == {large}, 60, "the other one's stream")
    fleet.sources[large].write(100)  # the other one has no slot yet
    fleet.define(p0=ABOVE)
    fleet.apply()
    fleet.all_served()
    fleet.write(100)
    fleet.all_arrived()
    assert len(agent.log("fleet_pipeline_started", large)) == 1 and not agent.log("fleet_pipeline_unlimited")
