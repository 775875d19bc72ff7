"""Fabrics to diagnose without a lab: ports as a walk reads them, and changes with a test's counts."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from weft.fabric.model import Fabric
from weft.fabric.spec import load
from weft.monitor.change import Change
from weft.monitor.columns import Column
from weft.monitor.ports import Ports, cabling_of
from weft.wire.port_info import LinkSpeed, PortPhysicalState, PortState

HOSTS = "fat-tree:hosts=256,switch=QM9700"


def ports_of(fabric: Fabric) -> Ports:
    """Return the ports of a fabric, all up, at full width and speed."""
    ports, nodes, n = fabric.ports, fabric.nodes, len(fabric.ports)
    plugged = ports.peer >= 0
    yes = np.ones(n, bool)
    return Ports(
        fabric=fabric,
        lid=np.arange(1, n + 1),
        number=ports.number,
        peer=ports.peer.copy(),
        far_guid=np.where(plugged, nodes.guid[ports.node[ports.peer]], np.uint64(0)),
        far_number=np.where(plugged, ports.number[ports.peer], 0).astype(np.int16),
        rate_gbit_s=np.where(plugged, 400.0, 0.0),
        width_active=np.where(plugged, 4, 0),
        width_supported=np.full(n, 4),
        speed_active=np.where(plugged, int(LinkSpeed.NDR), 0),
        speed_supported=np.full(n, LinkSpeed.NDR.up_to),
        state=np.where(plugged, int(PortState.ACTIVE), int(PortState.DOWN)),
        physical=np.where(plugged, int(PortPhysicalState.LINK_UP), int(PortPhysicalState.POLLING)),
        expected=cabling_of(fabric),
        is_long=yes,
        is_longest=yes,
        has_wait=yes,
        has_qp1_dropped=yes,
        has_fec=yes,
        has_rs_fec=yes,
    )


@dataclass(slots=True)
class Ward:
    """A fabric's ports over an interval; `count` adds to a counter of a port."""

    ports: Ports
    change: Change

    def count(self, port: str, column: Column, count: int) -> None:
        self.change.delta[self.slot(port), column] += count

    def slot(self, port: str) -> int:
        return self.ports.fabric.find_port(port).slot

    def peer(self, port: str) -> str:
        return self.ports.name(int(self.ports.peer[self.slot(port)]))

    def forget(self, port: str) -> None:
        self.change.known[self.slot(port)] = False

    def set(self, port: str, **values: int) -> None:
        """Set fields of `Ports` at both ends of a cable."""
        for slot in (self.slot(port), self.slot(self.peer(port))):
            for name, value in values.items():
                getattr(self.ports, name)[slot] = value


_load = cache(load)  # the cabling never changes


def ward(
    spec: str = HOSTS, *, seconds: float = 20.0, ber: float = 1e-15, load_share: float = 0.5, seed: int = 1
) -> Ward:
    """Return a healthy fabric under load."""
    ports, rng = ports_of(_load(spec)), np.random.default_rng(seed)
    bits = ports.rate_gbit_s * 1e9 * seconds
    delta = np.zeros((len(ports), len(Column)), np.int64)
    delta[:, Column.SYMBOL_ERROR] = rng.poisson(bits * ber)
    for way in (Column.PORT_XMIT_DATA_WORDS, Column.PORT_RCV_DATA_WORDS):
        delta[:, way] = bits * load_share / 32
    for way in (Column.PORT_XMIT_PKTS, Column.PORT_RCV_PKTS):
        delta[:, way] = bits * load_share / (8 * 4174)
    recorded = np.broadcast_to(ports.is_cabled[:, None], delta.shape).copy()
    n = len(ports)
    change = Change(
        ports=ports, seconds=seconds, stamp_s=0.0, delta=delta, known=recorded, is_reset=np.zeros(n, bool), events=()
    )
    return Ward(ports, change)
