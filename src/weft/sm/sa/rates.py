"""The SA's codes for rates, in the order of what they stand for: 3 is 10 Gbit/s, and 5 is 5."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from weft.fabric.model import Fabric
from weft.fabric.rates import speeds
from weft.wire.sa import Rate

_IN_ORDER = sorted(Rate, key=lambda rate: rate.gbit_s)
CODE_OF_RANK = np.array([0, *_IN_ORDER], np.uint8)  # ranks begin with 1: 0 is no rate
RANK_OF_CODE = np.zeros(64, np.uint8)
RANK_OF_CODE[_IN_ORDER] = np.arange(1, len(_IN_ORDER) + 1)
MOST = len(_IN_ORDER)


def link_ranks(fabric: Fabric) -> NDArray[np.uint8]:
    """Return [link] -> the rank of its signalling rate."""
    lane_gbit_s = np.array([speed.lane_signal_gbit_s for speed in speeds()])
    signals_gbit_s, inverse = np.unique(lane_gbit_s[fabric.links.speed] * fabric.links.width, return_inverse=True)
    ranks: NDArray[np.uint8] = RANK_OF_CODE[[Rate.of_signal(gbit_s) for gbit_s in signals_gbit_s.tolist()]][inverse]
    return ranks


def port_ranks(fabric: Fabric) -> NDArray[np.uint8]:
    """Return [slot] -> the rank of its link; port 0 of a switch has none, and limits nothing."""
    by_link = np.append(link_ranks(fabric), np.uint8(1))  # the last serves ports without a cable
    rank = by_link[fabric.ports.link]
    fastest = np.maximum.reduceat(rank, fabric.first_port) if len(rank) else rank
    return np.where(fabric.ports.number == 0, fastest[fabric.ports.node], rank).astype(np.uint8)
