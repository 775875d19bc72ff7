"""Traps: what devices tell unasked. Each is answered, so that they stop repeating it, and passed on to subscribers."""

from __future__ import annotations

import math
from collections.abc import Callable

from weft.fabric.model import Fabric
from weft.ids import Lid, PKey
from weft.sm.conf.options import Options
from weft.sm.discovery.view import View
from weft.sm.events import Event, Log
from weft.sm.inform.subscriptions import Subscriptions, forwarded
from weft.wire.mad import Method
from weft.wire.notice import (
    BadKeyDetails,
    BadMKeyDetails,
    BadSwitchPKeyDetails,
    LocalChangesDetails,
    Notice,
    PortDetails,
    Trap,
)
from weft.wire.smp import PERMISSIVE_LID, Smp

SETTLE_S = 0.02  # after a trap: where one link falls others often follow
_FIRST_WAIT_S, _LONGEST_WAIT_S, _QUIET_S = 0.25, 5.0, 30.0
_DATA = slice(64, 128)
_AT_PORT = (Trap.LINK_INTEGRITY_THRESHOLD, Trap.BUFFER_OVERRUN_THRESHOLD, Trap.WATCHDOG_TIMER_EXPIRED)


def repress(trap: bytes) -> bytes:
    """Return the TrapRepress that acknowledges a trap."""
    answer = bytearray(trap)
    Smp.method.set(answer, Method.TRAP_REPRESS)
    return bytes(answer)


def is_forged(notice: Notice, source_lid: int, view: View | None, lmc: int) -> bool:
    """Return whether a trap contradicts itself: in the name of another port, or of an event that only others see.

    The source LID of a packet is written by the adapter, not by a program. Only switches report their links and packets
    that they stopped; a port reports wrong keys in packets to itself.
    """
    issuer, number = notice.issuer_lid, notice.trap_number

    def is_of_issuer(lid: int) -> bool:
        return issuer <= lid < issuer + (1 << lmc)

    if source_lid != PERMISSIVE_LID and not is_of_issuer(source_lid):
        return True
    if not notice.is_generic or view is None:
        return False
    if number in (Trap.BAD_P_KEY, Trap.BAD_Q_KEY):
        to_lid = BadKeyDetails.unpack(notice.data_details).lid_addr2
        return to_lid < Lid.FIRST_MULTICAST and not is_of_issuer(to_lid)
    slots = view.end_ports[view.fabric.tables.lid[view.end_ports] == issuer]
    known_host = bool(len(slots)) and not view.is_switch[view.fabric.ports.node[slots]].any()
    return known_host and number in (Trap.LINK_STATE_CHANGED, Trap.BAD_SWITCH_P_KEY)


