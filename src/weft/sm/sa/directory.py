"""Look up ports of one sweep by LID, GUID and P_Key, and check which may see which.

Ports with the same P_Key table are of one class; there are few classes, so what two ports share is looked up by class.
A port sees another if they share a partition in which at least one is a full member, or if one has no table at all, as
ports of switches may (InfiniBand Architecture volume 1, "Partitioning"; OpenSM does the same).
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from weft.ids import PKey, p_keys_match
from weft.sm.discovery.view import View

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
