"""SMInfo: how subnet managers see each other, and the MADs by which one asks or tells another something.

Questions go by LID or along a directed path. A path works before there are LIDs, and where two subnets became one and
LIDs mean two things; a LID works when a cable of the path is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum

import numpy as np

from weft.mad.carrier import HERE, SMP_CLASSES, Address, Carrier
from weft.mad.walk import DATA, directed, statuses
from weft.sm.discovery.view import View
from weft.sm.events import Event
from weft.sm.sender import Sender
from weft.wire.bulk import column
from weft.wire.mad import RESPONSE, Method, MgmtClass, Status
from weft.wire.notice import LocalChangesDetails, Notice, NoticeType, Trap
from weft.wire.port_info import Capability, PortInfo
from weft.wire.sa import SMInfoRecord
from weft.wire.smp import PERMISSIVE_LID, DirectedSmp, NodeInfo, SMControl, SMInfo, Smp, SmpAttribute, SMState

_DIRECTED = int(MgmtClass.SUBN_DIRECTED_ROUTE)
_RETURN_PATH = 192
_WAITS_MS = (25, 50, 100, 200)  # not longer: the port of a crashed manager still has its IsSM bit


class Action(Enum):
    """An action that the manager must take."""

    NOTHING = "nothing"
    SWEEP = "sweep"  # discover, and tell `Election.found_others` whom you found
    CONFIGURE = "configure"  # go on: the subnet is ours to set up
    STAND_BY = "stand by"  # another is the master from now on, and writes into the devices


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A MAD to send; `heard` is to be called with its answer, or with None if none came."""

    mad: bytes
    to: Address = HERE
    timeout_ms: int = 0
    retries: int = 0
    heard: Callable[[bytes | None], Action] | None = None  # None: no answer is due, so post it


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherSm:
    """A different subnet manager: its SMInfo and its address."""

    guid: int  # port
    priority: int
    state: int  # SMState, if it is honest
    sm_key: int = 0
    act_count: int = 0
    path: bytes | None = None  # ports by which a directed SMP leaves, hop by hop; None if not known
    lid: int = 0
    name: str = ""

    @property
    def rank(self) -> tuple[int, int]:
        """The higher one should be master: by priority, and of equals the one with the lower GUID."""
        return self.priority, -self.guid

    def record(self) -> SMInfoRecord:
        """Return its SA record, without the key."""
        info = SMInfo(guid=self.guid, act_count=self.act_count, priority=self.priority, sm_state=self.state)
        return SMInfoRecord(lid=self.lid, sm_info=info)

    def __str__(self) -> str:
        return f"{self.name or 'the subnet manager'} (GUID 0x{self.guid:016x}, priority {self.priority})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Here:
    """The manager's own port."""

    lid: int = 0
    node_type: int = 1
    capability_mask: int = 0


# -- other managers ---------------------------------------------------------------------------------------------------


def own_port(view: View) -> Here:
    """Return our own port, as it was read."""
    info = view.port_info[view.own_slot]
    return Here(
        lid=PortInfo.lid.get(info),
        node_type=NodeInfo.node_type.get(view.node_info[view.fabric.ports.node[view.own_slot]]),
        capability_mask=PortInfo.capability_mask.get(info),
    )


def find_others(sender: Sender, view: View, say: Callable[[Event, str], None]) -> tuple[list[OtherSm], list[OtherSm]]:
    """Ask every other port that says IsSM for its SMInfo; return the managers that answer, and those that do not."""
    is_sm = column(view.port_info, PortInfo.capability_mask) & np.uint64(Capability.IS_SM) > 0
    slots = view.end_ports[is_sm[view.end_ports] & (view.end_ports != view.own_slot)]
    path, hops = view.to_ports(slots)
    smps = directed(path, hops, SmpAttribute.SM_INFO)  # without the M_Key: a program answers, which may be anybody's
    answers, answered = np.zeros_like(smps), np.zeros(len(smps), bool)
    for wait_ms in _WAITS_MS:  # between them we answer: two that wait for each other would both become master
        rows = np.flatnonzero(~answered)
        if len(rows):
            answers[rows], answered[rows] = sender.exchange(smps[rows], timeout_ms=wait_ms, retries=0)
    answered &= statuses(answers) == 0
    managers: list[OtherSm] = []
    silent: list[OtherSm] = []
    for row, slot in enumerate(slots.tolist()):
        info, guid = SMInfo.unpack(answers[row].tobytes(), DATA), int(view.fabric.ports.guid[slot])
        if answered[row] and info.guid != guid:
            say(Event.OTHER_SM, f"{view.name(slot)} claims to be the manager of GUID 0x{info.guid:016x}: ignored")
            continue
        if not answered[row]:
            info = SMInfo(guid=guid, sm_state=SMState.NOT_ACTIVE)
            say(Event.OTHER_SM, f"{view.name(slot)} says that a subnet manager is there, but none answers")
        way, lid = path[row, 1 : int(hops[row]) + 1].tobytes(), PortInfo.lid.get(view.port_info[slot])
        (managers if answered[row] else silent).append(described(info, path=way, lid=lid, name=view.name(slot)))
    return managers, silent


