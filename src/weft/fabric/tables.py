"""What a subnet manager writes into a fabric: LIDs, forwarding, multicast, SL to VL, VL arbitration, partitions.

Each table is one array for the whole fabric, so that the management agents, the routing engines, the packet engine
and the web page read and write the same bytes. The big ones come to life when they are first touched: a fabric that
nobody configured pays nothing for them.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from weft.fabric.paths import HostPaths
from weft.ids import Lid, PKey
from weft.wire.fields import Bits
from weft.wire.port_info import PortInfo

NO_ROUTE = 255  # the port number that a linear forwarding table holds where there is no way
SERVICE_LEVELS = 16
VL_ARBITRATION_ENTRIES = 64
PKEY_ENTRIES = 128
ATTRIBUTE_BYTES = 64  # of what an SMP carries


class Tables:
    """The tables of a fabric with `n_ports[node]` ports per node and `switches` among them."""

    paths: HostPaths | None = None  # what its hosts were told of theirs; None: nobody asked

    def __init__(self, n_ports: NDArray[np.int16], switches: NDArray[np.int32]) -> None:
        self._n_ports = n_ports
        self._switches = switches
        total = int(n_ports.sum(dtype=np.int64)) + len(n_ports)
        # uint8[port, byte]: PortInfo as MADs carry it; of a fabric that nobody runs, only what is named below.
        self.port_info = np.zeros((total, ATTRIBUTE_BYTES), np.uint8)

    @property
    def runs(self) -> bool:
        """Does somebody run it? Then its ports have states."""
        return bool(self.of_ports(PortInfo.port_state).any())

    @property
    def lid(self) -> NDArray[np.uint16]:
        """[port] -> base LID, as PortInfo has it: big-endian; a switch's is at its port 0."""
        first = PortInfo.lid.bit // 8
        return self.port_info[:, first : first + 2].view(">u2")[:, 0]

    @property
    def lmc(self) -> NDArray[np.uint8]:
        """[port] -> log2 of how many LIDs it answers to; `set_lmc` writes it."""
        found = self.of_ports(PortInfo.lmc)
        found.setflags(write=False)  # three bits of a byte: this is a copy
        return found

    def set_lmc(self, slots: Any, lmc: ArrayLike) -> None:
        column = self.port_info[:, PortInfo.lmc.bit // 8]
        column[slots] = column[slots] & 0xF8 | lmc

    @property
    def vl_high_limit(self) -> NDArray[np.uint8]:
        """[port] -> LimitOfHighPriority, in units of 4 KiB; 255 is no limit."""
        return self.port_info[:, PortInfo.vl_high_limit.bit // 8]

    @cached_property
    def switch_row(self) -> NDArray[np.int32]:
        """[node] -> row in `lft` and `mft`, -1 for what is not a switch."""
        rows = np.full(len(self._n_ports), -1, np.int32)
        rows[self._switches] = np.arange(len(self._switches), dtype=np.int32)
        return rows

    @cached_property
    def lft(self) -> NDArray[np.uint8]:
        """uint8[switch, lid] -> out port number, or NO_ROUTE. As many columns as the highest LID needs."""
        top_lid = int((self.lid + (1 << self.lmc.astype(np.int64)) - 1).max(initial=0))
        return np.full((len(self._switches), top_lid + 1), NO_ROUTE, np.uint8)

    @cached_property
    def mft(self) -> NDArray[np.uint16]:
        """uint16[switch, mlid - 0xC000, port // 16] -> mask of out ports. No groups until somebody adds columns."""
        widest = int(self._n_ports[self._switches].max(initial=0))
        return np.zeros((len(self._switches), 0, widest // 16 + 1), np.uint16)

    @cached_property
    def first_pair(self) -> NDArray[np.int64]:
        """[node] -> its first row in `sl2vl`."""
        ports = self._n_ports.astype(np.int64) + 1
        pairs = ports.copy()
        pairs[self._switches] = ports[self._switches] ** 2
        return np.concatenate(([0], np.cumsum(pairs)[:-1]))

    @cached_property
    def sl2vl(self) -> NDArray[np.uint8]:
        """uint8[row, sl] -> VL.

        A switch has a row for each (in port, out port): `first_pair + in_port * (n_ports + 1) + out_port`;
        an adapter one for each port: `first_pair + port`.
        """
        rows = 0
        if len(self._n_ports):
            last = len(self._n_ports) - 1
            ports = int(self._n_ports[last]) + 1
            rows = int(self.first_pair[last]) + (ports**2 if self.switch_row[last] >= 0 else ports)
        return np.zeros((rows, SERVICE_LEVELS), np.uint8)

    @cached_property
    def vl_arbitration(self) -> NDArray[np.uint8]:
        """uint8[port, 0 low | 1 high, entry, 0 VL | 1 weight]."""
        return np.zeros((len(self.port_info), 2, VL_ARBITRATION_ENTRIES, 2), np.uint8)

    @cached_property
    def pkey(self) -> NDArray[np.uint16]:
        """uint16[port, index] -> P_Key; the default partition stands at index 0 of every port, as after power-up."""
        keys = np.zeros((len(self.port_info), PKEY_ENTRIES), np.uint16)
        keys[:, 0] = PKey.DEFAULT
        return keys

    @cached_property
    def congestion(self) -> dict[tuple[int, int], bytearray]:
        """(port, attribute << 16 | block) -> an attribute of congestion control as a MAD set it."""
        return {}

    @cached_property
    def switch_info(self) -> NDArray[np.uint8]:
        """uint8[node, byte]: SwitchInfo as MADs carry it, of a fabric that runs."""
        return np.zeros((len(self._n_ports), ATTRIBUTE_BYTES), np.uint8)

    @cached_property
    def fdr10(self) -> NDArray[np.uint8]:
        """uint8[port, 0 can | 1 may | 2 does] run at FDR10: Mellanox's addition to PortInfo, which cannot say it."""
        return np.zeros((len(self.port_info), 3), np.uint8)

    @cached_property
    def path_sl(self) -> NDArray[np.uint8]:
        """uint8[switch, lid] -> the SL that a path record gives for traffic from a port of this switch to that LID."""
        return np.zeros_like(self.lft)

    @cached_property
    def ar_group(self) -> NDArray[np.int32]:
        """int32[switch, lid] -> row of `ar_ports`, -1 where the forwarding table alone decides."""
        return np.full(self.lft.shape, -1, np.int32)

    @cached_property
    def ar_ports(self) -> NDArray[np.bool_]:
        """bool[group, port] -> may a switch that routes adaptively take it? No groups until an engine adds them."""
        return np.zeros((0, NO_ROUTE + 1), np.bool_)

    def of_ports(self, field: Bits) -> NDArray[np.uint8]:
        """[port] -> a field of PortInfo that lies within a byte."""
        shift, ones = np.uint8(8 - field.bit % 8 - field.width), np.uint8((1 << field.width) - 1)
        return self.port_info[:, field.bit // 8] >> shift & ones

    def like(self) -> Tables:
        """Empty tables for the same nodes."""
        return Tables(self._n_ports, self._switches)

    def subset(self, nodes: NDArray[np.intp], ports: NDArray[np.intp]) -> Tables:
        """The tables of what is left when only `nodes`, with their `ports`, stay. Tables never touched stay asleep."""
        rows = self.switch_row[nodes]
        kept = Tables(self._n_ports[nodes], np.flatnonzero(rows >= 0).astype(np.int32))
        awake: dict[str, Any] = vars(self)
        for name in ("lft", "mft", "path_sl", "ar_group"):
            if name in awake:
                setattr(kept, name, awake[name][rows[rows >= 0]])
        for name in ("vl_arbitration", "pkey", "port_info", "fdr10"):
            if name in awake:
                setattr(kept, name, awake[name][ports])
        if "congestion" in awake:
            place = dict(zip(ports.tolist(), range(len(ports)), strict=True))
            found = awake["congestion"].items()
            kept.congestion = {(place[port], what): raw for (port, what), raw in found if port in place}
        if "switch_info" in awake:
            kept.switch_info = awake["switch_info"][nodes]
        if "ar_ports" in awake:
            kept.ar_ports = awake["ar_ports"].copy()
        if "sl2vl" in awake:
            ends = np.append(self.first_pair[1:], len(self.sl2vl))
            spans = [np.arange(self.first_pair[n], ends[n]) for n in nodes]
            kept.sl2vl = self.sl2vl[np.concatenate(spans)] if spans else self.sl2vl[:0]
        return kept

    def grown(self, n_ports: NDArray[np.int16], slots: NDArray[np.int64]) -> Tables:
        """The same tables for nodes that have so many ports, and more nodes behind them, none of those a switch.

        `slots` says where each port is now. Tables never touched stay asleep.
        """
        more = Tables(n_ports, self._switches)
        awake: dict[str, Any] = vars(self)
        for name in ("lft", "mft", "path_sl", "ar_group", "ar_ports"):
            if name in awake:
                setattr(more, name, awake[name].copy())
        for name in ("vl_arbitration", "pkey", "port_info", "fdr10"):
            if name in awake:
                getattr(more, name)[slots] = awake[name]
        if "congestion" in awake:
            more.congestion = {(int(slots[port]), what): raw for (port, what), raw in awake["congestion"].items()}
        if "switch_info" in awake:
            more.switch_info[: len(self.switch_info)] = self.switch_info
        if "sl2vl" in awake:
            count = np.diff(np.append(self.first_pair, len(self.sl2vl)))
            shift = more.first_pair[: len(count)] - self.first_pair
            more.sl2vl[np.arange(len(self.sl2vl)) + np.repeat(shift, count)] = self.sl2vl
        return more


def lid_block(first_lid: int, lmc: int) -> range:
    """The LIDs that a port with this base LID and LMC answers to."""
    return range(first_lid, min(first_lid + (1 << lmc), Lid.FIRST_MULTICAST))
