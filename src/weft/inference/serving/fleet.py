"""A fleet: replicas of a model, on a fabric that is large enough for them, and searches for the smallest.

    fleet = Fleet(find=lambda gpus, sizes: find_deployment("llama3-70b", gpus=gpus, **sizes), sizes={"tp": 8})
    find_services(fleet, load, Objective(ttft_s=2, tpot_s=0.03))
    over_layouts(fleet, 8, load, objective)          the layout of each phase too

The search over layouts first compares them by the GPUs that the mean load keeps busy, in the batch that keeps the
objective, and simulates services of the best three, and of the best two for each phase.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from math import inf, lcm
from typing import Any

from weft.errors import ConfigError
from weft.inference.deployment import Deployment
from weft.inference.prediction import layouts
from weft.inference.serving.figures import Objective
from weft.inference.serving.load import Load
from weft.inference.serving.placement import Placement, build_service, limits_of, place_pools
from weft.inference.serving.resharding import SIZES, check_layouts
from weft.inference.serving.search import Found, Say, batch_sizes, fewest, find_smallest
from weft.inference.serving.service import Limits, Service
from weft.inference.table import StepTable
from weft.sim.result import Engine as Clock

_BEST, _BEST_OF_PHASE = 3, 2  # layouts that are simulated

Find = Callable[[int | None, Mapping[str, int]], Deployment]  # GPUs (None: as the options), sizes of the layout


@dataclass(frozen=True, kw_only=True, eq=False)
class Fleet:
    """A model to serve, and how its services are built."""

    find: Find
    sizes: Mapping[str, int] = field(default_factory=dict)  # of the layout; else as the options
    decode_sizes: Mapping[str, int] = field(default_factory=dict)  # of decode replicas, where they differ
    limits: Mapping[str, Any] = field(default_factory=dict)  # fields of Limits that differ from the engine's
    options: Mapping[str, Any] = field(default_factory=dict)  # of a Service
    handoff: Mapping[str, Any] = field(default_factory=dict)  # of a Service with prefill and decode replicas
    clock: Clock | None = None
    tabulated: dict[tuple[Deployment, float], StepTable] = field(default_factory=dict)  # computed so far

    @cached_property
    def deployment(self) -> Deployment:
        return self.find(None, self.sizes)

    @cached_property
    def decoding(self) -> Deployment | None:
        """Return the deployment of decode replicas, if their layout differs."""
        if not self.decode_sizes:
            return None
        try:
            decoding = self.find(None, {**self.sizes, **self.decode_sizes})
        except ConfigError as error:
            raise ConfigError(f"decode replicas: {error}") from None
        if all(getattr(decoding, name) == getattr(self.deployment, name) for name in SIZES):
            flags = ", ".join(f"--decode-{name} {size}" for name, size in self.decode_sizes.items())
            raise ConfigError(f"{flags} changes nothing: prefill replicas have the same layout. Leave it out")
        check_layouts(self.deployment, decoding)
        return decoding

    def place(self, prefill: int, others: int) -> Placement:
        """Place replicas on the given fabric, or on one of the catalog that is large enough."""
        one, decoding = self.deployment, self.decoding if prefill else None
        unit = lcm(one.replica_gpus, decoding.replica_gpus if decoding else 1)
        needed = _whole((prefill + others) * one.replica_gpus, one, unit)
        if decoding is not None:
            filled = -(-prefill * one.replica_gpus // decoding.replica_gpus)
            needed = _whole((filled + others) * decoding.replica_gpus, one, unit)
        if needed > one.site.gpus and one.site.interconnect is not None:
            one = self.find(needed, self.sizes)
        counts = {"prefill": prefill, "decode": others} if prefill else {"both": others}
        return place_pools(one, decoding, **counts)

    def limits_of(self, deployment: Deployment) -> Limits:
        return limits_of(deployment, **self.limits)

    def tables(self, load: Load) -> dict[bool, tuple[StepTable, ...]]:
        """Return the step times of single replicas: for both phases, and for phases apart."""
        whole, other = (self._table(each or self.deployment, load) for each in (None, self.decoding))
        return {False: (whole,), True: (whole, other)}

    def _table(self, deployment: Deployment, load: Load) -> StepTable:
        key = deployment, load.mean_tokens
        if key not in self.tabulated:
            (self.tabulated[key],) = Placement(deployment=deployment, both=1).tables(load.mean_tokens, self.clock)
        return self.tabulated[key]

    def build(self, placement: Placement, tables: tuple[StepTable, ...], limits: Limits | None = None) -> Service:
        """Return the service of a placement; `limits` are those of decode replicas, or of replicas for both phases."""
        own = self.limits_of(self.deployment)
        options = dict(self.options) | (dict(self.handoff) if placement.prefill else {})
        if placement.decoding is None:
            return build_service(placement, tables, limits or own, **options)
        decode = limits or self.limits_of(placement.decoding)
        return build_service(placement, tables, own, decode_limits=decode, **options)

    def choices(
        self, load: Load, objective: Objective, *, disaggregated: bool, say: Say = lambda _: None
    ) -> list[Choice]:
        """Return the smallest services that keep an objective, the fewest GPUs first; the list may be empty."""
        tables = self.tables(load)

        def build(prefill: int, others: int, limits: Limits) -> Service:
            return self.build(self.place(prefill, others), tables[prefill > 0], limits)

        decoder = self.decoding if disaggregated and self.decoding else self.deployment
        batches = batch_sizes(self.limits_of(decoder))
        found = find_smallest(build, load, objective, batches, disaggregated=disaggregated, say=say)
        return [Choice(fleet=self, found=each) for each in found]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Choice:
    """A service that keeps the objective, and its fleet."""

    fleet: Fleet
    found: Found

    @property
    def placement(self) -> Placement:
        return self.fleet.place(self.found.prefill, self.found.replicas)


def find_services(fleet: Fleet, load: Load, objective: Objective, say: Say = lambda _: None) -> list[Choice]:
    """Return the smallest services, with and without a split of the phases, the fewest GPUs first."""
    phases = (False, True)
    return _sorted([c for apart in phases for c in fleet.choices(load, objective, disaggregated=apart, say=say)])


def over_layouts(fleet: Fleet, gpus: int, load: Load, objective: Objective, say: Say = lambda _: None) -> list[Choice]:
    """Return the smallest services over layouts of up to so many GPUs for each replica, which phases may not share."""
    fleets = list(_fleets(fleet, gpus))
    if not fleets:
        raise ConfigError(f"no layout of up to {gpus} GPUs for a replica has room for the model: give more --gpus")
    needs = {each: _busy_gpus(each, load, objective) for each in fleets}
    best = sorted(fleets, key=lambda each: sum(needs[each]))[:_BEST]
    choices = [choice for each in best for choice in each.choices(load, objective, disaggregated=False, say=say)]
    for prefill in sorted(fleets, key=lambda each: needs[each][0])[:_BEST_OF_PHASE]:
        for decode in sorted(fleets, key=lambda each: needs[each][1])[:_BEST_OF_PHASE]:
            pair = replace(prefill, decode_sizes={} if decode is prefill else decode.sizes)
            choices += pair.choices(load, objective, disaggregated=True, say=say)
    return _sorted(choices)


def _fleets(fleet: Fleet, gpus: int) -> list[Fleet]:
    """Return a fleet for each layout that fits; they share the deployments of one replica."""
    one = cache(lambda sizes: fleet.find(None, dict(sizes)))

    def find(count: int | None, sizes: Mapping[str, int]) -> Deployment:
        return fleet.find(count, sizes) if count else one(tuple(sorted(_full(sizes).items())))

    fitting = []
    for sizes in layouts(gpus):
        each = replace(fleet, find=find, sizes=_full(sizes))
        try:
            each.deployment  # noqa: B018  # found and checked on first use
        except ConfigError:
            continue
        fitting.append(each)
    return fitting


def _full(sizes: Mapping[str, int]) -> dict[str, int]:
    return {name: sizes.get(name, 1) for name in SIZES}


def _busy_gpus(fleet: Fleet, load: Load, objective: Objective) -> tuple[float, float]:
    """Return the GPUs that the mean load keeps busy with prompts and with answers; infinite if steps are too long."""
    (table,) = fleet.tables(load)[False]
    own = fleet.limits_of(fleet.deployment)
    gpus, context = fleet.deployment.replica_gpus, load.mean_tokens
    prompt = float(load.prompt.mean())
    if table.step_s(prompt, pairs=prompt * prompt / 2) > objective.ttft_s:
        return inf, inf
    for limits in batch_sizes(own, most=own.max_num_seqs.bit_length()):
        batch = min(limits.max_num_seqs, table.kv_room_tokens / context)
        if table.step_s(batch, cached=batch * context) <= objective.tpot_s:
            prefill, decode = fewest(table, limits, load)
            return gpus * prefill, gpus * decode
    return gpus * fewest(table, own, load)[0], inf


def _sorted(choices: list[Choice]) -> list[Choice]:
    if not choices:
        raise ConfigError(
            "no number of replicas keeps the objective: a request alone may take longer. Allow more time, or use more "
            "GPUs for each replica (--tp)"
        )
    return sorted(choices, key=lambda choice: choice.found.gpus)


def _whole(gpus: int, deployment: Deployment, unit: int) -> int:
    """Return a number of GPUs that servers have (part of one, or all of each), and that replicas of all kinds fill."""
    each = deployment.site.template.gpus
    gpus = -(-gpus // unit) * unit
    if gpus < each:
        return gpus
    unit = lcm(unit, each)
    return -(-gpus // unit) * unit
