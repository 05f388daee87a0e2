#!/usr/bin/env python3
"""What a fleet's hosts take, and for how long a host that is lost leaves its pipelines without a stream: a simulation.

    benchmarks/fleet_sim.py [--pipelines 500] [--hosts 3,5,10,20] [--session 30] [--at-once 8] [--cores 2] [--seed 1] [--rounds 200]

The host is lost at any moment between two heartbeats. The group gives its partitions to the others in equal numbers once the session is over and each of
them has sent its next heartbeat. Each agent starts so many at once as --at-once says; a start takes as long as one of those that figures/*.json has
(start_s, real runs), longer where the starts so far fill the host's cores, and makes room for the next once the agent has looked. What an idle pipeline
takes is what tests/test_idle.py has measured (docs/sizing.md, "Idle"). tests/test_fleet_sim.py holds a prediction against three real agents.
Prints what docs/many-databases.md has. Needs nothing but Python."""

import argparse
import glob
import heapq
import json
import os
import random
import statistics
from typing import NamedTuple

HEARTBEATS = (10, 3)  # of a session one in so many; seconds at most (src/kafka/kafka_group.c)
SETTLE_S = (0.5, 1.2) # from the last heartbeat to the first start: a rebalance, and partitions read to their ends (logs of three agents)
START_CPU_S = 0.05    # of a process, until it streams (tests/test_fleet_sim.py: 0.04)
LOOK_S = 0.75         # until the agent knows that it does, at most (src/agent/look.c)
IDLE_MB = 5.8         # proportional memory
SHARED_MB = 17        # that all processes of a host share
IDLE_CPU = 0.00025    # of a core


class Fleet(NamedTuple):
    pipelines: int
    hosts: int
    session: float = 30
    at_once: int = 8
    cores: float = 2       # of each host
    partitions: int = 255  # of pipelines (src/fleet/store.h)


def start_seconds():
    """Of each start that was measured with brokers near by."""
    found = []
    for path in glob.glob(os.path.join(os.path.dirname(os.path.abspath(__file__)), "figures", "*.json")):
        with open(path, encoding="utf-8") as file:
            found += [run["start_s"] for run in json.load(file)["runs"]
                      if run["program"].startswith("millrace") and "start_s" in run and not run["load"].startswith("far-")]
    return sorted(found)


def shared_out(count, owners):
    """`count` things among owners, as evenly as it goes."""
    return [count // owners + (at < count % owners) for at in range(owners)]


def loss(fleet, starts, chance):
    """Seconds without a stream, of each pipeline of the host that is lost."""
    # `apply` gives each a partition of its own while there are some.
    used = shared_out(fleet.pipelines, min(fleet.partitions, fleet.pipelines))
    lost = used[:shared_out(len(used), fleet.hosts)[0]]
    heartbeat, owners = min(fleet.session / HEARTBEATS[0], HEARTBEATS[1]), fleet.hosts - 1
    begun = fleet.session - chance.uniform(0, heartbeat) + max(chance.uniform(0, heartbeat) for _ in range(owners))
    served = []
    for owner in range(owners):
        first = begun + chance.uniform(*SETTLE_S)
        free = [first] * fleet.at_once
        for number in range(sum(lost[owner::owners])):
            end = max(heapq.heappop(free) + chance.choice(starts), first + (number + 1) * START_CPU_S / fleet.cores)
            heapq.heappush(free, end + chance.uniform(0, LOOK_S))
            served.append(end)
    return served


def unserved(fleet, seed, rounds):
    """Likewise, of many losses."""
    starts, chance = start_seconds(), random.Random(seed)
    return [wait for _ in range(rounds) for wait in loss(fleet, starts, chance)]


def row(fleet, arguments):
    waits = sorted(unserved(fleet, arguments.seed, arguments.rounds))
    each, after = shared_out(fleet.pipelines, fleet.hosts)[0], shared_out(fleet.pipelines, fleet.hosts - 1)[0]
    return [f"{fleet.hosts}", f"{each}", f"{SHARED_MB + each * IDLE_MB:,.0f}", f"{SHARED_MB + after * IDLE_MB:,.0f}", f"{each * IDLE_CPU * 100:.1f} %",
            f"{statistics.median(waits):.0f}", f"{waits[len(waits) * 99 // 100]:.0f}", f"{waits[-1]:.0f}"]


def table(arguments):
    head = ["hosts", "pipelines each", "memory, MB", "after a loss, MB", "idle CPU, of a core", "unserved: median, s", "p99, s", "longest, s"]
    lines = [head, ["---:"] * len(head)]
    lines += [row(Fleet(arguments.pipelines, int(hosts), arguments.session, arguments.at_once, arguments.cores), arguments)
              for hosts in arguments.hosts.split(",")]
    count = arguments.pipelines
    return "".join("| " + " | ".join(line) + " |\n" for line in lines) + (
        f"\nWhatever the number of hosts: {count} connections to PostgreSQL, {count} to each broker (exactly once {2 * count:,}), {count} state topics.\n")


def options(words=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pipelines", type=int, default=500)
    parser.add_argument("--hosts", default="3,5,10,20")
    parser.add_argument("--session", type=float, default=30)
    parser.add_argument("--at-once", type=int, default=8)
    parser.add_argument("--cores", type=float, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=200)
    return parser.parse_args(words)


if __name__ == "__main__":
    print(table(options()), end="")
