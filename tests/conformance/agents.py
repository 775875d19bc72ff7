"""Requirements for the agents behind every carrier: weft's own, and those of ibsim or of hardware, with exceptions.

    check_agents(carrier)                                    all checks
    check_agents(carrier, lacks={"m_key", "combined"})       without the checks of missing features: names of CHECKS

It manages the subnet: assigns LIDs, fills forwarding tables, activates ports. Use a subnet without another manager.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from weft.mad.carrier import HERE, Address, Carrier, ask
from weft.wire.cc import CcAttribute, CcMad, CongestionControlTable, CongestionInfo
from weft.wire.format import Format
from weft.wire.mad import ClassPortInfo, Method, PlainMad, Status
from weft.wire.perf import PerfAttribute, PortCounters, PortCountersExtended
from weft.wire.port_info import PortInfo, PortPhysicalState, PortState
from weft.wire.smp import (
    DirectedSmp,
    GuidInfo,
    LinearForwardingTable,
    NodeDescription,
    NodeInfo,
    NodeType,
    PKeyTable,
    SLtoVLMappingTable,
    Smp,
    SmpAttribute,
    SwitchInfo,
    VLArbitrationEntry,
    VLArbitrationTable,
)

F = TypeVar("F", bound=Format)
_LONG_S = 3600.0
IDS = {
    NodeInfo: SmpAttribute.NODE_INFO,
    NodeDescription: SmpAttribute.NODE_DESCRIPTION,
    SwitchInfo: SmpAttribute.SWITCH_INFO,
    GuidInfo: SmpAttribute.GUID_INFO,
    PortInfo: SmpAttribute.PORT_INFO,
    PKeyTable: SmpAttribute.P_KEY_TABLE,
    SLtoVLMappingTable: SmpAttribute.SL_TO_VL_MAPPING_TABLE,
    VLArbitrationTable: SmpAttribute.VL_ARBITRATION_TABLE,
    LinearForwardingTable: SmpAttribute.LINEAR_FORWARDING_TABLE,
}


@dataclass
class Found:
    """A node as discovered by a subnet manager."""

    path: bytes  # output ports from here to the node
    guid: int
    type: int
    ports: int
    lid: int = 0
    peer: dict[int, tuple[int, int]] = field(default_factory=dict)  # port -> GUID and port at the other end

    @property
    def is_switch(self) -> bool:
        return self.type == NodeType.SWITCH


# -- requests ---------------------------------------------------------------------------------------------------------


def smp(path: bytes, method: int, attribute: int, modifier: int = 0, data: bytes = b"", m_key: int = 0) -> bytes:
    return DirectedSmp.pack(
        method=method,
        attribute_id=attribute,
        attribute_modifier=modifier,
        m_key=m_key,
        hop_count=len(path),
        initial_path=b"\0" + path,
        data=data,
    )


def status_of(answer: bytes | None) -> int | None:
    """Return the status without the direction bit; None without an answer."""
    return None if answer is None else (answer[4] & 0x7F) << 8 | answer[5]


def get(carrier: Carrier, path: bytes, form: type[F], modifier: int = 0, m_key: int = 0) -> F:
    answer = ask(carrier, smp(path, Method.GET, IDS[form], modifier, m_key=m_key))
    assert answer is not None, f"no answer to Get({form.__name__}) along {list(path)}"
    assert status_of(answer) == 0, f"Get({form.__name__}, {modifier:#x}) along {list(path)}: {answer[:6].hex()}"
    return form.unpack(answer, 64)


def put(carrier: Carrier, path: bytes, record: Format, modifier: int = 0, m_key: int = 0) -> int | None:
    """Set a record and return the status, or None without an answer."""
    return status_of(ask(carrier, smp(path, Method.SET, IDS[type(record)], modifier, record.raw, m_key)))


def setting(info: PortInfo, **changes: int) -> PortInfo:
    """Return the attribute that changes only these fields: link states are not copied."""
    quiet = {"port_state": PortState.NO_CHANGE, "port_physical_state": PortPhysicalState.NO_CHANGE}
    return info.replace(**{**quiet, "link_speed_ext_enabled": 0, "link_speed_enabled": 0, **changes})


# -- a small subnet manager -------------------------------------------------------------------------------------------


def discover(carrier: Carrier) -> dict[int, Found]:
    """Return all nodes by GUID, the carrier's own node first."""
    nodes: dict[int, Found] = {}
    waiting = [b""]
    while waiting:
        path = waiting.pop(0)
        info = get(carrier, path, NodeInfo)
        if info.node_guid not in nodes:
            nodes[info.node_guid] = node = Found(path, info.node_guid, info.node_type, info.num_ports)
            ports = range(1, node.ports + 1) if node.is_switch or not path else ()
            up = [port for port in ports if get(carrier, path, PortInfo, port).port_state != PortState.DOWN]
            waiting += [path + bytes([port]) for port in up]
        if path:
            _cable(nodes, carrier, path, info)
    return nodes


