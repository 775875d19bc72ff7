"""Check the M_Key of a port, with its protection levels and its lease.

    protect   Get without the key           Set without the key
    0         answered, shows the key       not answered, counted, trap 256
    1         answered, the key reads 0     the same
    2, 3      not answered, counted, 256    the same

A port with a lease starts its clock at the first violation; a right key stops it, and when it runs out the protection
falls to 0, so that a new subnet manager can read the key. A lease of 0 never ends.
(InfiniBand Architecture volume 1, "Levels of Protection" and "Lease Period".)
"""

from __future__ import annotations

from weft.mad.devices import Devices
from weft.wire.mad import Method
from weft.wire.port_info import PortInfo

_KEY = slice(0, 8)  # in PortInfo
_GIVEN = slice(24, 32)  # in an SMP
_NO_KEY = bytes(8)


def note(devices: Devices, slot: int) -> None:
    """Update the set of ports with an M_Key after PortInfo was set."""
    if devices.info(slot)[_KEY] != _NO_KEY:
        devices.keyed.add(slot)
    else:
        devices.keyed.discard(slot)
        devices.m_key_lease.pop(slot, None)


def fits(devices: Devices, slot: int, smp: bytearray) -> bool:
    """Return whether an SMP that arrived here may be executed; if not, count the violation and send a trap."""
    own = devices.own_slot(slot)
    if own not in devices.keyed:
        return True
    info, method = devices.info(own), smp[3]
    ends_s = devices.m_key_lease.get(own)
    if ends_s is not None and devices.clock() >= ends_s:
        del devices.m_key_lease[own]
        PortInfo.m_key_protect_bits.set(info, 0)
    if info[_KEY] == smp[_GIVEN]:
        devices.m_key_lease.pop(own, None)
        return True
    if method == Method.GET and PortInfo.m_key_protect_bits.get(info) < 2:
        return True
    if method == Method.TRAP_REPRESS and smp[_GIVEN] == _NO_KEY:
        return True  # OpenSM sends back what the trap had, and a trap has none
    count = PortInfo.m_key_violations
    count.set(info, min(count.get(info) + 1, 0xFFFF))
    period_s = PortInfo.m_key_lease_period.get(info)
    if period_s and own not in devices.m_key_lease:
        devices.m_key_lease[own] = devices.clock() + period_s
    devices.traps.bad_m_key(devices, own, smp)
    return False


def hide(devices: Devices, requested: int, smp: bytearray, at: int) -> None:
    """Blank the key in a PortInfo at byte `at` of the answer to a Get, where protection requires it.

    The response to a Set has the key, also if the port had another one before: OpenSM relies on it. Above level 1 this
    is the key of an adapter's other port: at its own port a request without the key gets no response.
    """
    own = devices.own_slot(requested)
    if own in devices.keyed and smp[3] == Method.GET:
        info = devices.info(own)
        if PortInfo.m_key_protect_bits.get(info) and smp[_GIVEN] != info[_KEY]:
            smp[at : at + 8] = _NO_KEY
