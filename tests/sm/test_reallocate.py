"""Changes and queries at the manager's socket, without devices: all or nothing, and answers from the last sweep."""

from __future__ import annotations

import io
import os
from collections import deque
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from tests.sm.conftest import Net

from weft.errors import ConfigError, SubnetError
from weft.json_lines import CommandRefused
from weft.mad.walk import walk
from weft.sm import control_server, status
from weft.sm.allocation import NOTHING, FileConfig, RuntimeConfig, changed
from weft.sm.conf.qos_options import QosOptions
from weft.sm.control_server import AllocationChange, ControlServer, reallocate
from weft.sm.discovery.differences import Flaps
from weft.sm.discovery.view import make_view
from weft.sm.events import Event, Log
from weft.sm.pkey.definitions import MemberDefinition, PartitionDefinition
from weft.sm.pkey.partitions import NO_FILE
from weft.sm.state import State
from weft.sm.sweep import Interrupted, Report
from weft.sm.ucast.forwarding import Uploaded
from weft.wire.smp import SMState

FILES = FileConfig(partitions=NO_FILE)
RED = PartitionDefinition(name="red", p_key=0x0101, members=(MemberDefinition(0x11),))


def with_red(qos: QosOptions | None = None) -> RuntimeConfig:
    return changed(NOTHING, FILES, define=[RED], qos=qos, default_is_full=None)


