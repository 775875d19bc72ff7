"""Max-min fair rates of endless flows: the solution of `share`, once, without messages and a clock.

rate, bottleneck = fair_rates(first, link, capacity)        # flow f uses links link[first[f]:first[f + 1]]
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from weft.sim.flow.share import share_all
from weft.sim.flow.state import CLASS, FLOW, RUN, make_nodes
from weft.sim.layout.records import NONE, Records, records

EXACT = 1e-12  # relative tolerance of rates: rounding only


class _Flows(NamedTuple):
    """The part of `state.State` that `share` needs."""

    run: Records
    flows: Records
    classes: Records
    chosen: NDArray[np.int32]
    touched: NDArray[np.int32]
    levels: NDArray[np.int32]
    node_first: NDArray[np.int64]
    node_class: NDArray[np.int32]
    node_share: NDArray[np.float64]
    node_flow: NDArray[np.int32]
    node_guess: NDArray[np.int32]
    node_next: NDArray[np.int32]
    node_prev: NDArray[np.int32]


def fair_rates(
    first: NDArray[np.int64],
    link: NDArray[np.int32],
    capacity: NDArray[np.float64],
    share: NDArray[np.float64] | None = None,
) -> tuple[NDArray[np.float64], NDArray[np.int32]]:
    """Return the rate of each flow, in the unit of `capacity`, and its bottleneck link.

    Each flow uses at least one link. share: of its rate on each of its links; None: all of it.
    """
    flows, classes, run = records(len(first) - 1, FLOW), records(len(capacity), CLASS), records(1, RUN)
    if not len(flows):
        return np.zeros(0), np.zeros(0, np.int32)
    flows.bottleneck = NONE
    classes.capacity, classes.head, classes.place = capacity, NONE, NONE
    run.solution, run.tolerance = 1, EXACT
    share_all(
        _Flows(
            run=run,
            flows=flows,
            classes=classes,
            chosen=np.zeros(len(flows), np.int32),
            touched=np.zeros(len(classes), np.int32),
            levels=np.zeros(len(classes), np.int32),
            node_first=first,
            **make_nodes(first, link, np.ones(len(link)) if share is None else share),
        )
    )
    return flows.new_rate.copy(), link[flows.new_bottleneck]
