"""The M_Key that weft creates for tenants: ports refuse requests without it, managers with it trust each other."""

from __future__ import annotations

import io
import stat
from pathlib import Path

import numpy as np
import pytest
from tests.sm.conftest import Net
from tests.sm.test_control_server import Managed, define

from weft.errors import ConfigError
from weft.mad.carrier import Address, Carrier, ask
from weft.mad.discover import directed_get
from weft.mad.keyed import KeyedCarrier, KeyFile
from weft.sm.conf.options import Options
from weft.sm.events import Event, Log
from weft.sm.run import SubnetManager
from weft.wire.mad import Method
from weft.wire.port_info import PortInfo
from weft.wire.sa import SaAttribute, SaMad
from weft.wire.smp import DirectedSmp, SMInfo, Smp, SmpAttribute, SMState


@pytest.fixture
def managed(tmp_path: Path):
    result = Managed(tmp_path, m_key_file=tmp_path / "m_key")
    yield result
    result.manager.close()


def isolate(managed: Managed) -> None:
    managed.allocate(define=[define(managed.guid("h2"))], default_is_full=False)


def port_info(carrier: Carrier) -> PortInfo | None:
    answer = ask(carrier, directed_get(b"", SmpAttribute.PORT_INFO))
    return None if answer is None else PortInfo.unpack(DirectedSmp.unpack(answer).data)


def disable_h2(managed: Managed, carrier: Carrier) -> bool:
    """Disable h2 as `ibportstate -D 0,N 2 disable` does; return whether it was answered."""
    facing = managed.net.fabric["h2/1"].peer
    data = PortInfo(port_state=1, port_physical_state=3).raw
    smp = DirectedSmp.pack(
        method=Method.SET,
        attribute_id=SmpAttribute.PORT_INFO,
        attribute_modifier=facing.number,
        hop_count=1,
        initial_path=b"\0\1",
        data=data,
    )
    return ask(carrier, smp) is not None


def test_ports_are_protected_from_strangers_while_tenants_exist(managed):
    file, stranger = managed.place / "m_key", managed.net.at("h3/1")
    assert port_info(stranger).m_key == 0
    assert not file.exists()
    isolate(managed)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert port_info(stranger) is None
    assert not disable_h2(managed, stranger)
    operator = KeyedCarrier(stranger, KeyFile(file))
    info = port_info(operator)
    assert (info.m_key, info.m_key_protect_bits, info.m_key_lease_period) == (int(file.read_text(), 16), 2, 0)
    managed.allocate(remove=[0x0101], default_is_full=True)
    assert port_info(stranger).m_key == 0
    assert disable_h2(managed, stranger)


def test_partition_file_with_default_alone_sets_no_m_key(tmp_path):
    (tmp_path / "partitions.conf").write_text("Default=0x7fff, ipoib: ALL=full;\n")
    managed = Managed(tmp_path, m_key_file=tmp_path / "m_key", partition_config_file=tmp_path / "partitions.conf")
    assert not (tmp_path / "m_key").exists()
    assert port_info(managed.net.at("h3/1")).m_key == 0
    managed.manager.close()


def read_p_keys(managed: Managed, name: str, sa_key: int) -> bytes | None:
    """Query all P_Key tables from a host's port, as `saquery --smkey KEY PKTR` does."""
    administrator = managed.manager.administrator
    lid = int(managed.net.fabric.tables.lid[managed.net.fabric[f"{name}/1"].slot])
    request = SaMad(
        method=Method.GET_TABLE, attribute_id=SaAttribute.P_KEY_TABLE_RECORD, class_version=2, sm_key=sa_key
    )
    return administrator.answer(request.raw, Address(lid))


@pytest.mark.parametrize("options", [{}, {"m_key": 7, "m_key_protection_level": 2}])
def test_default_sa_key_is_trusted_from_the_managers_own_port_alone_where_tenants_exist(tmp_path, options):
    managed = Managed(tmp_path, m_key_file=tmp_path / "m_key", **options)
    assert read_p_keys(managed, "h2", sa_key=1)
    isolate(managed)
    assert read_p_keys(managed, "h2", sa_key=1) is None
    assert read_p_keys(managed, "h1", sa_key=1)
    managed.allocate(remove=[0x0101], default_is_full=True)
    assert read_p_keys(managed, "h2", sa_key=1)
    managed.manager.close()


def test_chosen_sa_key_is_trusted_from_any_port_where_tenants_exist(tmp_path):
    managed = Managed(tmp_path, m_key_file=tmp_path / "m_key", sa_key=0x51)
    isolate(managed)
    assert read_p_keys(managed, "h2", sa_key=0x51)
    assert read_p_keys(managed, "h1", sa_key=1) is None
    managed.manager.close()


def test_standby_with_the_same_key_file_copies_the_tables_of_the_sa(managed):
    isolate(managed)
    other = other_manager(managed, 0, m_key_file=managed.place / "m_key")
    settle(managed.manager, other)
    assert other.election.state == SMState.STANDBY
    assert other.replication.replica.groups is not None


def test_manager_that_starts_again_knows_the_key_of_its_file(managed):
    isolate(managed)
    managed.manager.close()
    managed.start()
    assert managed.manager.state.log.counts[Event.SUBNET_UP] == 1
    assert managed.tell(lambda client: client.check(repair=False).differences) == ()


