"""The health of ports over several changes: counts, the time they are known for, and rates.

    well = health(changes)
    well.symbol_ber[slot]       symbol errors per bit on the line, idle or not: the quality of the cable
    well.wait_share[slot]       share of the time with data to send and no credits
    well.flaps[link]            how often the link went down, by both ends

Rows are those of the last change. Counts on another cable are left out; unknown counts add neither counts nor time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.errors import ConfigError
from weft.fabric.kinds import NodeKind
from weft.monitor.change import Change
from weft.monitor.columns import Column, Counts, Flags
from weft.monitor.ports import Ports
from weft.sim.result import XMIT_WAIT_TICK_PS

Floats = NDArray[np.float64]
Slots = NDArray[np.int64]
NONE = -1
_WORD_BITS = 32


@dataclass(frozen=True, kw_only=True, eq=False)
class Links:
    """The present and earlier cables: [link] -> slots of both ends; `b` is NONE if that end does not answer."""

    a: Slots
    b: Slots

    def __len__(self) -> int:
        return len(self.a)

    @cached_property
    def ends(self) -> Slots:
        """The slots of both ends: [link, end]."""
        return np.stack((self.a, self.b), axis=1)


@dataclass(frozen=True, kw_only=True, eq=False)
class Health:
    """The health of the ports and links of a fabric."""

    ports: Ports
    seconds: float  # from the first reading to the last
    counts: Counts  # [slot, Column]
    known_s: Floats  # [slot, Column]: the time that the counts cover
    is_reset: Flags  # [slot]: its counters were reset
    links: Links
    changes: int  # number of changes
    changes_with_errors: Counts  # [slot]: number of changes with symbol errors
    errors_before: Counts  # [slot]: symbol errors on the previous cable
    bits_before: Floats

    @cached_property
    def is_switch(self) -> Flags:
        """The slots of switches: [slot]."""
        fabric = self.ports.fabric
        switch: Flags = fabric.nodes.kind[fabric.ports.node] == NodeKind.SWITCH
        return switch

    def at_ends(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return values of slots as [link, end]; 0 for ends that do not answer."""
        return np.where(self.links.ends >= 0, values[self.links.ends], 0)

    def count(self, column: Column) -> Counts:
        return self.counts[:, column]

    @cached_property
    def line_bits(self) -> Floats:
        """The bits received on the line, idle or not, while symbol errors are known: [slot]."""
        return self.ports.rate_gbit_s * 1e9 * self.known_s[:, Column.SYMBOL_ERROR]

    @cached_property
    def data_bits(self) -> Floats:
        """The bits of packets received while damaged packets are known: [slot]."""
        known = self.known_s[:, Column.PORT_RCV_ERRORS] > 0
        return np.where(known, self.count(Column.PORT_RCV_DATA_WORDS) * float(_WORD_BITS), 0.0)

    @cached_property
    def damaged(self) -> Counts:
        """The packets damaged on their way into a port, without malformed ones and overruns: [slot]."""
        not_by_cable = self.count(Column.MALFORMED) + self.count(Column.BUFFER_OVERRUN)
        return np.maximum(self.count(Column.PORT_RCV_ERRORS) - not_by_cable, 0)

    @cached_property
    def symbol_ber(self) -> Floats:
        return _ratio(self.count(Column.SYMBOL_ERROR), self.line_bits)

    @cached_property
    def load(self) -> Floats:
        """The share of the line rate in use for sending, at most 1: [slot]."""
        can_send = self.ports.rate_gbit_s * 1e9 * self.known_s[:, Column.PORT_XMIT_DATA_WORDS]
        return np.minimum(_ratio(self.count(Column.PORT_XMIT_DATA_WORDS) * float(_WORD_BITS), can_send), 1.0)

    @cached_property
    def wait_share(self) -> Floats:
        known_ticks = self.known_s[:, Column.PORT_XMIT_WAIT] * 1e12 / XMIT_WAIT_TICK_PS
        return np.minimum(_ratio(self.count(Column.PORT_XMIT_WAIT), known_ticks), 1.0)

    @cached_property
    def link_known(self) -> Flags:
        """The ends that know how often the link went down: [link, end]."""
        known: Flags = (self.links.ends >= 0) & (self.known_s[self.links.ends, Column.LINK_DOWNED] > 0)
        return known

    @cached_property
    def flaps(self) -> Counts:
        """The number of times that a link went down: [link].

        It is the smaller count of both ends, because disabling a port counts only at the other end. After a restart of
        one end, only the other end counts.
        """
        downs = self.count(Column.LINK_DOWNED)[self.links.ends]
        fewest = np.where(self.link_known, downs, np.iinfo(np.int64).max).min(axis=1)
        return np.where(self.link_known.any(axis=1), fewest, 0)


def _ratio(above: NDArray[Any], below: Floats) -> Floats:
    """Divide, with 0 where the divisor is 0."""
    ratio: Floats = np.divide(above, below, out=np.zeros(len(below)), where=below > 0)
    return ratio


def health(changes: Sequence[Change]) -> Health:
    """Return the health over changes in order; raise ConfigError if there are none."""
    if not changes:
        raise ConfigError("one reading is not enough, since its counts may be old; poll at least twice")
    ports = changes[-1].ports
    counts = np.zeros((len(ports), len(Column)), np.int64)
    known_s = np.zeros((len(ports), len(Column)))
    is_reset = np.zeros(len(ports), bool)
    with_errors = np.zeros(len(ports), np.int64)
    errors_before, bits_before = np.zeros(len(ports), np.int64), np.zeros(len(ports))
    for change in changes:
        rows = ports.rows_in(change.ports)
        theirs = change.ports
        same = (rows >= 0) & (ports.far_guid == theirs.far_guid[rows]) & (ports.far_number == theirs.far_number[rows])
        known = change.known[rows] & same[:, None]
        counts += np.where(known, change.delta[rows], 0)
        known_s += np.where(known, change.seconds, 0.0)
        with_errors += known[:, Column.SYMBOL_ERROR] & (change.delta[rows, Column.SYMBOL_ERROR] > 0)
        is_reset |= change.is_reset[rows] & same
        other = change.known[rows, Column.SYMBOL_ERROR] & (rows >= 0) & ~same
        errors_before += np.where(other, change.delta[rows, Column.SYMBOL_ERROR], 0)
        bits_before += np.where(other, change.seconds * theirs.rate_gbit_s[rows] * 1e9, 0.0)
    return Health(
        ports=ports,
        seconds=sum(change.seconds for change in changes),
        counts=counts,
        known_s=known_s,
        is_reset=is_reset,
        links=links_of(ports),
        changes=len(changes),
        changes_with_errors=with_errors,
        errors_before=errors_before,
        bits_before=bits_before,
    )


def links_of(ports: Ports) -> Links:
    """Return all links, including those that are down, by the last known cabling of their ports."""
    fabric = ports.fabric
    node = {guid: index for index, guid in enumerate(fabric.nodes.guid.tolist())}
    pairs: dict[tuple[int, int], None] = {}
    for slot in np.flatnonzero(ports.is_cabled).tolist():
        far = node.get(int(ports.far_guid[slot]), NONE)
        other = int(fabric.first_port[far]) + int(ports.far_number[slot]) if far >= 0 else NONE
        pairs[(slot, other) if other == NONE else (min(slot, other), max(slot, other))] = None
    ends = np.array([*pairs], np.int64).reshape(-1, 2)
    return Links(a=ends[:, 0], b=ends[:, 1])
