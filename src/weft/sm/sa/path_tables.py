"""Hold the arrays of one sweep for path queries, with the partitions and QoS of two ports.

Ports with the same P_Key table are of one class; there are few classes, so what two ports share is looked up by class.
A port sees another if they share a partition in which at least one is a full member, or if one has no table at all, as
ports of switches may (InfiniBand Architecture volume 1, "Partitioning"; OpenSM does the same).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.fabric.kernels.forwarding import Arrays, arrays
from weft.ids import PKey, p_keys_match
from weft.sm.discovery.view import View
from weft.sm.qos.policy import PortIdentity
from weft.sm.sa import kernels
from weft.sm.sa.path_query import CODE_OF_RANK, MOST, RANK_OF_CODE, PathQuery, port_ranks
from weft.sm.state import State
from weft.wire.bulk import column
from weft.wire.port_info import Mtu, PortInfo, PortState
from weft.wire.sa import PathRecord

_LIDS = 1 << 16
_ANY = -1  # whatever P_Key they share


class Directory:
    """The ports of a view by LID and GUID, and the P_Keys that they share. Slots are the fabric's."""

    def __init__(self, view: View) -> None:
        self.view, fabric = view, view.fabric
        tables, ports = fabric.tables, fabric.ports
        ends = view.end_ports
        self.ends: NDArray[np.intp] = ends[tables.lid[ends] > 0]  # slots that can be addressed
        home = np.where(view.is_switch, fabric.first_port, -1)[ports.node]  # a switch's ports share its port 0's LID
        self.lid: NDArray[np.int64] = np.where(home >= 0, tables.lid[home], tables.lid).astype(np.int64)  # [slot], base
        self.lids: NDArray[np.int64] = 1 << tables.lmc.astype(np.int64)  # [slot] -> how many
        self.slot_of_lid = np.full(_LIDS, -1, np.int32)
        for offset in range(int(self.lids[self.ends].max(initial=1))):
            of = self.ends[self.lids[self.ends] > offset]
            self.slot_of_lid[tables.lid[of] + offset] = of
        self._common: dict[tuple[int, int], NDArray[np.int64]] = {}
        self._seen: dict[int, NDArray[np.bool_]] = {}

    @cached_property
    def slot_of_guid(self) -> dict[int, int]:
        """The slots of ports with a LID, by GUID."""
        guids = self.view.fabric.ports.guid[self.ends]
        return dict(zip(guids.tolist(), self.ends.tolist(), strict=True))

    def slot_at(self, lid: int) -> int:
        """Return the port that has a LID, -1 if none does."""
        return int(self.slot_of_lid[lid & _LIDS - 1])

    # -- partitions ---------------------------------------------------------------------------------------------------

    @cached_property
    def _classes(self) -> tuple[NDArray[np.intp], NDArray[np.uint16]]:
        """The classes of ports with equal tables: [slot] -> class, and uint16[class, index] -> P_Key."""
        table = self.view.fabric.tables.pkey
        used = np.ascontiguousarray(table[:, table.any(axis=0)])
        if not used.shape[1]:
            return np.zeros(len(table), np.intp), np.zeros((1, 1), np.uint16)
        whole = used.view(np.dtype((np.void, used.itemsize * used.shape[1]))).ravel()
        _, example, inverse = np.unique(whole, return_index=True, return_inverse=True)
        return inverse.ravel(), used[example]

    def p_key(self, source: int, destination: int, partition: int = _ANY) -> int:
        """Return a P_Key by which two ports may talk, as the first of them holds it; 0 for none.

        The first that fits, in the order of the source's table; `wanted` is the only partition that will do.
        """
        classes = self._classes[0]
        return int(self._shared(int(classes[source]), partition)[classes[destination]])

    def p_keys(
        self, source: NDArray[np.intp], destination: NDArray[np.intp], partition: int = _ANY
    ) -> NDArray[np.int64]:
        """Return the P_Keys of many pairs."""
        classes = self._classes[0]
        result = np.zeros(len(source), np.int64)
        of = classes[source]
        for source_class in np.unique(of).tolist():
            rows = of == source_class
            result[rows] = self._shared(source_class, partition)[classes[destination[rows]]]
        return result

    def _shared(self, source_class: int, partition: int) -> NDArray[np.int64]:
        """Return [class] -> the P_Key that ports of class `one` share with it."""
        if (source_class, partition) not in self._common:
            keys = self._classes[1]
            self._common[source_class, partition] = shared = np.zeros(len(keys), np.int64)
            for key in keys[source_class].tolist():
                if partition == _ANY or not (key ^ partition) & ~PKey.FULL_MEMBER:
                    shared[p_keys_match(keys, key).any(axis=1) & (shared == 0)] = key
        return self._common[source_class, partition]

    def visible(self, source: int) -> NDArray[np.bool_]:
        """Return [slot] -> whether this port may see it."""
        classes, keys = self._classes
        source_class = int(classes[source])
        if source_class not in self._seen:
            open_to = (self._shared(source_class, _ANY) > 0) | ~keys.any(axis=1) | (not keys[source_class].any())
            self._seen[source_class] = open_to[classes]
        visible = self._seen[source_class]
        if not visible[source]:  # limited members see no other, but themselves
            visible = visible.copy()
            visible[source] = True
        return visible


Pairs = NDArray[np.int64]  # [pair, column of the kernel]
_MTU_MAX = int(max(Mtu))
Limits = tuple[int, int, int, int, int]  # P_Key, SL, most MTU, most rate by rank, life time


