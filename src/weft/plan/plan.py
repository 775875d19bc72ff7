"""The whole plan: size, racks, cables, bill and upkeep.

plan = make_plan(size(Request(gpus=1024)))
plan.report()                     all figures, as --json prints them
write_folder(plan, "plan")        `weft.plan.folder`
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.collectives.interconnect import own_interconnect, template_of
from weft.errors import ConfigError
from weft.fabric.catalog import Interconnect
from weft.fabric.kinds import NodeKind
from weft.fabric.model import Fabric
from weft.fabric.prices import Prices, read_prices
from weft.plan.bill import Bill, make_bill
from weft.plan.floor.boxes import find_boxes
from weft.plan.floor.cables import Cabling, cable
from weft.plan.floor.racks import Racks, note_own_power, place
from weft.plan.floor.room import Room
from weft.plan.floor.schedule import name_tiers
from weft.plan.neighbours import note_cheaper
from weft.plan.optimise import Saving, optimise
from weft.plan.site import Site, Wishes, plan_site
from weft.plan.size import Size
from weft.plan.upkeep import Upkeep, train, upkeep
from weft.version import __version__

if TYPE_CHECKING:
    from weft.plan.serving import Demand, Serving

Progress = Callable[[str], None]
_MOST_LOOKED_AT = 500  # switches up to which a short search for savings takes less than seconds


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Run:
    """A run of cables of one part between two tiers."""

    between: str  # `leaf-spine`
    part: str
    medium: str
    count: int
    shortest_m: float
    longest_m: float


@dataclass(frozen=True, kw_only=True, eq=False)
class Plan:
    """A plan: the parts to buy, their positions, and their cost."""

    size: Size
    cabling: Cabling
    prices: Prices
    bill: Bill
    upkeep: Upkeep
    site: Site  # networks beside the fabric, spares, power and phases
    serving: Serving | None = None  # a model that is served
    saving: Saving | None = None  # from moved switches; for a fabric that grows, in the later one
    possible: Saving | None = None  # lower bound on the saving from moving switches, if computed and positive

    @property
    def racks(self) -> Racks:
        return self.cabling.racks

    @property
    def name(self) -> str:
        """The servers, GPUs and topology in one line."""
        report = self.size.report()
        models = Counter(model for model, tier in zip(self.racks.models, self.racks.tier, strict=True) if tier == 0)
        servers = ", ".join(f"{count:,} × {model or 'server'}" for model, count in models.items())
        gpus = f", {report['gpus']:,} GPUs" if report["gpus"] else ""
        part = "the first part of " if self.size.grows else ""
        return f"{servers}{gpus}: {part}{self.size.spec}"

    @property
    def assumed(self) -> tuple[str, ...]:
        """The assumptions, in sentences."""
        return (*self.size.notes, *(f"{note[0].upper()}{note[1:]}." for note in self.racks.assumed))

    @property
    def switch_kinds(self) -> dict[str, dict[str, int]]:
        """The number of switches by model and network: which boxes serve more than one."""
        kinds: dict[str, dict[str, int]] = {}
        for model, tier in zip(self.racks.models, self.racks.tier.tolist(), strict=True):
            if tier:
                of = kinds.setdefault(model or "unknown", {})
                of["compute"] = of.get("compute", 0) + 1
        for network in self.site.networks:
            kinds.setdefault(network.switch, {})[network.name] = network.switches
        return kinds

    @property
    def n_racks(self) -> int:
        return len(np.unique(self.racks.rack))

    @cached_property
    def runs(self) -> tuple[Run, ...]:
        """The runs of cables, ordered by tier, then length."""
        cabling, tier = self.cabling, self.racks.tier.astype(np.int64)
        tiers = int(tier.max(initial=0)) + 1
        number = (tier[cabling.low_box] * tiers + tier[cabling.high_box]) * len(cabling.parts) + cabling.part
        runs = []
        for kind in np.flatnonzero(np.bincount(number)).tolist():
            ends, part = divmod(kind, len(cabling.parts))
            length_m = cabling.length_m[number == kind]
            runs.append(
                Run(
                    between=name_tiers(*divmod(ends, tiers)),
                    part=cabling.parts[part].name,
                    medium=cabling.parts[part].medium.name,
                    count=len(length_m),
                    shortest_m=float(length_m.min()),
                    longest_m=float(length_m.max()),
                )
            )
        order = list(dict.fromkeys(run.between for run in runs))
        return tuple(sorted(runs, key=lambda run: (order.index(run.between), run.longest_m)))

    def report(self) -> dict[str, Any]:
        """Return the plan as `--json` prints it."""
        racks, drawn_w = self.racks, self.racks.rack_power_w
        request = self.size.request
        return {
            "weft": __version__,
            **self.size.report(),
            "request": asdict(request) if request else None,
            "room": {name: getattr(racks.room, name) for name in racks.room.__struct_fields__},
            "racks": self.n_racks,
            "rows": len(np.unique(racks.row[racks.rack])),
            "racks_power_w": float(drawn_w.sum()),
            "fullest_rack_w": float(drawn_w.max()),
            "cables_m": float(self.cabling.length_m.sum()),
            "bundles": self.cabling.bundles,
            "runs": [asdict(run) for run in self.runs],
            "bill": self.bill.report(),
            "upkeep": self.upkeep.report(),
            "saving": _saving(self.saving) if self.saving else None,
            "possible_saving": _saving(self.possible) if self.possible else None,
            "site": self.site.report(),
            "switch_kinds": self.switch_kinds,
            "serving": self.serving.report() if self.serving else None,
            "assumed": list(self.racks.assumed),
        }


def make_plan(
    sized: Size,
    *,
    room: Room | None = None,
    prices: Prices | None = None,
    model: str | None = None,
    demand: Demand | None = None,
    move: bool = False,
    look: bool = False,
    wishes: Wishes | None = None,
    stop: Callable[[], bool] = lambda: False,
    progress: Progress = lambda message: None,
) -> Plan:
    """Place a fabric in racks, cable it, and price it.

    With a `model`, also compute the cost of training; with a `demand`, the service that meets it and its traffic.

    With `move`, switches are moved to reduce the cost of cables; `stop` ends that search with the best result so far.
    With `look`, a short search finds a lower bound on that saving, and a note is added if one more server costs less.
    `wishes` are the parts of the site besides the fabric.
    """
    prices = prices or read_prices()
    progress("placing racks")
    racks = place(sized.later, room or Room())
    saving = possible = None
    if look and not move and np.count_nonzero(racks.tier) <= _MOST_LOOKED_AT:
        progress("estimating savings from moving switches")
        saved = optimise(racks, prices, rounds=1)
        possible = saved if min(saved.usd) > 0 else None
    if move:
        progress("moving switches")
        saving = optimise(
            racks, prices, progress=lambda done, of: progress(f"moving switches: {done} of {of} rounds"), stop=stop
        )
        racks = saving.after.racks
    progress("routing cables")
    cabling = cable(_only(racks, sized.fabric) if sized.grows else racks)
    bill = make_bill(cabling, prices)
    if (
        look
        and np.count_nonzero(racks.tier) <= _MOST_LOOKED_AT
        and (cheaper := note_cheaper(sized, bill, prices, room or Room()))
    ):
        sized = replace(sized, notes=(*sized.notes, cheaper))
    run = None
    if model is not None:
        progress(f"training {model}")
        run = train(model, sized.fabric, _wire(sized))
    serving = None
    if demand is not None:
        from weft.plan.serving import plan_serving  # which loads all of inference

        progress(f"serving {demand.model}")
        named = wishes or Wishes()
        storage = named.storage and named.storage.partition(":")[0]
        serving = plan_serving(demand, sized, storage=storage, management=named.management)
    progress("planning the site")
    needed = max(network.storage_servers for network in serving.networks) if serving else None
    site = plan_site(wishes or Wishes(), sized, cabling, bill, prices, storage_servers=needed)
    costs = upkeep(bill, prices, run=run)
    return Plan(
        size=sized,
        cabling=cabling,
        prices=prices,
        bill=bill,
        upkeep=costs,
        site=site,
        serving=serving,
        saving=saving,
        possible=possible,
    )


def _saving(saving: Saving) -> dict[str, Any]:
    before, after = saving.optics
    return {
        "moved": saving.moved,
        "optical_before": before,
        "optical_after": after,
        "metres_before": saving.metres[0],
        "metres_after": saving.metres[1],
        "usd": saving.usd,
        "emptied_racks": saving.emptied,
        "seed": saving.seed,
        "rounds": saving.rounds,
    }


def _only(racks: Racks, fabric: Fabric) -> Racks:
    """Return the boxes of today's part of a fabric and their racks, at their final positions."""
    node_of = {name: node for node, name in enumerate(racks.fabric.nodes.name)}
    old_box = racks.box_of[[node_of[name] for name in fabric.nodes.name]]
    boxes_today = np.unique(old_box[old_box >= 0])
    box_of = np.where(old_box >= 0, np.searchsorted(boxes_today, old_box), -1).astype(np.int32)
    used, rack = np.unique(racks.rack[boxes_today], return_inverse=True)
    boxes, today = [racks.boxes[index] for index in boxes_today.tolist()], find_boxes(fabric)
    power_w = dict(zip(today.names, today.power_w.tolist(), strict=True))  # fewer ports have plugs
    return replace(
        racks,
        fabric=fabric,
        names=tuple(racks.names[index] for index in used.tolist()),
        row=racks.row[used],
        column=racks.column[used],
        boxes=tuple(boxes),
        models=tuple(racks.models[index] for index in boxes_today.tolist()),
        tier=racks.tier[boxes_today],
        box_of=box_of,
        rack=rack.astype(np.int32),
        u=racks.u[boxes_today],
        height_u=racks.height_u[boxes_today],
        power_w=np.array([power_w[name] for name in boxes]),
        is_rack=racks.is_rack[boxes_today],
        assumed=(*today.assumed, *note_own_power(today, racks.room)),
    )


def _wire(sized: Size) -> Interconnect:
    """Return the requested interconnect, else the native one of the servers' adapters."""
    if not len(sized.fabric.of_kind(NodeKind.GPU)):
        raise ConfigError(f"{sized.spec} has no GPUs to train on; leave out --train")
    requested = sized.request.interconnect if sized.request else None
    return requested or own_interconnect(template_of(sized.fabric))
