"""Run a program with the IP interfaces of a lab host: `weft exec --ip h1 COMMAND`.

program -> kernel (own network namespace) -> TUN device -> thread -> port of the lab
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, NoReturn, Protocol

from weft import runtime
from weft.errors import SubnetError
from weft.lab import programs
from weft.lab.ip import ethernet, infiniband
from weft.lab.ip.addresses import ETHERNET, INFINIBAND, PREFIX_BITS, IpPort
from weft.lab.ip.ethernet import EthernetLink
from weft.lab.ip.infiniband import InfinibandLink
from weft.lab.ip.interfaces import Interface, enter
from weft.verbs import hardware
from weft.verbs.carriers.lab.carrier import LabCarrier
from weft.verbs.carriers.lab.connection import Line
from weft.verbs.carriers.lab.port_facts import Facts
from weft.wire.roce import IPv4

_LOOK_S = 0.5
_MOST_BYTES = 65_535


class _Link(Protocol):
    def send(self, packet: bytes, next_hop: int) -> None: ...

    def receive(self, seconds: float) -> None: ...

    @property
    def is_down(self) -> bool: ...


def run(
    ports: Sequence[IpPort], command: Sequence[str], variables: Mapping[str, str], sysfs: Mapping[str, Any] | None
) -> NoReturn:
    """Run a command to its end in a network namespace with these ports, and exit with its status."""
    interfaces = _interfaces(ports)
    attached = [_attach(port, variables) for port in ports]
    files = enter(interfaces, forwards=len({port.is_ethernet for port in ports}) == 2)
    links = [_link(port, line, answer, file) for port, (line, answer), file in zip(ports, attached, files, strict=True)]
    for port, link, file in zip(ports, links, files, strict=True):
        threading.Thread(target=_send_all, args=(port, link, file), daemon=True).start()
        threading.Thread(target=_receive_all, args=(link,), daemon=True).start()
    status = programs.attend(command, variables, sysfs, passes_on=programs.PASSED_ON)
    os._exit(status)  # threads wait for packets


def _interfaces(ports: Sequence[IpPort]) -> list[Interface]:
    """Return ib0, ib1, ... and eth0, eth1, ... in the order of the ports; the first of a kind leads to the gateway."""
    result: list[Interface] = []
    for port in ports:
        kind = "eth" if port.is_ethernet else "ib"
        number = sum(each.name.startswith(kind) for each in result)
        other = INFINIBAND if port.is_ethernet else ETHERNET
        mtu_bytes = ethernet.MTU_BYTES if port.is_ethernet else infiniband.MTU_BYTES
        behind = other if port.gateway and not number else 0
        result.append(Interface(name=f"{kind}{number}", address=port.address, mtu_bytes=mtu_bytes, behind=behind))
    return result


def _attach(port: IpPort, variables: Mapping[str, str]) -> tuple[Line, dict[str, Any]]:
    """Connect to the port of a lab."""
    line = Line(variables[hardware.LAB])
    answer, meters = line.ask_for_file("attach", host=variables[hardware.HOST], device=port.device)
    if meters >= 0:
        os.close(meters)  # IP sends packets
    return line, answer


def _link(port: IpPort, line: Line, answer: Mapping[str, Any], file: int) -> _Link:
    def up(packet: bytes) -> None:
        with suppress(OSError):  # the kernel refuses what is no IP packet
            os.write(file, packet)

    if port.is_ethernet:
        return EthernetLink(line, port.address, up)
    carrier = LabCarrier(line, answer["program"], Facts.unpack(bytes.fromhex(answer["facts"])), None)
    return InfinibandLink(carrier, port.address, up)


def _send_all(port: IpPort, link: _Link, file: int) -> None:
    """Send the packets that the kernel routes to a TUN device."""
    while not link.is_down:
        if not runtime.wait_ready([file], timeout_s=_LOOK_S):
            continue
        packet = os.read(file, _MOST_BYTES)
        if len(packet) < IPv4.size or packet[0] >> 4 != 4:
            continue  # IPv6 of the kernel's own
        target = IPv4.destination.get(packet)
        is_near = target >> PREFIX_BITS == port.address >> PREFIX_BITS
        if next_hop := target if is_near else port.gateway:
            link.send(packet, next_hop)


def _receive_all(link: _Link) -> None:
    while not link.is_down:
        try:
            link.receive(_LOOK_S)
        except (OSError, SubnetError):
            return
