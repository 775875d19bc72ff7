"""Three carriers, two fabrics: ibsim's agents and weft's give equal answers where both have one.

    ibsim_client -> ibsim           umad -> libumad2sim -> ibsim           umad -> weft's preload -> weft's agents
    ibsim_client -> weft's lab

DIFFERENT and LACKS list the intended differences with their reasons.
"""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.patience import PATIENCE_S

from weft.fabric.files import ibnetdiscover
from weft.fabric.files.naming import node_id
from weft.fabric.kinds import NodeKind
from weft.fabric.spec import load
from weft.lab import preload
from weft.lab.lab import Lab
from weft.mad.bulk import Bulk
from weft.mad.carrier import Address, Carrier, ask
from weft.mad.discover import directed_get, discover
from weft.mad.ibsim_client import IbsimCarrier
from weft.mad.local import LocalCarrier
from weft.mad.subnet import Subnet
from weft.wire.format import Format
from weft.wire.mad import Method
from weft.wire.port_info import PortInfo
from weft.wire.smp import (
    DirectedSmp,
    GuidInfo,
    LinearForwardingTable,
    NodeDescription,
    NodeInfo,
    PKeyTable,
    SLtoVLMappingTable,
    Smp,
    SmpAttribute,
    SwitchInfo,
    VLArbitrationEntry,
    VLArbitrationTable,
)

pytestmark = pytest.mark.interop

TESTS = Path(__file__).parents[1]
FABRIC = "fat-tree:hosts=8,radix=4,speed=HDR"
# The conformance suite's checks that ibsim does not pass, and why (ibsim/sim_mad.c).
LACKS = {
    "no_such_attribute": "it does not answer what it does not know",
    "state_order": "it takes Armed for a port that is Active",
    "lid_zero": "it takes LID 0",
    "m_key": "it does not know M_Keys",
    "combined": "it does not route by LID and path together",
    "congestion_control": "it takes class 0x21 for class 1, and its attribute 0x16 for the P_Key table",
}
# Fields in which weft's agents and ibsim's differ on the same fabric before any Set.
DIFFERENT = {
    NodeInfo: {
        "partition_cap": "ibsim: 64 for adapters, ports of a switch for switches; weft: what real ones have",
        "revision": "ibsim: 0xa1; weft keeps none",
    },
    SwitchInfo: {
        "linear_fdb_cap": "ibsim: 30720; weft: 0xC000, all unicast LIDs",
        "multicast_fdb_cap": "ibsim: 1024",
        "partition_enforcement_cap": "ibsim: 64; weft: what real switches have",
        "inbound_enforcement_cap": "ibsim stores no enforcement",
        "outbound_enforcement_cap": "ibsim stores no enforcement",
        "port_state_change": "ibsim: set from the start",
        "life_time_value": "ibsim: 0 until it is set",
        "optimized_sl_to_vl_mapping_programming": "ibsim: one input at a time",
    },
    PortInfo: {
        "capability_mask": "other features",
        "capability_mask2": "other features",
        "m_key_lease_period": "ibsim: 0x0ff9",
        "link_width_enabled": "ibsim: 1x and 4x, also where the link is wider",
        "link_width_supported": "ibsim: all widths",
        "vl_arbitration_high_cap": "ibsim: 8; weft: 64",
        "vl_arbitration_low_cap": "ibsim: 8; weft: 64",
        "mtu_cap": "ibsim: 2048; weft: 4096",
        "neighbor_mtu": "ibsim: 2048, before a subnet manager negotiates",
        "hoq_life": "ibsim: 0 for adapters",
        "guid_cap": "ibsim: 32",
        "subnet_time_out": "ibsim: 31",
        "resp_time_value": "ibsim: 0",
        "local_phy_errors": "ibsim: 0",
        "overrun_errors": "ibsim: 0",
        "gid_prefix": "ibsim: only at ports with a LID; weft: at all",
        "vl_stall_count": "ibsim: 7 or 0",
    },
}
OF_NO_LINK = "link_speed"  # fields of port 0 of a switch, which has none; ibsim: SDR; weft: the switch's fastest
CHECK_ALL = """
import importlib.util, sys
spec = importlib.util.spec_from_file_location("conformance_agents", sys.argv[1])
suite = importlib.util.module_from_spec(spec)
sys.modules[spec.name] = suite
spec.loader.exec_module(suite)
from weft.mad.umad import UmadCarrier
carrier = UmadCarrier()
suite.check_agents(carrier, lacks=sys.argv[2:])
carrier.close()
"""


def suite():
    spec = importlib.util.spec_from_file_location("conformance_agents", TESTS / "conformance" / "agents.py")
    result = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = result
    spec.loader.exec_module(result)
    return result


@pytest.fixture
def on_ibsim(ibsim):
    """An ibsim with the fabric, and the ID of its first host."""
    fabric = load(FABRIC)
    return ibsim(ibnetdiscover.to_text(fabric)), node_id(NodeKind.HCA, fabric.hcas[0].guid)


