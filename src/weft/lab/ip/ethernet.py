"""IPv4 on an Ethernet port of a lab. Neighbours' MACs follow from their addresses, as switches of the lab know them."""

from __future__ import annotations

from collections.abc import Callable

from weft.lab.ip.addresses import ETHERNET
from weft.mad.ethernet import FIRST_ADDRESS
from weft.verbs.carriers.lab.connection import Kind, Line, packets_in
from weft.wire.roce import Ethernet, EtherType, IPv4, local_mac

MTU_BYTES = 1500
_HOSTS = 0xFFFF


class EthernetLink:
    """An Ethernet interface. `up` takes IPv4 packets that arrive."""

    def __init__(self, line: Line, address: int, up: Callable[[bytes], object]) -> None:
        self._line, self._mac, self._up = line, _mac_of(address), up

    def send(self, packet: bytes, next_hop: int) -> None:
        """Send an IPv4 packet to a neighbour."""
        link = Ethernet.pack(destination=_mac_of(next_hop), source=self._mac, ether_type=EtherType.IPV4)
        if next_hop >> 16 == ETHERNET >> 16:
            self._line.put([link + packet])

    def receive(self, seconds: float) -> None:
        """Wait for frames, at most so long, and handle them."""
        self._line.wait(seconds)
        for kind, body in self._line.take():
            for frame in packets_in(body) if kind == Kind.PACKETS else ():
                if len(frame) >= Ethernet.size + IPv4.size and Ethernet.ether_type.get(frame) == EtherType.IPV4:
                    self._up(frame[Ethernet.size :])

    @property
    def is_down(self) -> bool:
        return self._line.is_down


def _mac_of(address: int) -> int:
    return local_mac(FIRST_ADDRESS | address & _HOSTS)
