"""Faults of a link that stays up: bit errors, a lower speed, flaps, a host that accepts data slowly."""

from __future__ import annotations

from dataclasses import dataclass

from weft.errors import ConfigError
from weft.mad import faults
from weft.mad.devices import Devices

MOST_FLAPS = 3600.0  # per hour: a subnet manager could not keep up with more


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkFault:
    """The parameters of `Lab.degrade`; None leaves a property as it is."""

    bit_error_rate: float | None
    one_way: bool  # only packets that the named port receives have errors
    to: str | None  # width and speed after the link comes up again
    flaps: float | None  # per hour
    drain: float | None  # share of line rate that the host accepts

    def check(self, devices: Devices, slots: list[int]) -> None:
        """Raise ConfigError if the fault cannot be applied to the ports; change nothing."""
        if (self.bit_error_rate, self.to, self.flaps, self.drain) == (None,) * 4:
            raise ConfigError("no fault was given: use --ber, --to, --flaps or --drain")
        if self.one_way and self.bit_error_rate is None:
            raise ConfigError("--one-way needs --ber, the bit error rate of the packets that the port receives")
        if self.flaps is not None and not 0 < self.flaps <= MOST_FLAPS:
            raise ConfigError(f"--flaps must be above 0 and at most {MOST_FLAPS:,.0f} per hour, got {self.flaps:g}")
        if self.drain is not None and not 0 < self.drain < 1:
            raise ConfigError(f"--drain must be between 0 and 1, such as 0.2 or 20%, got {self.drain:g}")
        for slot in slots:
            if slot in devices.ethernet:
                raise ConfigError(
                    f"the cable of {devices.name(slot)} is Ethernet: degrade InfiniBand cables, or use `weft break`"
                )
            if self.drain is not None:
                _host_end(devices, slot)
            if self.to is not None:
                faults.limit(devices, slot, self.to)

    def apply(self, devices: Devices, slot: int) -> None:
        """Apply the fault to the cable of a port."""
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
        raise ConfigError(f"{devices.name(slot)} has no host at either end: --drain needs the port of a host")
    return ends[0]


def faulty_cables(devices: Devices) -> list[int]:
    """Return a slot of each cable with such a fault: the end at a switch, if there is one."""
    links = devices.fabric.links
    slots = {*devices.erring, *devices.takes, *(int(links.a[link]) for link in (*devices.limits, *devices.flaps))}
    both = ((slot, devices.cable[slot]) for slot in slots)
    return sorted({min(ends, key=lambda end: (not devices.is_switch[devices.node_of[end]], end)) for ends in both})
