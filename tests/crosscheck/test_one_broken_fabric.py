"""A fabric with faults: all views agree where and why a packet is dropped, and a sweep repairs it in all views."""

from __future__ import annotations

import copy
from random import Random

import numpy as np
import pytest
from tests.crosscheck import views
from tests.crosscheck.views import Pair, Running

from weft.fabric.forwarding import Reason, walk
from weft.fabric.kernels.forwarding import arrays, walk_all
from weft.fabric.model import Fabric
from weft.fabric.tables import NO_ROUTE
from weft.lab.metered_paths import clean_path
from weft.mad import faults
from weft.mad.devices import NONE
from weft.mad.packets import carry
from weft.wire.mad import Method
from weft.wire.port_info import PortInfo, PortState
from weft.wire.smp import DirectedSmp, SmpAttribute

SPECS = ["fat-tree:hosts=12,radix=4,levels=3", "torus:5x5", "dragonfly:p=2,a=3,h=1", "random:31"]
PAIRS = 40
WAYS_DOWN = ["1xSDR", "4xSDR", "1xEDR", "2xHDR", "4xQDR"]


# -- faults -----------------------------------------------------------------------------------------------------------


class Breaker:
    """A source of random faults and repairs, away from the subnet manager's own cable."""

    def __init__(self, running: Running) -> None:
        self.devices, self.random = running.devices, running.random
        own = {running.net.carrier.slot, self.devices.cable[running.net.carrier.slot]}
        self.cables = [slot for slot, far in enumerate(self.devices.cable) if slot < far and not own & {slot, far}]
        leaf = self.devices.node_of[self.devices.cable[running.net.carrier.slot]]
        self.switches = [node for node in self.devices.switch_info if node != leaf]

    def act(self) -> None:
        devices, random = self.devices, self.random
        slot = random.choice(self.cables)
        is_up = devices.peer(slot) != NONE
        match random.randrange(6):
            case 0 if is_up:
                faults.pull_cable(devices, slot)
            case 1 if is_up:
                faults.degrade(devices, slot, 1e-12)
            case 2 if is_up:
                faults.slow(devices, slot, random.choice(WAYS_DOWN))
            case 3 if len(devices.dead) < 2:
                faults.kill(devices, random.choice(sorted(set(self.switches) - devices.dead)))
            case 4 if devices.dead:
                faults.revive(devices, random.choice(sorted(devices.dead)))
            case 5 if devices.broken:
                faults.plug_cable(devices, random.choice(sorted(devices.broken)))
            case _ if is_up:
                faults.mend(devices, slot)


@pytest.mark.parametrize(("seed", "spec"), list(enumerate(SPECS, 40)))
def test_breakage_and_repair_by_a_sweep_are_the_same_for_all(spec, seed, tmp_path) -> None:
    running = Running(views.fabric_called(spec), Random(seed), tmp_path, most_pairs=PAIRS)
    running.look()
    breaker = Breaker(running)
    for _ in range(3):
        for _ in range(running.random.randint(1, 4)):
            breaker.act()
        assert_same_reasons(running)
        running.net.manager.reload()
        running.net.settle()
        running.look()
        views.assert_same(running)


# -- faults by MADs ----------------------------------------------------------------------------------------------------


def write(running: Running, attribute: SmpAttribute, slot: int, modifier: int, data: bytes) -> None:
    """Send a Set to the node of a port, as if from its own port 0."""
    smp = DirectedSmp(method=Method.SET, attribute_id=attribute, attribute_modifier=modifier, data=data)
    answer = running.net.subnet.send(running.devices.own_slot(slot), smp.raw)
    assert answer is not None
    assert not DirectedSmp.status.get(answer)


def set_port(running: Running, slot: int, **changes: int) -> None:
    info = PortInfo.unpack(bytes(running.devices.info(slot)))
    arguments = {"port_state": 0, "port_physical_state": 0, "link_down_default_state": 0, "link_width_enabled": 0}
    data = info.replace(**arguments | {"link_speed_enabled": 0} | changes).raw
    write(running, SmpAttribute.PORT_INFO, slot, running.devices.number(slot), data)


