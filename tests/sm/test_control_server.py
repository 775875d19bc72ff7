"""Requests to a running subnet manager over its socket: devices have the complete change, or none of it."""

from __future__ import annotations

import io
import re
import select
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

import numpy as np
import pytest
from tests.patience import PATIENCE_S, wait_until
from tests.sm.conftest import Net
from tests.sm.desk import Desk

from weft.errors import ConfigError, SubnetError
from weft.fabric.model import Fabric
from weft.sm.conf.options import Options
from weft.sm.conf.qos_options import QosOptions
from weft.sm.control import ManagerSocket, MemberDefinition, OutOfDate, PartitionDefinition, socket_of
from weft.sm.control_server import AllocationChange, _with_fresh_tables
from weft.sm.events import Log
from weft.sm.pkey.partitions import Everyone, Membership, broadcast_mgid
from weft.sm.run import SubnetManager
from weft.sm.sminfo.sm_info import Action
from weft.wire.smp import SMState

T = TypeVar("T")


def define(
    *full: int | Everyone, limited: tuple[int | Everyone, ...] = (), name: str = "red", p_key: int = 0x0101, **more: Any
) -> PartitionDefinition:
    """Return a definition of a partition with these members."""
    members = (*map(MemberDefinition, full), *(MemberDefinition(port, Membership.LIMITED) for port in limited))
    return PartitionDefinition(name=name, p_key=p_key, members=members, **more)


class Managed:
    """A subnet with a manager that has swept, and a client of its socket."""

    def __init__(self, place: Path, spec: str | Fabric = "fat-tree:hosts=16,radix=8", **options: object) -> None:
        self.net, self.place, self.options = Net(spec), place, options
        place.mkdir(exist_ok=True)
        self.start()

    def start(self) -> None:
        # The clock runs while a client waits. Tests count MADs, so there are no periodic sweeps.
        options = Options(**{"state_file": self.place / "sm.json", "sweep_interval_s": 0} | self.options)  # type: ignore[arg-type]
        self.manager = SubnetManager(self.net.carrier, options, log=Log(io.StringIO()), clock=self.net.clock)
        self.manager.open()
        self.manager.step()
        self.client = ManagerSocket(socket_of(self.place / "sm.json"))

    def tell(self, ask: Callable[[ManagerSocket], T]) -> T:
        """Send a client's request in a thread while the manager runs; return the answer."""
        with ThreadPoolExecutor(1) as pool:
            answer = pool.submit(ask, self.client)
            while not answer.done():
                self.manager.step()
            return answer.result()

    def allocate(self, revision: str | None = None, **words: object) -> str:
        return self.tell(lambda client: client.allocate(revision, **words))  # type: ignore[arg-type]

    def guid(self, name: str) -> int:
        return int(self.net.fabric[f"{name}/1"].guid)

    def keys(self, name: str) -> list[int]:
        """Return the P_Keys in the device, without empty entries."""
        return [key for key in self.net.fabric.tables.pkey[self.net.fabric[name].slot].tolist() if key]


@pytest.fixture
def managed(tmp_path: Path) -> Iterator[Managed]:
    result = Managed(tmp_path)
    yield result
    result.manager.close()


def test_the_devices_have_what_it_was_told(managed):
    before = managed.client.allocation()
    assert (before.partitions, before.qos, before.default_is_full, before.taken) == ((), None, True, ())
    red = define(managed.guid("h2"), limited=(managed.guid("h3"),), ipoib=True)
    revision = managed.allocate(before.revision, define=[red], default_is_full=False)
    assert managed.keys("h2/1") == [0x7FFF, 0x8101]
    assert managed.keys("h3/1") == [0x7FFF, 0x0101]
    assert managed.keys("h4/1") == [0x7FFF]
    facing = str(managed.net.fabric["h2/1"].peer)
    assert managed.keys(facing) == [0x7FFF, 0x8101]
    present = managed.client.allocation()
    assert (present.revision, present.partitions, present.default_is_full) == (revision, (red,), False)
    assert managed.allocate(revision, remove=[0x0101], default_is_full=True) == before.revision
    assert managed.keys("h2/1") == [0xFFFF]


