"""Key violations: packets that were dropped because of a wrong key, from traps and port counters.

    with Watch(carrier) as watch:                        subscribes to traps 257, 258 and 259
        for notice in watch.notices(seconds=60):
            print(attribute(notice, fabric, allocation))
    count_violations(carrier, fabric, allocation)        by port, since it came up

A trap names source, destination and key. Ports do not send a trap for every packet: the counters have the totals. The
source LID of a packet can be forged. If a switch dropped the packet on its way in, the host at that switch port sent
it, whatever LID it has.

Only trusted clients may subscribe to these traps: the subnet administrator checks the `sa_key`, 1 by default.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import numpy as np

from weft.errors import SubnetError
from weft.fabric.kinds import NodeKind
from weft.fabric.model import Fabric
from weft.ids import PKey
from weft.mad.administrator import NoAnswer, administrator, ask_administrator
from weft.mad.carrier import Address, Carrier, ask
from weft.mad.discover import directed_get
from weft.routing.lids import ports_with_lids
from weft.sm.inform.traps import requester
from weft.tenants.partitions import Allocation
from weft.wire.bulk import column, pack_rows
from weft.wire.mad import Method, MgmtClass, PlainMad
from weft.wire.notice import BadKeyDetails, BadMKeyDetails, BadSwitchPKeyDetails, GmpNotice, Trap
from weft.wire.perf import PerfAttribute, PortCountersExtended
from weft.wire.port_info import PortInfo
from weft.wire.sa import InformInfo, SaAttribute, SaMad
from weft.wire.smp import DirectedSmp, PKeyTable, SmpAttribute

SA_KEY = 1
KEY_TRAPS = (Trap.BAD_M_KEY, Trap.BAD_P_KEY, Trap.BAD_Q_KEY, Trap.BAD_SWITCH_P_KEY)
_ALL, _ALL_PRODUCERS = 0xFFFF, 0xFF_FFFF
_DATA = 64  # offset of the attribute in a performance management MAD


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """A dropped packet, as reported by a trap."""

    trap: int
    at: str  # the port that dropped it: a switch port, or the destination
    sender: str
    sender_partitions: tuple[str, ...]
    receiver: str
    receiver_partitions: tuple[str, ...]
    key: int  # P_Key; of trap 258 the Q_Key, of trap 256 the M_Key
    source_is_forged: bool = False  # the source LID is not the sender's

    @property
    def kind(self) -> str:
        return {Trap.BAD_Q_KEY: "Q_Key", Trap.BAD_M_KEY: "M_Key"}.get(Trap(self.trap), "P_Key")

    def __str__(self) -> str:
        forged = ", with a forged source LID" if self.source_is_forged else ""
        ends = (
            f"{self.sender} ({_named(self.sender_partitions)}) to {self.receiver} ({_named(self.receiver_partitions)})"
        )
        return f"{ends} with {self.kind} {self.key:#06x}{forged}: dropped at {self.at}"


def attribute(notice: GmpNotice, fabric: Fabric, allocation: Allocation) -> Violation:
    """Return the violation that a notice reports. `fabric`: the subnet, from `reading.read_fabric`."""
    trap = int(notice.trap_number)
    if trap == Trap.BAD_M_KEY:
        return _m_key_violation(notice, fabric, allocation)
    details = (BadSwitchPKeyDetails if trap == Trap.BAD_SWITCH_P_KEY else BadKeyDetails).unpack(notice.data_details)
    sender, receiver = (_end(fabric, lid) for lid in (details.lid_addr1, details.lid_addr2))
    at, at_lid, forged = receiver, details.lid_addr2, False
    if isinstance(details, BadSwitchPKeyDetails):
        at_lid = details.sw_lid_addr or notice.issuer_lid
        at, behind = _switch_port(fabric, at_lid, details.port_no)
        if behind is not None and behind != receiver:  # so the packet was dropped on its way in
            forged, sender = behind != sender, behind
    key = details.p_key if isinstance(details, BadSwitchPKeyDetails) else details.key
    return Violation(
        trap=trap,
        at=_name(fabric, at, at_lid),
        sender=_name(fabric, sender, details.lid_addr1),
        sender_partitions=_partitions(fabric, sender, allocation),
        receiver=_name(fabric, receiver, details.lid_addr2),
        receiver_partitions=_partitions(fabric, receiver, allocation),
        key=int(key),
        source_is_forged=forged,
    )


def _m_key_violation(notice: GmpNotice, fabric: Fabric, allocation: Allocation) -> Violation:
    """Return the violation of an SMP with a wrong M_Key. Only directed routes identify the sender."""
    details, at = BadMKeyDetails.unpack(notice.data_details), _end(fabric, notice.issuer_lid)
    sender = None if at is None else requester(fabric, at, details)
    return Violation(
        trap=Trap.BAD_M_KEY,
        at=_name(fabric, at, notice.issuer_lid),
        sender="not known" if sender is None else fabric.port(sender).name,
        sender_partitions=_partitions(fabric, sender, allocation),
        receiver=_name(fabric, at, notice.issuer_lid),
        receiver_partitions=_partitions(fabric, at, allocation),
        key=int(details.m_key),
    )


def _end(fabric: Fabric, lid: int) -> int | None:
    """Return the slot of the end port with a LID."""
    ends = np.concatenate(ports_with_lids(fabric))
    first = fabric.tables.lid[ends].astype(np.int64)
    matches = ends[(first > 0) & (first <= lid) & (lid < first + (1 << fabric.tables.lmc[ends].astype(np.int64)))]
    return int(matches[0]) if len(matches) else None


def _switch_port(fabric: Fabric, lid: int, number: int) -> tuple[int | None, int | None]:
    """Return the slots of a switch port and of the adapter port connected to it; None if there is none."""
    switch = _end(fabric, lid)
    if switch is None:
        return None, None
    peer = int(fabric.ports.peer[switch + number])
    is_switch = peer >= 0 and fabric.nodes.kind[fabric.ports.node[peer]] == NodeKind.SWITCH
    return switch + number, None if peer < 0 or is_switch else peer


def _name(fabric: Fabric, slot: int | None, lid: int) -> str:
    return f"LID {lid}" if slot is None else fabric.port(slot).name


def _partitions(fabric: Fabric, slot: int | None, allocation: Allocation) -> tuple[str, ...]:
    guid = -1 if slot is None else int(fabric.ports.guid[slot])
    return tuple(partition.name for partition in allocation.partitions.values() if guid in partition.members)


def _named(partitions: tuple[str, ...]) -> str:
    return ", ".join(partitions) or "no tenant"


# -- traps -------------------------------------------------------------------------------------------------------------


class Watch:
    """A subscription to traps. The carrier must not be used for anything else meanwhile."""

    def __init__(self, carrier: Carrier, sa_key: int = SA_KEY, traps: Sequence[Trap] = KEY_TRAPS) -> None:
        self._carrier, self._sa_key, self._traps = carrier, sa_key, traps
        if not administrator(carrier).lid:
            raise SubnetError("no subnet manager has configured this port, so it receives no traps: start one")
        if PKey.DEFAULT not in PKeyTable.unpack(_own(carrier, SmpAttribute.P_KEY_TABLE)).p_key:
            raise SubnetError(
                "this port is no full member of Default, so reports from other ports do not reach it"
                "\n  Watch from the port of the subnet manager, which is a full member."
            )
        carrier.register(MgmtClass.SUBN_ADM, [Method.REPORT], class_version=2)

    def __enter__(self) -> Self:
        for trap in self._traps:
            self._subscribe(trap, on=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for trap in self._traps:
            if not self._subscribe(trap, on=False):
                return  # the subnet administrator is gone, and its subscriptions with it

    def _subscribe(self, trap: Trap, *, on: bool) -> bool:
        """Subscribe to a trap or unsubscribe; return whether the subnet administrator answered."""
        inform_info = InformInfo.pack(
            lid_range_begin=_ALL,
            is_generic=1,
            subscribe=on,
            type=_ALL,
            trap_number=trap,
            qpn=Address().qp,
            producer_type=_ALL_PRODUCERS,
        )
        mad = SaMad.pack(
            method=Method.SET,
            attribute_id=SaAttribute.INFORM_INFO,
            sm_key=self._sa_key,
            data=inform_info.ljust(SaMad.fields["data"].width // 8, b"\0"),
        )
        try:
            status = SaMad.status.get(ask_administrator(self._carrier, mad))
            refusal = f"status {status:#06x}" if status else ""
        except NoAnswer:
            if not on:
                return False
            refusal = "no answer"
        if on and refusal:
            raise SubnetError(
                f"the subnet administrator refuses the subscription to trap {int(trap)}: {refusal}"
                "\n  It requires its sa_key: give the one of its options."
            )
        return True

    def notices(self, wait_s: float = 0.0) -> Iterator[GmpNotice]:
        """Yield the notices received so far, and those of the next `wait_s` seconds."""
        until_s = time.monotonic() + wait_s
        while True:
            for arrived in self._carrier.arrivals():
                report = SaMad.unpack(arrived.mad)
                if report.method == Method.REPORT and report.attribute_id == SaAttribute.NOTICE:
                    self._carrier.post(report.replace(method=Method.REPORT_RESP).raw, arrived.source)
                    yield GmpNotice.unpack(report.data[: GmpNotice.size])
            left_s = until_s - time.monotonic()
            if left_s <= 0:
                return
            self._carrier.poll(left_s)


def _own(carrier: Carrier, attribute: SmpAttribute) -> bytes:
    """Read an attribute of the local port."""
    answer = ask(carrier, directed_get(b"", attribute))
    if answer is None:
        raise SubnetError(f"the local port does not answer {attribute.name}: check that it is up")
    return DirectedSmp.unpack(answer).data


# -- counters ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Count:
    """The violation counters of a host port and of its switch port."""

    port: str
    partitions: tuple[str, ...]
    p_keys: int  # packets to the port with a wrong P_Key; saturates at 65,535, as does q_keys
    q_keys: int
    from_port: int  # packets from the port, dropped by the switch
    to_port: int  # packets to the port, dropped by the switch


def count_violations(carrier: Carrier, fabric: Fabric, allocation: Allocation) -> list[Count]:
    """Return the counters of ports with violations. `fabric`: just read with `reading.read_fabric`."""
    slots, _ = ports_with_lids(fabric)
    before = fabric.ports.peer[slots]
    slots, before = slots[before >= 0], before[before >= 0]
    infos = fabric.tables.port_info[slots]
    p_keys, q_keys = (column(infos, field).tolist() for field in (PortInfo.p_key_violations, PortInfo.q_key_violations))
    of_switch = np.flatnonzero(fabric.tables.switch_row[fabric.ports.node[before]] >= 0)
    at = before[of_switch]
    mads = pack_rows(
        PlainMad,
        len(at),
        mgmt_class=MgmtClass.PERF,
        method=Method.GET,
        attribute_id=PerfAttribute.PORT_COUNTERS_EXTENDED,
    )
    mads[:, _DATA : _DATA + PortCountersExtended.size] = pack_rows(
        PortCountersExtended, len(at), port_select=fabric.ports.number[at]
    )
    lids = fabric.tables.lid[fabric.first_port[fabric.ports.node[at]]].astype(np.int64)
    answers, came = carrier.exchange(mads, lids)
    switch = np.zeros((len(slots), 2), np.int64)
    for side, counter in enumerate(("port_rcv_constraint_errors", "port_xmit_constraint_errors")):
        counted = column(answers, PortCountersExtended.fields[counter], _DATA).astype(np.int64)
        switch[of_switch, side] = np.where(came, counted, 0)
    return [
        Count(
            port=fabric.port(slot).name,
            partitions=_partitions(fabric, slot, allocation),
            p_keys=p_keys[row],
            q_keys=q_keys[row],
            from_port=int(switch[row, 0]),
            to_port=int(switch[row, 1]),
        )
        for row, slot in enumerate(slots.tolist())
        if p_keys[row] or q_keys[row] or switch[row].any()
    ]