class Devices:
    """A stand-in for a manager's devices: prepared results of `program` and of sweeps, in order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.state = State(options=None, sender=None, log=Log(io.StringIO()))  # type: ignore[arg-type]
        self.programs: list[Any] = []
        self.sweeps: list[Any] = []
        self.calls: list[tuple[str, bool | None, bool]] = []
        self.kept: list[int] = []
        monkeypatch.setattr(control_server, "program", self.program)

    def program(self, state: State, *, lanes: bool) -> list[str]:
        self.calls.append(("program", lanes, state.told == NOTHING))
        return self._next(self.programs, [])

    def sweep(self) -> Any:
        self.calls.append(("sweep", None, self.state.told == NOTHING))
        return self._next(self.sweeps, SimpleNamespace(refused=()))

    def _next(self, answers: list[Any], default: Any) -> Any:
        answer = answers.pop(0) if answers else default
        if isinstance(answer, Exception):
            raise answer
        return answer

    def reallocate(self, runtime: RuntimeConfig) -> None:
        reallocate(self.state, runtime, lambda: self.kept.append(1), self.sweep)


@pytest.fixture
def devices(monkeypatch) -> Devices:
    return Devices(monkeypatch)


@pytest.mark.parametrize(("qos", "lanes"), [(None, False), (QosOptions(), True)])
def test_a_change_that_devices_take_is_kept(devices, qos, lanes):
    devices.reallocate(with_red(qos))
    assert (devices.calls, devices.kept, devices.state.told) == ([("program", lanes, False)], [1], with_red(qos))


def test_a_port_that_did_not_answer_is_left_to_a_sweep(devices):
    devices.programs = [["h2/1"]]
    devices.reallocate(with_red())
    assert devices.calls == [("program", False, False), ("sweep", None, False)]
    assert devices.kept == [1]


@pytest.mark.parametrize(
    ("count", "names"),
    [(1, "p0"), (4, "p0, p1, p2, p3"), (5, "p0, p1, p2, p3 and 1 more"), (1004, "p0, p1, p2, p3 and 1,000 more")],
)
def test_a_change_that_a_present_port_refuses_is_taken_back(devices, count, names):
    devices.programs, devices.sweeps = [["p0"]], [SimpleNamespace(refused=tuple(f"p{n}" for n in range(count)))]
    with pytest.raises(SubnetError, match=f"^{names} did not take the change: all is as before"):
        devices.reallocate(with_red(QosOptions()))
    assert devices.calls == [("program", True, False), ("sweep", None, False), ("program", True, True)]
    assert (devices.kept, devices.state.told) == ([], NOTHING)


def test_a_change_is_taken_back_if_the_subnet_cannot_be_swept_or_the_file_not_be_written(devices):
    devices.programs, devices.sweeps = [["p0"]], [None]
    with pytest.raises(SubnetError, match="the subnet cannot be swept"):
        devices.reallocate(with_red())
    assert devices.calls[-1] == ("program", False, True)
    devices.calls.clear()

    def fail() -> None:
        raise ConfigError("full")

    with pytest.raises(ConfigError, match="full"):
        reallocate(devices.state, with_red(), fail, devices.sweep)
    assert devices.calls == [("program", False, False), ("program", False, True)]
    assert devices.state.told == NOTHING


def test_a_manager_that_is_no_master_any_more_writes_nothing_back(devices):
    devices.programs = [Interrupted("another")]
    with pytest.raises(Interrupted):
        devices.reallocate(with_red())
    assert (devices.calls, devices.state.told) == ([("program", False, False)], NOTHING)


@pytest.mark.parametrize("missing", ["view", "known"])
def test_devices_are_programmed_only_by_a_master_that_has_swept(missing):
    state = SimpleNamespace(view=object(), known=object(), sender=None, options=None)
    setattr(state, missing, None)
    with pytest.raises(AssertionError, match="has not swept" if missing == "view" else "is not master"):
        control_server.program(state, lanes=False)  # type: ignore[arg-type]


# -- changes ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "qos", "default_is_full"),
    [
        (AllocationChange(), QosOptions(high_limit=1), False),
        (AllocationChange(qos=None), None, False),
        (AllocationChange(qos={"high_limit": 2}), QosOptions(high_limit=2), False),
        (AllocationChange(default_is_full=True), QosOptions(high_limit=1), True),
    ],
)
def test_parts_that_a_change_does_not_have_stay(change, qos, default_is_full):
    told = changed(NOTHING, FILES, define=[RED], qos=QosOptions(high_limit=1), default_is_full=False)
    state = SimpleNamespace(told=told, filed=FILES)
    after = change.applied(state, "7")  # type: ignore[arg-type]
    assert (after.qos, after.default_is_full, [*after.definitions]) == (qos, default_is_full, [0x0101])


def test_a_change_needs_the_current_revision_and_removes_what_is_there():
    state: Any = SimpleNamespace(told=with_red(), filed=FILES)
    for revision in (None, "7"):
        assert AllocationChange(revision=revision, remove=(0x0101,)).applied(state, "7") == NOTHING
    with pytest.raises(CommandRefused) as refused:
        AllocationChange(revision="6").applied(state, "7")
    assert refused.value.kind == "out of date"
    with pytest.raises(ConfigError, match="partition 0x0102 cannot be removed"):
        AllocationChange(remove=(0x0101, 0x0102)).applied(state, "7")


# -- the server -------------------------------------------------------------------------------------------------------


class Office:
    """A control server without a socket, for a manager with this state."""

    def __init__(self, **election: Any) -> None:
        self.state: Any = SimpleNamespace(
            view=None,
            filed=FILES,
            told=NOTHING,
            partitions=NO_FILE,
            drift=(),
            options=SimpleNamespace(repair_drift=True),
        )
        same = {"state": SMState.MASTER, "state_word": "master", "master": None, "guid": 0x11}
        manager: Any = SimpleNamespace(
            state=self.state, election=SimpleNamespace(**same | election), subnet="lab a", sweeps=3
        )
        self.reports: list[Any] = []
        self.server = ControlServer(manager, lambda: self.reports.pop(0), lambda: self.state.drift)
        self.server._commands = object()  # type: ignore[assignment]

    def status(self) -> dict[str, Any]:
        return msgspec.json.decode(self.server._status())


def test_ports_that_differ_are_repaired_by_a_sweep_on_order_only():
    office = Office()
    office.state.repaired = deque(["h1/1: x"])
    assert office.server._find_drift(repair=True).repaired == ("h1/1: x",)
    office.state.drift = ("h2/1: y",)
    assert office.server._find_drift(repair=False).differences == ("h2/1: y",)
    office.reports = [SimpleNamespace(refused=())]
    assert office.server._find_drift(repair=True).differences == ("h2/1: y",)
    assert office.reports == []
    assert office.server._find_drift(repair=False).repaired == ()
    for report, text in (
        (None, "the subnet cannot be swept"),
        (SimpleNamespace(refused=tuple("abcde")), "^a, b, c, d cannot"),
    ):
        office.reports = [report]
        with pytest.raises(SubnetError, match=text):
            office.server._find_drift(repair=True)


@pytest.mark.parametrize(
    ("election", "text"),
    [
        ({"state": SMState.STANDBY, "state_word": "standby"}, "^this subnet manager is standby$"),
        (
            {"state": SMState.STANDBY, "state_word": "standby", "master": SimpleNamespace(guid=0x22)},
            "is standby: ask the master, GUID 0x0000000000000022$",
        ),
    ],
)
def test_only_a_master_takes_orders(election, text):
    with pytest.raises(SubnetError, match=text):
        Office(**election).server._check_master()
    Office().server._check_master()


def test_orders_end_with_the_manager():
    office = Office()
    office.server._commands = None
    for call in (office.server._check_master, lambda: office.server._wait(lambda: 1)):
        with pytest.raises(SubnetError, match="the subnet manager ends"):
            call()
    office.server.close()
    assert not office.server.is_called()


def test_queued_orders_are_executed_in_their_order_and_errors_belong_to_their_clients():
    from concurrent.futures import Future

    office, done = Office(), []
    futures: list[Future[Any]] = [Future() for _ in range(3)]
    for number, future in enumerate(futures):
        office.server._waiting.append((lambda number=number: done.append(number) or 1 / (number - 1), future))
    office.server.carry_out()
    assert done == [0, 1, 2]
    assert [future.result() for future in (futures[0], futures[2])] == [-1.0, 1.0]
    assert isinstance(futures[1].exception(), ZeroDivisionError)


def test_a_status_names_the_manager_and_its_master():
    office = Office()
    found = office.status()
    assert (found["sm_state"], found["guid"], found["master"]) == (
        "master",
        "0x0000000000000011",
        "0x0000000000000011",
    )
    assert (found["subnet"], found["sweeps"], found["partitions"]) == ("lab a", 3, 1)
    assert (found["subnet_revision"], found["drift"], found["repairs_drift"]) == ("", [], True)
    other = Office(master=SimpleNamespace(guid=0x22)).status()
    assert other["master"] == "0x0000000000000022"
    assert other["allocation_revision"] == found["allocation_revision"] != ""
    with pytest.raises(SubnetError, match="has not swept yet"):
        office.server._subnet()


def test_answers_are_made_once_for_a_sweep_and_a_configuration(monkeypatch):
    office, made = Office(), []
    described = control_server.described
    monkeypatch.setattr(control_server, "described", lambda *words: made.append("allocation") or described(*words))
    import weft.sm.inventory as inventory

    take_inventory = inventory.take_inventory
    monkeypatch.setattr(inventory, "take_inventory", lambda view: made.append("subnet") or take_inventory(view))
    office.state.view = make_view(walk(Net("star:hosts=2")))
    first = office.server._subnet()
    assert (office.server._subnet(), office.status()["subnet_revision"]) == (first, office.server._look()[0].revision)
    assert made == ["subnet", "allocation"]
    before = office.server._allocation()
    assert (office.server._allocation(), made) == (before, ["subnet", "allocation"])
    office.state.told = with_red()
    assert office.server._allocation() != before
    office.state.filed = FileConfig(partitions=NO_FILE)
    office.server._allocation()
    assert made == ["subnet", "allocation", "allocation", "allocation"]
    office.state.view = make_view(walk(Net("star:hosts=3")))
    assert office.server._subnet() != first


# -- the state file ---------------------------------------------------------------------------------------------------


def described_manager(monkeypatch: pytest.MonkeyPatch, *, view: Any, master: Any = None) -> Any:
    """Return a manager whose clock is at 1,000 s and whose wall clock is at 5,000 s after 1970."""
    monkeypatch.setattr(status, "time", SimpleNamespace(time=lambda: 5000.0))
    log = Log(io.StringIO(), clock=lambda: 0.0)
    log.say(Event.TRAP, "one")
    state: Any = State(options=None, sender=SimpleNamespace(mads=9), log=log, clock=lambda: 1000.0)  # type: ignore[arg-type]
    state.view, state.remembered, state.drift = view, {0x21: 4}, ("h1/1: x",)
    state.flaps = Flaps(limit=1, window_s=60.0)
    state.flaps._times = {(0x10, 3): deque([990.0])}
    state.groups.by_mgid, state.services.by_key = {1: None, 2: None}, {(1, 1, 1): None}
    election = SimpleNamespace(guid=0x11, priority=5, state_word="master", master=master)
    replica = SimpleNamespace(counts=(7, 8, 9))
    return SimpleNamespace(
        state=state, election=election, replication=SimpleNamespace(replica=replica), report=None, subnet="lab a",
        sweeps=3, seconds=1.5, mads=6,
    )  # fmt: skip


def test_a_status_has_the_state_of_the_manager(monkeypatch):
    view = make_view(walk(Net("star:hosts=2")))
    view.fabric.tables.lid[view.own_slot] = 7
    manager = described_manager(monkeypatch, view=view)
    found = status.describe(manager)
    assert (found.sm_state, found.port, found.lid, found.priority, found.sweeps) == ("master", "h1/1", 7, 5, 3)
    assert (found.guid, found.master, found.subnet) == ("0x0000000000000011", "0x0000000000000011", "lab a")
    assert (found.at_s, found.pid, found.mads, found.events) == (5000.0, os.getpid(), 9, {"TRAP": 1})
    assert (found.partitions, found.drift, found.lids) == (
        {"0x7fff": "Default"},
        ("h1/1: x",),
        {"0x0000000000000021": 4},
    )
    assert (found.groups, found.services, found.subscriptions) == (2, 1, 0)
    assert found.held_until_s == {"0x0000000000000010/3": 5050.0}
    assert (found.sweep, found.adjacent, found.is_running) == (None, (), True)
    assert status.describe(manager, "stopped").sm_state == "stopped"


def test_a_standby_shows_the_tables_that_it_has_copied(monkeypatch):
    found = status.describe(described_manager(monkeypatch, view=None, master=SimpleNamespace(guid=0x22)))
    assert (found.groups, found.services, found.subscriptions) == (7, 8, 9)
    assert (found.master, found.port, found.lid) == ("0x0000000000000022", "", 0)


def test_the_last_sweep_is_described_by_its_report(monkeypatch):
    manager = described_manager(monkeypatch, view=None)
    uploaded = Uploaded(blocks=1, entries=2, waves=3, dropped_entries=4, refused=())
    manager.report = Report(
        switches=5, adapters=6, links=7, engine="up-down", forwarding=uploaded, sets=8, refused=("a",), oddities=("b",)
    )
    found = status.describe(manager).sweep
    assert found == status.Sweep(
        at_s=5000.0, seconds=1.5, mads=6, switches=5, adapters=6, links=7, engine="up-down", routes_changed=2,
        blocks_written=1, waves=3, dropped_entries=4, port_sets=8, refused=("a",), oddities=("b",),
    )  # fmt: skip
    assert str(manager.report) == "5 switches, 6 adapters, 7 links, up-down, 2 routes changed"
