"""What a cable of a lab can have beside being broken, and which have it."""

from __future__ import annotations

from dataclasses import dataclass

from weft.errors import ConfigError
from weft.mad import faults
from weft.mad.devices import Devices

MOST_FLAPS = 3600.0  # an hour: a subnet manager could not follow


@dataclass(frozen=True, slots=True, kw_only=True)
class Illness:
    """As `Lab.degrade` takes it; None is not asked for."""

    bit_error_rate: float | None
    one_way: bool  # only what the named port receives errs
    to: str | None  # what it comes up with
    flaps: float | None  # an hour
    drain: float | None  # share of line rate that the host takes

    def check(self, devices: Devices, slots: list[int]) -> None:
        """Before anything is changed."""
        if (self.bit_error_rate, self.to, self.flaps, self.drain) == (None,) * 4:
            raise ConfigError("what is it to suffer from? Give a bit error rate, `to`, `flaps` or `drain`")
        if self.one_way and self.bit_error_rate is None:
            raise ConfigError("--one-way needs --ber, the bit error rate of the packets that the port receives")
        if self.flaps is not None and not 0 < self.flaps <= MOST_FLAPS:
            raise ConfigError(f"{self.flaps:g} flaps an hour are not above 0 and at most {MOST_FLAPS:,.0f}")
        if self.drain is not None and not 0 < self.drain < 1:
            raise ConfigError(f"a host that takes {self.drain:g} of line rate is not overloaded: give 0.2 or 20%")
        for slot in slots:
            if self.drain is not None:
                _host_end(devices, slot)
            if self.to is not None:
                faults.limit(devices, slot, self.to)

    def befall(self, devices: Devices, slot: int) -> None:
        if self.bit_error_rate is not None:
            faults.degrade(devices, slot, self.bit_error_rate, one_way=self.one_way)
        if self.to is not None:
            faults.slow(devices, slot, self.to)
        if self.flaps is not None:
            devices.flaps[devices.link[slot]] = self.flaps
        if self.drain is not None:
            devices.takes[_host_end(devices, slot)] = self.drain


def _host_end(devices: Devices, slot: int) -> int:
    ends = [end for end in (slot, devices.cable[slot]) if not devices.is_switch[devices.node_of[end]]]
    if not ends:
        raise ConfigError(f"{devices.name(slot)} leads to no host: only a host drains what it gets slowly")
    return ends[0]


def ill_cables(devices: Devices) -> list[int]:
    """Those that are not broken, and not well: each by one slot, at a switch, if one end is."""
    links = devices.fabric.links
    ill = {*devices.erring, *devices.takes, *(int(links.a[link]) for link in (*devices.limits, *devices.flaps))}
    both = ((slot, devices.cable[slot]) for slot in ill)
    return sorted({min(ends, key=lambda end: (not devices.is_switch[devices.node_of[end]], end)) for ends in both})
