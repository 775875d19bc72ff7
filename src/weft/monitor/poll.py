"""Read the counters of all ports of a fabric over any carrier, with few MADs, many of them in flight.

    poller = Poller(carrier)
    before, after = poller.poll(), poller.poll()
    between(before, after)                                 the difference, see `change`

    each poll     SwitchInfo and PortInfo of switches, and of ports not Active    to detect changed cabling or LIDs
                  PortCountersExtended of every port with a cable                 else PortCounters
    where needed  causes of errors and discards if those counters changed; FEC if a port ever had errors
    on change     walk again: a link went down, came up or retrained, or a port stopped answering

A counter that was not read is unknown: `Reading.known` is false and its value, 0, has no meaning. Causes of zero counts
are zero and causes of unchanged counts are unchanged, so neither is read.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from weft.errors import ConfigError, SubnetError
from weft.mad.carrier import RETRIES, TIMEOUT_MS, Carrier
from weft.mad.walk import DATA, directed, statuses, walk
from weft.monitor.columns import CAUSES, PHYSICAL, TRAFFIC, Column, Counts, Flags, columns_of, read, read_fec, rows_with
from weft.monitor.ports import Cabling, Ports, cabling_of, ports_of
from weft.sm.discovery.view import View, make_view
from weft.wire.bulk import column, fill, pack_rows
from weft.wire.format import Format
from weft.wire.mad import ClassPortInfo, MadHeader, Method, MgmtClass, PlainMad
from weft.wire.perf import (
    PerfAttribute,
    PerfCapability,
    PerfCapability2,
    PortCounters,
    PortCountersExtended,
    PortExtendedSpeedsCounters,
    PortSelect,
)
from weft.wire.port_info import PortInfo, PortState
from weft.wire.smp import SmpAttribute, SwitchInfo

_ATTRIBUTES = {attribute.form: attribute for attribute in PerfAttribute}
_FEC = np.array([Column.FEC_CORRECTED, Column.FEC_UNCORRECTED])
_TRIES = 5
_SLOW_S = 1.0  # a slower reading always spans several steps of a lab's clock
_LINK = [Column.LINK_DOWNED, Column.LINK_ERROR_RECOVERY]
_ABILITIES = {  # ClassPortInfo: CapabilityMask, and CapabilityMask2 above it
    "is_long": PerfCapability.EXTENDED_WIDTH | PerfCapability.EXTENDED_WIDTH_NO_IETF,
    "is_longest": PerfCapability2.ADDITIONAL_PORT_COUNTERS_EXTENDED << 16,
    "has_wait": int(PerfCapability.XMIT_WAIT),
    "has_qp1_dropped": int(PerfCapability.QP1_DROPPED),
    "has_rs_fec": int(PerfCapability.RS_FEC_COUNTERS),
}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Reading:
    """A reading of all counters at one moment."""

    at_s: float  # on the fabric's monotonic clock: intervals are differences of this
    stamp_s: float  # time of day, since 1970
    ports: Ports
    counters: Counts  # [slot, Column]
    known: Flags  # [slot, Column]
    oddities: tuple[str, ...]  # anomalies that the walk found


class Poller:
    """A poller at one port of a fabric. `clock` advances with the counters, `wall` is the time of day.

    `expected` is the planned cabling; cables that a poll has seen are expected from then on.
    """

    def __init__(
        self,
        carrier: Carrier,
        *,
        timeout_ms: int = TIMEOUT_MS,
        retries: int = RETRIES,
        expected: Cabling | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.carrier, self._timeout_ms, self._retries = carrier, timeout_ms, retries
        self.clock, self._wall = clock, wall
        self._planned = self._expected = expected or Cabling()
        self._view: View | None = None
        self._ports: Ports | None = None
        self._masks: dict[int, int] = {}  # node GUID -> capabilities of its performance agent
        self._last: Reading | None = None

    def poll(self, view: View | None = None) -> Reading:
        """Read all counters; raise SubnetError if no node has a LID, which a subnet manager assigns.

        view: the subnet, if the caller has just read it; otherwise it is walked again after a change.
        """
        if view is not None:
            if view is not self._view:
                self._adopt(view)
        elif self._ports is None or self._has_changed(self._ports):
            self._walk()
        reading = self._read_at_one_time()
        if view is None and self._is_odd(reading):
            self._walk()
            reading = self._read_at_one_time()
        self._last = reading
        return reading

    # -- discovery ----------------------------------------------------------------------------------------------------

    def _walk(self) -> None:
        self._adopt(make_view(walk(self.carrier, timeout_ms=self._timeout_ms, retries=self._retries)))

    def _adopt(self, view: View) -> None:
        """Poll the ports of a view from now on."""
        names = view.fabric.nodes.name
        if len(names) == 1:
            raise SubnetError(f"{names[0]} sees no other node; check its cable, and that the switch behind it is on")
        bare = ports_of(view, self._able(view))
        if not bare.is_polled.any():
            raise SubnetError(
                f"none of {len(names):,} nodes has a LID, so no counters can be read; run a subnet manager first, "
                "`weft sm` or OpenSM"
            )
        self._expected = self._expect(cabling_of(view.fabric))
        self._view, self._ports = (
            view,
            replace(
                bare.with_cables_of(self._ports),
                expected=self._expected,
                recabled=tuple(sorted(self._planned.cables - self._expected.cables)),
            ),
        )

    def _expect(self, walked: Cabling) -> Cabling:
        """Add the cabling of a walk to the expected cabling; raise ConfigError if the plan is of another fabric."""
        if self._expected.cables and not self._expected.nodes & walked.nodes:
            raise ConfigError(
                f"the plan is of another fabric: it has {min(self._expected.nodes)}, this fabric has "
                f"{min(walked.nodes)}, and no name is in both"
            )
        return self._expected.updated(walked)

    def _able(self, view: View) -> dict[str, Flags]:
        """Return the capabilities of each node's performance agent; each node is queried once."""
        nodes, bare = view.fabric.nodes, _lids(view)
        new = np.flatnonzero((bare > 0) & ~np.isin(nodes.guid, np.array([*self._masks], np.uint64)))
        rows, came = self._exchange(ClassPortInfo, bare[new], np.zeros(len(new), np.int64))
        masks = column(rows, ClassPortInfo.capability_mask) | column(rows, ClassPortInfo.capability_mask2) << np.uint64(
            16
        )
        self._masks |= dict(zip(nodes.guid[new][came].tolist(), masks[came].tolist(), strict=True))
        mask = np.array([self._masks.get(guid, 0) for guid in nodes.guid.tolist()], np.int64)
        return {name: mask & bit > 0 for name, bit in _ABILITIES.items()}

    def _has_changed(self, ports: Ports) -> bool:
        """Return whether a port changed its state, or a switch its LID, since the walk.

        A subnet manager clears PortStateChange of a switch, so ports that were not Active are read too. After it
        reassigned LIDs, an old LID may belong to another node.
        """
        assert self._view is not None
        view, node = self._view, ports.fabric.ports.node
        switches = np.flatnonzero(view.is_switch)
        own = ports.number == 0
        queried = np.flatnonzero(view.is_switch[node] & (own | (ports.state != PortState.ACTIVE)))
        smps = np.concatenate(
            (
                directed(*view.to_nodes(switches), SmpAttribute.SWITCH_INFO),
                directed(*view.to_nodes(node[queried]), SmpAttribute.PORT_INFO, ports.number[queried].astype(np.int64)),
            )
        )
        answers, came = self.carrier.exchange(smps, timeout_ms=self._timeout_ms, retries=self._retries)
        came &= statuses(answers) == 0
        infos, states = np.split(answers[:, DATA : 2 * DATA], [len(switches)])
        now, lid = (column(states, field).astype(np.int64) for field in (PortInfo.port_state, PortInfo.lid))
        moved = (now != ports.state[queried]) | (own[queried] & (lid != ports.lid[queried]))
        noted, before = (column(rows, SwitchInfo.port_state_change) for rows in (infos, view.switch_info[switches]))
        return bool(not came.all() or (noted > before).any() or moved.any())

    def _is_odd(self, reading: Reading) -> bool:
        """Return whether a port stopped answering since the last reading, or a link went down or retrained."""
        last = self._last
        if last is None or last.ports is not reading.ports:
            return False
        both = reading.known & last.known
        moved = both[:, _LINK] & (reading.counters[:, _LINK] != last.counters[:, _LINK])
        return bool(moved.any() or (rows_with(last.known) & ~rows_with(reading.known)).any())

    # -- counters -----------------------------------------------------------------------------------------------------

    def _read_at_one_time(self) -> Reading:
        """Read all counters and their time.

        The clock and the counters of a lab advance together in steps. A reading within one step is exact; otherwise it
        is repeated right after the next step. With a continuous clock the time is the middle of the reading.
        """
        for _ in range(_TRIES):
            first_s, second_s, before_s = self.clock(), self.clock(), self.clock()
            is_stepping = second_s in (first_s, before_s)  # one of them may be later by a step
            begin_s = time.monotonic()
            counters, known = self._read()
            after_s = self.clock()
            if not is_stepping or after_s == before_s or time.monotonic() - begin_s > _SLOW_S:
                break
        assert self._ports is not None
        assert self._view is not None
        return Reading(
            at_s=(before_s + after_s) / 2,
            stamp_s=self._wall(),
            ports=self._ports,
            counters=counters,
            known=known,
            oddities=self._view.oddities,
        )

    def _read(self) -> tuple[Counts, Flags]:
        """Return counters and flags for known ones, [slot, Column] each."""
        assert self._ports is not None
        ports = self._ports
        shape = len(ports), len(Column)
        sheet = _Sheet(ports, np.zeros(shape, np.int64), np.zeros(shape, np.bool_))
        polled = ports.is_polled
        self._fill(sheet, PortCountersExtended, polled & ports.is_long)
        sheet.known[~ports.is_longest, : TRAFFIC.start] = sheet.known[~ports.is_longest, TRAFFIC.stop :] = False
        self._fill(sheet, PortCounters, polled & ~ports.is_longest)
        sheet.known[:, Column.PORT_XMIT_WAIT] &= ports.has_wait
        sheet.known[:, Column.QP1_DROPPED] &= ports.has_qp1_dropped
        answered = rows_with(sheet.known)
        for form in CAUSES:
            self._fill(sheet, form, answered & ~sheet.infer(form, self._last))
        errs = rows_with(sheet.counters[:, PHYSICAL] > 0)
        self._fill(sheet, PortExtendedSpeedsCounters, answered & errs & ports.has_fec)
        sheet.counters[~sheet.known] = 0
        return sheet.counters, sheet.known

    def _fill(self, sheet: _Sheet, form: type[Format], selected: Flags) -> None:
        """Read an attribute of the selected ports; values from earlier attributes stay."""
        slots = np.flatnonzero(selected)
        ports = sheet.ports
        rows, came = self._exchange(form, ports.lid[slots], ports.number[slots].astype(np.int64))
        if form is PortExtendedSpeedsCounters:
            columns, (values, valid) = _FEC, read_fec(rows, ports.has_rs_fec[slots])
        else:
            columns, (values, valid) = columns_of(form), read(form, rows)
        at = np.ix_(slots, columns)
        new = ~sheet.known[at]
        sheet.counters[at] = np.where(new, values, sheet.counters[at])
        sheet.known[at] |= new & valid & came[:, None]

    def _exchange(
        self, form: type[Format], lids: NDArray[np.int64], ports: NDArray[np.int64]
    ) -> tuple[NDArray[np.uint8], Flags]:
        """Return the bytes of an attribute of ports, and which ports answered."""
        mads = pack_rows(
            PlainMad, len(lids), mgmt_class=MgmtClass.PERF, method=Method.GET, attribute_id=_ATTRIBUTES[form]
        )
        if form is not ClassPortInfo:
            fill(mads, PortSelect.port_select, ports, DATA)
        answers, came = self.carrier.exchange(mads, lids, timeout_ms=self._timeout_ms, retries=self._retries)
        return answers[:, DATA:], came & (column(answers, MadHeader.status) == 0)