def _cable(nodes: dict[int, Found], carrier: Carrier, path: bytes, info: NodeInfo) -> None:
    before = get(carrier, path[:-1], NodeInfo).node_guid
    nodes[before].peer[path[-1]] = (info.node_guid, info.local_port_num)
    nodes[info.node_guid].peer[info.local_port_num] = (before, path[-1])


def bring_up(carrier: Carrier, nodes: dict[int, Found]) -> None:
    """Assign LIDs in the order of discovery, program shortest paths, and activate all ports."""
    for lid, node in enumerate(nodes.values(), 1):
        node.lid = lid
    for node in nodes.values():
        if node.is_switch:
            info = get(carrier, node.path, SwitchInfo)
            assert put(carrier, node.path, info.replace(linear_fdb_top=len(nodes), port_state_change=1)) == 0
            table = LinearForwardingTable(port=[255, *_ways(nodes, node)][:64])
            assert put(carrier, node.path, table, 0) == 0
    for state in (PortState.NO_CHANGE, PortState.ARMED, PortState.ACTIVE):
        for node in nodes.values():
            for port in ([0] if node.is_switch else []) + sorted(node.peer):
                messages = state if port else PortState.NO_CHANGE
                info = get(carrier, node.path, PortInfo, port)
                expected = setting(info, lid=node.lid, master_sm_lid=1, port_state=messages)
                assert put(carrier, node.path, expected, port) == 0, f"{messages!r} for {node} port {port}"


def _ways(nodes: dict[int, Found], switch: Found) -> list[int]:
    """Return the port of a shortest path by LID, from 1; 0 for the switch itself."""
    port_to = {switch.guid: 0}
    waiting = [(guid, port) for port, (guid, _) in sorted(switch.peer.items())]
    while waiting:
        guid, port = waiting.pop(0)
        if guid not in port_to:
            port_to[guid] = port
            if nodes[guid].is_switch:
                waiting += [(beyond, port) for _, (beyond, _) in sorted(nodes[guid].peer.items())]
    return [port_to[guid] for guid in nodes]


# -- the checks -------------------------------------------------------------------------------------------------------


@dataclass
class Subject:
    carrier: Carrier
    nodes: dict[int, Found]

    @property
    def here(self) -> Found:
        return next(iter(self.nodes.values()))

    @property
    def switch(self) -> Found:
        """Return the nearest switch."""
        return next(node for node in self.nodes.values() if node.is_switch)

    @property
    def far_host(self) -> Found:
        return [node for node in self.nodes.values() if not node.is_switch][-1]

    def by_lid(self, lid: int, attribute: int, modifier: int = 0) -> bytes | None:
        mad = Smp.pack(method=Method.GET, attribute_id=attribute, attribute_modifier=modifier)
        return ask(self.carrier, mad, Address(lid))

    def perf(self, lid: int, method: int, attribute: int, data: bytes) -> bytes | None:
        mad = PlainMad.pack(mgmt_class=4, method=method, attribute_id=attribute, data=data)
        return ask(self.carrier, mad, Address(lid))


