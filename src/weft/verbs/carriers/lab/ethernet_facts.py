"""Define the settings of an Ethernet port of a lab, as sent by the lab: state, address and rate."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from weft.verbs.enums import IBV_LINK_LAYER_ETHERNET, ibv_event_type
from weft.wire.port_info import PortPhysicalState, PortState

if TYPE_CHECKING:
    from weft.verbs.attributes.device import PortAttr

_FORM = struct.Struct("<?II")
_IPV4 = 0xFFFF << 32  # prefix of a GID that is an IPv4 address
_GIDS = 4  # RoCE v2 at each of the indices that programs for mlx5 use
_MTU_4096 = 5
_MTU_BYTES = 4096
_MOST_MESSAGE_BYTES = 1 << 30
# Width and speed of InfiniBand by which the kernel reports rates of Ethernet (ib_get_eth_speed), in its codes.
_LANES = {10: (1, 8), 25: (1, 32), 40: (2, 8), 50: (16, 32), 100: (2, 32), 200: (2, 64), 400: (2, 128), 800: (2, 256)}
_NDR = 128


@dataclass(frozen=True, slots=True)
class EthernetFacts:
    """The settings of an Ethernet port at one time."""

    is_active: bool
    address: int
    rate_gbit_s: int
    p_keys: tuple[int, ...] = (0xFFFF,)

    @classmethod
    def unpack(cls, raw: bytes) -> EthernetFacts:
        return cls(*_FORM.unpack(raw))

    def pack(self) -> bytes:
        return _FORM.pack(self.is_active, self.address, self.rate_gbit_s)

    @property
    def mtu_bytes(self) -> int:
        return _MTU_BYTES

    @property
    def gid(self) -> int:
        return mapped(self.address)

    @property
    def gids(self) -> tuple[bytes, ...]:
        return (self.gid.to_bytes(16, "big"),) * _GIDS

    @property
    def speed_100_mbps(self) -> int:
        return 10 * self.rate_gbit_s

    def down(self) -> EthernetFacts:
        """Return the settings of the port after the lab has ended: its state is Down."""
        return replace(self, is_active=False)

    def events_to(self, after: EthernetFacts) -> Iterator[ibv_event_type]:
        """Yield the events of a change to other settings."""
        if self.is_active != after.is_active:
            yield ibv_event_type.IBV_EVENT_PORT_ACTIVE if after.is_active else ibv_event_type.IBV_EVENT_PORT_ERR

    def port_attr(self) -> PortAttr:
        from weft.verbs.attributes.device import PortAttr

        width, speed = _LANES[self.rate_gbit_s]
        return PortAttr(
            state=int(PortState.ACTIVE if self.is_active else PortState.DOWN),
            max_mtu=_MTU_4096,
            active_mtu=_MTU_4096,
            gid_tbl_len=_GIDS,
            max_msg_sz=_MOST_MESSAGE_BYTES,
            active_width=width,
            active_speed=min(speed, _NDR),  # the field has 8 bits
            phys_state=int(PortPhysicalState.LINK_UP if self.is_active else PortPhysicalState.DISABLED),
            link_layer=IBV_LINK_LAYER_ETHERNET,
            active_speed_ex=speed if speed > _NDR else 0,
        )


def mapped(address: int) -> int:
    """Return the GID of an IPv4 address."""
    return _IPV4 | address
