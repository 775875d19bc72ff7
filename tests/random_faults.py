"""Random faults of a subnet in this process: cables pulled, plugged and exchanged, nodes without power, new names."""

from __future__ import annotations

import random

from weft.mad import faults, links


def swap_cables(devices, one, two):
    """Exchange the far ends of two cables, both of which are up."""
    ends = [one, devices.cable[one], two, devices.cable[two]]
    for slot in (one, two):
        links.take_down(devices, slot)
    for a, b in ((ends[0], ends[3]), (ends[2], ends[1])):
        devices.cable[a], devices.cable[b] = b, a
    devices.run_on(devices.fabric)
    for slot in (one, two):
        links.bring_up(devices, slot)
    return ends


class RandomFaults:
    """Random faults of a subnet. Each returns the names of the nodes at changed links; a cable of `own_slot` stays."""

    def __init__(self, devices, own_slot, seed):
        self.devices, self.own_slot, self.rng = devices, own_slot, random.Random(seed)
        own_node = devices.node_of[own_slot]
        self.nodes = [name for node, name in enumerate(devices.fabric.nodes.name) if node != own_node]
        self.cables = [slot for slot, far in enumerate(devices.cable) if far > slot]
        self.pulled: set[int] = set()
        self.dead: set[str] = set()

    def names(self, *slots):
        return {self.devices.fabric.nodes.name[self.devices.node_of[slot]] for slot in slots if slot >= 0}

    def around(self, name):
        slots = list(self.devices.ports_of(self.devices.fabric.node_index[name]))
        return self.names(*slots, *(self.devices.cable[slot] for slot in slots))

    def pull(self):
        slot = self.rng.choice(self.cables)
        if slot not in self.pulled and self.own_slot not in (slot, self.devices.cable[slot]):
            self.pulled.add(slot)
            faults.pull_cable(self.devices, slot)
        return self.names(slot, self.devices.cable[slot])

    def plug(self):
        names = set()
        for slot in sorted(self.pulled)[:2]:
            self.pulled.discard(slot)
            names |= self.names(slot, self.devices.cable[slot])
            faults.plug_cable(self.devices, slot)
        return names

    def kill(self):
        name = self.rng.choice(self.nodes)
        if name not in self.dead and len(self.dead) < 3:
            self.dead.add(name)
            faults.kill(self.devices, self.devices.fabric.node_index[name])
        return self.around(name)

    def revive(self):
        names = set()
        for name in sorted(self.dead):
            self.dead.discard(name)
            faults.revive(self.devices, self.devices.fabric.node_index[name])
            names |= self.around(name)
        return names

    def flap(self):
        slot = self.rng.choice(self.cables)
        faults.flap(self.devices, slot)
        return self.names(slot, self.devices.cable[slot])

    def describe(self):
        name = self.rng.choice(self.nodes)
        self.devices.describe(self.devices.fabric.node_index[name], f"{name} {self.rng.randrange(100)}")
        return {name}

    def swap(self):
        up = [slot for slot in self.cables if self.devices.peer(slot) >= 0]
        if len(up) < 2 or self.pulled or self.dead:
            return set()
        one, two = self.rng.sample(up, 2)
        node_of, cable = self.devices.node_of, self.devices.cable
        if node_of[one] == node_of[cable[two]] or node_of[two] == node_of[cable[one]]:
            return set()  # a cable from a switch to itself needs a whole walk
        ends = swap_cables(self.devices, one, two)
        self.cables = [slot for slot, far in enumerate(self.devices.cable) if far > slot]
        return self.names(*ends)

    def apply_one(self):
        return self.rng.choice((self.pull, self.plug, self.kill, self.revive, self.flap, self.describe, self.swap))()
