"""The networks into a cluster that serves a model: storage, from which weights come, and management, for text.

    size_networks(text_gbit_s=(0.1, 0.2), weights_gbyte=141, servers=2, storage="ndr", management="eth-100-tcp")

Sizes are of the worst case: all servers start at once, and requests of the busiest second. Each number stands beside
what it assumes.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from weft.fabric import catalog
from weft.fabric.rates import parse_label
from weft.training.storage import constants

START_S = 60.0  # in which servers read their weights
LINE_SHARE = 0.8  # a network is sized for this part of its line rate
STORAGE, MANAGEMENT = "ndr", "eth-100-tcp"  # unless a plan names others


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkSize:
    """The size of a network into a cluster."""

    name: str  # storage, management
    fabric: str  # of the catalog
    server_gbit_s: float  # to or from the busiest server
    total_gbit_s: float  # to or from all servers
    ports: int  # each server needs
    storage_servers: int  # 0: the network has none
    assumed: str


def size_networks(
    *,
    text_gbit_s: tuple[float, float],
    weights_gbyte: float,
    servers: int,
    storage: str | None = None,
    management: str | None = None,
) -> tuple[NetworkSize, ...]:
    """Return the storage and the management network that a service needs.

    text_gbit_s: prompts and answers of the busiest second, of the busiest server and of all. weights_gbyte: that a
    server reads when it starts. storage, management: fabrics of the catalog.
    """
    read_gbit_s = 8 * weights_gbyte / START_S
    disks_gbit_s = 8 * constants()["appliance"]["read_gbyte_s"]
    total_gbit_s = servers * read_gbit_s
    line_gbit_s = _line_gbit_s(storage or STORAGE)
    each_gbit_s = min(disks_gbit_s, constants()["appliance"]["adapters"] * LINE_SHARE * line_gbit_s)
    return (
        NetworkSize(
            name="storage",
            fabric=storage or STORAGE,
            server_gbit_s=read_gbit_s,
            total_gbit_s=total_gbit_s,
            ports=_ports(read_gbit_s, line_gbit_s),
            storage_servers=ceil(total_gbit_s / each_gbit_s),
            assumed=f"all servers read their {weights_gbyte:,.0f} GB of weights at once, within {START_S:g} s; a "
            f"storage server gives {each_gbit_s:,.0f} Gbit/s",
        ),
        NetworkSize(
            name="management",
            fabric=management or MANAGEMENT,
            server_gbit_s=text_gbit_s[0],
            total_gbit_s=text_gbit_s[1],
            ports=_ports(text_gbit_s[0], _line_gbit_s(management or MANAGEMENT)),
            storage_servers=0,
            assumed="prompts or answers as text, in the busiest second; no images",
        ),
    )


def _line_gbit_s(fabric: str) -> float:
    speed, width = parse_label(catalog.interconnect(fabric).speed)
    return speed.rate_gbit_s(width)


def _ports(needed_gbit_s: float, line_gbit_s: float) -> int:
    return max(1, ceil(needed_gbit_s / (LINE_SHARE * line_gbit_s)))
