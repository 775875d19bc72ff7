"""The packet engine confirms the planned shares of lanes."""

from __future__ import annotations

import numpy as np
import pytest

from weft.fabric.spec import load
from weft.routing.route import route
from weft.sim.engine import Options
from weft.sim.packet.engine import PacketEngine
from weft.sim.traffic import Traffic
from weft.sm.conf.qos_options import Qos, write_vlarb
from weft.sm.qos.tables import fill_qos
from weft.tenants.intent import Class
from weft.tenants.quality import lay_lanes

MESSAGE_BYTES = 4_096_000


@pytest.mark.parametrize(
    "classes",
    [
        {"mpi": Class(share=50, priority="high"), "storage": Class(share=40)},
        {"mpi": Class(share=60, priority="high"), "storage": Class(share=20)},
        {"mpi": Class(share=40, priority="high"), "rpc": Class(share=20, priority="high"), "storage": Class(share=20)},
        {"a": Class(share=60), "b": Class(share=20)},
        {"mpi": Class(share=50, priority="high"), "storage": Class(share=30)},
        {"a": Class(share=34), "b": Class(share=27), "c": Class(share=22)},
    ],
    ids=["half first", "most first", "two first", "by weight", "two to three", "in no simple ratio"],
)
def test_each_lane_of_a_congested_link_gets_its_planned_share(classes):
    """Messages in proportion to the shares end at the same time."""
    options, lanes = lay_lanes(classes, {name: sl for sl, name in enumerate(classes, 1)})
    fabric = route(load(f"star:hosts={len(lanes) + 1},switch=QM9700")).fabric
    every = np.full(len(fabric.ports), 5, np.uint8)  # VL0-14
    room = np.full(len(fabric.ports), 64, np.uint8)
    fill_qos(fabric.tables, fabric, Qos.of(options), operational_vls=every, vlarb_high_cap=room, vlarb_low_cap=room)
    rows = [
        (f"h{at}", f"h{len(lanes) + 1}", int(MESSAGE_BYTES * lane.given_percent / 100))
        for at, lane in enumerate(lanes, 1)
    ]
    traffic = Traffic.of(fabric, rows, sl=np.array([lane.sl for lane in lanes]))
    finish_ps = PacketEngine().run(fabric, traffic, Options(seed=1)).finish_ps
    assert finish_ps.min() > 0.97 * finish_ps.max(), dict(
        zip((lane.name for lane in lanes), finish_ps / 1e6, strict=True)
    )


def test_given_shares_are_those_of_whole_packets():
    """The limit is 8 entries with at most 3 packets of 4 KiB each."""
    options, lanes = lay_lanes(
        {"a": Class(share=34), "b": Class(share=27), "c": Class(share=22)}, {"a": 1, "b": 2, "c": 3}
    )
    given = [(lane.asked_percent, lane.given_percent) for lane in lanes]
    assert given == [(17, 16.7), (34, 33.3), (27, 27.8), (22, 22.2)]
    assert write_vlarb(options.vlarb_low) == "0:192,1:192,2:192,3:128,1:192,2:128,3:128"
