r"""HPN: segments of rail-optimised servers in two planes (Alibaba's HPN 7.0, SIGCOMM 2024; SimAI's template).

    spine1  spine2  ...  spine60         of each plane: every leaf plugs into every spine of its plane, at 400GbE
       \   /   \   /
    leaf1   leaf2   ...  leaf8           one leaf for each rail of a segment
       |       |           |
    rail 1  rail 2       rail 8          128 servers, one port of 200GbE of each adapter in each plane

A pod has 15 segments of 1,024 GPUs, 240 leaves and 120 spines in its two planes, and 128 × 200 Gbit/s below a leaf for
60 × 400 above it. The tapered core between pods is not built.
"""

from __future__ import annotations

from typing import Annotated

import numpy as np

from weft.errors import ConfigError
from weft.fabric.model import Fabric
from weft.fabric.rates import parse_label
from weft.fabric.topologies.builder import ROW_M, Builder, ServerName, number
from weft.fabric.topologies.registry import topology

_MOST_SEGMENTS = 15  # 120 leaves of a plane, in a spine of 128 ports
_UPLINK = "400GbE"


@topology("hpn", example="hpn:segments=15")
def hpn(
    segments: Annotated[int, "segments, up to 15"],
    *,
    server: ServerName = "dgx-h100+ConnectX-7-EN",
    servers: Annotated[int, "servers of a segment"] = 128,
    spines: Annotated[int, "spines of a plane, one uplink of a leaf each"] = 60,
    planes: Annotated[int, "planes of each adapter port"] = 2,
    switch: Annotated[str, "switch model in the catalog"] = "SN5600",
) -> Fabric:
    """Connect segments of servers, with a leaf for each rail and plane, by the spines of each plane."""
    builder = Builder("hpn", server=server, switch=switch, radix=servers + spines, planes=planes)
    if segments > _MOST_SEGMENTS:
        raise ConfigError(f"hpn: segments={segments} are too many: a pod has at most {_MOST_SEGMENTS}")
    rails, n_leaves = builder.rails, segments * builder.rails
    if n_leaves > builder.radix:
        raise ConfigError(f"hpn: {n_leaves} leaves do not fit into a spine of {builder.radix} ports: give more spines")
    groups = builder.add_groups(number("segment", segments))
    adapters = builder.add_hosts(segments * servers, group=np.repeat(groups, servers))
    leaves = builder.add_switches(number("leaf", n_leaves), group=np.repeat(groups, rails)).reshape(segments, rails)
    place, rail = np.ogrid[: segments * servers, :rails]
    builder.plug_hosts(adapters, leaves[place // servers, rail], place % servers + 1)
    tops = builder.add_switches(number("spine", spines))
    low, high = np.ogrid[:n_leaves, :spines]
    builder.connect(leaves.ravel()[low], servers + 1 + high, tops[high], 1 + low, ROW_M, parse_label(_UPLINK))
    return builder.build()
