"""Cables of a running subnet as CableInfo shows them: serial numbers, and readings that follow the state of links.

Identities are made from the cabling, so they are the same after a restart; `swap` exchanges the cables of two ports,
and a repaired cable is the same one.

Readings are a model, to be trusted as to their direction and not to the tenth of a degree:

    temperature     33 C of air at the port, and the heat of the module: 2 C passive ... 22 C for a transceiver of NDR,
                    with a spread of 3 C between modules
    transmit power  1 mW, 10 % of spread; in 10,000 hours of the clock a laser loses 2 % and needs 4 % more bias
    receive power   what the far end sends, less 0.5 dB of connectors and 0.4 dB/100 m; 0 where no light comes in
    bit errors      cost receive power: error rates are those of thermal noise, erfc(Q / sqrt 2) / 2, and Q is
                    proportional to it
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import replace
from functools import lru_cache
from statistics import NormalDist
from typing import Any

from weft.errors import ConfigError
from weft.fabric.kinds import Medium
from weft.mad import links
from weft.mad.devices import NONE, Devices
from weft.wire.modules import ACTIVE_COPPER, OPTICAL, OSFP, PASSIVE_COPPER, QSFP, QSFP28, Module

_VENDOR = "WEFT LAB"
_TECHNOLOGY = {Medium.DAC: PASSIVE_COPPER, Medium.ACC: ACTIVE_COPPER, Medium.AOC: OPTICAL, Medium.TRANSCEIVER: OPTICAL}
_NAMES = {Medium.DAC: "DAC", Medium.ACC: "ACC", Medium.AOC: "AOC", Medium.TRANSCEIVER: "OPTIC"}
_AIR_C, _SPREAD_C = 33.0, 3.0
_HEAT_C = {PASSIVE_COPPER: 2.0, ACTIVE_COPPER: 9.0, OPTICAL: 14.0}
_FAST_HEAT_C = 8.0  # more, of NDR and above
_NDR_GBIT_S = 400
_TRANSMIT_MW, _POWER_SPREAD = 1.0, 0.1
_BIAS_MA = 7.0
_HOURS, _LESS_POWER, _MORE_BIAS = 10_000.0, 0.02, 0.04
_CONNECTORS_DB, _FIBRE_DB_M = 0.5, 0.004
_WELL_BER = 1e-15  # of a link without a fault
_CMIS_LANES, _SFF_LANES = 8, 4


def swap(devices: Devices, slot: int, other: int) -> None:
    """Exchange the cables of two ports, with their faults; both ends of each go along. The links train again."""
    first, second = (devices.link[end] for end in (slot, other))
    for end, link in ((slot, first), (other, second)):
        if link == NONE:
            raise ConfigError(f"{devices.name(end)} has no cable to exchange: give a port with one")
    if first == second:
        raise ConfigError(f"{devices.name(slot)} and {devices.name(other)} are in one cable: give ports of two")
    numbers = devices.cable_in.get(first, first), devices.cable_in.get(second, second)
    devices.cable_in[second], devices.cable_in[first] = numbers
    rates, good_end = devices.fabric.links.bit_error_rate.copy(), devices.fabric.links.good_end.copy()
    for column in (rates, good_end):
        column[[first, second]] = column[[second, first]]
    changed = replace(devices.fabric.links, bit_error_rate=rates, good_end=good_end)
    devices.run_on(devices.fabric.sharing_tables_with(changed))
    for faults in (devices.limits, devices.flaps):
        _exchange(faults, first, second)
    for end in (slot, other):
        links.retrain(devices, end)


def _exchange(values: dict[int, Any], first: int, second: int) -> None:
    kept = {key: values.pop(key) for key in (first, second) if key in values}
    values.update({(second if key == first else first): value for key, value in kept.items()})


def module_at(devices: Devices, slot: int) -> Module | None:
    """Return the module in a port; None if its cable is pulled, or if it has none that can be."""
    link = devices.link[slot]
    if link == NONE or {slot, devices.cable[slot]} & devices.broken:
        return None
    cable = devices.fabric.link(link)
    medium = Medium.DAC if cable.medium == Medium.UNKNOWN else cable.medium
    if medium not in _TECHNOLOGY:
        return None
    technology, form = _TECHNOLOGY[medium], _form(cable.rate_gbit_s)
    serial = _serial(devices, slot, is_cable=medium != Medium.TRANSCEIVER)
    is_optical = technology == OPTICAL
    lanes = (_CMIS_LANES if form == OSFP else _SFF_LANES) if is_optical else 0
    return Module(
        form=form,
        vendor=_VENDOR,
        part=f"{form.rstrip('+')}-{_NAMES[medium]}",
        serial=serial,
        revision="A1",
        technology=technology,
        length_m=None if medium == Medium.TRANSCEIVER else cable.length_m or None,
        temperature_c=None if technology == PASSIVE_COPPER else _temperature(devices, slot, technology),
        supply_v=None if technology == PASSIVE_COPPER else round(3.3 + 0.05 * _spread(_end(devices, slot), "volt"), 4),
        transmit_mw=tuple(_transmit(devices, slot, lane) for lane in range(lanes)),
        receive_mw=tuple(_receive(devices, slot, lane, cable.length_m) for lane in range(lanes)),
        bias_ma=tuple(_bias(devices, slot, lane) for lane in range(lanes)),
    )


def _form(rate_gbit_s: float) -> str:
    return OSFP if rate_gbit_s >= _NDR_GBIT_S else QSFP28 if rate_gbit_s >= 100 else QSFP


def _serial(devices: Devices, slot: int, *, is_cable: bool) -> str:
    """Return the serial number of the cable in a port; of a transceiver, each end has its own."""
    cable, columns = devices.cable_in.get(devices.link[slot], devices.link[slot]), devices.fabric.links
    ends = sorted(devices.name(int(at)) for at in (columns.a[cable], columns.b[cable]))
    guid = devices.fabric.nodes.guid[devices.node_of[int(columns.a[cable])]]
    end = "" if is_cable else _end_number(devices, slot)
    return f"WL{int.from_bytes(_digest(f'{guid} {ends} {end}')[:5], 'big') % 10**10:010d}"


def _end_number(devices: Devices, slot: int) -> int:
    return int(slot > devices.cable[slot])


def _end(devices: Devices, slot: int) -> str:
    """Return a name of the module in a port that goes along when its cable does."""
    return f"{_serial(devices, slot, is_cable=True)} {_end_number(devices, slot)}"


@lru_cache(maxsize=1 << 16)
def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode(), digest_size=8).digest()


def _spread(*words: object) -> float:
    """Return a number from -1 to 1 that is the same for the same words."""
    return int.from_bytes(_digest(" ".join(map(str, words))), "big") / 2**63 - 1


def _temperature(devices: Devices, slot: int, technology: str) -> float:
    is_fast = devices.fabric.link(devices.link[slot]).rate_gbit_s >= _NDR_GBIT_S
    heat_c = _HEAT_C[technology] + (_FAST_HEAT_C if is_fast and technology == OPTICAL else 0.0)
    return _AIR_C + heat_c + _SPREAD_C * _spread(_end(devices, slot), "heat")


def _age(devices: Devices) -> float:
    return devices.clock() / 3600 / _HOURS


def _transmit(devices: Devices, slot: int, lane: int) -> float:
    if devices.node_of[slot] in devices.dead:
        return 0.0
    aged = max(0.0, 1 - _LESS_POWER * _age(devices))
    return _TRANSMIT_MW * (1 + _POWER_SPREAD * _spread(_end(devices, slot), lane, "power")) * aged


def _bias(devices: Devices, slot: int, lane: int) -> float:
    return (
        _BIAS_MA * (1 + _POWER_SPREAD * _spread(_end(devices, slot), lane, "bias")) * (1 + _MORE_BIAS * _age(devices))
    )


def _receive(devices: Devices, slot: int, lane: int, length_m: float) -> float:
    """Return the light that comes in, less what the errors of this direction cost."""
    far = devices.cable[slot]
    loss_db = _CONNECTORS_DB + _FIBRE_DB_M * length_m
    error_rate = max(float(devices.fabric.receive_error_rate[slot]), _WELL_BER)
    loss_db += 10 * math.log10(_q(_WELL_BER) / _q(error_rate))
    return float(_transmit(devices, far, lane) * 10 ** (-loss_db / 10))


def _q(bit_error_rate: float) -> float:
    """Return the Q factor of a bit error rate; at 0.5 and more, next to none."""
    return max(-NormalDist().inv_cdf(bit_error_rate), 0.01) if bit_error_rate < 0.5 else 0.01
