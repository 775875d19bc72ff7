"""Traps: what devices tell unasked. Each is answered, so that they stop repeating it, and passed on to subscribers."""

from __future__ import annotations

from weft.ids import Lid, PKey
from weft.sm.discovery.view import View
from weft.sm.events import Event, Log
from weft.sm.inform.subscriptions import Subscriptions, forwarded
from weft.wire.mad import Method
from weft.wire.notice import BadKeyDetails, BadSwitchPKeyDetails, LocalChangesDetails, Notice, PortDetails, Trap
from weft.wire.smp import Smp

_DATA = slice(64, 128)
_AT_PORT = (Trap.LINK_INTEGRITY_THRESHOLD, Trap.BUFFER_OVERRUN_THRESHOLD, Trap.WATCHDOG_TIMER_EXPIRED)


def repress(trap: bytes) -> bytes:
    """The answer to a trap: "I heard you"."""
    answer = bytearray(trap)
    Smp.method.set(answer, Method.TRAP_REPRESS)
    return bytes(answer)


def take_trap(
    trap: bytes, view: View | None, subscriptions: Subscriptions, log: Log, prefix: int
) -> tuple[int | None, int]:
    """Say what it is, queue reports to who subscribed; its number, None if it is a vendor's, and the LID it is from."""
    notice = Notice.unpack(trap[_DATA])
    log.say(Event.TRAP, f"{int(notice.trap_number)} {_say(view, notice)}")
    if view is not None:
        subscriptions.outbox += subscriptions.reports(forwarded(trap[_DATA], view, prefix), view)
    return (notice.trap_number if notice.is_generic else None), notice.issuer_lid


def asks_for_handover(trap: bytes) -> bool:
    """Is it from a manager above us? Its LID may be ours as well, if both are master: so it is not looked at."""
    notice = Notice.unpack(trap[_DATA])
    is_local = notice.is_generic and notice.trap_number == Trap.LOCAL_CHANGES
    return bool(is_local and LocalChangesDetails.unpack(notice.data_details).sm_priority_change)


def _say(view: View | None, notice: Notice) -> str:
    where, details = _who(view, notice.issuer_lid), notice.data_details
    if not notice.is_generic:
        return f"of the vendor, from {where}"
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
        case number if number in _AT_PORT:
            return f"{where}, port {PortDetails.unpack(details).port_no}: {Trap(number).name.lower().replace('_', ' ')}"
    return f"from {where}"


def _who(view: View | None, lid: int) -> str:
    """A port by its name, if we know whose LID it is."""
    if view is not None and 0 < lid < Lid.FIRST_MULTICAST:
        tables = view.fabric.tables
        for slot in view.end_ports[tables.lid[view.end_ports] == lid].tolist():
            return f"{view.name(slot)} (LID {lid})"
    return f"LID {lid}"
