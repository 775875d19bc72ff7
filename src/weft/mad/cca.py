"""The congestion control agent: thresholds of a switch, rate tables of an adapter, kept as they were set.

A switch has SwitchCongestionSetting and, by blocks of ports, SwitchPortCongestionSetting; an adapter's port has
CACongestionSetting and its congestion control table. All have a key of their own, the CC_Key, with a protect bit and a
lease like the M_Key: a wrong one is counted and not answered. The trap for it is not sent: no manager here sets the
ClassPortInfo that says where to. (InfiniBand Architecture volume 1, annex A10; OpenSM's `--congestion_control`.)
"""

from __future__ import annotations

from weft.mad.devices import Devices
from weft.wire.cc import (
    CcAttribute,
    CcMad,
    CongestionControlTable,
    CongestionInfo,
    CongestionKeyInfo,
    CongestionLogCA,
    CongestionLogSwitch,
    TimeStamp,
)
from weft.wire.mad import ClassPortInfo, Method, Status

VERSION = 2
TABLE_BLOCKS = 2  # blocks of 64 entries in an adapter's port
PORT_BLOCKS = 8  # blocks of ports in a switch: enough for 255, at OpenSM's 32 per block
TICK_S = 1.024e-6
_LOG, _DATA, _END = 32, 64, 256
_REFUSED = int(Status.METHOD_ATTRIBUTE_NOT_SUPPORTED)
_KEY_INFO = int(CcAttribute.CONGESTION_KEY_INFO) << 16
_key, _request_key = CongestionKeyInfo.cc_key, CcMad.cc_key
_OF_SWITCHES = (CcAttribute.SWITCH_CONGESTION_SETTING, CcAttribute.SWITCH_PORT_CONGESTION_SETTING)
_OF_ADAPTERS = (CcAttribute.CA_CONGESTION_SETTING, CcAttribute.CONGESTION_CONTROL_TABLE)
_READ_ONLY = (
    CcAttribute.CLASS_PORT_INFO,
    CcAttribute.CONGESTION_INFO,
    CcAttribute.CONGESTION_LOG,
    CcAttribute.TIME_STAMP,
)


def answer(devices: Devices, slot: int, mad: bytearray) -> bool:
    """Turn a MAD of this class that came in at `slot` into its response; False if there is none."""
    own, method = devices.own_slot(slot), mad[3]
    status: int
    if mad[0] != 1 or mad[2] != VERSION:
        devices.odd["version"] += 1
        status = Status.BAD_VERSION
    elif method == Method.TRAP_REPRESS:
        return False
    elif method not in (Method.GET, Method.SET):
        status = Status.METHOD_NOT_SUPPORTED
    elif not _key_fits(devices, own, mad):
        return False
    else:
        status = _act(devices, own, mad[16] << 8 | mad[17], int.from_bytes(mad[20:24], "big"), mad)
    mad[3] = 0x81
    mad[4:6] = (0, status)
    return True


def _key_fits(devices: Devices, own: int, mad: bytearray) -> bool:
    """Return whether the CC_Key permits a request: Sets need the key, Gets only if it is protected."""
    info = devices.tables.congestion.get((own, _KEY_INFO))
    if info is None:
        return True
    if devices.cc_key_lease.get(own, float("inf")) <= devices.clock():
        del devices.cc_key_lease[own]
        CongestionKeyInfo.cc_key_protect_bit.set(info, 0)
    key = _key.get(info)
    if not key or _request_key.get(mad) == key:
        devices.cc_key_lease.pop(own, None)
        return True
    if mad[3] == Method.GET and not CongestionKeyInfo.cc_key_protect_bit.get(info):
        return True
    count = CongestionKeyInfo.cc_key_violations
    count.set(info, min(count.get(info) + 1, 0xFFFF))
    period_s = CongestionKeyInfo.cc_key_lease_period.get(info)
    if period_s:
        devices.cc_key_lease.setdefault(own, devices.clock() + period_s)
    return False


def _act(devices: Devices, own: int, attribute: int, modifier: int, mad: bytearray) -> int:
    switch = devices.is_switch[devices.node_of[own]]
    method = mad[3]
    if attribute in _READ_ONLY:
        return _tell(devices, switch, attribute, mad) if method == Method.GET else _REFUSED
    if attribute == CcAttribute.CONGESTION_KEY_INFO:
        return _key_settings(devices, own, mad)
    if attribute not in (_OF_SWITCHES if switch else _OF_ADAPTERS):
        return _REFUSED
    blocks = {
        int(CcAttribute.SWITCH_PORT_CONGESTION_SETTING): PORT_BLOCKS,
        int(CcAttribute.CONGESTION_CONTROL_TABLE): TABLE_BLOCKS,
    }.get(attribute, 1)
    if modifier >= blocks:
        return Status.INVALID_FIELD
    limited = attribute == CcAttribute.CONGESTION_CONTROL_TABLE and method == Method.SET
    if limited and CongestionControlTable.ccti_limit.get(mad, _DATA) >= 64 * TABLE_BLOCKS:
        return Status.INVALID_FIELD
    place = (own, attribute << 16 | modifier)
    if method == Method.SET:
        devices.tables.congestion[place] = mad[_DATA:_END]
    mad[_DATA:_END] = devices.tables.congestion.get(place) or bytes(_END - _DATA)
    return 0


def _tell(devices: Devices, switch: bool, attribute: int, mad: bytearray) -> int:
    """Write an attribute that cannot be set into the response."""
    ticks = int(devices.clock() / TICK_S) & 0xFFFF_FFFF
    if attribute == CcAttribute.CONGESTION_LOG:
        form = CongestionLogSwitch if switch else CongestionLogCA
        mad[_LOG:_END] = form.pack(current_time_stamp=ticks).ljust(_END - _LOG, b"\0")
        return 0
    if attribute == CcAttribute.CLASS_PORT_INFO:
        raw = ClassPortInfo.pack(class_version=VERSION, resp_time_value=16)
    elif attribute == CcAttribute.TIME_STAMP:
        raw = TimeStamp.pack(timestamp=ticks)
    else:
        raw = CongestionInfo.pack(control_table_cap=0 if switch else TABLE_BLOCKS)
    mad[_DATA:_END] = raw.ljust(_END - _DATA, b"\0")
    return 0


def _key_settings(devices: Devices, own: int, mad: bytearray) -> int:
    """Read or set the key, which reads 0 without it. Setting the violations to 0 clears them."""
    info = devices.tables.congestion.setdefault((own, _KEY_INFO), bytearray(CongestionKeyInfo.size))
    if mad[3] == Method.SET:
        new_info = mad[_DATA : _DATA + CongestionKeyInfo.size]
        violations = CongestionKeyInfo.cc_key_violations
        violation_count = violations.get(info) if violations.get(new_info) else 0
        info[:] = new_info
        violations.set(info, violation_count)
        devices.cc_key_lease.pop(own, None)
    response = bytearray(info)
    if mad[3] == Method.GET and _request_key.get(mad) != _key.get(info):
        _key.set(response, 0)
    mad[_DATA:_END] = response.ljust(_END - _DATA, b"\0")
    return 0
