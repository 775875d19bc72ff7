"""What stands out at links: errors, flaps, less width or speed than both ends can. Each with its chance.

A link is looked at from both ends and as a whole: a bad cable errs both ways, half as often at each.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import log

import numpy as np

from weft.monitor.chance import FAMILY_WISE, Floats, background, is_chance, log10_tail
from weft.monitor.columns import Column, Counts, Flags
from weft.monitor.health import Health
from weft.monitor.thresholds import Limit, thresholds
from weft.wire.port_info import PortState

_DAY_S = 86_400.0


@dataclass(frozen=True, kw_only=True, eq=False)
class Signs:
    """log10 of chances, [link] or [link, end]; 0 where nothing was counted or nothing is known."""

    well: Health
    tests: int  # how many counts were looked at, or will be
    limit: Limit  # of the bit error rate
    symbol_ber: float  # the fabric's own, without what stands out
    symbols: Floats  # [link, end]
    packets: Floats  # [link, end]
    both_ways: Floats  # [link]: symbols at both ends together
    flaps: Floats  # [link]
    is_restart: Flags  # [link]: it went down since a node at its end began anew, or fell silent
    published: Floats  # [link]: symbols at both ends, against the published limit alone
    is_degraded: Flags  # [link]

    @cached_property
    def errs(self) -> Flags:
        """[link, end] -> does it stand out by its errors?"""
        return ~is_chance(np.minimum(self.symbols, self.packets), self.tests)

    @cached_property
    def is_bad(self) -> Flags:
        """[link] -> by errors, at one end or both together."""
        bad: Flags = self.errs.any(axis=1) | ~is_chance(self.both_ways, self.tests)
        return bad

    @cached_property
    def is_flapping(self) -> Flags:
        return ~is_chance(self.flaps, self.tests)

    @cached_property
    def is_one_way(self) -> Flags:
        """[link] -> too uneven for a cable that errs alike both ways, where both ends tell."""
        errors, bits = (self.well.at_ends(of) for of in (self.well.count(Column.SYMBOL_ERROR), self.well.line_bits))
        one_way: Flags = (_uneven(errors) < FAMILY_WISE) & (bits > 0).all(axis=1)
        return one_way

    @cached_property
    def strength(self) -> Floats:
        """[link] -> decimal places of how unlikely it is, over all tests; what both ends cannot help counts as most."""
        least = np.minimum.reduce((self.symbols.min(axis=1), self.packets.min(axis=1), self.both_ways, self.flaps))
        return np.where(self.is_degraded, np.inf, -least - np.log10(max(self.tests, 1)))


def look(well: Health, looks: int = 1) -> Signs:
    """`looks`: this is one of so many, and all counts of all of them are one family."""
    limit = thresholds().ber_of(well.seconds)
    symbols, bits = well.at_ends(well.count(Column.SYMBOL_ERROR)), well.at_ends(well.line_bits)
    damaged, data_bits = well.at_ends(well.damaged), well.at_ends(well.data_bits)
    own, of_packets = (
        background(n.ravel(), e.ravel(), limit.limit) for n, e in ((symbols, bits), (damaged, data_bits))
    )
    flaps, restart = _flaps(well)
    usual = np.where(
        _faces_host(well), thresholds().flaps_of_host.limit, thresholds().flaps_of_cable.limit
    )  # of links, in a day
    days = np.where(restart, 0.0, well.known_s[well.links.ends, Column.LINK_DOWNED].max(axis=1) / _DAY_S)
    ups_and_downs = background(flaps, days, usual)
    links = len(well.links)

    def tails(counts: Counts, exposure: Floats, rate: float | Floats) -> Floats:
        return log10_tail(counts.ravel(), (exposure * rate).ravel()).reshape(counts.shape)

    return Signs(
        well=well,
        tests=looks * int((bits > 0).sum() + (data_bits > 0).sum() + (bits.sum(axis=1) > 0).sum() + (days > 0).sum()),
        limit=limit,
        symbol_ber=own,
        symbols=tails(symbols, bits, max(own, limit.limit)),
        packets=tails(damaged, data_bits, max(of_packets, limit.limit)),
        both_ways=tails(symbols.sum(axis=1), bits.sum(axis=1), max(own, limit.limit)),
        flaps=tails(flaps, days, np.maximum(ups_and_downs, usual)),
        is_restart=restart,
        published=tails(symbols.sum(axis=1), bits.sum(axis=1), limit.limit),
        is_degraded=_degraded(well) if links else np.zeros(0, bool),
    )


def _faces_host(well: Health) -> Flags:
    """[link] -> is an end of it no switch? What does not answer may be a host that is off."""
    is_switch = well.is_switch[well.links.ends] & (well.links.ends >= 0)
    return np.asarray(~is_switch.all(axis=1), bool)


def _flaps(well: Health) -> tuple[Counts, Flags]:
    """[link] -> how often it went down; and whether a node that restarts explains it."""
    ends = well.links.ends
    anew = well.at_ends(well.is_reset).any(axis=1)
    went_down = well.at_ends(well.count(Column.LINK_DOWNED)).any(axis=1)
    half_known = _faces_host(well) & ~well.link_known.all(axis=1)
    restart = went_down & (anew | half_known)
    return np.where(restart, 0, well.flaps) if len(ends) else np.zeros(0, np.int64), restart


def wanted(well: Health) -> tuple[Counts, Counts]:
    """[link] -> lanes and speed (a bit of LinkSpeed) that both ends support."""
    ports, ends = well.ports, well.links.ends
    lanes = ports.width_supported[ends].min(axis=1)
    common = np.bitwise_and.reduce(ports.speed_supported[ends], axis=1)
    fastest = np.where(common > 0, 1 << np.floor(np.log2(np.maximum(common, 1))).astype(np.int64), 0)
    return lanes, fastest


def _degraded(well: Health) -> Flags:
    """[link] -> below what both ends support, while most that could do as much do it: else somebody chose it so."""
    ports, ends = well.ports, well.links.ends
    up = (
        (ends >= 0).all(axis=1) & (ports.state[ends] > PortState.DOWN).all(axis=1) & (ports.peer[ends] >= 0).all(axis=1)
    )
    lanes, speed = wanted(well)
    below = up & ((ports.width_active[ends[:, 0]] < lanes) | (ports.speed_active[ends[:, 0]] < speed))
    kinds, kind = np.unique(np.stack((lanes, speed)), axis=1, return_inverse=True)
    n = kinds.shape[1]
    share = np.bincount(kind.ravel(), below, n) / np.maximum(np.bincount(kind.ravel(), up, n), 1)
    degraded: Flags = below & (share <= 0.5)[kind.ravel()]
    return degraded


def _uneven(errors: Counts) -> Floats:
    """[link] -> at most this chance that two ends that err alike differ so much (Chernoff's bound, either way)."""
    of = np.maximum(errors.sum(axis=1), 1).astype(np.float64)
    few = errors.min(axis=1) / of
    entropy = -few * np.log(np.maximum(few, 1e-300)) - (1 - few) * np.log(1 - few)  # few is at most a half
    chance: Floats = np.minimum(2 * np.exp(-of * (log(2) - entropy)), 1.0)
    return chance
