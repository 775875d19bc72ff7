"""The tables that a subnet manager writes: LIDs, forwarding, multicast, SL to VL, VL arbitration, partitions.

Each table is one array for the whole fabric, so that the management agents, the routing engines, the packet engine and
the web page read and write the same bytes. The big ones are allocated on first access: an unconfigured fabric pays
nothing for them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from weft.ids import Lid, PKey
from weft.wire.fields import Bits
from weft.wire.port_info import PortInfo

NO_ROUTE = 255  # the port number in a linear forwarding table that means no route
WIDE_NO_ROUTE = 0xFFFF  # the same in tables of Ethernet switches with more ports than a byte counts
SERVICE_LEVELS = 16
VL_ARBITRATION_ENTRIES = 64
PKEY_ENTRIES = 128
ATTRIBUTE_BYTES = 64  # the size of an SMP's attribute


class Tables:
    """The tables of a fabric with `n_ports[node]` ports per node and `switches` among them."""

    paths: HostPaths | None = None  # as path records told the hosts; None: no host has queried
    subnet: NDArray[np.int32] | None = None  # of each port, if several are joined: `joined_subnets`

    def __init__(self, n_ports: NDArray[np.int16], switches: NDArray[np.int32]) -> None:
        self._n_ports = n_ports
        self._switches = switches
        total = int(n_ports.sum(dtype=np.int64)) + len(n_ports)
        # uint8[port, byte]: PortInfo as MADs carry it; of a fabric that is not running, only the fields below.
        self.port_info = np.zeros((total, ATTRIBUTE_BYTES), np.uint8)

    @property
    def runs(self) -> bool:
        """Return whether the fabric is running, so that its ports have states."""
        return bool(self.of_ports(PortInfo.port_state).any())

    @property
    def lid(self) -> NDArray[Any]:
        """The base LID of each port, big-endian as in PortInfo; a switch's is at its port 0."""
        if "addresses" in vars(self):
            return self.addresses
        first = PortInfo.lid.bit // 8
        return self.port_info[:, first : first + 2].view(">u2")[:, 0]

    @cached_property
    def addresses(self) -> NDArray[np.int32]:
        """The addresses of the ports instead of LIDs, on an Ethernet fabric with more ports than a subnet has LIDs."""
        return np.zeros(len(self.port_info), np.int32)

    @property
    def lmc(self) -> NDArray[np.uint8]:
        """The LMC of each port, log2 of its number of LIDs; `set_lmc` writes it."""
        lmc = self.of_ports(PortInfo.lmc)
        lmc.setflags(write=False)  # three bits of a byte: this is a copy
        return lmc

    def set_lmc(self, slots: Any, lmc: ArrayLike) -> None:
        column = self.port_info[:, PortInfo.lmc.bit // 8]
        column[slots] = column[slots] & 0xF8 | lmc

    @property
    def vl_high_limit(self) -> NDArray[np.uint8]:
        """The LimitOfHighPriority of each port, in units of 4 KiB; 255 is no limit."""
        return self.port_info[:, PortInfo.vl_high_limit.bit // 8]

    @cached_property
    def switch_row(self) -> NDArray[np.int32]:
        """The row of each node in `lft` and `mft`, -1 if it is not a switch."""
        rows = np.full(len(self._n_ports), -1, np.int32)
        rows[self._switches] = np.arange(len(self._switches), dtype=np.int32)
        return rows

    @property
    def port_numbers(self) -> int:
        """The width of arrays with a column for each port number of a switch: 256 where these are bytes."""
        return max(NO_ROUTE, int(self._n_ports[self._switches].max(initial=0))) + 1

    @property
    def no_route(self) -> int:
        """The number that means no route in `lft`."""
        return no_route(self.lft)

    @cached_property
    def lft(self) -> NDArray[Any]:
        """The linear forwarding tables, uint8[switch, lid] -> out port or `no_route`, up to the highest LID.

        Of Ethernet switches with more ports than a byte counts, uint16.
        """
        top_lid = int((self.lid + (1 << self.lmc.astype(np.int64)) - 1).max(initial=0))
        dtype = np.uint8 if self.port_numbers == NO_ROUTE + 1 else np.uint16
        table = np.empty((len(self._switches), top_lid + 1), dtype)
        table[:] = no_route(table)
        return table

    @cached_property
    def mft(self) -> NDArray[np.uint16]:
        """The multicast tables, uint16[switch, mlid - 0xC000, port // 16] -> mask of out ports; at first empty."""
        widest = int(self._n_ports[self._switches].max(initial=0))
        return np.zeros((len(self._switches), 0, widest // 16 + 1), np.uint16)

    @cached_property
    def first_pair(self) -> NDArray[np.int64]:
        """The first row of each node in `sl2vl`."""
        ports = self._n_ports.astype(np.int64) + 1
        pairs = ports.copy()
        pairs[self._switches] = ports[self._switches] ** 2
        return np.concatenate(([0], np.cumsum(pairs)[:-1]))

    @cached_property
    def sl2vl(self) -> NDArray[np.uint8]:
        """The SL to VL tables, uint8[row, sl] -> VL.

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
        """The VL arbitration tables, uint8[port, 0 low | 1 high, entry, 0 VL | 1 weight]."""
        return np.zeros((len(self.port_info), 2, VL_ARBITRATION_ENTRIES, 2), np.uint8)

    @cached_property
    def pkey(self) -> NDArray[np.uint16]:
        """The P_Key tables, uint16[port, index]; index 0 is the default partition, as after power-up."""
        keys = np.zeros((len(self.port_info), PKEY_ENTRIES), np.uint16)
        keys[:, 0] = PKey.DEFAULT
        return keys

    @cached_property
    def congestion(self) -> dict[tuple[int, int], bytearray]:
        """The congestion control attributes as MADs set them, by (port, attribute << 16 | block)."""
        return {}

    @cached_property
    def switch_info(self) -> NDArray[np.uint8]:
        """The SwitchInfo as MADs carry it, uint8[node, byte], of a running fabric."""
        return np.zeros((len(self._n_ports), ATTRIBUTE_BYTES), np.uint8)

    @cached_property
    def fdr10(self) -> NDArray[np.uint8]:
        """The FDR10 state, uint8[port, 0 supported | 1 enabled | 2 active]: Mellanox's extension of PortInfo."""
        return np.zeros((len(self.port_info), 3), np.uint8)

    @cached_property
    def path_sl(self) -> NDArray[np.uint8]:
        """The SL of path records, uint8[switch, lid]: from a port of this switch to that LID."""
        return np.zeros(self.lft.shape, np.uint8)

    @cached_property
    def ar_group(self) -> NDArray[np.int32]:
        """The adaptive-routing groups, int32[switch, lid] -> row of `ar_ports`, -1 for deterministic routing."""
        return np.full(self.lft.shape, -1, np.int32)

    @cached_property
    def ar_ports(self) -> NDArray[np.bool_]:
        """The ports of adaptive-routing groups, bool[group, port]; no groups until a routing engine adds them."""
        return np.zeros((0, self.port_numbers), np.bool_)

    def of_ports(self, field: Bits) -> NDArray[np.uint8]:
        """Return a field of PortInfo that lies within a byte, for each port."""
        shift, mask = np.uint8(8 - field.bit % 8 - field.width), np.uint8((1 << field.width) - 1)
        return self.port_info[:, field.bit // 8] >> shift & mask

    def like(self) -> Tables:
        """Return empty tables for the same nodes."""
        return Tables(self._n_ports, self._switches)

    def unrouted(self) -> Tables:
        """Return the same LIDs without forwarding tables."""
        tables = self.like()
        tables.port_info[:] = self.port_info
        if "addresses" in vars(self):
            tables.addresses = self.addresses.copy()
        return tables

    def subset(self, nodes: NDArray[np.intp], ports: NDArray[np.intp]) -> Tables:
        """Return the tables of these nodes and ports only; tables that were never accessed stay unallocated."""
        rows = self.switch_row[nodes]
        remaining = Tables(self._n_ports[nodes], np.flatnonzero(rows >= 0).astype(np.int32))
        existing: dict[str, Any] = vars(self)
        for name in ("lft", "mft", "path_sl", "ar_group"):
            if name in existing:
                setattr(remaining, name, existing[name][rows[rows >= 0]])
        for name in ("vl_arbitration", "pkey", "port_info", "fdr10", "addresses"):
            if name in existing:
                setattr(remaining, name, existing[name][ports])
        if "congestion" in existing:
            place = dict(zip(ports.tolist(), range(len(ports)), strict=True))
            attributes = existing["congestion"].items()
            remaining.congestion = {(place[port], key): raw for (port, key), raw in attributes if port in place}
        if "switch_info" in existing:
            remaining.switch_info = existing["switch_info"][nodes]
        if "ar_ports" in existing:
            remaining.ar_ports = existing["ar_ports"].copy()
        if "sl2vl" in existing:
            ends = np.append(self.first_pair[1:], len(self.sl2vl))
            spans = [np.arange(self.first_pair[n], ends[n]) for n in nodes]
            remaining.sl2vl = self.sl2vl[np.concatenate(spans)] if spans else self.sl2vl[:0]
        return remaining

    def grown(self, n_ports: NDArray[np.int16], slots: NDArray[np.int64]) -> Tables:
        """Return the same tables for nodes with more ports, followed by new nodes that are not switches.

        `slots` gives the new slot of each port. Tables that were never accessed stay unallocated.
        """
        more = Tables(n_ports, self._switches)
        existing: dict[str, Any] = vars(self)
        for name in ("lft", "mft", "path_sl", "ar_group", "ar_ports"):
            if name in existing:
                setattr(more, name, existing[name].copy())
        for name in ("vl_arbitration", "pkey", "port_info", "fdr10", "addresses"):
            if name in existing:
                getattr(more, name)[slots] = existing[name]
        if "congestion" in existing:
            more.congestion = {(int(slots[port]), key): raw for (port, key), raw in existing["congestion"].items()}
        if "switch_info" in existing:
            more.switch_info[: len(self.switch_info)] = self.switch_info
        if "sl2vl" in existing:
            count = np.diff(np.append(self.first_pair, len(self.sl2vl)))
            shift = more.first_pair[: len(count)] - self.first_pair
            more.sl2vl[np.arange(len(self.sl2vl)) + np.repeat(shift, count)] = self.sl2vl
        return more


def no_route(table: NDArray[Any]) -> int:
    """Return the number that means no route in a forwarding table."""
    return NO_ROUTE if table.itemsize == 1 else WIDE_NO_ROUTE


def lid_block(first_lid: int, lmc: int) -> range:
    """Return the LIDs of a port with this base LID and LMC."""
    end = first_lid + (1 << lmc)
    return range(first_lid, end if first_lid >= Lid.FIRST_MULTICAST else min(end, Lid.FIRST_MULTICAST))


_LID_BITS = 16


@dataclass(frozen=True, slots=True, eq=False)
class HostPaths:
    """A row for each path that a host has queried, in the order of `key`."""

    key: NDArray[np.int64]  # port slot << 16 | DLID
    sl: NDArray[np.uint8]
    p_key: NDArray[np.uint16]
    mtu_bytes: NDArray[np.int32]
    rate_gbit_s: NDArray[np.float64]  # data rate

    @classmethod
    def of(
        cls,
        slot: ArrayLike,
        dlid: ArrayLike,
        sl: ArrayLike,
        p_key: ArrayLike,
        mtu_bytes: ArrayLike,
        rate_gbit_s: ArrayLike = np.inf,
    ) -> HostPaths:
        key = np.asarray(slot, np.int64) << _LID_BITS | np.asarray(dlid, np.int64)
        order = np.argsort(key, kind="stable")
        return cls(
            key[order],
            np.asarray(sl, np.uint8)[order],
            np.asarray(p_key, np.uint16)[order],
            np.asarray(mtu_bytes, np.int32)[order],
            np.broadcast_to(np.asarray(rate_gbit_s, np.float64), key.shape)[order],
        )

    def find(self, slot: ArrayLike, dlid: ArrayLike) -> NDArray[np.intp]:
        """Return the rows of these paths; -1 if unknown."""
        key = np.asarray(slot, np.int64) << _LID_BITS | np.asarray(dlid, np.int64)
        if not len(self.key):
            return np.full(key.shape, -1, np.intp)
        row = np.minimum(np.searchsorted(self.key, key), len(self.key) - 1)
        return np.where(self.key[row] == key, row, -1)