def discovery(it: Subject) -> None:
    """Check that both ends of each cable agree, and that answers carry the return path."""
    for node in it.nodes.values():
        for port, (guid, far_port) in node.peer.items():
            assert it.nodes[guid].peer[far_port] == (node.guid, port)
    path = it.far_host.path
    answer = ask(it.carrier, smp(path, Method.GET, SmpAttribute.NODE_INFO))
    assert answer is not None
    assert answer[3] == Method.GET_RESP
    assert answer[4] & 0x80, "the direction bit is on in an answer"
    entered = answer[193 : 193 + len(path)]
    assert entered[-1] == NodeInfo.unpack(answer, 64).local_port_num


def no_such_port(it: Subject) -> None:
    answer = ask(it.carrier, smp(it.switch.path, Method.GET, SmpAttribute.PORT_INFO, it.switch.ports + 1))
    assert status_of(answer) == Status.INVALID_FIELD


def no_such_attribute(it: Subject) -> None:
    answer = ask(it.carrier, smp(it.switch.path, Method.GET, 0x0999))
    assert status_of(answer) == Status.METHOD_ATTRIBUTE_NOT_SUPPORTED


def nowhere(it: Subject) -> None:
    """Check that a packet without a path times out."""
    free = [port for port in range(1, it.switch.ports + 1) if port not in it.switch.peer]
    path = it.switch.path + bytes([free[0] if free else 254])
    assert ask(it.carrier, smp(path, Method.GET, SmpAttribute.NODE_INFO), timeout_ms=50, retries=0) is None


def lid_routing(it: Subject) -> None:
    for node in it.nodes.values():
        answer = it.by_lid(node.lid, SmpAttribute.NODE_INFO)
        assert answer is not None, f"no answer from LID {node.lid}"
        assert NodeInfo.unpack(answer, 64).node_guid == node.guid
    mad = Smp.pack(method=Method.GET, attribute_id=SmpAttribute.NODE_INFO)
    assert ask(it.carrier, mad, Address(len(it.nodes) + 7), timeout_ms=50, retries=0) is None


def state_order(it: Subject) -> None:
    """Check that an Active port refuses the state Armed."""
    info = get(it.carrier, it.here.path, PortInfo, 1)
    assert put(it.carrier, it.here.path, setting(info, port_state=PortState.ARMED), 1) == Status.INVALID_FIELD
    assert get(it.carrier, it.here.path, PortInfo, 1).port_state == PortState.ACTIVE


def lid_zero(it: Subject) -> None:
    info = get(it.carrier, it.far_host.path, PortInfo)
    assert put(it.carrier, it.far_host.path, setting(info, lid=0)) == Status.INVALID_FIELD
    assert get(it.carrier, it.far_host.path, PortInfo).lid == it.far_host.lid


def tables(it: Subject) -> None:
    """Check that tables are read back as set, and stay."""
    path, switch = it.far_host.path, it.switch.path
    keys = get(it.carrier, path, PKeyTable).p_key
    for where, record, modifier in (
        (path, PKeyTable(p_key=(keys[0], 0x8001, 0x7002)), 0),
        (switch, SLtoVLMappingTable(vl=(0, 1, 2, 3, 0, 1, 2, 3)), 1 << 8 | 2),
        (switch, VLArbitrationTable(entry=[VLArbitrationEntry(vl=1, weight=9)] * 4), 1 << 16 | 1),
        (switch, VLArbitrationTable(entry=[VLArbitrationEntry(vl=2, weight=7)] * 3), 3 << 16 | 1),
    ):
        before = get(it.carrier, where, type(record), modifier)
        assert put(it.carrier, where, record, modifier) == 0
        assert get(it.carrier, where, type(record), modifier) == record
        assert put(it.carrier, where, before, modifier) == 0