def test_a_change_that_waits_when_the_manager_ends_is_refused_and_changes_nothing(managed):
    before = managed.keys("h2/1")
    with ThreadPoolExecutor(1) as pool:
        change = pool.submit(managed.client.allocate, define=[define(managed.guid("h2"))])
        wait_until(lambda: managed.manager._control_server._waiting)
        managed.manager._control_server.close()
        with pytest.raises(SubnetError, match="the subnet manager ends"):
            change.result()
    assert managed.keys("h2/1") == before
    with pytest.raises(SubnetError):
        managed.client.allocate(define=[define(managed.guid("h2"))])


def test_an_order_wakes_the_manager(managed):
    """The request does not wait for the end of a pause."""
    with ThreadPoolExecutor(1) as pool:
        messages = pool.submit(managed.client.allocate, define=[define(Everyone.ALL)])
        wait_until(lambda: select.select([managed.manager._control_server.bell], [], [], 0)[0])
        began_s = managed.net.clock()
        managed.manager.carrier.poll(3600.0)
        assert managed.net.clock() == began_s
        managed.manager.step()
        messages.result()
    assert managed.keys("h2/1") == [0xFFFF, 0x8101]


def test_others_are_answered_while_an_order_is_read(managed, monkeypatch):
    """Parsing thousands of tenants takes seconds, and a standby waits for two."""
    heard, applied = threading.Event(), AllocationChange.applied

    def slow(order: AllocationChange, *where: object) -> object:
        assert heard.wait(PATIENCE_S)
        return applied(order, *where)

    monkeypatch.setattr(AllocationChange, "applied", slow)
    monkeypatch.setattr(managed.manager.state.sender, "between", lambda wait_s: heard.set())
    managed.allocate(define=[define(Everyone.ALL)])
    assert managed.keys("h2/1") == [0xFFFF, 0x8101]


def test_a_group_follows_its_partition(managed):
    """Its service level is that of the partition, also after a change."""
    lanes = QosOptions(sl2vl=(0, 1, 2, 3) * 4)
    managed.allocate(define=[define(managed.guid("h2"), ipoib=True, sl=1)], qos=lanes)
    groups = managed.manager.state.groups
    mgid = int(broadcast_mgid(0x0101))
    mlid = groups.by_mgid[mgid].mlid
    managed.allocate(define=[define(managed.guid("h2"), ipoib=True, sl=2, mtu=5)])
    record = groups.by_mgid[mgid].record
    assert (record.sl, record.mtu, record.mlid) == (2, 5, mlid)
    managed.allocate(remove=[0x0101])
    assert mgid not in groups.by_mgid


def test_a_change_of_partitions_discovers_and_routes_nothing(managed):
    managed.allocate(define=[define(managed.guid("h2"))], default_is_full=False)
    sweeps, mads = managed.manager.sweeps, managed.manager.state.sender.mads
    managed.allocate(define=[define(managed.guid("h2"), managed.guid("h3"))])
    assert managed.manager.sweeps == sweeps
    assert managed.manager.state.sender.mads - mads == 2  # h3, and the port of its switch


def test_change_of_an_outdated_revision_is_refused(managed):
    revision = managed.client.allocation().revision
    managed.allocate(revision, define=[define(Everyone.ALL)])
    with pytest.raises(OutOfDate, match="read it again"):
        managed.allocate(revision, remove=[0x0101])
    assert managed.keys("h2/1") == [0xFFFF, 0x8101]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ({"define": [define(p_key=0x7FFF)]}, "red=0x7fff is refused: its P_Key must be from 0x0001 to 0x7ffe"),
        ({"define": [define(p_key=0)]}, "P_Key must be from"),
        ({"define": [define(7, limited=(7,))]}, "red=0x0101 is refused: it names 0x0000000000000007 twice"),
        ({"define": [define(7, limited=(Everyone.ALL,))]}, "ALL replaces the rules before it; put it first"),
        ({"define": [define("h2")]}, "Invalid enum value 'h2' - at `$.set[1].members[0][0]`"),
        ({"define": [define(0)]}, "Expected `int` >= 1 - at `$.set[1].members[0][0]`"),
        ({"define": [define(7, sl=16)]}, "Expected `int` <= 15 - at `$.set[1].sl`"),
        ({"define": [define(7, mtu=6)]}, "Expected `int` <= 5 - at `$.set[1].mtu`"),
        ({"define": [define(7, rate=1)]}, "Expected `int` >= 2 - at `$.set[1].rate`"),
        ({"define": [define(7, name="n" * 32)]}, "Expected `str` of length <= 31"),
        ({"remove": [0x0102]}, "partition 0x0102 cannot be removed"),
        ({"default_is_full": 7}, "Expected `bool | null`"),
    ],
)
def test_invalid_change_has_no_effect(managed, words, why):
    managed.allocate(define=[define(Everyone.ALL, name="blue", p_key=0x0103)])
    before = managed.client.allocation()
    with pytest.raises(ConfigError, match=re.escape(why)):
        managed.allocate(define=[define(7, name="green", p_key=0x0104), *words.pop("define", [])], **words)
    assert managed.client.allocation() == before
    assert managed.keys("h2/1") == [0xFFFF, 0x8103]