@pytest.fixture
def theirs(on_ibsim):
    """A carrier to ibsim's agents, without libumad2sim."""
    running, host = on_ibsim
    carrier = IbsimCarrier(host, running.name)
    yield carrier
    carrier.close()


@pytest.fixture
def ours():
    """A carrier to weft's agents, on the same fabric and host."""
    subnet = Subnet(load(FABRIC))
    devices = subnet.devices
    return LocalCarrier(subnet, devices.first[devices.fabric.node_index["h1"]] + 1)


def check_in_a_process(environment: dict[str, str], folder: Path, lacks: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CHECK_ALL, str(TESTS / "conformance" / "agents.py"), *lacks],
        cwd=folder,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]


def test_ibsim_keeps_to_the_suite_over_its_sockets(theirs):
    suite().check_agents(theirs, lacks=LACKS)


def test_ibsim_keeps_to_the_suite_over_libumad2sim(on_ibsim, tmp_path):
    running, host = on_ibsim
    library = next(Path("/usr/lib").glob("*/umad2sim/libumad2sim.so"))
    variables = {"LD_PRELOAD": str(library), "IBSIM_SOCKNAME": running.name, "SIM_HOST": host}
    check_in_a_process(variables, tmp_path, list(LACKS))


def test_weft_keeps_to_the_suite_over_ibsims_sockets():
    with Lab(load(FABRIC), f"suite-{os.getpid()}") as lab:
        carrier = IbsimCarrier("h1", lab.sockname)
        suite().check_agents(carrier)
        carrier.close()


def test_weft_keeps_to_the_suite_over_its_own_libibumad(tmp_path, peer):
    spec = importlib.util.spec_from_file_location("interop_hosts", Path(__file__).with_name("hosts.py"))
    hosts = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(hosts)
    peer("cc")
    library = preload.library()
    lab = hosts.Hosts(load(FABRIC), tmp_path, library, peer)
    try:
        check_in_a_process(preload.environment(library, tmp_path / "lab", "h1"), tmp_path, [])
    finally:
        lab.close()


def test_a_request_that_goes_nowhere_is_given_up_after_its_retries(theirs):
    token = theirs.send(directed_get(bytes([1, 99]), SmpAttribute.NODE_INFO), timeout_ms=20, retries=2)
    result: list[tuple[int, bytes | None]] = []
    for _ in range(20):
        result += theirs.poll(0.01)
    assert result == [(token, None)]


def test_a_process_goes_round_when_it_has_been_all_clients_that_ibsim_can_name(on_ibsim, monkeypatch):
    """An ID with bit 31 set is negative for ibsim, which then sends its answers to a client that does not exist."""
    sim, _ = on_ibsim
    monkeypatch.setattr("weft.mad.ibsim_client._numbers", itertools.chain([0], itertools.count(511)))
    with contextlib.ExitStack() as stack:
        carriers = [stack.enter_context(contextlib.closing(IbsimCarrier("", sim.name))) for _ in range(3)]
        assert all(ask(carrier, directed_get(b"", SmpAttribute.NODE_INFO)) is not None for carrier in carriers)
        assert [carrier._id >> 22 for carrier in carriers] == [0, 511, 1]


@pytest.fixture(params=["ibsim", "lab"])
def two(request, ibsim):
    """The carriers over ibsim's sockets at two hosts, and the nodes; the first host, LID 1, brought the subnet up."""
    fabric = load(FABRIC)
    with contextlib.ExitStack() as end:
        if request.param == "ibsim":
            server = ibsim(ibnetdiscover.to_text(fabric)).name
        else:
            server = end.enter_context(Lab(fabric, f"two-{os.getpid()}")).sockname
        hosts = [node_id(NodeKind.HCA, fabric.hcas[n].guid) for n in (0, 5)]
        result = [end.enter_context(contextlib.closing(IbsimCarrier(host, server))) for host in hosts]
        checks = suite()
        nodes = checks.discover(result[0])
        checks.bring_up(result[0], nodes)
        yield *result, nodes


def test_questions_that_come_during_an_exchange_are_kept(two):
    manager, other, _ = two
    manager.set_is_sm(True)
    manager.register(1, [Method.GET])
    question = Smp.pack(method=Method.GET, attribute_id=SmpAttribute.SM_INFO)
    requests = other.send(question, Address(1), timeout_ms=int(PATIENCE_S * 1000))
    many = np.tile(np.frombuffer(directed_get(b"", SmpAttribute.NODE_INFO), np.uint8), (2000, 1))
    _, came = manager.exchange(many)
    assert came.all()
    (arrival,) = manager.arrivals()
    reply = bytearray(arrival.mad)
    reply[3] = Method.GET_RESP
    manager.post(reply, arrival.source)
    ((token, answer),) = other.poll(PATIENCE_S)
    assert token == requests
    assert answer is not None