def described(info: SMInfo, *, path: bytes | None = None, lid: int = 0, name: str = "") -> OtherSm:
    return OtherSm(
        guid=info.guid,
        priority=info.priority,
        state=info.sm_state,
        sm_key=info.sm_key,
        act_count=info.act_count,
        path=path,
        lid=lid,
        name=name,
    )


# -- MADs -------------------------------------------------------------------------------------------------------------


def is_sm_info(mad: bytes) -> bool:
    """Return whether it is an SMInfo request to a subnet manager."""
    return mad[1] in SMP_CLASSES and not mad[3] & RESPONSE and Smp.attribute_id.get(mad) == SmpAttribute.SM_INFO


def ask_sm(other: OtherSm, *, by_path: bool) -> tuple[bytes, Address]:
    """Get(SMInfo)."""
    return _to_sm(other, by_path, method=Method.GET, attribute_id=SmpAttribute.SM_INFO)


def tell_sm(other: OtherSm, control: SMControl, own: SMInfo, *, m_key: int) -> tuple[bytes, Address]:
    """Set(SMInfo)."""
    return _to_sm(
        other,
        other.path is not None,
        method=Method.SET,
        attribute_id=SmpAttribute.SM_INFO,
        attribute_modifier=control,
        m_key=m_key,
        data=own.raw,
    )


def _to_sm(other: OtherSm, by_path: bool, **fields: int | bytes) -> tuple[bytes, Address]:
    if not by_path or other.path is None:
        return Smp.pack(**fields), Address(lid=other.lid, qp=0)
    return DirectedSmp.pack(hop_count=len(other.path), initial_path=b"\0" + other.path, **fields), HERE


def respond(mad: bytes, own: SMInfo, status: int = Status.OK) -> bytes:
    """Return the response to an SMInfo request, which goes back to its source."""
    response = bytearray(mad)
    Smp.method.set(response, Method.GET_RESP)
    Smp.status.set(response, status | (0x8000 if mad[1] == _DIRECTED else 0))  # it travels back now
    response[DATA : 2 * DATA] = own.raw.ljust(DATA, b"\0")
    return bytes(response)


def requester(mad: bytes, source: Address) -> OtherSm:
    """Return the sender of a Set(SMInfo), with its path reversed."""
    path = None
    if mad[1] == _DIRECTED and DirectedSmp.dr_slid.get(mad) == PERMISSIVE_LID:
        path = mad[_RETURN_PATH + 1 : _RETURN_PATH + 1 + mad[7]][::-1]
    lid = 0 if source.lid == PERMISSIVE_LID else source.lid
    return described(SMInfo.unpack(mad, DATA), path=path, lid=lid)


def sm_info_in(answer: bytes | None, guid: int) -> SMInfo | None:
    """Return the SMInfo of an answer if it has no error and the GUID of the manager that was asked: ports move."""
    if answer is None or Smp.status.get(answer) & 0x7FFF:
        return None
    info = SMInfo.unpack(answer, DATA)
    return info if info.guid == guid else None


def priority_trap(other: OtherSm, here: Here, transaction_id: int) -> Question:
    """Return trap 144, "SM priority change", after which the master finds that it should hand over."""
    details = LocalChangesDetails(
        lid_addr=here.lid, other_local_changes=1, capability_mask=here.capability_mask, sm_priority_change=1
    )
    notice = Notice(
        type=NoticeType.INFORMATIONAL,
        producer_type=here.node_type,
        trap_number=Trap.LOCAL_CHANGES,
        issuer_lid=here.lid,
        data_details=details.raw,
    )
    mad = Smp.pack(method=Method.TRAP, attribute_id=SmpAttribute.NOTICE, transaction_id=transaction_id, data=notice.raw)
    return Question(mad=mad, to=Address(lid=other.lid, qp=0))


class Questions:
    """A set of open requests: `ask` sends without waiting, `poll` calls the handler of each answer or timeout."""

    def __init__(self, carrier: Carrier) -> None:
        self._carrier = carrier
        self._handlers: dict[int, Callable[[bytes | None], Action]] = {}  # by token

    def ask(self, question: Question) -> None:
        if question.heard is None:
            self._carrier.post(question.mad, question.to)
            return
        token = self._carrier.send(question.mad, question.to, timeout_ms=question.timeout_ms, retries=question.retries)
        self._handlers[token] = question.heard

    def poll(self, wait_s: float) -> Iterator[Action]:
        """Wait for answers at most so long, and yield the action that each of them calls for."""
        for token, answer in self._carrier.poll(wait_s):
            handler = self._handlers.pop(token, None)
            if handler is not None:
                yield handler(answer)