def test_the_files_of_the_operator_come_first(tmp_path):
    file = tmp_path / "partitions.conf"
    file.write_text("Default=0x7fff: ALL=full;\nstorage=0x0020: ALL=full;\n")
    managed = Managed(tmp_path, partition_config_file=file)
    assert managed.client.allocation().taken == (0x20,)
    with pytest.raises(ConfigError, match=r"red=0x0020 is refused: a file .* has storage=0x0020"):
        managed.allocate(define=[define(limited=(Everyone.ALL,), p_key=0x0020)])
    with pytest.raises(ConfigError, match=r"line 1 of the partitions' file says ALL=full; take it out"):
        managed.allocate(default_is_full=False)
    managed.manager.close()


def test_a_file_that_takes_a_key_which_was_told_is_not_read(tmp_path):
    file = tmp_path / "partitions.conf"
    file.write_text("Default=0x7fff: ALL=full;\n")
    managed = Managed(tmp_path, partition_config_file=file)
    managed.allocate(define=[define(limited=(Everyone.ALL,), p_key=0x0020)])
    file.write_text("Default=0x7fff: ALL=full;\nstorage=0x0020: ALL=full;\n")
    managed.manager.reload()
    managed.manager.step()
    assert "red=0x0020 is refused" in " ".join(managed.manager.state.log.recent)
    assert managed.keys("h2/1") == [0xFFFF, 0x0020]
    managed.manager.close()


def test_a_socket_that_cannot_be_made_keeps_no_manager_from_its_work(tmp_path):
    managed = Managed(tmp_path / ("x" * 100))
    assert managed.manager.report is not None
    assert managed.manager.state.log.counts["NOT_WRITTEN"] == 1
    with pytest.raises(ConfigError, match="too long for a socket"):
        managed.client.status()
    managed.manager.close()


def test_lanes_are_written_and_taken_back(managed):
    lanes = QosOptions(high_limit=0, sl2vl=(0, 1) * 8)
    revision = managed.allocate(define=[define(Everyone.ALL, sl=1)], qos=lanes)
    assert managed.client.allocation().qos == {"high_limit": 0, "sl2vl": [0, 1] * 8}
    tables, node = managed.net.fabric.tables, managed.net.fabric.node_index["h2"]
    assert tables.sl2vl[tables.first_pair[node] + 1].tolist() == [0, 1] * 8
    managed.allocate(revision, remove=[0x0101], qos=None)
    assert tables.sl2vl[tables.first_pair[node] + 1].tolist() == [0] * 16


def test_a_service_level_waits_for_lanes(managed):
    """UFM's clients set a service level even without enough VLs."""
    managed.allocate(define=[define(Everyone.ALL, ipoib=True, sl=1)])
    assert managed.client.allocation().partitions[0].sl == 1

    def levels() -> set[int]:
        red = managed.manager.state.partitions.by_p_key(0x0101)
        return {red.sl, *(group.sl for group in red.groups)}

    assert levels() == {0}
    managed.allocate(qos=QosOptions(high_limit=0, sl2vl=(0, 1) * 8))
    assert levels() == {1}


def test_lanes_that_are_there_are_not_written_again(managed):
    managed.allocate(qos=QosOptions(high_limit=0, sl2vl=(0, 1) * 8))
    mads, ports = managed.manager.state.sender.mads, len(managed.manager.state.view.plugged)
    managed.allocate(qos=QosOptions(high_limit=1, sl2vl=(0, 1) * 8))
    assert managed.manager.state.sender.mads - mads == ports  # the limit is in PortInfo


