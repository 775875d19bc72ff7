"""Hosts that request more tables than the manager can build: SMInfo is answered first, and no queue grows."""

from __future__ import annotations

import io

from tests.sm.conftest import Net

from weft.mad.carrier import HERE, Address, Arrived
from weft.mad.local import LocalCarrier
from weft.sm.conf.options import Options, read_options
from weft.sm.events import Log
from weft.sm.run import SubnetManager
from weft.sm.sa.requests import MOST, Requests
from weft.wire.mad import Method, MgmtClass, Status
from weft.wire.sa import PathRecord, SaAttribute, SaMad
from weft.wire.sa_query import component_mask
from weft.wire.smp import Smp, SmpAttribute

SM_INFO = Smp.pack(method=Method.GET, attribute_id=SmpAttribute.SM_INFO)
ALL_PATHS = SaMad.pack(method=Method.GET_TABLE, attribute_id=SaAttribute.PATH_RECORD)
ALL_MANAGERS = SaMad.pack(method=Method.GET_TABLE, attribute_id=SaAttribute.SM_INFO_RECORD)  # one record


class Watched(LocalCarrier):
    """The manager's port, which records the class of each posted MAD; `then` is called after each MAD of the SA."""

    def __init__(self, *words, **how):
        super().__init__(*words, **how)
        self.posted, self.then = [], lambda: None

    def post(self, mad, to=HERE):
        super().post(mad, to)
        self.posted.append(bytes(mad))
        if mad[1] == MgmtClass.SUBN_ADM:
            self.then()

    def classes(self):
        return ["SA" if mad[1] == MgmtClass.SUBN_ADM else "SMInfo" for mad in self.posted]


class Besieged:
    """A master at h1, and hosts that send requests but do not read the answers."""

    def __init__(self, **options):
        self.net = Net("fat-tree:hosts=16,radix=8")
        self.carrier = Watched(self.net.subnet, self.net.fabric["h1/1"].slot, sleep=self.net.clock.sleep)
        self.log = Log(io.StringIO(), clock=self.net.clock)
        self.manager = SubnetManager(
            self.carrier, Options(sweep_interval_s=0, **options), log=self.log, clock=self.net.clock
        )
        self.manager.open()
        while not self.manager.sweeps:
            self.manager.step()
        self.lid = self.net.devices.lid(self.carrier.slot)
        self.hosts = [self.net.at(f"h{number}/1") for number in range(2, 17)]
        self.carrier.posted.clear()

    def ask(self, mad, times=1):
        for number in range(times):
            self.hosts[number % len(self.hosts)].send(mad, Address(lid=self.lid), timeout_ms=10**9)

    def ask_who_is_master(self):
        self.hosts[0].send(SM_INFO, Address(lid=self.lid, qp=0), timeout_ms=10**9)

    def serve(self, answers):
        """Step the manager until it has posted this many answers."""
        for _ in range(100 * answers):
            if len(self.carrier.posted) >= answers:
                return
            self.manager.step()
        raise AssertionError(f"{len(self.carrier.posted)} answers, not {answers}")


def statuses(mads):
    return [SaMad.status.get(mad) for mad in mads]


def test_sm_info_overtakes_all_tables_that_wait():
    besieged = Besieged()
    besieged.ask(ALL_PATHS, times=50)
    besieged.ask_who_is_master()
    besieged.serve(answers=51)
    assert besieged.carrier.classes() == ["SMInfo"] + 50 * ["SA"]


def test_between_a_question_who_is_master_and_its_answer_is_one_table_at_most():
    besieged = Besieged()
    besieged.ask(ALL_PATHS, times=50)
    besieged.carrier.then = besieged.ask_who_is_master  # after each answer
    besieged.serve(answers=100)
    assert besieged.carrier.classes() == 50 * ["SA", "SMInfo"]


def test_a_host_that_wants_one_path_does_not_wait_for_tables():
    besieged = Besieged()
    query, mask = PathRecord(slid=besieged.lid, dlid=besieged.lid), component_mask(PathRecord, "slid", "dlid")
    besieged.ask(ALL_PATHS, times=20)
    besieged.ask(
        SaMad.pack(method=Method.GET, attribute_id=SaAttribute.PATH_RECORD, component_mask=mask, data=query.raw)
    )
    besieged.serve(answers=21)
    assert besieged.carrier.posted[0][3] == Method.GET_RESP
    assert statuses(besieged.carrier.posted) == 21 * [Status.OK]


