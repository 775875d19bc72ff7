"""Send traps: notices to the subnet manager, repeated until it represses them.

    128       the state of a switch's port changed          129, 130   errors of a port passed its threshold
    144       something changed from inside: IsSM, name     131        a port's flow control stood still
    256-259   a wrong M_Key, P_Key, Q_Key; a wrong P_Key at a switch

Traps 64 to 67 are the subnet manager's own reports, not an agent's. A trap is sent by a port that is Active and knows
a subnet manager (o14-3.2.1), repeated after 4.096 us * 2^SubnetTimeOut until TrapRepress comes, and while it waits the
same event raises no second one. M_Key in a trap is 0 (o14-1).
(InfiniBand Architecture volume 1, "Traps"; the numbers of the rules are as Linux's drivers cite them.)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from weft.fabric.counters import Counter
from weft.fabric.forwarding import Plane
from weft.wire.mad import Method
from weft.wire.notice import (
    BadMKeyDetails,
    LinkStateDetails,
    LocalChangesDetails,
    Notice,
    NoticeType,
    PortDetails,
    ProducerType,
    Trap,
)
from weft.wire.port_info import Capability, PortInfo
from weft.wire.smp import DirectedSmp, Smp, SmpAttribute

_TIMEOUT_S = 4.096e-6
_ID_MASK = 0xFFFF_FFFF  # ibsim's preload overwrites the upper half of a TrapRepress's transaction id
_DIRECTED = 0x81
_PATH_SHOWN = 30  # hops of a return path that trap 256 has room for
_THRESHOLDS = (
    (Counter.LOCAL_LINK_INTEGRITY_ERRORS, Trap.LINK_INTEGRITY_THRESHOLD),
    (Counter.EXCESSIVE_BUFFER_OVERRUN_ERRORS, Trap.BUFFER_OVERRUN_THRESHOLD),
)


@dataclass(slots=True)
class _Pending:
    slot: int  # the sending port
    mad: bytes
    due_s: float


class Traps:
    """The traps of a subnet that are not repressed yet."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.pending: dict[tuple[int, int, bytes], _Pending] = {}  # by port, number and details
        self._by_id: dict[int, tuple[int, int, bytes]] = {}
        self._last_id = 0
        self._seen: NDArray[np.int64] | None = None  # [port, threshold] when `watch` last looked

    # -- raise ------------------------------------------------------------------------------------------------------

    def raise_trap(self, devices: Plane, slot: int, number: Trap, kind: NoticeType, details: bytes) -> None:
        """Send a trap from a port to the subnet manager, if the port is Active and knows one."""
        slot = devices.own_slot(slot)
        info = devices.info(slot)
        key = (slot, int(number), details)
        mask = PortInfo.capability_mask.get(info)
        if key in self.pending or not mask & Capability.IS_TRAP_SUPPORTED:
            return
        if not PortInfo.master_sm_lid.get(info) or not devices.is_active(slot):
            return
        switch = devices.is_switch[devices.node_of[slot]]
        notice = Notice.pack(
            type=kind,
            producer_type=ProducerType.SWITCH if switch else ProducerType.CA,
            trap_number=number,
            issuer_lid=PortInfo.lid.get(info),
            data_details=details,
        )
        self._last_id = self._last_id % _ID_MASK + 1
        mad = Smp.pack(method=Method.TRAP, transaction_id=self._last_id, attribute_id=SmpAttribute.NOTICE, data=notice)
        self.pending[key] = _Pending(slot, mad, self._clock())
        self._by_id[self._last_id] = key

    def link_changed(self, devices: Plane, slot: int) -> None:
        """Send trap 128 for a port of a switch."""
        details = LinkStateDetails.pack(lid_addr=devices.lid(slot))
        self.raise_trap(devices, slot, Trap.LINK_STATE_CHANGED, NoticeType.URGENT, details)

    def at_port(self, devices: Plane, slot: int, number: Trap) -> None:
        """Send trap 129, 130 or 131 for errors at a port."""
        details = PortDetails.pack(lid_addr=devices.lid(slot), port_no=devices.number(slot))
        self.raise_trap(devices, slot, number, NoticeType.URGENT, details)

    def local_change(self, devices: Plane, slot: int, **flags: int) -> None:
        """Send trap 144 for a change of CapabilityMask, or of a flag of `LocalChangesDetails`."""
        info = devices.info(devices.own_slot(slot))
        details = LocalChangesDetails.pack(
            lid_addr=devices.lid(slot),
            capability_mask=PortInfo.capability_mask.get(info),
            capability_mask2=PortInfo.capability_mask2.get(info),
            other_local_changes=int(bool(flags)),
            **flags,
        )
        self.raise_trap(devices, slot, Trap.LOCAL_CHANGES, NoticeType.INFORMATIONAL, details)

    def bad_m_key(self, devices: Plane, slot: int, smp: bytearray) -> None:
        """Send trap 256, with the return path of a directed SMP."""
        directed = smp[1] == _DIRECTED
        hops = min(smp[7], _PATH_SHOWN) if directed else 0
        details = BadMKeyDetails.pack(
            lid_addr=devices.lid(slot),
            dr_slid=DirectedSmp.dr_slid.get(smp) if directed else 0,
            method=smp[3],
            attribute_id=smp[16] << 8 | smp[17],
            attribute_modifier=int.from_bytes(smp[20:24], "big"),
            m_key=int.from_bytes(smp[24:32], "big"),
            dr_notice=int(directed),
            dr_path_truncated=int(directed and smp[7] > _PATH_SHOWN),
            dr_hop_count=hops,
            dr_notice_return_path=bytes(smp[192 : 193 + hops])[:_PATH_SHOWN],  # entry 0 is not used
        )
        self.raise_trap(devices, slot, Trap.BAD_M_KEY, NoticeType.SECURITY, details)

    def watch(self, devices: Plane) -> None:
        """Raise 129 and 130 for ports whose counters say that a threshold was passed since the last look."""
        now = devices.fabric.counters[:, [column for column, _ in _THRESHOLDS]]
        if self._seen is not None and not np.array_equal(now, self._seen):
            for slot, threshold in np.argwhere(now > self._seen).tolist():
                self.at_port(devices, slot, _THRESHOLDS[threshold][1])
        self._seen = now

    # -- send and repress -------------------------------------------------------------------------------------------

    def due(self, devices: Plane, now_s: float) -> list[tuple[int, bytes, int]]:
        """Return the traps to send now: slot, MAD and LID. They are due again after SubnetTimeOut."""
        due = []
        for pending in [pending for pending in self.pending.values() if pending.due_s <= now_s]:
            info = devices.info(pending.slot)
            pending.due_s = now_s + _TIMEOUT_S * (1 << PortInfo.subnet_time_out.get(info))
            if devices.is_active(pending.slot):
                due.append((pending.slot, pending.mad, int(PortInfo.master_sm_lid.get(info))))
        return due

    def next_s(self) -> float | None:
        """Return when the next trap is due; None if there is none."""
        return min((pending.due_s for pending in self.pending.values()), default=None)

    def knows(self, slot: int, smp: bytearray) -> bool:
        """Return whether the agent sent the trap of this TrapRepress. A subnet manager sends traps too."""
        key = self._by_id.get(int.from_bytes(smp[12:16], "big"))
        return key is not None and key[0] == slot

    def repress(self, slot: int, smp: bytearray) -> bool:
        """Stop the trap with the transaction id of a TrapRepress; return False if there is none."""
        name = int.from_bytes(smp[12:16], "big")
        key = self._by_id.get(name)
        if key is None or key[0] != slot:
            return False
        del self._by_id[name], self.pending[key]
        return True

    def forget(self, slots: range) -> None:
        """Drop the traps of ports that lost power."""
        for name, key in list(self._by_id.items()):
            if key[0] in slots:
                del self._by_id[name], self.pending[key]
