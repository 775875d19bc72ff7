"""Ethernet cables of a subnet whose other cables are InfiniBand: frames go hop by hop to the adapter with their MAC.

    network.attach(slot, receive)          a function for the frames that arrive at an adapter port
    network.send(slot, frame)              a frame leaves an adapter port

Each adapter port with an Ethernet cable has a MAC and an IPv4 address by its place in the fabric: 02:00:7f:02:00:01 and
127.2.0.1 are those of the first. Switches know where each address is, as switches with EVPN do, so there is no ARP
and no flooding; among several shortest paths a hash of the addresses and the UDP source port chooses (ECMP), per flow.
A pulled cable takes effect at once. Both ends of a cable count frames as InfiniBand ports do, in words of 4 bytes.
Not modelled: queues, priority flow control, ECN marks, bit errors.
"""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Callable
from typing import Protocol

from weft.errors import ConfigError
from weft.fabric.counters import Counter
from weft.fabric.link_layers import ethernet_slots
from weft.fabric.model import Fabric
from weft.mad.tap import Tap
from weft.wire.roce import UDP, Ethernet, IPv4, local_mac

FIRST_ADDRESS = 0x7F02_0000  # 127.2.0.0: reachable by the machine's TCP too, as the hosts' 127.1.0.N are
_FLOW = slice(Ethernet.size + 12, Ethernet.size + IPv4.size + 4)  # addresses and UDP ports
_ADDRESSES_MAX = 0xFFFE
_WORD_BYTES = 4


class Nodes(Protocol):
    """The state of the nodes of a fabric: that of `weft.mad.devices.Devices`."""

    fabric: Fabric
    node_of: list[int]
    is_switch: list[bool]
    broken: set[int]
    dead: set[int]
    tap: Tap | None

    def ports_of(self, node: int) -> range:
        """Return the slots of a node's ports."""
        ...


class EthernetNetwork:
    """The Ethernet ports of a fabric, the cables between them, and the receivers of frames."""

    def __init__(self, devices: Nodes) -> None:
        self._devices = devices
        self.far = ethernet_slots(devices.fabric)
        hosts = sorted(slot for slot in self.far if not devices.is_switch[devices.node_of[slot]])
        if len(hosts) > _ADDRESSES_MAX:
            raise ConfigError(f"{devices.fabric.spec} has {len(hosts):,} Ethernet ports of hosts, a lab at most 65,534")
        self.address = {slot: FIRST_ADDRESS + number for number, slot in enumerate(hosts, 1)}
        self._by_mac = {local_mac(address): slot for slot, address in self.address.items()}
        self._receivers: dict[int, Callable[[bytes], None]] = {}
        self._next: dict[int, dict[int, list[int]]] = {}  # end slot -> node -> ports on shortest paths to it

    def __contains__(self, slot: int) -> bool:
        """Return whether a port has an Ethernet cable."""
        return slot in self.far

    def slot_at(self, address: int) -> int | None:
        """Return the port with an IPv4 address."""
        return self._by_mac.get(local_mac(address))

    def is_up(self, slot: int) -> bool:
        far, devices = self.far[slot], self._devices
        return not devices.broken & {slot, far} and not devices.dead & {devices.node_of[slot], devices.node_of[far]}

    def forget_paths(self) -> None:
        """Forget all paths, after a change of cables."""
        self._next.clear()

    def attach(self, slot: int, receive: Callable[[bytes], None]) -> None:
        self._receivers[slot] = receive

    def detach(self, slot: int) -> None:
        self._receivers.pop(slot, None)

    def send(self, slot: int, frame: bytes) -> int | None:
        """Carry a frame from an adapter port; return the port where it arrived, None if it was dropped."""
        out, end = self.path(slot, int.from_bytes(frame[:6], "big"), frame[_FLOW])
        words = -(-len(frame) // _WORD_BYTES)
        for at in out:
            self._cross(at, frame, words)
        if end is None:
            counter = Counter.PORT_RCV_SWITCH_RELAY_ERRORS if out else Counter.PORT_XMIT_DISCARDS
            self._devices.fabric.counters[self.far[out[-1]] if out else slot, counter] += 1
        elif end in self._receivers:
            self._receivers[end](frame)
        return end

    def path(self, slot: int, mac: int, flow: bytes) -> tuple[tuple[int, ...], int | None]:
        """Return the output ports of a flow from an adapter port to a MAC, and the port where it arrives."""
        devices, end = self._devices, self._by_mac.get(mac)
        out: list[int] = []
        at = slot
        while self.is_up(at):
            out.append(at)
            far = self.far[at]
            if far == end:
                return tuple(out), end
            node = devices.node_of[far]
            ports = self._ports_to(end).get(node, []) if end is not None and devices.is_switch[node] else []
            if not ports:
                break
            at = ports[zlib.crc32(flow + node.to_bytes(4, "big")) % len(ports)]
        return tuple(out), None

    def path_between(self, slot: int, end: int) -> tuple[int, ...]:
        """Return the output ports of RoCE from one adapter port to another; empty if it does not arrive."""
        addresses = self.address[slot].to_bytes(4, "big") + self.address[end].to_bytes(4, "big")
        out, arrived = self.path(slot, local_mac(self.address[end]), addresses + UDP.pack(length=0)[:4])
        return out if arrived is not None else ()

    def _cross(self, slot: int, frame: bytes, words: int) -> None:
        devices, far = self._devices, self.far[slot]
        if devices.tap is not None:
            devices.tap.cross_packet(slot, frame)
        for at, columns in ((slot, _SENT), (far, _RECEIVED)):
            for column, amount in zip(columns, (words, 1, 1), strict=True):
                devices.fabric.counters[at, column] += amount

    def _ports_to(self, end: int) -> dict[int, list[int]]:
        """Return the ports of each switch on its shortest paths to an adapter port, found from there."""
        if end in self._next:
            return self._next[end]
        devices = self._devices
        ports: dict[int, list[int]] = {}
        hops = {devices.node_of[end]: 0}
        queue, starts = deque([devices.node_of[end]]), {end}
        while queue:
            node = queue.popleft()
            inward = starts if node == devices.node_of[end] else devices.ports_of(node)
            for slot in inward:
                if slot not in self.far or not self.is_up(slot):
                    continue
                near = devices.node_of[self.far[slot]]
                if not devices.is_switch[near]:
                    continue
                if near not in hops:
                    hops[near] = hops[node] + 1
                    queue.append(near)
                if hops[near] == hops[node] + 1:
                    ports.setdefault(near, []).append(self.far[slot])
        self._next[end] = ports
        return ports


_SENT = (Counter.PORT_XMIT_DATA_WORDS, Counter.PORT_XMIT_PKTS, Counter.PORT_UNICAST_XMIT_PKTS)
_RECEIVED = (Counter.PORT_RCV_DATA_WORDS, Counter.PORT_RCV_PKTS, Counter.PORT_UNICAST_RCV_PKTS)
