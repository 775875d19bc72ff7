from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from tests.conformance.carriers import CHECKS, Ends
from tests.lab.rdma import managed
from tests.verbs.wires import loopback_address

import weft
from weft.lab.lab import Lab
from weft.verbs.carriers.lab.device import LabDevice
from weft.verbs.carriers.lab.paths import AddressVector
from weft.verbs.carriers.loopback import Loopback
from weft.verbs.carriers.processes.carrier import ProcessCarrier
from weft.verbs.carriers.roce.carrier import RoceCarrier
from weft.verbs.hca.carrier import Carrier

GID, GROUP = 0xFE80 << 112, 0xFF12 << 112 | 0x77
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes, RoCE and labs are for Linux")


def by_gid(a: Carrier, b: Carrier, gid_a: int, gid_b: int) -> Ends:
    return Ends(
        a=a,
        b=b,
        to_b=(gid_b, gid_a),
        to_a=(gid_a, gid_b),
        to_nobody=(gid_b + 99, gid_a),
        group=(GROUP, (GROUP, gid_a), gid_a, gid_b),
    )


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with Lab(weft.load("star:hosts=3"), f"c{time.monotonic_ns() % 10**12}") as up, managed(up):
        yield up


def of_lab(lab: Lab) -> Ends:
    a, b = (LabDevice(lab.host(name)["verbs"], name, "mlx5_0", 1, 1)._attach() for name in ("h2", "h3"))
    (lid_a, gid_a), (lid_b, gid_b) = (
        (item.facts.info.lid, int.from_bytes(item.facts.gids[0], "big")) for item in (a, b)
    )
    group = a.paths.join((GROUP, gid_a))  # as a sending member
    to_a, to_b, to_nobody = (AddressVector(lid) for lid in (lid_a, lid_b, 0xB000))
    return Ends(a=a, b=b, to_b=to_b, to_a=to_a, to_nobody=to_nobody, group=(GROUP, group, gid_a, gid_b))


@pytest.fixture(params=["loopback", "processes", "roce", "lab"])
def ends(request) -> Iterator[Ends]:
    with ExitStack() as stack:
        match request.param:
            case "loopback":
                result = by_gid(Loopback((GID + 1,)), Loopback((GID + 2,)), GID + 1, GID + 2)
            case "processes":
                device = f"test{os.getpid()}-{time.monotonic_ns()}"
                result = by_gid(ProcessCarrier((GID,), device), ProcessCarrier((GID,), device), GID, GID)
            case "roce":
                a, b = (RoceCarrier(loopback_address(number)) for number in (31, 32))
                result = by_gid(a, b, a.gid, b.gid)
            case _:
                result = of_lab(request.getfixturevalue("lab"))
        stack.callback(result.a.close)
        if request.node.callspec.params["name"] != "closed_peer":
            stack.callback(result.b.close)
        yield result


@pytest.mark.parametrize("name", CHECKS)
def test_every_carrier_keeps_to_the_suite(ends, name, request):
    if name == "group" and isinstance(ends.a, RoceCarrier):
        assert ends.b.join(GROUP, 0) is None  # its socket is in no group
    else:
        CHECKS[name](ends)