class TrapLimit:
    """The delay from a trap to its sweep; it grows for a port that sends many traps."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock, self._last = clock, dict[int, tuple[float, float]]()  # by LID: when, and how long a sweep waited

    def delay_s(self, lid: int) -> float:
        now_s = self._clock()
        last_s, wait_s = self._last.get(lid, (-math.inf, 0.0))
        wait_s = min(max(2 * wait_s, _FIRST_WAIT_S), _LONGEST_WAIT_S) if now_s - last_s < _QUIET_S else 0.0
        self._last[lid] = now_s, wait_s
        return max(wait_s, SETTLE_S)


def requester(fabric: Fabric, slot: int, details: BadMKeyDetails) -> int | None:
    """Return the port that sent a directed SMP without the M_Key, by its return path; None if it is unknown.

    Switches write that way, so it cannot be forged. `slot` is the port that the SMP was for.
    """
    hops = int(details.dr_hop_count)
    if not details.dr_notice or details.dr_path_truncated or hops + 1 > len(details.dr_notice_return_path):
        return None
    at = slot
    for port in reversed(bytes(details.dr_notice_return_path[1 : hops + 1])):
        node = fabric.ports.node[at]
        if port > fabric.nodes.n_ports[node]:
            return None
        at = int(fabric.ports.peer[fabric.first_port[node] + port])
        if at < 0:
            return None
    return at


def take_trap(
    trap: bytes, source_lid: int, view: View | None, subscriptions: Subscriptions, log: Log, options: Options
) -> tuple[int | None, int] | None:
    """Log a trap and queue reports to its subscribers; return its number and the LID it is from, None if it is forged.

    The number of a vendor's trap is None.
    """
    notice = Notice.unpack(trap[_DATA])
    # Two masters may have given their ports the same LIDs, so a manager that asks for a handover is always heard.
    if not asks_for_handover(trap) and is_forged(notice, source_lid, view, options.lmc):
        log.say(Event.TRAP, f"{int(notice.trap_number)} from {_who(view, source_lid)} is forged: ignored")
        return None
    log.say(Event.TRAP, f"{int(notice.trap_number)} {_say(view, notice)}")
    if view is not None:
        subscriptions.outbox += subscriptions.reports(forwarded(trap[_DATA], view, options.subnet_prefix), view)
    return (notice.trap_number if notice.is_generic else None), notice.issuer_lid


def asks_for_handover(trap: bytes) -> bool:
    """Return whether a manager of higher priority sent it. Its LID may equal ours, so it is not compared."""
    notice = Notice.unpack(trap[_DATA])
    is_local = notice.is_generic and notice.trap_number == Trap.LOCAL_CHANGES
    return bool(is_local and LocalChangesDetails.unpack(notice.data_details).sm_priority_change)


def _say(view: View | None, notice: Notice) -> str:
    where, details = _who(view, notice.issuer_lid), notice.data_details
    if not notice.is_generic:
        return f"vendor trap from {where}"
    match notice.trap_number:
        case Trap.LINK_STATE_CHANGED:
            return f"a link of {where} changed"
        case Trap.LOCAL_CHANGES:
            changes = LocalChangesDetails.unpack(details)
            names = [name for name in LocalChangesDetails.fields if name.endswith("_change") and getattr(changes, name)]
            return f"{where} changed: {', '.join(names) or 'capability_mask'}"
        case Trap.BAD_P_KEY | Trap.BAD_Q_KEY:
            bad = BadKeyDetails.unpack(details)
            kind = "P_Key" if notice.trap_number == Trap.BAD_P_KEY else "Q_Key"
            ends = f"from {_who(view, bad.lid_addr1)} to {_who(view, bad.lid_addr2)}"
            return f"{where}: a packet {ends} has a {kind} that does not fit, {bad.key:#06x}"
        case Trap.BAD_SWITCH_P_KEY:
            at = BadSwitchPKeyDetails.unpack(details)
            ends = f"from {_who(view, at.lid_addr1)} to {_who(view, at.lid_addr2)}"
            return f"{where}, port {at.port_no}: a packet {ends} has a P_Key that does not fit, {PKey(at.p_key)}"
        case Trap.BAD_M_KEY:
            return f"{where}: {_attempt(view, notice)}"
        case number if number in _AT_PORT:
            return f"{where}, port {PortDetails.unpack(details).port_no}: {Trap(number).name.lower().replace('_', ' ')}"
    return f"from {where}"


def _attempt(view: View | None, notice: Notice) -> str:
    details, sender_slot = BadMKeyDetails.unpack(notice.data_details), None
    if view is not None:
        for slot in view.end_ports[view.fabric.tables.lid[view.end_ports] == notice.issuer_lid].tolist():
            sender_slot = requester(view.fabric, slot, details)
    method = "Get" if details.method == Method.GET else "Set"
    sender = "an unknown port" if view is None or sender_slot is None else view.name(sender_slot)
    return f"{sender} tried {method} of attribute {int(details.attribute_id):#06x} without the M_Key"


def _who(view: View | None, lid: int) -> str:
    """Return the name of a port with a LID, if it is known."""
    if view is not None and 0 < lid < Lid.FIRST_MULTICAST:
        tables = view.fabric.tables
        for slot in view.end_ports[tables.lid[view.end_ports] == lid].tolist():
            return f"{view.name(slot)} (LID {lid})"
    return f"LID {lid}"
