"""Cost of cables by the position of the leaf switches: the same fabric with its leaves in four places.

    end       | servers | servers | servers | leaves |        every cable goes over the trays
    top       | servers, a leaf on top | servers, ... |       the lowest servers are a rack's height away
    middle    | servers, their leaf in the middle | ... |     or, for a unit of many racks, a rack of leaves among them
    searched  the result of `weft.plan.optimise`, starting from the best of the three

Reach decides: passive copper of HDR is 2 m long, of NDR 2 or 3 m, and active copper 5 m. Optical cables cost a
multiple.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np

from weft.draw.chart import titled_chart
from weft.errors import ConfigError
from weft.fabric import catalog
from weft.fabric.kinds import Medium
from weft.fabric.prices import Prices, read_prices
from weft.fabric.spec import load
from weft.plan.floor.cables import Cabling, cable
from weft.plan.floor.racks import place
from weft.plan.floor.room import Room
from weft.plan.optimise import cost_usd, optimise
from weft.scenarios.finding import Finding

CLAIM = (
    "I've seen teams buy 100 active optical cables at $200 each because their switch was at the wrong end of the row. "
    "That's $20,000 in avoidable cost."
)
SOURCE = "InfiniBand Is Not Magic. Here's What It Actually Does."
END, TOP, MIDDLE, SEARCHED = PLACES = ("end of the row", "top of racks", "amid the servers", "searched")
_ROOMS = {END: Room(switches="end"), TOP: Room(switches="top"), MIDDLE: Room(switches="middle")}
HOSTS, A100, H100 = CASES = ("HDR servers", "HDR pod", "NDR pod")
_COLOURS = {Medium.DAC: "#009e73", Medium.ACC: "#e69f00", Medium.AOC: "#d55e00", Medium.TRANSCEIVER: "#d55e00"}
_MEDIUM_NAMES = {
    Medium.DAC: "passive copper",
    Medium.ACC: "active copper",
    Medium.AOC: "optical",
    Medium.TRANSCEIVER: "optical",
}


def run(
    *,
    servers: Annotated[int, "HDR servers with one cable each, 10 to 1000."] = 100,
    units: Annotated[int, "Scalable units of the pods, 1 to 4."] = 1,
    seed: Annotated[int, "Random seed for the search."] = 1,
) -> Finding:
    """Plan the cables of three fabrics with their leaves in four places."""
    arguments = {"servers": servers, "units": units, "seed": seed}
    if not 10 <= servers <= 1000:
        raise ConfigError(f"--servers must be 10 to 1000, got {servers}; use `weft plan` for more")
    if not 1 <= units <= 4:
        raise ConfigError(f"--units must be 1 to 4, got {units}; use `weft plan` for more")
    specs = (
        f"fat-tree:hosts={servers},server=host-hdr",
        f"superpod:su={units},server=dgx-a100",
        f"superpod:su={units}",
    )
    prices = read_prices()
    figures = {case: _places(spec, prices, seed) for case, spec in zip(CASES, specs, strict=True)}
    rows = tuple(
        (
            case,
            position,
            counts["server_optical"],
            counts["switch_optical"],
            counts["copper"],
            counts["metres"],
            _usd(counts["usd"]),
        )
        for case, places in figures.items()
        for position, counts in places.items()
    )
    return Finding(
        scenario="cable-plan",
        claim=CLAIM,
        source=SOURCE,
        ran=f"{', '.join(specs)}, each in the usual room with its leaves in {len(PLACES)} places",
        columns=("fabric", "leaves", "optical to servers", "between switches", "copper", "metres", "cables USD"),
        rows=rows,
        finding=_sentence(figures, prices),
        trust="Prices are the document's own and, for NDR optics, a reseller's estimate: offers differ. Lengths are "
        "exact for the room as drawn, with trays 2.6 m above the floor and 0.3 m of slack at each end; lower trays, or "
        "cables through the sides of racks, bring more into the reach of copper. Whether thick bundles of copper fit "
        "into trays is not checked.",
        options=arguments,
        figures=figures,
    )


def _places(spec: str, prices: Prices, seed: int) -> dict[str, dict[str, Any]]:
    fabric = load(spec)
    plans = {position: cable(place(fabric, room)) for position, room in _ROOMS.items()}
    best = min(plans.values(), key=lambda plan: int(plan.optical.sum()))
    plans[SEARCHED] = optimise(best.racks, prices, seed=seed).after
    return {position: _count(plan, prices) for position, plan in plans.items()}


def _count(plan: Cabling, prices: Prices) -> dict[str, Any]:
    to_server = plan.racks.tier[plan.low_box] == 0
    words = np.array([_MEDIUM_NAMES[part.medium] for part in plan.parts])[plan.part]
    return {
        "server_optical": int(np.sum(plan.optical & to_server)),
        "switch_optical": int(np.sum(plan.optical & ~to_server)),
        "copper": int(np.sum(~plan.optical)),
        "links": {word: int(np.sum(words == word)) for word in dict.fromkeys(_MEDIUM_NAMES.values())},
        "server_m": (float(plan.route_m[to_server].min()), float(plan.route_m[to_server].max())),
        "metres": float(plan.length_m.sum()),
        "usd": cost_usd(plan, prices),
    }


def _usd(band: tuple[float, float]) -> str:
    low, high = (f"{usd:,.0f}" for usd in band)
    return low if low == high else f"{low} to {high}"


def _less(dear: dict[str, Any], cheap: dict[str, Any]) -> str:
    """Return the saving of the cheaper plan, the smaller figure first."""
    low, high = sorted(a - b for a, b in zip(dear["usd"], cheap["usd"], strict=True))
    return _usd((low, high))


def _sentence(figures: dict[str, Any], prices: Prices) -> str:
    hosts, a100, h100 = (figures[case] for case in CASES)
    reach_m = catalog.cable_for("HDR", 0).reach_m
    light = prices.link(catalog.cable_for("HDR", hosts[END]["server_m"][1]))
    count = hosts[END]["server_optical"]
    spent = f" for {_usd((count * light.low_usd, count * light.high_usd))} USD" if light else ""
    near_m, far_m = hosts[END]["server_m"]
    return (
        f"With HDR switches at the end of the row, cables to servers are {near_m:.1f} to {far_m:.1f} m long and "
        f"passive copper {reach_m:g} m: {count:,} active optical cables{spent}. With each switch amid its servers, in "
        f"their rack, {hosts[MIDDLE]['server_optical']:,} are optical, which saves "
        f"{_less(hosts[END], hosts[MIDDLE])} USD: copper costs something too. At the top of the racks "
        f"{hosts[TOP]['server_optical']:,} are still optical, for 48U are higher than {reach_m:g} m. It is leaving "
        f"the rack that costs, not the end of the row: servers with eight adapters hang on eight leaves, no rack "
        f"holds a unit of them, and the HDR pod has {a100[END]['server_optical']:,} optical cables to servers with "
        f"its leaves at the end, {a100[MIDDLE]['server_optical']:,} amid the servers. For NDR the claim is too small. "
        f"Two adapters of a DGX H100 share a plug and lead to two leaves, so that all {h100[END]['server_optical']:,} "
        f"links to servers are optical anywhere; but from the end of the row {h100[END]['switch_optical']:,} links "
        f"between switches are too, {h100[MIDDLE]['switch_optical']:,} from amid the servers, and light is dearer: "
        f"that saves the pod {_less(h100[END], h100[MIDDLE])} USD, and {_less(h100[END], h100[SEARCHED])} where a "
        f"search puts its switches."
    )


def draw(finding: Finding, path: Path | str) -> None:
    """Draw the links by cable medium, for each position of the leaves."""
    with titled_chart(path, "The wrong end of the row", finding.ran, panels=len(CASES)) as panels:
        for axes, (case, places) in zip(panels, finding.figures.items(), strict=True):
            names = list(places)[::-1]
            left = np.zeros(len(names))
            for medium in (Medium.DAC, Medium.ACC, Medium.AOC):
                links = np.array([places[name]["links"][_MEDIUM_NAMES[medium]] for name in names], float)
                axes.barh(names, links, left=left, color=_COLOURS[medium], label=_MEDIUM_NAMES[medium], height=0.62)
                left += links
            for row, name in enumerate(names):
                low, high = (f"{usd / 1000:,.0f}" for usd in places[name]["usd"])
                text = f"{low} thousand USD" if low == high else f"{low} to {high} thousand USD"
                axes.text(0, row + 0.42, text, va="center", fontsize=8).set_in_layout(False)
            axes.set_title(f"{case}: {int(left[0]):,} links", fontsize=10, loc="left")
            axes.grid(visible=False, axis="y")
            axes.set_ylim(-0.6, len(names) - 0.3)
        panels[1].legend(loc="upper center", bbox_to_anchor=(0.5, -0.08), ncols=3, columnspacing=1.0, handlelength=1.2)
        for axes in panels[1:]:
            axes.set_yticklabels([])
