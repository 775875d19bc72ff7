"""The twin of a lab that unmodified OpenSM manages: its model after faults, and its answers before them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from tests.interop.managed import Managed

import weft
from weft.fabric.model import Fabric
from weft.fabric.tables import NO_ROUTE
from weft.lab import programs
from weft.mad.ibsim_client import IbsimCarrier
from weft.monitor.impact import read_routed
from weft.routing.check import check
from weft.routing.engine import Options
from weft.routing.route import Routing, reroute
from weft.training.failures import break_permanently
from weft.twin import Change, ask
from weft.twin.facts import read_facts
from weft.twin.model import Model

pytestmark = pytest.mark.interop

SPEC = "fat-tree:hosts=16,radix=8,speed=HDR"
ENGINES = {"minhop": "min-hop", "updn": "up-down"}  # OpenSM's name, and weft's


@pytest.fixture
def managed(peer, tmp_path, monkeypatch) -> Iterator[Callable[[str], Managed]]:
    """Start a lab with an OpenSM daemon of an engine; it ends with the test."""
    for program in ("opensm", "ibsim-run"):
        peer(program)
    monkeypatch.setenv("WEFT_UMAD2SIM", str(programs.find_umad2sim()))
    running: list[Managed] = []

    def start(engine: str) -> Managed:
        lab = Managed(weft.load(SPEC), tmp_path)
        lab.lab.__enter__()
        running.append(lab)
        lab.manage("h1", "-R", engine)
        lab.wait_for(lambda: lab.ups("h1") > 0, "SUBNET UP")
        return lab

    yield start
    for item in running:
        item.end()


def change(item: Managed, make: Callable[[], object]) -> None:
    """Change the lab, and wait until OpenSM has routed around it."""
    ups = item.ups("h1")
    make()
    item.wait_for(lambda: item.ups("h1") > ups, "another SUBNET UP")


def attach(item: Managed) -> IbsimCarrier:
    return IbsimCarrier("h2", item.lab.sockname)


def hops(fabric: Fabric) -> dict[tuple[str, str], int]:
    """Return the number of switches from each host port to each other, by the tables."""
    ports = [port for hca in fabric.hcas for port in hca.ports if port.link is not None]
    lft, rows, lids = fabric.tables.lft, fabric.tables.switch_row, fabric.tables.lid
    counts = {}
    for source in ports:
        for target in ports:
            slot, count = int(fabric.ports.peer[source.slot]), 0
            while source.slot != target.slot and slot != target.slot and count < 10:
                node = int(fabric.ports.node[slot])
                out = int(lft[rows[node], lids[target.slot]])
                count += 1
                slot = -1 if out == NO_ROUTE else int(fabric.ports.peer[fabric.first_port[node] + out])
                if slot < 0:
                    break
            if slot == target.slot:
                counts[source.name, target.name] = count
    return counts


@pytest.mark.parametrize("engine", ENGINES)
def test_the_effects_of_a_pulled_cable_are_those_that_opensm_then_makes(managed, engine):
    """Hosts that lose their connection, the length of all paths, and no deadlock between hosts.

    OpenSM breaks ties in its own way, and its minhop may close a cycle of paths between switches.
    """
    item = managed(engine)
    for cable in ("leaf1/5", "leaf3/7", "h5/1"):
        carrier = attach(item)
        present = read_routed(carrier)
        carrier.close()
        answer = ask(present, Change(faults=(f"cut:{cable}",), routing_engine=ENGINES[engine]))
        options = Options(engine=ENGINES[engine])
        routing = Routing(fabric=present, engine=options.engine, options=options, notes=())
        predicted = reroute(break_permanently(present, (f"cut:{cable}",)), routing).fabric
        change(item, lambda cable=cable: item.lab.break_cable(cable))
        carrier = attach(item)
        after = read_routed(carrier)
        carrier.close()
        lost = {port for pair in hops(present).keys() - hops(after).keys() for port in pair} - {
            port for pair in hops(after) for port in pair
        }
        assert lost == set(answer.cut_off)
        assert hops(predicted) == hops(after)
        assert answer.proof.credit_loop == check(after, hosts_only=True).credit_loop == ()
        change(item, lambda: item.lab.fix())


def test_the_model_equals_a_fresh_reading_after_random_faults_that_opensm_repairs(managed):
    item = managed("minhop")
    rng = random.Random(1)
    carrier = attach(item)
    model = Model(carrier, quiet_mads=60, busy_mads=120, links_at_once=8)
    model.refresh()
    fabric = item.fabric
    cables = [fabric.link(number).a.name for number in range(len(fabric.links))]
    own = {fabric.find_port(f"{host}/1").peer.name for host in ("h1", "h2")} | {"h1/1", "h2/1"}
    cables = [cable for cable in cables if cable not in own]
    for number in range(6):
        if number % 2:
            change(item, lambda: item.lab.fix())
        else:
            cable = rng.choice(cables)
            change(item, lambda cable=cable: item.lab.break_cable(cable))
        fresh = read_facts(read_routed(carrier))
        for _ in range(12):
            held = read_facts(model.refresh())
            if held == fresh:
                break
        assert held == fresh
    assert model.whole_walks <= 2
    assert np.array_equal(np.sort(model.view.fabric.nodes.guid), np.sort(read_routed(carrier).nodes.guid))
    carrier.close()
