"""Deviations of a running subnet from its intent: a plan of its cabling, its tenants, and a routing policy.

    expected = Expected(plan=read_plan("plan/"), tenants=intent, policy=Policy(managers=("h1",)))
    deviations = Comparison(expected).compare(fabric, at_s)

Deviations are facts of a history, of four kinds:

    plan         a port or device: cables that are missing, moved, slower or not planned
    isolation    a sender: ports that it reaches or does not reach, against the intent
    foreign-sm   a node with a subnet manager that the policy does not allow
    tables       a switch whose table changed without a reason; `reach` and `deadlock` of the subnet

A comparison is repeated only if its input changed.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from weft.fabric.forwarding import CHECKS
from weft.fabric.kinds import NodeKind
from weft.fabric.model import Fabric
from weft.fabric.tables import NO_ROUTE
from weft.plan.audit.audit import compare as audit
from weft.plan.audit.positions import Planned
from weft.routing.check import check
from weft.tenants.intent import Intent
from weft.twin.facts import find_managers
from weft.twin.history import Subject
from weft.twin.isolation import IsolationCheck
from weft.twin.policy import Policy
from weft.units import format_items
from weft.wire.bulk import column
from weft.wire.port_info import PortInfo

KINDS = ("plan", "isolation", "foreign-sm", "tables")
_SETTLE_S = 10.0  # in which a subnet manager may rewrite tables after a change
_NO_POLICY = Policy()
Facts = dict[Subject, str]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Expected:
    """The intended state of a subnet."""

    plan: Planned | None = None
    tenants: Intent | None = None
    policy: Policy | None = None


class Comparison:
    """A comparison of successive polls with the intent."""

    def __init__(self, expected: Expected) -> None:
        self._expected = expected
        self._last: dict[str, tuple[int, Facts]] = {}  # by kind: checksum of the input, and the result
        self._isolation = None if expected.tenants is None else IsolationCheck(expected.tenants)
        self._tables = _SteadyTables()

    def compare(self, fabric: Fabric, at_s: float) -> Facts:
        """Return the deviations of a subnet that was read with its tables."""
        plan, isolation, policy = self._expected.plan, self._isolation, self._expected.policy or _NO_POLICY
        tables, links = fabric.tables, fabric.links
        lids = _checksum(fabric.nodes.guid, links.a, links.b, tables.lid)
        routes = hash((lids, _checksum(tables.lft, column(tables.port_info, PortInfo.port_state))))
        facts: Facts = {}
        if plan is not None:
            cabling = hash((_checksum(links.a, links.b, links.speed, links.width), fabric.nodes.name))
            facts |= self._cached("plan", cabling, lambda: _differences(fabric, plan))
        if isolation is not None:
            keys = hash((routes, _checksum(tables.pkey, tables.port_info[:, CHECKS])))
            facts |= self._cached("isolation", keys, lambda: isolation.compare(fabric))
        if policy.managers:
            facts |= dict(_foreign_managers(fabric, policy.manager_names))
        if policy.proved:
            facts |= self._cached("tables", routes, lambda: dict(_failed_proofs(fabric)))
        if policy.steady:
            facts |= self._tables.compare(fabric, lids, at_s)
        return facts

    def _cached(self, kind: str, checksum: int, compute: Callable[[], Facts]) -> Facts:
        last = self._last.get(kind)
        if last is None or last[0] != checksum:
            last = self._last[kind] = checksum, compute()
        return last[1]


def _checksum(*arrays: NDArray[np.generic]) -> int:
    return hash(tuple(array.tobytes() for array in arrays))


def _differences(fabric: Fabric, plan: Planned) -> Facts:
    """Return the findings of an audit by their first place."""
    texts: dict[str, list[str]] = defaultdict(list)
    for finding in audit(fabric, plan).findings:
        texts[finding.actions[0].at].append(finding.text)
    return {("plan", place): "; ".join(lines) for place, lines in texts.items()}


def _foreign_managers(fabric: Fabric, allowed: set[str]) -> Iterator[tuple[Subject, str]]:
    for node, text in find_managers(fabric).items():
        if node not in allowed and node.partition("/")[0] not in allowed:
            yield ("foreign-sm", node), f"a subnet manager that the policy does not allow: {text}"


def _failed_proofs(fabric: Fabric) -> Iterator[tuple[Subject, str]]:
    proof = check(fabric)
    if proof.missing or proof.no_lid:
        unreachable = f"{format_items(proof.missing, 'pair')} cannot communicate"
        yield ("tables", "reach"), f"{unreachable}: {proof.first_failure or 'no LID at ' + proof.no_lid[0]}"
    if proof.credit_loop:
        yield ("tables", "deadlock"), f"cycle of {len(proof.credit_loop)} links: {' -> '.join(proof.credit_loop)}"


class _SteadyTables:
    """A check that forwarding tables change only after a change of cables, LIDs or nodes."""

    def __init__(self) -> None:
        self._lids: int | None = None  # checksum of cables, LIDs and nodes
        self._settled_at_s = 0.0
        self._reference: tuple[float, NDArray[np.uint8]] | None = None  # time of the poll, and its tables

    def compare(self, fabric: Fabric, lids: int, at_s: float) -> Facts:
        """Return the switches with other tables than when they had settled."""
        if lids != self._lids:
            self._settled_at_s = at_s if self._lids is None else at_s + _SETTLE_S
            self._lids, self._reference = lids, None
        lft = fabric.tables.lft
        if self._reference is None:
            if at_s >= self._settled_at_s:
                self._reference = at_s, lft.copy()
            return {}
        since_s, before = self._reference
        width = max(lft.shape[1], before.shape[1])
        counts = (_widened(lft, width) != _widened(before, width)).sum(axis=1)
        stamp = time.strftime("%H:%M:%S", time.localtime(since_s))
        switches = fabric.of_kind(NodeKind.SWITCH)
        return {
            ("tables", fabric.nodes.name[switches[row]]): (
                f"other routes to {format_items(int(counts[row]), 'LID')} since {stamp}, with the same cables and LIDs"
            )
            for row in np.flatnonzero(counts).tolist()
        }


def _widened(table: NDArray[np.uint8], width: int) -> NDArray[np.uint8]:
    return np.pad(table, ((0, 0), (0, width - table.shape[1])), constant_values=NO_ROUTE)