def test_ports_stay_open_where_the_key_cannot_be_kept(tmp_path):
    managed = Managed(tmp_path, m_key_file=Path("/proc/weft/m_key"))  # no folder can be created there
    isolate(managed)
    assert port_info(managed.net.at("h2/1")).m_key == 0
    assert any("ports are not protected" in line for line in managed.manager.state.log.recent)
    managed.manager.close()


def other_manager(managed: Managed, priority: int, **options: object) -> SubnetManager:
    """Return another manager at h6, after its sweep."""
    carrier = managed.net.at("h6/1")
    result = SubnetManager(
        carrier,
        Options(sm_priority=priority, sweep_interval_s=0, **options),  # type: ignore[arg-type]
        log=Log(io.StringIO()),
        clock=managed.net.clock,
    )
    carrier._sleep = lambda seconds: (managed.manager._serve(0.0), managed.net.clock.sleep(min(seconds, 0.005)))
    result.open()
    return result


def settle(*managers: SubnetManager) -> None:
    for _ in range(40):
        for manager in managers:
            manager.step()


def test_standby_with_the_same_key_file_may_take_over(managed):
    isolate(managed)
    other = other_manager(managed, 15, m_key_file=managed.place / "m_key")
    managed.net.carrier._sleep = lambda seconds: (other._serve(0.0), managed.net.clock.sleep(min(seconds, 0.005)))
    settle(managed.manager, other)
    assert (managed.manager.election.state, other.election.state) == (SMState.STANDBY, SMState.MASTER)
    assert managed.keys("h2/1") == [0x7FFF, 0x8101]


class Rogue:
    """A program at h6 that sets IsSM, answers as a standby of priority 15, and records its requests."""

    def __init__(self, managed: Managed, **claim: int) -> None:
        self.carrier, self.asked = managed.net.at("h6/1"), list[bytes]()
        guid = int(managed.net.fabric["h6/1"].guid)
        self.info = SMInfo(**{"guid": guid, "priority": 15, "sm_state": SMState.STANDBY, "sm_key": 1} | claim)
        for mgmt_class in (0x01, 0x81):
            self.carrier.register(mgmt_class, (Method.GET, Method.SET))
        managed.net.carrier._sleep = lambda seconds: (self.answer(), managed.net.clock.sleep(min(seconds, 0.005)))
        self.carrier.set_is_sm(True)

    def answer(self) -> None:
        for arrived in self.carrier.arrivals():
            self.asked.append(arrived.mad)
            response = bytearray(arrived.mad)
            Smp.method.set(response, Method.GET_RESP)
            response[4] |= 0x80 if arrived.mad[1] == 0x81 else 0
            response[64 : 64 + SMInfo.size] = self.info.raw
            self.carrier.post(bytes(response), arrived.source)


def test_master_hands_over_to_no_manager_that_does_not_know_the_key_and_never_sends_it(managed):
    isolate(managed)
    rogue = Rogue(managed)
    settle(managed.manager)
    managed.manager._sweep()
    assert managed.manager.election.state == SMState.MASTER
    assert rogue.asked
    assert not any(Smp.m_key.get(mad) for mad in rogue.asked)
    assert all(Smp.method.get(mad) == Method.GET for mad in rogue.asked)


@pytest.mark.parametrize("guid", ["own", "of the trusted manager"])
def test_sm_key_of_a_trusted_manager_does_not_serve_another_port(managed, guid):
    isolate(managed)
    trusted = managed.manager.election.sm_info()
    claim = {"sm_key": trusted.sm_key} | ({} if guid == "own" else {"guid": trusted.guid})
    Rogue(managed, **claim)
    settle(managed.manager)
    managed.manager._sweep()
    assert managed.manager.election.state == SMState.MASTER
    assert managed.manager.state.log.counts[Event.OTHER_SM] >= 1


def test_keyed_carrier_adds_the_key_to_smps_alone(tmp_path):
    net = Net("star:hosts=2")
    sent: list[np.ndarray] = []
    exchange = net.carrier.exchange
    net.carrier.exchange = lambda mads, to=None, **how: (sent.append(mads.copy()), exchange(mads, to, **how))[1]
    file = KeyFile(tmp_path / "m_key")
    keyed = KeyedCarrier(net.carrier, file)
    mads = np.zeros((3, 256), np.uint8)
    mads[:, 0], mads[:, 1], mads[:, 3], mads[:, 32:36] = 1, (0x81, 0x81, 0x04), 1, 0xFF
    mads[:, 17] = SmpAttribute.NODE_INFO, SmpAttribute.SM_INFO, SmpAttribute.NODE_INFO
    keyed.exchange(mads, timeout_ms=1, retries=0)
    assert not sent[-1][:, 24:32].any()
    assert file.make() == file.make() == file() != 0
    keyed.exchange(mads, timeout_ms=1, retries=0)
    assert sent[-1][:, 24:32].any(axis=1).tolist() == [True, False, False]
    file.path.write_text("no key")
    with pytest.raises(ConfigError, match="cannot be read"):
        keyed.exchange(mads)
