"""Compile the functions of plugins for the packet engine: separately, cached, and called by address.

The engine's kernel is so large that compiling it again for each congestion control would take a minute. A function
called by
address compiles in a second, and the cached kernel stays valid. A call costs a few ns.
"""

from __future__ import annotations

import numba
from numba.core import types

from weft.jit import address_of
from weft.sim.adaptive import Policy
from weft.sim.congestion import Control
from weft.sim.layout.records import QP
from weft.sim.packet.state import HOP, LOAD
from weft.sim.packet.switch import OWN_POLICIES

_CONTROL = (numba.from_dtype(QP), types.int64, types.Array(types.float64, 1, "C"))
_PACKET = (types.Array(types.float64, 1, "C"), types.Array(numba.from_dtype(HOP), 1, "C"))
_CHOICE = (types.Array(numba.from_dtype(LOAD), 1, "C"), types.Array(types.int32, 1, "C"), types.int64)


def addresses(control: Control) -> dict[str, int]:
    """Return the addresses of a congestion control's hooks by name, for `weft.jit.call` and `ask`; 0 for a missing
    hook.
    """
    addresses_by_name = {}
    for name in ("on_notification", "on_timer", "on_ack", "on_loss", "on_timeout"):
        function = getattr(control, name)
        returns = types.int64 if name == "on_timer" else types.none
        whose = f"congestion control {control.name}: {name}(qp, now_ps, table)"
        addresses_by_name[name] = 0 if function is None else address_of(function, returns(*_CONTROL), whose)
    if control.on_packet is not None:
        whose = f"congestion control {control.name}: on_packet(qp, now_ps, table, fields, hops)"
        addresses_by_name["on_packet"] = address_of(control.on_packet, types.none(*_CONTROL, *_PACKET), whose)
    if control.on_arrival is not None:
        whose = f"congestion control {control.name}: on_arrival(qp, now_ps, table, fields, hops)"
        addresses_by_name["on_arrival"] = address_of(control.on_arrival, types.int64(*_CONTROL, *_PACKET), whose)
    return addresses_by_name


def choice_address(policy: Policy) -> int:
    """Return the address of an adaptive-routing policy, for `weft.jit.ask`; for a built-in policy its index."""
    if policy.choose in OWN_POLICIES:
        return OWN_POLICIES.index(policy.choose)
    return address_of(policy.choose, types.int64(*_CHOICE), f"policy {policy.name}: choose(loads, ports, number)")
