"""Traffic counters of the hosts of a job, from before and after the run."""

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
    """The traffic of one host: totals, and counters by port."""

    ranks: int
    sent_bytes: int
    received_bytes: int
    sent_packets: int
    received_packets: int
    ports: tuple[PortCounts, ...]


def counts(entry: Entry) -> dict[str, list[PortCounts]]:
    """Return the current counters of all hosts of a lab."""
    by_host: dict[str, list[dict[str, Any]]] = ask(entry, "port_counts")
    return {host: [PortCounts(**port) for port in ports] for host, ports in by_host.items()}


def difference(
    placement: Placement, before: dict[str, list[PortCounts]], after: dict[str, list[PortCounts]]
) -> dict[str, HostCounts]:
    """Return the traffic of each host of a job. A counter that was reset during the run counts from the reset."""
    by_host = {}
    for host in placement.hosts:
        ports = tuple(map(_since, before[host], after[host]))
        by_host[host] = HostCounts(
            ranks=placement.on(host),
            sent_bytes=_total(ports, "sent_bytes"),
            received_bytes=_total(ports, "received_bytes"),
            sent_packets=_total(ports, "sent_packets"),
            received_packets=_total(ports, "received_packets"),
            ports=ports,
        )
    return by_host


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