def disturb(running: Running, what: str) -> None:
    """Write, on the paths of a few pairs, a setting that drops packets with their P_Key, SL and size."""
    devices, random = running.devices, running.random
    for pair in random.sample(list(running.row), min(len(running.row), 6)):
        source, arguments = running.packet(pair)
        way = running.way(pair)
        hops = [at for at, vl in enumerate(way.vls) if what != "OperationalVLs" or vl]
        if not hops:  # an earlier fault drops the packet, or its path is on VL 0
            continue
        at = random.choice(hops)
        out, came = way.out[at], devices.cable[way.out[at - 1]] if at else NONE
        match what:
            case "NeighborMTU":
                set_port(running, out, neighbor_mtu=1)
            case "OperationalVLs":
                set_port(running, out, operational_vls=1)
            case "PortState":
                set_port(running, out, port_state=PortState.DOWN)
            case "P_Keys of an adapter":
                write(running, SmpAttribute.P_KEY_TABLE, way.end, 0, bytes(64))
            case "P_Keys of a switch":
                leaf = devices.cable[source]
                number = devices.number(leaf)
                write(running, SmpAttribute.P_KEY_TABLE, leaf, number << 16, bytes(64))
                set_port(running, leaf, partition_enforcement_inbound=1)
            case "SL to VL 15":
                sides = (devices.number(came) if at else 0) << 8 | devices.number(out)
                write(running, SmpAttribute.SL_TO_VL_MAPPING_TABLE, out, sides if at else 0, b"\xff" * 8 + bytes(56))
            case "forwarding table" if at:
                block, place = divmod(arguments["dlid"], 64)
                entries = devices.tables.lft[devices.row[devices.node_of[out]], 64 * block : 64 * block + 64].tolist()
                entries += [NO_ROUTE] * (64 - len(entries))
                entries[place] = random.choice([NO_ROUTE, 0, devices.number(came), random.randrange(1, 60)])
                write(running, SmpAttribute.LINEAR_FORWARDING_TABLE, out, block, bytes(entries))


WRITTEN = [
    ("NeighborMTU", {Reason.TOO_LONG}),
    ("OperationalVLs", {Reason.NO_RELAY, Reason.NO_VL}),
    ("PortState", {Reason.INACTIVE}),
    ("P_Keys of an adapter", {Reason.P_KEY}),
    ("P_Keys of a switch", {Reason.INBOUND}),
    ("SL to VL 15", {Reason.NO_RELAY, Reason.NO_VL}),
    ("forwarding table", {Reason.NO_ROUTE, Reason.TURNS_BACK, Reason.LOOP, Reason.NOT_MINE, Reason.INACTIVE}),
]


@pytest.mark.parametrize("seed", range(50, 52))
@pytest.mark.parametrize(("what", "reasons"), WRITTEN, ids=[what for what, _ in WRITTEN])
def test_mad_settings_stop_packets_for_the_same_reason_everywhere(what, reasons, seed, tmp_path) -> None:
    spec = ["torus:5x5", "dragonfly:p=2,a=3,h=1"][seed % 2]  # both on VLs 0 and 1
    running = Running(views.fabric_called(spec), Random(seed), tmp_path, most_pairs=PAIRS, qos=True)
    running.look()
    disturb(running, what)
    assert assert_same_reasons(running) & reasons
    now = faults.fabric_now(running.devices).subset()
    now.tables.path_sl = running.left.tables.path_sl
    views.assert_check_agrees(now)


# -- comparison --------------------------------------------------------------------------------------------------------


def assert_same_reasons(running: Running) -> set[Reason]:
    """Compare the result of a full packet in each view, for all pairs with a path record; return the reasons."""
    devices, now = running.devices, faults.fabric_now(running.devices)
    fates = {}
    for pair in running.row:
        source, arguments = running.packet(pair, int(running.paths.mtu_bytes[running.row[pair]]))
        way = walk(devices, source, **arguments)
        fate = carry(devices, source, running.raw(pair, int(running.paths.mtu_bytes[running.row[pair]])))
        ended = (
            [(fate.delivered[0], Reason.ARRIVED)]
            if fate.delivered
            else [(item.slot, item.reason) for item in fate.dropped]
        )
        assert ended == [(way.end, way.reason)]
        lane = clean_path(
            devices, source, arguments["dlid"], arguments["sl"], arguments["p_key"], arguments["size_bytes"] - 124
        )
        assert (lane is not None) == (way.reason is Reason.ARRIVED and not running.has_errors(way))
        walked = walk_all(arrays(now), np.array([(source, *arguments.values())]))
        assert (int(walked.end[0]), int(walked.reason[0])) == ended[0]
        fates[pair] = ended[0]
    assert_engines_refuse(running, now, fates)
    return {reason for _, reason in fates.values()}


def assert_engines_refuse(running: Running, now: Fabric, fates: dict[Pair, tuple[int, Reason]]) -> None:
    """Check that the engines refuse before they run, with the place and the reason of one of the two directions."""
    now = now.configured(copy.copy(now.tables))
    now.tables.paths = running.paths_at([running.slots[slot] for slot in running.rows])
    for pair in [pair for pair in fates if pair[::-1] in fates][:10]:
        ends = [fates[pair], fates[pair[::-1]]]
        stops = [f"ends at {now.port(slot).name}: {reason.text}" for slot, reason in ends if reason != Reason.ARRIVED]
        local, present = (running.slots[end] for end in pair)
        if now.ports.peer[local] < 0 or now.ports.peer[present] < 0:
            stops.append("is not an adapter port on this network")
        output = views.refusals(now, (local, present))
        if not stops and running.has_errors(running.way(pair)):
            assert "has bit errors" in output.pop("flow")
        for text in output.values():
            assert any(why in text for why in stops) if stops else not text