@dataclass(slots=True, eq=False)
class PathTables:
    """The inputs of the path kernel, of one sweep."""

    state: State
    directory: Directory
    plane: Arrays
    arrays: tuple[object, ...]
    identities: dict[int, PortIdentity] = field(default_factory=dict)

    @classmethod
    def of(cls, state: State, directory: Directory) -> PathTables:
        view, fabric = directory.view, directory.view.fabric
        ports, tables, awake = fabric.ports, fabric.tables, vars(fabric.tables)
        cap, neighbor = column(view.port_info, PortInfo.mtu_cap), column(view.port_info, PortInfo.neighbor_mtu)
        inner = view.is_switch[ports.node] & (ports.number == 0)
        usable = (inner | (view.state == PortState.ACTIVE)) & (tables.lid > 0)
        gids = np.empty((len(ports), 2), ">u8")
        gids[:, 0], gids[:, 1] = state.options.subnet_prefix, ports.guid
        if state.flids is not None and len(state.flids.own) == len(ports):
            gids[:, 0] |= (state.flids.own << 16).astype(">u8")
        selected = (
            np.ascontiguousarray(tables.path_sl) if "path_sl" in awake else np.zeros((0, 0), np.uint8),
            np.where(inner | (neighbor == 0), cap, neighbor).astype(np.uint8),
            port_ranks(fabric),
            CODE_OF_RANK,
            usable,
            gids.view(np.uint8),
        )
        return cls(state, directory, arrays(fabric), selected)

    def records(self, pairs: Pairs, limits: NDArray[np.int64]) -> NDArray[np.uint8]:
        """Return the records of paths that exist; move their pairs to the front of `pairs`."""
        rows = np.empty((len(pairs), PathRecord.size), np.uint8)
        count = kernels.fill_paths(self.plane, pairs, limits, *self.arrays, rows)
        return rows[:count]

    def identity(self, slot: int) -> PortIdentity:
        """Return the identity of a port for the QoS policy."""
        if slot not in self.identities:
            fabric, partitions = self.directory.view.fabric, self.state.partitions
            node = int(fabric.ports.node[slot])
            keys = [key & 0x7FFF for key in fabric.tables.pkey[slot].tolist() if key]
            named = [partition for key in keys if (partition := partitions.by_p_key(key)) is not None]
            self.identities[slot] = PortIdentity(
                guid=int(fabric.ports.guid[slot]),
                node_description=fabric.nodes.description[node],
                number=int(fabric.ports.number[slot]),
                kind=fabric.node(node).kind,
                is_self=slot == self.directory.view.own_slot,
                p_keys=frozenset(keys),
                partitions=frozenset(partition.name for partition in named),
            )
        return self.identities[slot]

    # -- what partitions and QoS say

    def limits(self, query: PathQuery[Any], source: int, destination: int) -> Limits | None:
        """Return the limits of paths between two ports; None if no path is allowed."""
        level = None
        if self.state.policy is not None:
            level = self.state.policy.level_for(
                source=self.identity(source),
                destination=self.identity(destination),
                p_key=query.value("p_key"),
                qos_class=query.value("qos_class"),
                service_id=query.service_id,
            )
        if level is None or not level.p_key:
            p_key = self.directory.p_key(source, destination, query.p_key)
        else:
            held = self.directory.view.fabric.tables.pkey[source].tolist() if query.p_key < 0 else [query.p_key]
            keys = [key for key in held if key & ~PKey.FULL_MEMBER and level.allows(key)]
            p_key = next((shared for key in keys if (shared := self.directory.p_key(source, destination, key))), 0)
        sl = query.sl
        if level is not None:
            sl = level.sl if sl in (-1, level.sl) else -1
        elif sl < 0:
            sl = self.partition_sl(p_key)
        if not p_key or sl < 0:
            return None
        most_mtu, most_rate, life = _MTU_MAX, MOST, self.state.options.subnet_timeout
        if level is not None:
            most_mtu = most_mtu if level.mtu_limit is None else level.mtu_limit
            most_rate = most_rate if level.rate_limit is None else int(RANK_OF_CODE[level.rate_limit])
            life = life if level.packet_life is None else level.packet_life
        return self._shown(query, p_key), sl, most_mtu, most_rate, life

    def with_limits(self, query: PathQuery[Any], pairs: Pairs) -> Pairs:
        """Return the pairs that are allowed, with their limits."""
        source, destination = pairs[:, kernels.SOURCE], pairs[:, kernels.DESTINATION]
        columns = slice(kernels.P_KEY, kernels.LIFE + 1)
        if self.state.policy is not None:
            _, example, inverse = np.unique(source << 32 | destination, return_index=True, return_inverse=True)
            limits = [self.limits(query, int(source[row]), int(destination[row])) for row in example.tolist()]
            is_allowed = np.array([limit is not None for limit in limits], bool)
            table = np.array([limit or (0,) * 5 for limit in limits], np.int64).reshape(-1, 5)
            pairs[:, columns] = table[inverse.ravel()]
            possible: Pairs = pairs[is_allowed[inverse.ravel()]]
            return possible
        p_key = self.directory.p_keys(source, destination, query.p_key)
        for key in np.unique(p_key[p_key > 0]).tolist():
            sl = self.partition_sl(key) if query.sl < 0 else query.sl
            pairs[p_key == key, columns] = (
                self._shown(query, key),
                sl,
                _MTU_MAX,
                MOST,
                self.state.options.subnet_timeout,
            )
        return pairs[p_key > 0]

    def partition_sl(self, p_key: int) -> int:
        """Return the SL of a partition, 0 if QoS is off."""
        partition = self.state.partitions.by_p_key(p_key) if self.state.qos is not None else None
        return partition.sl if partition is not None else 0

    def _shown(self, query: PathQuery[Any], p_key: int) -> int:
        """Return the P_Key of the record: the requested one; 0 for raw packets, which have none."""
        if query.value("raw_traffic"):
            return 0
        return p_key if query.p_key < 0 else query.p_key
