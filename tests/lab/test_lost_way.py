"""A lab explains with names of ports and cables why packets are lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from tests.lab.rdma import all_active, running
from tests.patience import wait_until

from weft.fabric.tables import NO_ROUTE
from weft.lab.lab import Lab
from weft.lab.lost_way import why_lost

P_KEY = 0xFFFF


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with running() as up:
        yield up


def slot(lab: Lab, host: str) -> int:
    return lab.fabric[f"{host}/1"].slot


def why(lab: Lab, p_key: int = P_KEY) -> str:
    """Return the reason for the lost path from h1 to h8."""
    devices = lab.subnet.devices
    lid = devices.lid(slot(lab, "h8"))
    return lab.server.call(lambda: why_lost(devices, slot(lab, "h1"), lid=lid, sl=0, p_key=p_key, mtu_bytes=4096))


def without_route(lab: Lab, switch: str, host: str) -> Callable[[], None]:
    """Remove a switch's route to a host; return the function that restores it."""
    devices = lab.subnet.devices
    row, lid = devices.row[lab.fabric[switch].index], devices.lid(slot(lab, host))
    before = int(devices.tables.lft[row, lid])
    devices.tables.lft[row, lid] = NO_ROUTE

    def put_back() -> None:
        devices.tables.lft[row, lid] = before

    return put_back


@pytest.mark.parametrize(
    ("pulled", "said"),
    [
        (["h8"], "no way from h1/1 to h8/1: pulled is h8/1 - leaf4/2"),
        (["h1", "leaf2/3"], "no way from h1/1 to h8/1: pulled is h1/1 - leaf1/1"),
        (["leaf1/3", "leaf1/4"], "no way from h1/1 to h8/1: pulled are leaf1/3 - spine1/1, leaf1/4 - spine2/1"),
    ],
)
def test_a_cable_without_which_there_is_no_way_is_named(lab, pulled, said):
    for name in pulled:
        lab.break_cable(name)
    assert why(lab) == said
    lab.fix()
    wait_until(lambda: all_active(lab))
    wait_until(lambda: why(lab) == "")


@pytest.mark.parametrize(
    ("switch", "host", "said"),
    [
        ("leaf1", "h8", "by h1/1, leaf1/1 a packet comes no further: the switch has no port for its DLID"),
        ("leaf4", "h1", "by h8/1, leaf4/2 a packet comes no further: the switch has no port for its DLID"),
    ],
)
def test_a_way_without_a_route_is_named_as_far_as_it_goes_there_and_back(lab, switch, host, said):
    put_back = without_route(lab, switch, host)
    assert why(lab) == said
    put_back()
    assert why(lab) == ""


def test_a_partition_that_a_port_is_not_in_is_named(lab):
    assert why(lab, 0x8101) == "no way from h1/1 to h8/1: h1/1 is not in partition 0x0101 any more"
    lab.fabric.tables.pkey[slot(lab, "h1"), 5] = 0x8101
    assert why(lab, 0x8101) == "no way from h1/1 to h8/1: h8/1 is not in partition 0x0101 any more"
    lab.fabric.tables.pkey[slot(lab, "h8"), 5] = 0x0101
    assert why(lab, 0x8101) == ""
    lab.fabric.tables.pkey[slot(lab, "h1"), 5] = 0x0101
    assert why(lab, 0x0101).endswith("h8/1 a packet comes no further: no P_Key of the port matches, 0x0101")
    for host in ("h1", "h8"):
        lab.fabric.tables.pkey[slot(lab, host), 5] = 0


def test_a_cable_that_errs_is_named(lab):
    lab.degrade("leaf4/2", 1e-5)
    assert why(lab) == "the way from h1/1 to h8/1 errs: h8/1 - leaf4/2"
    lab.fix()
    devices = lab.subnet.devices
    assert (
        why_lost(devices, slot(lab, "h1"), lid=0xB000, sl=0, p_key=P_KEY, mtu_bytes=256) == "no adapter has LID 45056"
    )
