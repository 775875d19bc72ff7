"""Find the link between switches that limits a run."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from weft.fabric.kinds import NodeKind
from weft.sim.engine import Paths
from weft.sim.result import Result

_BOTTLENECK_LOAD = 1.05  # relative to the load of the busiest adapter's own cable


@dataclass(frozen=True, slots=True, kw_only=True)
class Bottleneck:
    """A switch port towards another switch with more load than any adapter."""

    port: str  # `leaf3/33`
    switch: str
    peer: str  # the switch at the other end
    choices: int  # ports of the switch that lead to other switches
    load: float  # its load over that of the busiest adapter: 2 makes both half as fast
    paths: str

    def __str__(self) -> str:
        adapters = f"what {self.load:.2g} adapters send"
        if self.paths == Paths.ECMP:
            return (
                f"Flows that hash to the same port share it: {self.port}, to {self.peer}, one of {self.choices} such "
                f"ports of {self.switch}, has to carry {adapters}"
            )
        if self.paths == Paths.TABLE:
            return f"The forwarding tables put {adapters} on one cable: {self.port}, to {self.peer}"
        return f"There are too few cables between switches: {self.port}, to {self.peer}, has to carry {adapters}"


def find_bottleneck(result: Result) -> Bottleneck | None:
    """Return the busiest cable between switches if it has more load, in time, than the busiest adapter."""
    fabric, busy_ps = result.fabric, result.use.busy_ps
    link = fabric.ports.link
    plugged = (link >= 0) & fabric.network_links[np.maximum(link, 0)]
    is_switch = fabric.nodes.kind[fabric.ports.node] == NodeKind.SWITCH
    trunk = plugged & is_switch
    trunk[plugged] &= is_switch[fabric.ports.peer[plugged]]
    most_ps = int(busy_ps[plugged & ~is_switch].max(initial=0))
    if not trunk.any() or not most_ps:
        return None
    worst = int(np.where(trunk, busy_ps, -1).argmax())
    load = float(busy_ps[worst]) / most_ps
    if load < _BOTTLENECK_LOAD:
        return None
    port = fabric.port(worst)
    assert port.peer is not None
    assert result.options.paths is not None
    return Bottleneck(
        port=port.name,
        switch=port.node.name,
        peer=port.peer.node.name,
        choices=int(trunk[fabric.ports.node == port.node.index].sum()),
        load=load,
        paths=result.options.paths,
    )