def test_returned_mad_is_sent_again_at_once(two, monkeypatch):
    carrier, _, _ = two
    waited = Bulk.on_timer

    def on_timer(bulk, now_s):
        assert now_s < bulk.next_due_s(), "it waited for the timeout"
        waited(bulk, now_s)

    monkeypatch.setattr(Bulk, "on_timer", on_timer)
    nowhere = np.frombuffer(directed_get(bytes([1, 99]), SmpAttribute.NODE_INFO), np.uint8)
    _, came = carrier.exchange(np.tile(nowhere, (300, 1)), timeout_ms=2000, retries=2)
    assert not came.any()


# -- the same questions to both ---------------------------------------------------------------------------------------


def get(carrier: Carrier, path: bytes, form: type[Format], attribute: int, modifier: int = 0) -> Format:
    answer = ask(carrier, directed_get(path, attribute, modifier))
    assert answer is not None, f"no answer to {form.__name__} along {list(path)}"
    return form.unpack(answer, 64)


def put(carrier: Carrier, path: bytes, attribute: int, modifier: int, data: bytes) -> None:
    smp = DirectedSmp.unpack(directed_get(path, attribute, modifier)).replace(method=Method.SET, data=data)
    answer = ask(carrier, smp.raw)
    assert answer is not None
    assert not DirectedSmp.status.get(answer)


def differing(form: type[Format], a: Format, b: Format) -> set[str]:
    return {name for name, value in a.as_dict().items() if value != b.as_dict()[name]}


def test_weft_and_ibsim_discover_the_same(theirs, ours):
    observed, expected = discover(ours), discover(theirs)
    assert observed.nodes.keys() == expected.nodes.keys()
    for guid, node in observed.nodes.items():
        other = expected.nodes[guid]
        assert node.description == other.description
        assert {n: port.peer for n, port in node.ports.items()} == {n: port.peer for n, port in other.ports.items()}
        assert {n: port.guid for n, port in node.ports.items() if n} == {
            n: port.guid for n, port in other.ports.items() if n
        }


def test_weft_and_ibsim_differ_only_where_it_is_meant(theirs, ours):
    observed: dict[type[Format], set[str]] = {form: set() for form in DIFFERENT}
    for node in discover(ours).nodes.values():
        observed[NodeInfo] |= differing(
            NodeInfo, *(get(item, node.path, NodeInfo, SmpAttribute.NODE_INFO) for item in (ours, theirs))
        )
        if node.is_switch:
            pair = (get(item, node.path, SwitchInfo, SmpAttribute.SWITCH_INFO) for item in (ours, theirs))
            observed[SwitchInfo] |= differing(SwitchInfo, *pair)
        for number in node.ports:
            pair = (get(item, node.path, PortInfo, SmpAttribute.PORT_INFO, number) for item in (ours, theirs))
            result = differing(PortInfo, *pair)
            observed[PortInfo] |= result if number else {name for name in result if not name.startswith(OF_NO_LINK)}
        names = [get(item, node.path, NodeDescription, SmpAttribute.NODE_DESCRIPTION) for item in (ours, theirs)]
        assert names[0] == names[1]
        if not node.is_switch:  # ibsim repeats the GUID in other entries of its table
            guids = [get(item, node.path, GuidInfo, SmpAttribute.GUID_INFO).guid[0] for item in (ours, theirs)]
            assert guids[0] == guids[1]
    for form, reasons in DIFFERENT.items():
        # No unlisted difference, and no listed one that does not occur.
        assert sorted(observed[form] ^ set(reasons)) == [], f"of {form.__name__}"


def test_weft_and_ibsim_keep_tables_alike(theirs, ours):
    leaf = b"\1"
    entries = [VLArbitrationEntry(vl=n % 4, weight=10 * n) for n in range(8)]
    for carrier in (theirs, ours):
        for path, attribute, modifier, record in (
            (leaf, SmpAttribute.LINEAR_FORWARDING_TABLE, 0, LinearForwardingTable(port=range(64))),
            (leaf, SmpAttribute.LINEAR_FORWARDING_TABLE, 3, LinearForwardingTable(port=[2] * 64)),
            (b"", SmpAttribute.P_KEY_TABLE, 0, PKeyTable(p_key=(0xFFFF, 0x8001, 0x0002))),
            (leaf, SmpAttribute.P_KEY_TABLE, 2 << 16, PKeyTable(p_key=(0xFFFF, 0x8003))),
            (leaf, SmpAttribute.SL_TO_VL_MAPPING_TABLE, 1 << 8 | 2, SLtoVLMappingTable(vl=[n % 4 for n in range(16)])),
            (leaf, SmpAttribute.VL_ARBITRATION_TABLE, 1 << 16 | 1, VLArbitrationTable(entry=entries)),
            (leaf, SmpAttribute.VL_ARBITRATION_TABLE, 3 << 16 | 1, VLArbitrationTable(entry=entries[::-1])),
        ):
            put(carrier, path, attribute, modifier, record.raw)
            assert get(carrier, path, type(record), attribute, modifier) == record, f"{carrier} {record}"