def test_it_says_what_it_sees(managed):
    subnet = managed.client.subnet()
    nodes, ports = subnet.nodes, subnet.ports
    at = ports.guid.index(managed.guid("h2"))
    assert nodes.name[ports.node[at]] == "h2"
    assert (ports.number[at], ports.state[at], ports.physical_state[at]) == (1, "Active", "LinkUp")
    assert (ports.active_speed[at], ports.active_width[at], ports.mtu_bytes[at]) == ("NDR", "4x", 4096)
    far = ports.peer[at]
    assert f"{nodes.name[ports.node[far]]}/{ports.number[far]}" == str(managed.net.fabric["h2/1"].peer)
    assert ports.peer[far] == at
    status = managed.client.status()
    assert (status.sm_state, status.subnet_revision) == ("master", subnet.revision)


def test_a_standby_names_its_master(managed):
    managed.manager.election.state = SMState.STANDBY
    with pytest.raises(SubnetError, match="this subnet manager is standby"):
        managed.allocate(define=[define(limited=(Everyone.ALL,))])


def become_master_again(manager: SubnetManager) -> None:
    """Make the manager master again, as after the end of another one."""
    manager._obey(Action.STAND_BY)
    manager.election.state = SMState.DISCOVERING
    manager._sweep()


def test_standby_that_was_given_nothing_adopts_the_partitions_of_the_ports(managed):
    tables = managed.net.fabric.tables.pkey
    for host in ("h2", "h3"):
        tables[managed.net.fabric[f"{host}/1"].slot, 1] = 0x8101  # a key that the other master was asked to set
    become_master_again(managed.manager)
    present = managed.client.allocation()
    assert present.partitions == (define(managed.guid("h2"), managed.guid("h3"), name="adopted-0x0101"),)
    managed.allocate(present.revision, remove=[0x0101])
    assert managed.keys("h3/1") == [0xFFFF]


def test_manager_that_becomes_master_again_keeps_its_partitions_and_repairs_the_ports(managed):
    blue = define(managed.guid("h4"), name="blue", p_key=0x0102, ipoib=True)
    managed.allocate(define=[blue, define(managed.guid("h2"))], default_is_full=False)
    present, file = managed.client.allocation(), managed.place / "sm.allocation"
    remaining, keys = file.read_bytes(), managed.net.fabric.tables.pkey.copy()
    managed.net.fabric.tables.pkey[:, 0], managed.net.fabric.tables.pkey[:, 1:] = 0xFFFF, 0  # as OpenSM leaves them
    become_master_again(managed.manager)
    assert managed.client.allocation() == present
    assert file.read_bytes() == remaining
    assert (managed.net.fabric.tables.pkey == keys).all()
    repaired = managed.tell(lambda client: client.check(repair=False).repaired)
    assert "h2/1: lacks P_Key 0x7fff and 0x8101, holds P_Key 0xffff" in repaired


def test_a_manager_that_starts_again_knows_what_it_was_told(managed):
    managed.allocate(define=[define(managed.guid("h2"))], default_is_full=False)
    present = managed.client.allocation()
    managed.manager.close()
    managed.net.fabric.tables.pkey[:] = 0  # another program has changed the tables
    managed.start()
    assert managed.client.allocation() == present
    assert managed.keys("h2/1") == [0x7FFF, 0x8101]
    assert "restored run-time configuration: 1 partition of" in managed.manager.state.log.recent[0]


def test_query_without_a_manager_fails(tmp_path):
    with pytest.raises(SubnetError, match="no subnet manager answers at"):
        ManagerSocket(tmp_path / "sm.sock").status()


def test_new_lanes_keep_the_tables_that_routing_needs_against_deadlock():
    """Other VLs of the fabric are recomputed; the view that readers hold does not change."""
    desk = Desk()
    lanes = np.full((1, 16), 3, np.uint8)
    desk.view.fabric.tables.sl2vl = np.zeros((1, 16), np.uint8)
    for routing, expected in ((None, None), (SimpleNamespace(tables=SimpleNamespace(sl2vl=lanes)), lanes)):
        desk.state.routing = routing
        fresh = _with_fresh_tables(desk.state, desk.view, lanes=True)
        assert vars(fresh.fabric.tables).get("sl2vl") is expected
        assert (
            _with_fresh_tables(desk.state, desk.view, lanes=False).fabric.tables.sl2vl is desk.view.fabric.tables.sl2vl
        )
    assert not desk.view.fabric.tables.sl2vl.any()
