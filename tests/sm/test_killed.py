"""Killed subnet managers: the next one completes an interrupted configuration, and LIDs stay."""

from __future__ import annotations

import io
import os
import random
import signal
import subprocess
import sys

import numpy as np
import pytest
from tests.patience import PATIENCE_S, wait_until
from tests.sm.conftest import Net
from tests.sm.test_control_server import define

import weft
from weft.errors import SubnetError
from weft.fabric.views import Port
from weft.ids import Gid
from weft.lab.lab import Lab
from weft.mad import faults
from weft.mad.carrier import HERE, Address, ask
from weft.mad.local import LocalCarrier
from weft.routing.check import check
from weft.sm.conf.options import Options
from weft.sm.control import ManagerSocket, socket_of
from weft.sm.events import Log
from weft.sm.run import SubnetManager
from weft.sm.sminfo.sm_info import Here, OtherSm, priority_trap
from weft.sm.status import read_status
from weft.wire.mad import Method
from weft.wire.notice import LocalChangesDetails
from weft.wire.port_info import PortInfo, PortState
from weft.wire.sa import SaAttribute, SaMad, ServiceRecord
from weft.wire.sa_query import component_mask
from weft.wire.smp import SMInfo, Smp, SmpAttribute, SMState

SPEC = "fat-tree:hosts=16,radix=8"
SEED = 7
OPTIONS = (Options(), Options(lmc=1), Options(m_key=0x1234, m_key_protection_level=2))


class Killed(BaseException):
    """An exception that no `except` of the subnet manager catches."""


class Mortal(LocalCarrier):
    """A port whose program dies after a number of MADs."""

    mads, last = 0, -1  # MADs sent; the last before the program dies, -1: never

    def exchange(self, mads, to=None, **how):
        if self._spend(len(mads)):
            return super().exchange(mads, to, **how)
        super().exchange(mads[: self.last], None if to is None else to[: self.last], **how)
        raise Killed

    def send(self, mad, to=HERE, **how):
        if not self._spend(1):
            raise Killed
        return super().send(mad, to, **how)

    def post(self, mad, to=HERE):
        if not self._spend(1):
            raise Killed
        super().post(mad, to)

    def _spend(self, count: int) -> bool:
        self.mads += count
        if self.last < 0:
            return True
        if count > self.last:
            return False
        self.last -= count
        return True


class Managed:
    """A subnet in which subnet managers start and die."""

    def __init__(self) -> None:
        self.net = Net(SPEC)
        self.log = io.StringIO()
        self.beside: list[SubnetManager] = []  # managers that answer while another one waits

    def manager(self, host: str, options: Options) -> tuple[SubnetManager, Mortal]:
        net = self.net
        carrier = Mortal(net.subnet, net.fabric[f"{host}/1"].slot, sleep=self.sleep)
        result = SubnetManager(carrier, options, log=Log(self.log), clock=net.clock)
        result.state.sender.aside = lambda work: work()  # in a thread, the clock would advance during routing
        result.open()
        return result, carrier

    def sleep(self, seconds: float) -> None:
        self.net.clock.sleep(seconds)
        waiting, self.beside = self.beside, []
        for item in waiting:
            item._serve(0.0)
        self.beside = waiting

    def die(self, carrier: Mortal, *, is_told: bool) -> None:
        """Close the carrier, as the kernel does for a dead process; `is_told`: also clear IsSM, as it should."""
        if is_told:
            carrier.set_is_sm(False)
        carrier.close()

    def lids(self) -> np.ndarray:
        return self.net.fabric.tables.lid.copy()

    def check_whole(self, options: Options) -> None:
        """Assert that every port is Active, tables connect every pair, and hosts answer each other by LID."""
        devices, fabric = self.net.devices, self.net.fabric
        up = [slot for slot in range(len(devices.cable)) if devices.peer(slot) >= 0]
        assert {PortInfo.port_state.get(devices.info(slot)) for slot in up} == {PortState.ACTIVE}, self.log.getvalue()
        verdict = check(faults.fabric_now(devices), hosts_only=True)  # a spine may be dead
        assert verdict.ok, verdict.explain()
        question = Smp.pack(method=Method.GET, attribute_id=SmpAttribute.NODE_INFO, m_key=options.m_key)
        hosts = [fabric[f"{hca.name}/1"].slot for hca in fabric.hcas]
        for local, present in zip(hosts, hosts[5:] + hosts[:5], strict=True):
            carrier = LocalCarrier(self.net.subnet, local, sleep=self.net.clock.sleep)
            assert ask(carrier, question, Address(lid=devices.lid(present), qp=0), retries=0) is not None
            carrier.close()


