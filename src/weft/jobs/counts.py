"""What the ports of a job's hosts sent and received while it ran, as the lab counts it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from weft.jobs.placement import Placement
from weft.lab.control import ask
from weft.lab.rank_hosts import PortCounts
from weft.lab.registry import Entry


@dataclass(frozen=True, slots=True, kw_only=True)
class HostCounts:
    """Of one host: all its ports, and how many ranks it had."""

    ranks: int
    sent_bytes: int
    received_bytes: int
    sent_packets: int
    received_packets: int
    ports: tuple[PortCounts, ...]


def counts(entry: Entry) -> dict[str, list[PortCounts]]:
    """Of all hosts, so far."""
    found: dict[str, list[dict[str, Any]]] = ask(entry, "port_counts")
    return {host: [PortCounts(**port) for port in ports] for host, ports in found.items()}


def difference(
    placement: Placement, before: dict[str, list[PortCounts]], after: dict[str, list[PortCounts]]
) -> dict[str, HostCounts]:
    """Of the hosts of a job. Counters that somebody has reset meanwhile count from there."""
    found = {}
    for host in placement.hosts:
        ports = tuple(map(_since, before[host], after[host]))
        found[host] = HostCounts(
            ranks=placement.on(host),
            sent_bytes=_total(ports, "sent_bytes"),
            received_bytes=_total(ports, "received_bytes"),
            sent_packets=_total(ports, "sent_packets"),
            received_packets=_total(ports, "received_packets"),
            ports=ports,
        )
    return found


def _since(before: PortCounts, after: PortCounts) -> PortCounts:
    def more(name: str) -> int:
        then, now = getattr(before, name), getattr(after, name)
        return int(now - then if now >= then else now)

    return PortCounts(
        port=after.port,
        sent_bytes=more("sent_bytes"),
        received_bytes=more("received_bytes"),
        sent_packets=more("sent_packets"),
        received_packets=more("received_packets"),
    )


def _total(ports: Sequence[PortCounts], name: str) -> int:
    return sum(getattr(port, name) for port in ports)