def counters(it: Subject) -> None:
    """Check that ports count MADs, a Set resets counters, and 64-bit counters are not below 32-bit ones."""
    port, lid = it.far_host.path[0], it.here.lid
    select = PortCounters(port_select=port, counter_select=0xFFFF, counter_select2=1).raw
    assert it.perf(lid, Method.SET, PerfAttribute.PORT_COUNTERS, select) is not None
    for _ in range(5):
        it.by_lid(it.far_host.lid, SmpAttribute.NODE_INFO)
    answer = it.perf(lid, Method.GET, PerfAttribute.PORT_COUNTERS, PortCounters(port_select=port).raw)
    assert answer is not None
    result = PortCounters.unpack(answer, 64)
    assert result.port_xmit_pkts >= 5
    assert result.port_rcv_pkts >= 5
    assert result.port_xmit_data >= 5 * 64
    answer = it.perf(lid, Method.GET, PerfAttribute.PORT_COUNTERS_EXTENDED, PortCountersExtended(port_select=port).raw)
    assert answer is not None
    assert PortCountersExtended.unpack(answer, 64).port_xmit_pkts >= result.port_xmit_pkts
    answer = it.perf(lid, Method.GET, PerfAttribute.CLASS_PORT_INFO, b"")
    assert answer is not None
    assert ClassPortInfo.unpack(answer, 64).base_version == 1


def m_key(it: Subject) -> None:
    """Check that without the M_Key of a protected port Sets fail, and with full protection Gets too."""
    path, key = it.far_host.path, 0x1234_5678
    info = get(it.carrier, path, PortInfo)
    assert put(it.carrier, path, setting(info, m_key=key, m_key_protect_bits=1)) == 0
    assert get(it.carrier, path, PortInfo).m_key == 0
    assert get(it.carrier, path, PortInfo, m_key=key).m_key == key
    wrong = smp(path, Method.SET, SmpAttribute.PORT_INFO, data=setting(info).raw)
    assert ask(it.carrier, wrong, timeout_ms=50, retries=0) is None
    harder = setting(info, m_key=key, m_key_protect_bits=2, m_key_violations=1)  # any value but 0 keeps the count
    assert put(it.carrier, path, harder, m_key=key) == 0
    assert ask(it.carrier, smp(path, Method.GET, SmpAttribute.NODE_INFO), timeout_ms=50, retries=0) is None
    assert get(it.carrier, path, PortInfo, m_key=key).m_key_violations >= 2
    assert put(it.carrier, path, setting(info, m_key=0, m_key_protect_bits=0, m_key_violations=0), m_key=key) == 0


def combined(it: Subject) -> None:
    """Check requests by LID to a switch and by directed path from there, as ibportstate reads the peer of a port."""
    port, (guid, _) = next((p, peer) for p, peer in it.switch.peer.items() if peer[0] == it.far_host.guid or p)
    mad = DirectedSmp.pack(
        method=Method.GET,
        attribute_id=SmpAttribute.NODE_INFO,
        dr_slid=it.here.lid,
        hop_count=1,
        initial_path=bytes([0, port]),
    )
    answer = ask(it.carrier, mad, Address(it.switch.lid))
    assert answer is not None
    assert NodeInfo.unpack(answer, 64).node_guid == guid


def congestion_control(it: Subject) -> None:
    """Check that congestion control tables are stored and P_Keys do not change."""
    lid = it.far_host.lid
    before = get(it.carrier, it.far_host.path, PKeyTable)

    def tell(method: int, attribute: int, data: bytes = b"") -> bytes | None:
        return ask(it.carrier, CcMad.pack(method=method, attribute_id=attribute, data=data), Address(lid))

    answer = tell(Method.GET, CcAttribute.CONGESTION_INFO)
    assert answer is not None
    assert CongestionInfo.unpack(answer, 64).control_table_cap
    table = CongestionControlTable(ccti_limit=63)
    assert status_of(tell(Method.SET, CcAttribute.CONGESTION_CONTROL_TABLE, table.raw)) == 0
    answer = tell(Method.GET, CcAttribute.CONGESTION_CONTROL_TABLE)
    assert answer is not None
    assert CongestionControlTable.unpack(answer, 64) == table
    assert get(it.carrier, it.far_host.path, PKeyTable) == before


