"""Floating LIDs: which leaf switch gets which, and the options of their ranges."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

import weft
from weft.errors import ConfigError
from weft.fabric.kinds import NodeKind
from weft.ids import Gid
from weft.sm.conf.options import Options
from weft.sm.flids import check_ranges, choose_flids
from weft.sm.ucast.lids import choose_lids
from weft.wire.bulk import fill
from weft.wire.port_info import PortInfo

PREFIX = 0xFEC0_0000_0000_0001
RANGE = {"subnet_prefix": PREFIX, "global_flid_start": 1000, "global_flid_end": 1999}


def view_of(spec: str) -> SimpleNamespace:
    fabric = weft.load(spec)
    is_switch = fabric.nodes.kind == NodeKind.SWITCH
    ends = np.flatnonzero((fabric.ports.number == 0) | (fabric.ports.peer >= 0) & ~is_switch[fabric.ports.node])
    return SimpleNamespace(
        fabric=fabric,
        is_switch=is_switch,
        port_info=np.zeros((len(fabric.ports), 64), np.uint8),
        end_ports=ends,
    )


def flids_of_leaves(view: SimpleNamespace, **options: int) -> list[int]:
    """Return the FLID of each leaf switch, by the ports of its hosts, which all must have the same."""
    own, fabric = choose_flids(view, Options(**RANGE, **options)), view.fabric
    adapters = np.flatnonzero(own)
    leaf = fabric.ports.node[fabric.ports.peer[adapters]]
    sets = [set(own[adapters[leaf == node]].tolist()) for node in dict.fromkeys(leaf.tolist())]
    assert all(len(each) == 1 for each in sets)
    return [each.pop() for each in sets]


@pytest.mark.parametrize(
    ("last", "compression", "flids"),
    [
        (1003, 2, [1000, 1001, 1002, 1003]),
        (1001, 2, [1000, 1001, 1000, 1001]),
        (1002, 2, [1000, 1001, 1002, 1000]),
        (1001, 1, [1000, 1001]),
        (1000, 3, [1000, 1000, 1000]),
    ],
)
def test_leaf_switches_share_floating_lids_up_to_the_compression(last, compression, flids):
    view = view_of("fat-tree:hosts=16,radix=8")
    options = {"local_flid_start": 1000, "local_flid_end": last, "flid_compression": compression}
    assert flids_of_leaves(view, **options) == flids


def test_floating_lid_of_a_port_is_kept_and_one_outside_of_the_range_is_not():
    view = view_of("fat-tree:hosts=16,radix=8")
    slots = np.flatnonzero(choose_flids(view, Options(**RANGE, local_flid_start=1000, local_flid_end=1009)))
    before = np.repeat([1007, 1500, 0, 1000], 4)
    rows = view.port_info[slots]
    fill(rows, PortInfo.gid_prefix, np.uint64(PREFIX) | before.astype(np.uint64) << np.uint64(16))
    view.port_info[slots] = rows
    assert flids_of_leaves(view, local_flid_start=1000, local_flid_end=1009) == [1007, 1001, 1002, 1000]


def test_no_port_gets_a_lid_of_the_global_range():
    view = view_of("fat-tree:hosts=16,radix=8")
    lids = choose_lids(view, {}, floating=(3, 20)).lid[view.end_ports]
    assert sorted(lids.tolist()) == [1, 2, *range(21, 21 + len(lids) - 2)]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"global_flid_start": 10}, "give global_flid_start with a global_flid_end"),
        ({**RANGE, "global_flid_start": 2000}, "give global_flid_start with a global_flid_end"),
        ({**RANGE, "local_flid_start": 1000}, "local_flid_start with local_flid_end"),
        ({**RANGE, "local_flid_start": 999, "local_flid_end": 1000}, "999 to local_flid_end 1000 is refused"),
        ({**RANGE, "local_flid_start": 1002, "local_flid_end": 1001}, "it must be a part of global_flid_start 1000"),
        ({"local_flid_start": 1, "local_flid_end": 2}, "it must be a part of global_flid_start 0"),
        (
            {**RANGE, "local_flid_start": 1000, "local_flid_end": 1001, "subnet_prefix": Gid.LINK_LOCAL_PREFIX},
            "need a site-local prefix",
        ),
        ({"flid_compression": 5}, "flid_compression 5 is refused: it must be a number from 1 to 4"),
        ({"global_flid_start": 1, "global_flid_end": 0xC000}, "global_flid_end 49152 is refused"),
    ],
)
def test_ranges_that_do_not_fit_are_refused(options, says):
    with pytest.raises(ConfigError, match=says):
        check_ranges(Options(**options))


def test_gid_shows_its_floating_lid_and_its_subnet():
    gid = Gid((PREFIX | 1234 << 16) << 64 | 5)
    assert (gid.flid, gid.subnet_prefix) == (1234, PREFIX)
    other = Gid(0x2001_0000_0005_0001 << 64 | 5)
    assert (other.flid, other.subnet_prefix) == (0, 0x2001_0000_0005_0001)
