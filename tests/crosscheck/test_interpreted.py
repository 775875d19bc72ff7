"""The kernels have the same results compiled and interpreted."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

_ROUTING = """
import hashlib, weft
from weft.fabric import faults
from weft.fabric.prices import read_prices
from weft.plan.optimise import optimise
from weft.plan.floor.racks import place
from weft.plan.floor.room import Room
from weft.routing.check import check
from weft.routing.engine import CannotRoute, Options
from weft.routing.quality import measure
from weft.routing import ENGINES
from weft.routing.route import reroute, route

SPECS = ("fat-tree:hosts=40,radix=8", "superpod:su=1,servers=2", "torus:5x3", "dragonfly:p=1,a=4,h=1", "hyperx:3x3")
said = hashlib.sha256()
for spec in SPECS:
    fabric = weft.load(spec)
    for name in ENGINES:
        try:
            routing = route(fabric, Options(engine=name, lmc=1, adaptive=True))
        except CannotRoute as reason:
            said.update(str(reason).encode())
            continue
        tables, quality = routing.tables, measure(routing.fabric, bisections=3)
        for array in (tables.lft, tables.path_sl, tables.sl2vl, tables.ar_group, tables.ar_ports, quality.load):
            said.update(array.tobytes())
        verdict = check(routing.fabric)
        said.update(repr((verdict.hops, verdict.vls, len(verdict.credit_loop) > 0, quality.bisection)).encode())
        said.update(reroute(fabric, routing).tables.lft.tobytes())
racks = place(weft.load("torus:3x3,hosts=2"), Room(switches="end"))
moved = optimise(racks, read_prices(), stop=iter([False, False, True]).__next__).after.racks
assert (moved.rack != racks.rack).any()
said.update(moved.rack.tobytes() + moved.u.tobytes())
print(said.hexdigest())
"""

_PACKETS = """
import weft
from weft.fabric import faults
from weft.routing.engine import Options as RoutingOptions
from weft.routing.route import route
from weft.sim.engine import Options
from weft.sim.packet.engine import PacketEngine
from weft.sim.traffic import Traffic

def run(spec, rows, *, columns={}, bad_cable="", **options):
    fabric = route(weft.load(spec), RoutingOptions(adaptive=True)).fabric
    if bad_cable:
        fabric = faults.degrade(fabric, bad_cable, 8e-6)
    traffic = Traffic.of(fabric, rows, **columns)
    print(PacketEngine().run(fabric, traffic, Options(**options)).digest())

tree, ring, star, lossy = "fat-tree:hosts=12,radix=8", "torus:4x4", "star:hosts=5", "star:hosts=12,speed=100GbE"
shift = [(f"h{i + 1}", f"h{(i + 5) % 12 + 1}", 12_000 + 1000 * i) for i in range(12)]
incast = [(f"h{i}", "h1", 30_000) for i in range(2, 6)]
run(tree, shift)
run(tree, shift, paths="adaptive")
run(tree, shift, paths="spray", bad_cable="h3/1", ack_timeout_exponent=4)
run(tree, shift, bad_cable="h3/1", ack_timeout_exponent=4)
run(tree, shift, switching="store-and-forward", buffer_bytes=4160)
run(ring, shift)
run(star, incast, congestion_control="ib", buffer_bytes=200_000)
run(star, incast, columns={"operation": 2, "outstanding": 1}, memory="staged")
run(star, incast, columns={"operation": 1, "transport": 1, "after": [[], [0], [0], [1, 2]], "delay_ps": 5})
run(lossy, [(f"h{i}", "h1", 120_000) for i in range(2, 6)], network="roce")
run(lossy, [(f"h{i}", "h1", 120_000) for i in range(2, 6)], network="roce", paths="table", buffer_bytes=40_000)
run(lossy, [(f"h{i}", "h1", 50_000) for i in range(2, 13)], network="tcp", paths="table", buffer_bytes=40_000)
groups_of = "dragonfly:p=2,a=4,h=1"
far = [(f"h{i + 1}", f"h{(i + 9) % 40 + 1}", 20_000) for i in range(40)]
run(groups_of, far, paths="ugal")
run(groups_of, far, paths="valiant")
"""

# Several groups of switches: compiled by two threads, interpreted by one.
_GROUPS = (
    _PACKETS.replace(
        "import weft\n",
        "import weft\nfrom weft.sim.packet import groups\ngroups.LEAST_HOSTS = groups.HOSTS_OF_A_GROUP = 2\n",
        1,
    ).split("run(tree, shift)")[0]
    + """
run(tree, shift)
run(tree, shift, paths="spray", bad_cable="leaf1/5", ack_timeout_exponent=4)
run(tree, shift, bad_cable="leaf1/5", ack_timeout_exponent=4, congestion_control="ib")
run(ring, shift, columns={"operation": 2}, congestion_control="swift")
run(tree, shift, columns={"operation": 1, "transport": 1, "after": [[], [0], [0], [1, 2]] + [[3]] * 8, "delay_ps": 5})
run("fat-tree:hosts=12,radix=8,speed=100GbE", shift, network="roce", buffer_bytes=40_000)
"""
)

_COPIES = """
import numpy as np
import weft
from weft.fabric import faults as cables
from weft.mad import faults
from weft.routing.patterns import host_ports
from weft.scenarios.managed import ManagedSubnet
from weft.sim.engine import Options
from weft.sim.packet.engine import PacketEngine
from weft.sim.traffic import Traffic, Transport
from weft.sm.conf.options import Options as SmOptions

for bad_cable, vls in (("", 1), ("leaf1/1", 1), ("", 2)):
    net = ManagedSubnet(weft.load("fat-tree:hosts=6,radix=4"), SmOptions())
    tables = net.devices.tables
    tables.mft = np.full((len(tables.lft), 1, 1), 0xFFFF, np.uint16)  # a loop
    tables.sl2vl[:] = np.arange(16) % vls
    fabric = faults.fabric_now(net.devices)
    if bad_cable:
        fabric = cables.degrade(fabric, bad_cable, 8e-6)
    hosts = host_ports(fabric)
    traffic = Traffic.make(hosts, hosts, 9_000, mlid=0xC000, sl=np.arange(6) % 2, transport=Transport.UD, operation=1)
    result = PacketEngine().run(fabric, traffic, Options())
    print(result.groups.copies.sum(), result.digest())
"""


_ALL = (_ROUTING, _PACKETS, _GROUPS, _COPIES)
_DIGESTS = (1, 14, 6, 3)


@pytest.mark.slow
def test_compiled_and_interpreted_kernels_give_the_same_digests(warm):
    """The digests are of routing, of packets, in one group of switches and in several, and of multicast copies."""
    compiled = [run_program(warm, "-c", program, NUMBA_DISABLE_JIT="0") for program in _ALL]
    assert tuple(map(len, compiled)) == _DIGESTS
    together = "\n".join(f"exec({program!r}, {{}})" for program in _ALL)
    interpreted = run_program(sys.executable, "-c", together, NUMBA_DISABLE_JIT="1")
    assert interpreted == [line for lines in compiled for line in lines]


def run_program(*command: str | Path, **more: str) -> list[str]:
    """Run a program and return the lines of its output."""
    done = subprocess.run(command, env=os.environ | more, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [line for line in done.stdout.splitlines() if line]