def in_flight(it: Subject) -> None:
    """Check that each of many simultaneous requests gets its own answer."""
    paths = [node.path for node in it.nodes.values()] * 4
    tokens = {it.carrier.send(smp(path, Method.GET, SmpAttribute.NODE_INFO), HERE): path for path in paths}
    assert len(tokens) == len(paths)
    observed = {}
    for _ in range(1000):
        observed.update(it.carrier.poll(0.1))
        if len(observed) == len(tokens):
            break
    by_path = {node.path: node.guid for node in it.nodes.values()}
    for token, path in tokens.items():
        answer = observed[token]
        assert answer is not None
        assert NodeInfo.unpack(answer, 64).node_guid == by_path[path]


def bulk(it: Subject) -> None:
    """Send arrays of requests by path and by LID: each row has its own answer, zeros without one; earlier tokens
    stay.
    """
    before = it.carrier.send(smp(it.switch.path, Method.GET, SmpAttribute.NODE_INFO))
    nodes = [*it.nodes.values()] * 40
    free = [port for port in range(1, it.switch.ports + 1) if port not in it.switch.peer]
    nowhere = smp(it.switch.path + bytes([free[0] if free else 254]), Method.GET, SmpAttribute.NODE_INFO)
    requests = [smp(node.path, Method.GET, SmpAttribute.NODE_INFO) for node in nodes]
    requests[5] = nowhere
    answers, came = it.carrier.exchange(rows(requests), timeout_ms=500, retries=3)
    assert came.tolist() == [row != 5 for row in range(len(nodes))]
    assert not answers[5].any()
    for row, node in enumerate(nodes):
        assert row == 5 or NodeInfo.unpack(answers[row].tobytes(), 64).node_guid == node.guid, f"row {row}"
    by_lid = [Smp.pack(method=Method.GET, attribute_id=SmpAttribute.NODE_INFO)] * len(nodes)
    answers, came = it.carrier.exchange(rows(by_lid), np.array([node.lid for node in nodes]))
    assert came.all()
    guids = [NodeInfo.unpack(answer.tobytes(), 64).node_guid for answer in answers]
    assert guids == [node.guid for node in nodes]
    ((_, answer),) = it.carrier.poll(1.0, only=before)
    assert answer is not None
    assert NodeInfo.unpack(answer, 64).node_guid == it.switch.guid


def rows(mads: list[bytes]) -> NDArray[np.uint8]:
    return np.frombuffer(b"".join(mads), np.uint8).reshape(-1, 256)


def watch(subject: Subject) -> None:
    """Check that a readable file wakes a waiting thread before its timeout."""
    bell = os.eventfd(1, os.EFD_NONBLOCK)  # watched for the carrier's lifetime
    subject.carrier.watch(bell)
    assert subject.carrier.poll(_LONG_S) == []
    os.eventfd_read(bell)
    assert subject.carrier.poll(0.001) == []


CHECKS: dict[str, Callable[[Subject], None]] = {
    check.__name__: check
    for check in (
        discovery,
        watch,
        no_such_port,
        no_such_attribute,
        nowhere,
        lid_routing,
        state_order,
        lid_zero,
        tables,
        counters,
        m_key,
        combined,
        congestion_control,
        in_flight,
        bulk,
    )
}


def check_agents(carrier: Carrier, *, lacks: Collection[str] = ()) -> None:
    """Bring up the subnet behind a carrier, and check its agents against the standard."""
    assert set(lacks) <= set(CHECKS), f"no checks {set(lacks) - set(CHECKS)}"
    nodes = discover(carrier)
    bring_up(carrier, nodes)
    for name, check in CHECKS.items():
        if name not in lacks:
            check(Subject(carrier, nodes))
