"""Path records known to hosts: SL, P_Key, MTU and rate that the SA returned for a port and a LID."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

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