def sweep(manager: SubnetManager) -> None:
    """Run a manager to the end of its next sweep."""
    before = manager.sweeps
    for _ in range(1000):
        if manager.sweeps > before:
            return
        manager.step()
    raise AssertionError("\n".join(manager.state.log.recent))


def first_sweep(managed: Managed, options: Options, last: int = -1) -> Mortal:
    """Sweep with a manager at h1 and return its carrier."""
    manager, carrier = managed.manager("h1", options)
    carrier.last = last
    sweep(manager)
    return carrier


def succeed(managed: Managed, carrier: Mortal, point: int, options: Options) -> None:
    """Sweep with another manager, at the same host or another one, depending on `point`; LIDs must stay."""
    managed.die(carrier, is_told=point % 4 < 2)
    before = managed.lids()
    sweep(managed.manager("h1" if point % 2 else "h14", options)[0])
    assert (managed.lids()[before > 0] == before[before > 0]).all()
    managed.check_whole(options)


@pytest.mark.parametrize("options", OPTIONS, ids=["plain", "lmc", "m_key"])
def test_killed_in_its_first_sweep_the_next_one_brings_the_subnet_up_and_keeps_all_lids(options) -> None:
    total = first_sweep(Managed(), options).mads
    for point, last in enumerate(random.Random(SEED).sample(range(1, total), 17)):
        managed = Managed()
        manager, carrier = managed.manager("h1", options)
        carrier.last = last
        with pytest.raises(Killed):
            sweep(manager)
        succeed(managed, carrier, point, options)


def lose_spine(managed: Managed) -> None:
    faults.kill(managed.net.devices, managed.net.fabric.find_node("spine1").index)


def regain_spine(managed: Managed) -> None:
    """Restart the spine without LID and tables."""
    faults.revive(managed.net.devices, managed.net.fabric.find_node("spine1").index)


def break_cables(managed: Managed) -> None:
    for name in ("leaf1/5", "leaf2/6", "leaf3/7"):
        faults.pull_cable(managed.net.devices, managed.net.fabric[name].slot)


@pytest.mark.parametrize("fault", [lose_spine, regain_spine, break_cables])
def test_killed_while_it_routes_around_a_fault_the_next_one_finishes_it(fault) -> None:
    """The subnet is in use."""
    options = Options()

    def begin() -> tuple[Managed, SubnetManager, Mortal]:
        managed = Managed()
        manager, carrier = managed.manager("h1", options)
        sweep(manager)
        if fault is regain_spine:
            lose_spine(managed)
            sweep(manager)
        fault(managed)
        carrier.mads = 0
        return managed, manager, carrier

    managed, manager, carrier = begin()
    sweep(manager)
    managed.check_whole(options)
    for point, last in enumerate(random.Random(SEED).sample(range(1, carrier.mads), 4)):
        managed, manager, carrier = begin()
        carrier.last = last
        with pytest.raises(Killed):
            sweep(manager)
        succeed(managed, carrier, point, options)


# -- a standby --------------------------------------------------------------------------------------------------------