@dataclass(frozen=True, slots=True, eq=False)
class _Sheet:
    """A reading in progress."""

    ports: Ports
    counters: Counts
    known: Flags

    def infer(self, form: type[Format], last: Reading | None) -> Flags:
        """Fill in causes that need not be read (0 for zero counts, unchanged for unchanged ones); return those rows."""
        sums, columns = np.array(CAUSES[form]), columns_of(form)
        total, is_known = self.counters[:, sums], ~rows_with(~self.known[:, sums])
        none = is_known & ~rows_with(total > 0)
        self.known[np.ix_(none, columns)] = True
        if last is None or last.ports is not self.ports:
            return none
        same = is_known & ~none & ~rows_with(~last.known[:, np.append(sums, columns)])
        same &= ~rows_with(total != last.counters[:, sums])
        at = np.ix_(same, columns)
        self.counters[at], self.known[at] = last.counters[at], True
        return none | same


def _lids(view: View) -> NDArray[np.int64]:
    """Return a LID for each node: of port 0 of a switch, of any port that is up of other nodes; 0 for none."""
    info, node = view.port_info, view.fabric.ports.node
    usable = view.is_switch[node] & (view.fabric.ports.number == 0)
    usable |= ~view.is_switch[node] & (view.state > PortState.DOWN)
    lids = np.zeros(len(view.fabric.nodes), np.int64)
    lids[node[usable]] = column(info, PortInfo.lid)[usable]
    return lids
