"""The signs of bad links: errors, flaps, and less width or speed than both ends support, with their probabilities.

A link is tested at each end and as a whole, because a bad cable may have half of its errors in each direction.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import log

import numpy as np

from weft.monitor.chance import FAMILY_WISE, Floats, Limit, background, is_chance, log10_tail, thresholds
from weft.monitor.columns import Column, Counts, Flags
from weft.monitor.health import Health
from weft.wire.port_info import PortState

_DAY_S = 86_400.0
_UNEVEN = 3  # least ratio of the errors at both ends that points to one direction


@dataclass(frozen=True, kw_only=True, eq=False)
class Signs:
    """The log10 of probabilities, [link] or [link, end]; 0 where counts are zero or unknown."""

    well: Health
    tests: int  # number of tested counts, for Bonferroni correction
    limit: Limit  # on the bit error rate
    symbol_ber: float  # background of the fabric, without outliers
    symbols: Floats  # [link, end]
    packets: Floats  # [link, end]
    both_ways: Floats  # [link]: symbols at both ends together
    flaps: Floats  # [link]
    is_restart: Flags  # [link]: it went down with a node that restarted or stopped answering
    published: Floats  # [link]: symbols at both ends, against the published limit alone
    is_degraded: Flags  # [link]

    @cached_property
    def errs(self) -> Flags:
        """The ends with significant errors: [link, end]."""
        return ~is_chance(np.minimum(self.symbols, self.packets), self.tests)

    @cached_property
    def is_bad(self) -> Flags:
        """The links with significant errors, at one end or in sum: [link]."""
        bad: Flags = self.errs.any(axis=1) | ~is_chance(self.both_ways, self.tests)
        return bad

    @cached_property
    def is_flapping(self) -> Flags:
        return ~is_chance(self.flaps, self.tests)

    @cached_property
    def is_one_way(self) -> Flags:
        """The links with most of their errors in one direction, if both ends are known: [link]."""
        errors, bits = (self.well.at_ends(of) for of in (self.well.count(Column.SYMBOL_ERROR), self.well.line_bits))
        mostly = errors.max(axis=1) > _UNEVEN * errors.min(axis=1)
        one_way: Flags = mostly & (_uneven(errors) < FAMILY_WISE) & (bits > 0).all(axis=1)
        return one_way

    @cached_property
    def strength(self) -> Floats:
        """The -log10 of the probability over all tests; infinite for degraded links: [link]."""
        least = np.minimum.reduce((self.symbols.min(axis=1), self.packets.min(axis=1), self.both_ways, self.flaps))
        return np.where(self.is_degraded, np.inf, -least - np.log10(max(self.tests, 1)))


def look(well: Health, looks: int = 1) -> Signs:
    """Test all counts. `looks` is the number of diagnoses that share the false-alarm rate."""
    limit = thresholds().ber_of(well.seconds)
    symbols, bits = well.at_ends(well.count(Column.SYMBOL_ERROR)), well.at_ends(well.line_bits)
    damaged, data_bits = well.at_ends(well.damaged), well.at_ends(well.data_bits)
    own, of_packets = (
        background(n.ravel(), e.ravel(), limit.limit) for n, e in ((symbols, bits), (damaged, data_bits))
    )
    flaps, restart = _flaps(well)
    # Of links, in a day
    usual = np.where(_faces_host(well), thresholds().flaps_of_host.limit, thresholds().flaps_of_cable.limit)
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
    """Return the links with an end that is not a switch; an end that does not answer may be a host."""
    is_switch = well.is_switch[well.links.ends] & (well.links.ends >= 0)
    return np.asarray(~is_switch.all(axis=1), bool)


def _flaps(well: Health) -> tuple[Counts, Flags]:
    """Return how often each link went down, and whether a restarting node explains it."""
    ends = well.links.ends
    anew = well.at_ends(well.is_reset).any(axis=1)
    went_down = well.at_ends(well.count(Column.LINK_DOWNED)).any(axis=1)
    half_known = _faces_host(well) & ~well.link_known.all(axis=1)
    restart = went_down & (anew | half_known)
    return np.where(restart, 0, well.flaps) if len(ends) else np.zeros(0, np.int64), restart


def supported_rate(well: Health) -> tuple[Counts, Counts]:
    """Return the lanes and speed (a bit of LinkSpeed) that both ends of each link support."""
    ports, ends = well.ports, well.links.ends
    lanes = ports.width_supported[ends].min(axis=1)
    common = np.bitwise_and.reduce(ports.speed_supported[ends], axis=1)
    fastest = np.where(common > 0, 1 << np.floor(np.log2(np.maximum(common, 1))).astype(np.int64), 0)
    return lanes, fastest


def _degraded(well: Health) -> Flags:
    """Return the links below the rate that both ends support, unless most such links are: then it is configured."""
    ports, ends = well.ports, well.links.ends
    up = (
        (ends >= 0).all(axis=1) & (ports.state[ends] > PortState.DOWN).all(axis=1) & (ports.peer[ends] >= 0).all(axis=1)
    )
    lanes, speed = supported_rate(well)
    below = up & ((ports.width_active[ends[:, 0]] < lanes) | (ports.speed_active[ends[:, 0]] < speed))
    kinds, kind = np.unique(np.stack((lanes, speed)), axis=1, return_inverse=True)
    n = kinds.shape[1]
    share = np.bincount(kind.ravel(), below, n) / np.maximum(np.bincount(kind.ravel(), up, n), 1)
    degraded: Flags = below & (share <= 0.5)[kind.ravel()]
    return degraded


def _uneven(errors: Counts) -> Floats:
    """Return an upper bound on the probability that ends with equal error rates differ so much (Chernoff)."""
    of = np.maximum(errors.sum(axis=1), 1).astype(np.float64)
    few = errors.min(axis=1) / of
    entropy = -few * np.log(np.maximum(few, 1e-300)) - (1 - few) * np.log(1 - few)  # few is at most a half
    chance: Floats = np.minimum(2 * np.exp(-of * (log(2) - entropy)), 1.0)
    return chance