def register_service(managed: Managed, host: str) -> None:
    net = managed.net
    port = net.fabric[f"{host}/1"]
    record = ServiceRecord(service_id=77, service_gid=gid(port), service_p_key=0xFFFF, service_lease=0xFFFF_FFFF)
    mask = component_mask(ServiceRecord, "service_id", "service_gid", "service_p_key", "service_lease")
    mad = SaMad.pack(method=Method.SET, attribute_id=SaAttribute.SERVICE_RECORD, component_mask=mask, data=record.raw)
    carrier = LocalCarrier(net.subnet, port.slot, sleep=managed.sleep)
    answer = ask(carrier, mad, Address(lid=net.devices.lid(net.fabric["h1/1"].slot)))
    assert answer is not None
    assert SaMad.status.get(answer) == 0
    carrier.close()


def gid(port: Port) -> int:
    return Gid.LINK_LOCAL_PREFIX << 64 | int(port.guid)


def test_a_standby_that_met_its_master_before_there_were_lids_takes_over_its_services() -> None:
    managed = Managed()
    master, carrier = managed.manager("h1", Options(sm_priority=10))
    standby, _ = managed.manager("h14", Options(sm_priority=5))
    managed.beside = [master]
    standby.step()
    assert standby.election.state == SMState.STANDBY
    managed.beside = [standby]
    sweep(master)
    managed.beside = [master]
    register_service(managed, "h5")
    for _ in range(20):
        standby.step()
    assert standby.replication.replica.counts[1] == 1
    managed.beside = []
    managed.die(carrier, is_told=True)
    sweep(standby)
    assert [item.record.service_id for item in standby.state.services.by_key.values()] == [77]
    managed.check_whole(Options())


def test_while_it_waits_for_one_that_is_dead_it_answers_others() -> None:
    """Two managers that start together and wait for each other would both become master."""
    managed = Managed()
    managed.die(first_sweep(managed, Options()), is_told=False)
    manager, _ = managed.manager("h14", Options())
    prober, result = managed.net.at("h5/1"), []
    lid = managed.net.devices.lid(managed.net.fabric["h14/1"].slot)
    question, requests = Smp.pack(method=Method.GET, attribute_id=SmpAttribute.SM_INFO), []

    def sleep(seconds: float) -> None:
        """Send a request during the manager's pause."""
        managed.sleep(seconds)
        requests.append(0 if requests else prober.send(question, Address(lid=lid, qp=0), retries=50))
        result.extend(SMInfo.unpack(answer, 64).sm_state for _, answer in prober.poll() if answer is not None)

    manager.carrier._sleep = sleep
    manager.step()
    assert result == [SMState.DISCOVERING]
    assert manager.election.state == SMState.MASTER


def test_two_that_were_too_busy_to_answer_each_other_are_not_masters_for_ever() -> None:
    managed = Managed()
    managers = [managed.manager(host, Options(sweep_interval_s=0))[0] for host in ("h1", "h14")]
    for manager in managers:
        sweep(manager)  # no manager answers meanwhile
    assert [manager.election.state for manager in managers] == [SMState.MASTER] * 2
    until_s = managed.net.clock() + 60
    while managed.net.clock() < until_s:
        for manager, other in (managers, managers[::-1]):
            managed.beside = [other]
            manager.step()
    assert [manager.election.state for manager in managers] == [SMState.MASTER, SMState.STANDBY]


@pytest.mark.parametrize(("is_manager", "sweeps"), [(True, 2), (False, 1)])
def test_a_trap_of_a_higher_manager_is_heard_even_if_two_masters_gave_both_the_same_lid(is_manager, sweeps) -> None:
    """And a trap about our own change of IsSM causes none."""
    managed = Managed()
    manager, _ = managed.manager("h14", Options())
    sweep(manager)
    lid = manager.state.sm_lid
    trap = bytearray(priority_trap(OtherSm(guid=1, priority=9, state=SMState.MASTER, lid=lid), Here(lid=lid), 1).mad)
    if not is_manager:
        details = LocalChangesDetails.pack(lid_addr=lid)
        trap[74 : 74 + len(details)] = details
    managed.net.at("h5/1").post(trap, Address(lid=lid, qp=0))
    for _ in range(20):
        manager.step()
    assert manager.sweeps == sweeps


