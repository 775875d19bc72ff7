"""A subnet with random events: every poll gives the true counts, exactly for the ports that can be read."""

from __future__ import annotations

import random

import pytest
from tests.monitor.watched import Watched, delta

from weft.mad import faults
from weft.monitor.change import between
from weft.monitor.columns import Column

HOSTS = [f"h{n}/1" for n in range(2, 9)]  # the monitor and the manager are at h1
STEPS = 8


class Storm:
    def __init__(self, seed: int) -> None:
        self.chance, self.watched = random.Random(seed), Watched()
        self.out, self.silent = set[str](), set[str]()
        self.leaf = {host: str(self.watched.fabric.find_port(host).peer) for host in HOSTS}
        self.lids = {host: self.watched.devices.lid(self.watched.slot(host)) for host in HOSTS}

    def strike(self) -> None:
        """Make a random event at one cable, and errors at random ports."""
        watched, host = self.watched, self.chance.choice(HOSTS)
        slot, leaf = watched.slot(host), watched.slot(self.leaf[host])
        kind = self.chance.choice(["pull", "plug", "silence", "speak", "reset"])
        if kind == "pull" and host not in self.out:
            faults.pull_cable(watched.devices, slot)
            watched.net.settle()
            self.out.add(host)
        elif kind == "plug" and self.out:
            host = self.chance.choice(sorted(self.out))
            faults.plug_cable(watched.devices, watched.slot(host))
            watched.net.settle()
            self.out.discard(host)
        elif kind == "silence":
            self.silent.add(host)
        elif kind == "speak":
            self.silent.clear()
        elif kind == "reset":
            watched.fabric.counters[[slot, leaf]] = 0
        for port in self.chance.sample([*HOSTS, *self.leaf.values()], 4):
            watched.count(port, Column.SYMBOL_ERROR, self.chance.randrange(1, 100))
        watched.carrier.silent = {self.lids[item] for item in self.silent}

    def poll(self):
        """Return the reading, the true error counts, and the ports that can be reached."""
        reading = self.watched.poll(self.chance.choice([0.5, 10.0]))
        self.watched.wall_s += self.chance.choice([-5000.0, 0.0, 5000.0])
        true = {port: int(self.errors(port)) for port in [*HOSTS, *self.leaf.values()]}
        return reading, true, {*self.leaf.values(), *(set(HOSTS) - self.out - self.silent)}

    def errors(self, port: str) -> int:
        return self.watched.fabric.counters[self.watched.slot(port), Column.SYMBOL_ERROR]


@pytest.mark.parametrize("seed", range(3))
def test_a_storm(seed):
    storm = Storm(seed)
    before, was, heard_before = storm.poll()
    for _ in range(STEPS):
        for _ in range(storm.chance.randrange(1, 3)):
            storm.strike()
        after, now, heard = storm.poll()
        change = between(before, after)
        for port in now:
            present = port in change.ports.fabric
            messages = delta(change, port, Column.SYMBOL_ERROR) if present else None
            came = now[port] - was[port] if now[port] >= was[port] else now[port]
            assert messages == (came if port in heard & heard_before else None), (port, change.events)
        before, was, heard_before = after, now, heard
