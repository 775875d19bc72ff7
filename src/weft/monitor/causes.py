"""Find the faulty part behind conspicuous links: cable, transceiver, port or switch.

    errors in one direction or both                     the cable: the easiest part to swap
    the port had errors on another cable before         the port
    two links in one cage of a switch                   the twin cable or transceiver in that cage
    more links of one switch than chance explains       the switch

Links with one cause become one suspect, named by the worst link.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import comb

import numpy as np

from weft.fabric import catalog
from weft.monitor import evidence
from weft.monitor.chance import FAMILY_WISE, is_chance, log10_tail, thresholds
from weft.monitor.health import NONE
from weft.monitor.signs import Signs, supported_rate
from weft.monitor.suspects import Kind, Suspect
from weft.units import format_items

_Place = tuple[int, int]  # a node and one of its cages, or NONE for the whole node
_MOST_SURE = 1 - 1e-9


def suspects_of_links(signs: Signs) -> list[Suspect]:
    bad = np.flatnonzero(signs.is_bad | signs.is_flapping | signs.is_degraded).tolist()
    groups = _together(signs, bad)
    damaged = signs.well.at_ends(signs.well.damaged).sum(axis=1)
    # Packets that other ports received as marked were most likely damaged on the worst link.
    worst = max(bad, key=lambda link: damaged[link], default=NONE)
    return [_suspect(signs, group, marked=worst in group and damaged[worst] > 0) for group in groups]


def _together(signs: Signs, bad: Sequence[int]) -> list[list[int]]:
    """Group links that have one cause, the worst first; each other link is a group of its own."""
    left, groups = set(bad), []
    at_once = thresholds().at_once
    # With very many bad links, some share a cage by chance.
    is_few = len(bad) <= max(at_once.least, at_once.limit * len(signs.well.links))
    for places in (_switches, _cages) if is_few else (_switches,):
        at: dict[_Place, list[int]] = {}
        for link in bad:
            for place in places(signs, link):
                at.setdefault(place, []).append(link)
        for place, links in sorted(at.items(), key=lambda item: -len(item[1])):
            links = [link for link in links if link in left]
            if len(links) > 1 and (places is _cages or _is_odd(signs, place[0], len(links), len(bad))):
                groups.append(sorted(links, key=lambda link: -signs.strength[link]))
                left -= set(links)
    return [*groups, *([link] for link in bad if link in left)]


def _switches(signs: Signs, link: int) -> set[_Place]:
    """Return the switches at the ends of a link."""
    well = signs.well
    slots = [slot for slot in well.links.ends[link].tolist() if slot != NONE and well.is_switch[slot]]
    return {(int(well.ports.fabric.ports.node[slot]), NONE) for slot in slots}


def _cages(signs: Signs, link: int) -> set[_Place]:
    """Return the cages of a link that hold two ports or more, for switches of known models."""
    fabric, cages = signs.well.ports.fabric, set()
    for node, _ in _switches(signs, link):
        model = catalog.by_device_id(int(fabric.nodes.vendor_id[node]), int(fabric.nodes.device_id[node]))
        if isinstance(model, catalog.Switch) and (size := model.ports_per_cage(int(fabric.nodes.n_ports[node]))) > 1:
            slots = [slot for slot in signs.well.links.ends[link].tolist() if fabric.ports.node[slot] == node]
            cages |= {(node, (int(fabric.ports.number[slot]) - 1) // size) for slot in slots}
    return cages


def _is_odd(signs: Signs, switch: int, at_switch: int, bad: int) -> bool:
    """Return whether so many bad links at one switch occur by chance in fewer than one of a hundred fabrics."""
    well = signs.well
    slots = well.links.ends[well.links.ends >= 0]
    nodes = well.ports.fabric.ports.node[slots]
    share = float((nodes == switch).sum()) / len(well.links)
    return comb(bad, at_switch) * share**at_switch * len(np.unique(nodes[well.is_switch[slots]])) < FAMILY_WISE


def _suspect(signs: Signs, group: Sequence[int], *, marked: bool) -> Suspect:
    suspect = _of_link(signs, group[0], evidence.of_marked(signs.well) if marked else [])
    return suspect if len(group) == 1 else _of_group(signs, group, suspect)


def _of_link(signs: Signs, link: int, more: list[str]) -> Suspect:
    well = signs.well
    near, far = evidence.worse_first(signs, link)
    ends = evidence.end_name(well, near, far), evidence.end_name(well, far, near)
    sentences: list[str] = []
    kind: Kind = "bad cable"
    if signs.is_flapping[link]:
        kind, sentences = "flapping", [*sentences, *evidence.of_flaps(signs, link)]
    if signs.is_degraded[link]:
        kind, sentences = (
            ("degraded link" if kind == "bad cable" else kind),
            [*sentences, *evidence.of_width(signs, link)],
        )
    if signs.is_bad[link]:
        sentences += evidence.of_errors(signs, link)
    before = [slot for slot in (near, far) if slot != NONE and _erred_before(signs, slot)]
    if before and kind == "bad cable":
        kind, name = "bad port", well.ports.name(before[0])
        errors = format_items(int(well.errors_before[before[0]]), "symbol error")
        sentences.append(f"{name} counted {errors} on another cable too, so it is not the cable.")
    return Suspect(
        ends=ends,
        kind=kind,
        confidence=_confidence(signs, link),
        evidence=(*sentences, *more, evidence.of_chance(signs, link)),
        symbol_ber=(_ber(signs, near), _ber(signs, far)),
        could_run=_could_run(signs, link) if signs.is_degraded[link] else None,
        strength=float(signs.strength[link]),
        action=_action(kind, ends, well.ports.name(before[0]) if before else ends[0]),
    )


def _ber(signs: Signs, slot: int) -> float:
    return float(signs.well.symbol_ber[slot]) if slot != NONE else 0.0


def _could_run(signs: Signs, link: int) -> tuple[int, int]:
    lanes, speed = supported_rate(signs.well)
    return int(lanes[link]), int(speed[link])


def _erred_before(signs: Signs, slot: int) -> bool:
    """Return whether a port had too many errors on its previous cable."""
    well = signs.well
    mean = well.bits_before[[slot]] * max(signs.symbol_ber, signs.limit.limit)
    return bool(~is_chance(log10_tail(well.errors_before[[slot]], mean), signs.tests)[0])


def _confidence(signs: Signs, link: int) -> float:
    return float(min(1 - 10.0 ** -max(signs.strength[link], 0.0), _MOST_SURE))


def _action(kind: Kind, ends: tuple[str, str], port: str) -> str:
    near, far = ends
    if kind == "bad port":
        return f"Move the cable of {port} to a spare port and have {port} repaired; another cable will not help."
    swap = f"Swap the cable of {near} to {far}"
    if kind == "flapping":
        return (
            f"Reseat both plugs of the cable of {near} to {far}, then watch; if it goes down again, swap the cable. "
            "Ignore this after maintenance on the link, or after it was switched off and on."
        )
    if kind == "degraded link":
        return f"{swap}. If the new one is just as slow, try other ports than {near} and {far}."
    return (
        f"{swap}; if the errors stay at {near}, its port is bad, or the transmitter of {far}: try another port there."
    )


def _of_group(signs: Signs, group: Sequence[int], worst: Suspect) -> Suspect:
    well, nodes = signs.well, signs.well.ports.fabric.nodes
    cages = set.intersection(*(_cages(signs, link) for link in group))
    if cages:
        node, cage = min(cages)
        where, is_twin = f"cage {cage + 1} of {nodes.name[node]}", len(cages) > 1
        part, shared = ("cable", "a twin-port cable carries") if is_twin else ("transceiver", "a transceiver serves")
        return replace(
            worst,
            kind="bad cable" if is_twin else "bad transceiver",
            evidence=(
                *worst.evidence,
                f"{evidence.some_links(well, np.array(group[1:]))} in the same {where} is bad too: {shared} both.",
            ),
            action=f"Swap the {part} in {where}; if the errors stay, the cage is bad.",
        )
    ((node, _),) = set.intersection(*(_switches(signs, link) for link in group))
    summary = (
        f"{len(group)} links of {nodes.name[node]} are conspicuous, more than chance explains; the worst is "
        f"{evidence.link_name(well, group[0])}."
    )
    return replace(
        worst,
        ends=(nodes.name[node],),
        kind="bad switch",
        evidence=(summary, *worst.evidence, f"The others: {evidence.some_links(well, np.array(group[1:]))}."),
        action=f"Check power, fans, temperature and firmware of {nodes.name[node]} first, and its cables afterwards.",
    )