# -- a process --------------------------------------------------------------------------------------------------------


@pytest.fixture
def lab():
    with Lab(weft.load(SPEC), f"killed-{os.getpid()}") as lab:
        yield lab


def start_sm(lab: Lab, host: str, *options: str) -> subprocess.Popen[str]:
    """Start `weft sm` at a host."""
    words = ["sm", "--on", "ibsim", "--ibsim", lab.sockname, "--at", lab.host(host)["sim_host"], *options]
    return subprocess.Popen(
        [sys.executable, "-m", "weft", *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def test_after_a_kill_9_in_the_middle_of_a_sweep_another_process_makes_it_whole(lab) -> None:
    """SIGKILL after a number of its MADs; then a manager at another host, where the dead one's IsSM is cleared."""
    last, send, victim = 200, lab.subnet.send, start_sm(lab, "h1")

    def kill_at_last(slot, *sent):
        if lab.subnet.mads == last:
            os.kill(victim.pid, signal.SIGKILL)
        return send(slot, *sent)

    lab.subnet.send = kill_at_last
    victim.communicate(timeout=PATIENCE_S)
    assert victim.returncode == -signal.SIGKILL
    lab.subnet.send = send
    wait_until(lambda: not lab.state()["clients"])
    before = lab.fabric.tables.lid.copy()
    heir = start_sm(lab, "h14", "--once")
    output, _ = heir.communicate(timeout=PATIENCE_S)
    assert heir.returncode == 0, output
    assert (lab.fabric.tables.lid[before > 0] == before[before > 0]).all()
    verdict = check(lab.fabric_now())
    assert verdict.ok, verdict.explain()
    assert "none answers" not in output


@pytest.mark.slow
def test_after_a_kill_9_in_the_middle_of_an_order_it_comes_back_and_is_told_again(lab, tmp_path) -> None:
    """SIGKILL at one of the MADs of a request. The client gets the error that no manager answers."""
    state, client = tmp_path / "sm.json", ManagerSocket(socket_of(tmp_path / "sm.json"))
    guids = [int(lab.fabric[f"h{number}/1"].guid) for number in range(2, 10)]
    red = define(limited=tuple(guids))
    for spent in random.Random(SEED).sample(range(1, 16), 2):  # eight hosts, and eight ports of switches
        victim, send = start_sm(lab, "h1", "--state", str(state)), lab.subnet.send
        wait_until(lambda: (found := read_status(state)) is not None and found.sweep is not None and found.is_running)
        last = lab.subnet.mads + spent

        def kill_at_last(slot, *sent, victim=victim, last=last, send=send):
            if lab.subnet.mads >= last:
                victim.kill()
            return send(slot, *sent)

        lab.subnet.send = kill_at_last
        with pytest.raises(SubnetError, match="no subnet manager answers"):
            client.allocate(define=[red])
        victim.communicate(timeout=PATIENCE_S)
        lab.subnet.send = send
        wait_until(lambda: not lab.state()["clients"])
    heir = start_sm(lab, "h1", "--state", str(state))
    wait_until(lambda: (found := read_status(state)) is not None and found.sweep is not None and found.is_running)
    assert client.allocation().partitions == ()
    assert {int(lab.fabric.tables.pkey[lab.fabric[f"h{number}/1"].slot, 1]) for number in range(2, 10)} == {0}
    client.allocate(define=[red])
    assert {int(lab.fabric.tables.pkey[lab.fabric[f"h{number}/1"].slot, 1]) for number in range(2, 10)} == {0x0101}
    heir.terminate()
    heir.communicate(timeout=PATIENCE_S)