def test_more_than_may_wait_are_told_that_it_is_busy_and_the_log_says_it_twice():
    besieged = Besieged()
    besieged.ask(ALL_MANAGERS, times=MOST + 30)
    besieged.serve(answers=MOST + 30)
    assert statuses(besieged.carrier.posted) == 30 * [Status.BUSY] + MOST * [Status.OK]
    began, ended = [line for line in besieged.log.recent if " SA_BUSY " in line]
    assert f"hosts ask more than can be answered, the queue has {MOST:,} questions" in began
    assert "it is over: BUSY was the answer to 30 questions" in ended


def test_hosts_that_are_refused_again_after_a_pause_are_logged_again():
    lines, requests = [], Requests(clock=lambda: 0.0, say=lambda *line: lines.append(line), timeout_s=0.0)
    for refused in (3, 1):
        for number in range(MOST + refused):
            mad = SaMad(method=Method.GET, attribute_id=SaAttribute.NODE_RECORD, transaction_id=number).raw
            answer = requests.put(Arrived(bytes(mad), Address(5)))
            assert (answer is None) == (number < MOST)
        for _ in range(MOST):
            assert requests.next(tables=True) is not None
    began = f"hosts ask more than can be answered, the queue has {MOST:,} questions"
    over = "it is over: BUSY was the answer to"
    assert [text for _, text in lines] == [began, f"{over} 3 questions", began, f"{over} 1 question"]


def test_query_that_waited_too_long_is_answered_busy():
    """The requester has given up, and the work would delay others."""
    besieged = Besieged(max_msg_fifo_timeout_ms=2000)
    besieged.ask(ALL_PATHS, times=3)
    besieged.carrier.then = lambda: besieged.net.clock.sleep(1.5)  # a slow machine
    besieged.serve(answers=3)
    assert statuses(besieged.carrier.posted) == [Status.OK, Status.OK, Status.BUSY]


def test_a_question_that_comes_again_while_it_waits_is_answered_once():
    besieged = Besieged()
    for _ in range(2):
        besieged.hosts[0].post(ALL_PATHS, Address(lid=besieged.lid))
    besieged.ask_who_is_master()
    besieged.serve(answers=2)
    for _ in range(10):
        besieged.manager.step()
    assert besieged.carrier.classes() == ["SMInfo", "SA"]


def test_no_further_table_is_made_while_much_is_under_way(monkeypatch):
    monkeypatch.setattr("weft.sm.sa.requests._UNSENT_BYTES", 1)
    besieged, unsent = Besieged(), []
    besieged.ask(ALL_PATHS, times=5)
    for host in besieged.hosts:
        host.close()  # no acknowledgement follows
    besieged.carrier.then = lambda: unsent.append(besieged.carrier.unsent_bytes())
    besieged.serve(answers=5)
    assert len(set(unsent)) == 1, "tables are under way two at a time"
    assert unsent[0] > 16 * 16 * PathRecord.size


def test_the_limit_has_opensms_name(tmp_path):
    path = tmp_path / "opensm.conf"
    path.write_text("max_msg_fifo_timeout 1234\n")
    assert read_options(path).max_msg_fifo_timeout_ms == 1234


def test_stopped_manager_beside_the_master_causes_no_further_heavy_sweeps():
    """Its port still has IsSM set, but does not answer: the master polls it by single MADs."""
    net = Net("fat-tree:hosts=16,radix=8")
    net.at("h6/1").set_is_sm(True)
    manager = SubnetManager(net.carrier, Options(), log=Log(io.StringIO(), clock=net.clock), clock=net.clock)
    manager.open()
    while net.clock() < 60:
        manager.step()
    assert manager.sweeps == 1


def test_only_a_request_with_the_same_sender_method_attribute_and_transaction_is_a_repetition():
    requests = Requests(clock=lambda: 0.0, say=lambda *line: None, timeout_s=0.0)
    first = {"method": Method.GET, "attribute_id": SaAttribute.NODE_RECORD, "transaction_id": 7}
    rest = (
        {"transaction_id": 8},
        {"transaction_id": 7 | 1 << 63},  # the kernel writes the agent's number into the upper half
        {"method": Method.GET_TABLE},
        {"attribute_id": SaAttribute.PATH_RECORD},
    )
    mads = [SaMad(**first).raw, *(SaMad(**first | other).raw for other in rest)]
    for mad in (*mads, *mads):
        requests.put(Arrived(bytes(mad), Address(5)))
    assert len(requests) == len(mads)
    requests.put(Arrived(bytes(mads[0]), Address(6)))
    assert len(requests) == len(mads) + 1
