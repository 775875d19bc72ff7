"""Drivers of tenants: weft's subnet manager in a lab, a UFM, and weft's own UFM. OpenSM's is in tests/interop."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from tests.conformance.drivers import CHECKS, Bench, partition_of
from tests.lab.rdma import managed
from tests.patience import PATIENCE_S
from tests.tenants.drivers.small_ufm import SmallUfm, running

import weft
from weft.diags.query import Target, get_smp
from weft.errors import SubnetError, WeftError
from weft.lab import control, registry
from weft.lab.lab import Lab
from weft.mad.ibsim_client import IbsimCarrier
from weft.mad.keyed import KeyedCarrier, KeyFile
from weft.serve.embedded import Ufm
from weft.sm.control import ManagerSocket, socket_of
from weft.tenants.drivers.subnet_manager import ManagerDriver
from weft.tenants.drivers.ufm import UfmDriver
from weft.tenants.drivers.ufm_rest import UfmClient
from weft.tenants.drivers.ufm_shapes import UfmQos
from weft.wire.smp import PKeyTable, SmpAttribute


@pytest.fixture(scope="module")
def of_manager(tmp_path_factory) -> Iterator[Bench]:
    place = tmp_path_factory.mktemp("sm")
    (place / "partitions.conf").write_text("own=0x0200 : 0x1234=full ;")
    fabric = weft.load("star:hosts=6")
    options = {"state_file": place / "sm.json", "partition_config_file": place / "partitions.conf"}
    with Lab(fabric, f"d{time.monotonic_ns() % 10**12}") as lab, managed(lab, **options):
        slots = {int(fabric[f"h{number}/1"].guid): fabric[f"h{number}/1"].slot for number in range(1, 7)}
        yield Bench(
            driver=ManagerDriver(ManagerSocket(socket_of(place / "sm.json"))),
            guids={f"h{number}": int(fabric[f"h{number}/1"].guid) for number in range(2, 7)},
            held=lambda guid: lab.fabric.tables.pkey[slots[guid]].tolist(),
            taken=0x200,
            sets_default=False,
        )


@pytest.fixture(scope="module")
def of_ufm() -> Iterator[Bench]:
    guids = {f"h{number}": 0x0002_C903_0000_1200 + 16 * number + 1 for number in range(2, 7)}
    with running(SmallUfm(guids)) as ufm:
        driver = UfmDriver(UfmClient(ufm.url, token="t"), range(0x100, 0x200))
        yield Bench(driver=driver, guids=guids, held=ufm.held, taken=0x200, sets_default=False, sets_lanes=False)


@pytest.fixture(scope="module")
def of_weft_serve() -> Iterator[Bench]:
    """Yield a bench on weft's own UFM with a lab; Default becomes limited with the first partition."""
    with Ufm("star:hosts=6") as ufm:
        client = UfmClient(ufm.url, token=ufm.token, timeout_s=PATIENCE_S)
        client.create_pkey(0x200, "own", ip_over_ib=False, qos=UfmQos())
        driver = UfmDriver(client, range(0x100, 0x200))
        lids = {guid: port.lid for guid, port in driver.inventory().by_guid().items()}
        lab = registry.find(ufm.lab)
        plain = IbsimCarrier("h6", control.ask(lab, "state")["sockname"])
        carrier = KeyedCarrier(plain, KeyFile(lab.m_key_file))
        yield Bench(
            driver=driver,
            guids={f"h{number}": int(ufm.fabric[f"h{number}/1"].guid) for number in range(2, 7)},
            held=lambda guid: list(
                PKeyTable.unpack(get_smp(carrier, Target(lids[guid]), SmpAttribute.P_KEY_TABLE)).p_key
            ),
            taken=0x200,
            sets_default=False,
            sets_lanes=False,
        )
        carrier.close()


@pytest.mark.parametrize("who", ["of_manager", "of_ufm", "of_weft_serve"])
@pytest.mark.parametrize("name", CHECKS)
def test_every_driver_passes_the_conformance_suite(who, name, request):
    CHECKS[name](request.getfixturevalue(who))


def test_a_port_without_room_is_named_and_nothing_is_changed(of_manager):
    present = of_manager.driver.read()
    many = [partition_of(of_manager, f"t{p_key}", p_key, "h3") for p_key in range(0x1000, 0x1000 + 128)]
    with pytest.raises(WeftError, match=r"h3/1.*no room for 0x\w+ .*128"):
        of_manager.put(of_manager.allocation(*many))
    of_manager.expect(of_manager.allocation())
    assert of_manager.driver.read() == present


def test_a_manager_that_is_gone_is_named(tmp_path):
    with pytest.raises(SubnetError, match=rf"no subnet manager answers at {tmp_path}/sm\.sock: .*No such file"):
        ManagerDriver(ManagerSocket(tmp_path / "sm.sock")).read()
