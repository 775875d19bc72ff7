"""Define the settings of a port by the subnet manager, as sent by the lab: PortInfo, GUIDInfo, P_Key table."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from weft.verbs.carriers.lab.connection import GUIDS_BYTES
from weft.verbs.enums import IBV_LINK_LAYER_INFINIBAND, ibv_event_type
from weft.wire.port_info import LANES, LinkSpeed, PortInfo, PortState

if TYPE_CHECKING:
    from weft.verbs.attributes.device import PortAttr

_E = ibv_event_type
_MOST_MESSAGE_BYTES = 1 << 30


@dataclass(frozen=True, slots=True)
class Facts:
    """The settings of a port at one time."""

    info: PortInfo
    guids: tuple[int, ...]
    p_keys: tuple[int, ...]

    @classmethod
    def unpack(cls, raw: bytes) -> Facts:
        info = PortInfo.unpack(raw)
        end = PortInfo.size + GUIDS_BYTES
        guids = struct.unpack(">8Q", raw[PortInfo.size : end])[: max(1, min(8, info.guid_cap))]
        return cls(info, guids, struct.unpack(f"<{(len(raw) - end) // 2}H", raw[end:]))

    @property
    def is_active(self) -> bool:
        return bool(self.info.port_state == PortState.ACTIVE)

    @property
    def mtu_bytes(self) -> int:
        return 128 << (self.info.neighbor_mtu or self.info.mtu_cap)

    @property
    def gids(self) -> tuple[bytes, ...]:
        """The GID table; empty entries are zeros."""
        prefix = self.info.gid_prefix.to_bytes(8, "big")
        return tuple(prefix + guid.to_bytes(8, "big") if guid else bytes(16) for guid in self.guids)

    def down(self) -> Facts:
        """Return the settings of the port after the lab has ended: its state is Down."""
        return Facts(self.info.replace(port_state=PortState.DOWN), self.guids, self.p_keys)

    @property
    def speed_100_mbps(self) -> int:
        return LinkSpeed.active(self.info.raw).lane_tenths * LANES.get(self.info.link_width_active, 0)

    def port_attr(self) -> PortAttr:
        from weft.verbs.attributes.device import PortAttr

        info, speed = self.info, LinkSpeed.active(self.info.raw)
        return PortAttr(
            state=int(info.port_state),
            max_mtu=int(info.mtu_cap),
            active_mtu=int(info.neighbor_mtu or info.mtu_cap),
            gid_tbl_len=len(self.guids),
            port_cap_flags=info.capability_mask,
            max_msg_sz=_MOST_MESSAGE_BYTES,
            bad_pkey_cntr=info.p_key_violations,
            qkey_viol_cntr=info.q_key_violations,
            pkey_tbl_len=len(self.p_keys),
            lid=info.lid,
            sm_lid=info.master_sm_lid,
            lmc=info.lmc,
            max_vl_num=info.vl_cap,
            sm_sl=info.master_sm_sl,
            subnet_timeout=info.subnet_time_out,
            init_type_reply=info.init_type_reply,
            active_width=info.link_width_active,
            active_speed=min(speed, LinkSpeed.NDR),  # the field has 8 bits
            phys_state=int(info.port_physical_state),
            link_layer=IBV_LINK_LAYER_INFINIBAND,
            port_cap_flags2=info.capability_mask2,
            active_speed_ex=speed if speed > LinkSpeed.NDR else 0,
        )


class Watcher(Protocol):
    """A program that has opened the port's device."""

    def raise_event(self, event_type: ibv_event_type, element: object = None) -> None: ...


def events_between(before: Facts, after: Facts) -> Iterator[ibv_event_type]:
    """Yield the events of a change of a port."""
    old, new = before.info, after.info
    if before.is_active != after.is_active:
        yield _E.IBV_EVENT_PORT_ACTIVE if after.is_active else _E.IBV_EVENT_PORT_ERR
    if (old.lid, old.lmc) != (new.lid, new.lmc):
        yield _E.IBV_EVENT_LID_CHANGE
    if before.p_keys != after.p_keys:
        yield _E.IBV_EVENT_PKEY_CHANGE
    if (old.master_sm_lid, old.master_sm_sl) != (new.master_sm_lid, new.master_sm_sl):
        yield _E.IBV_EVENT_SM_CHANGE
    if before.gids != after.gids:
        yield _E.IBV_EVENT_GID_CHANGE
