"""Which cable is bad: suspects, the worst first, with evidence in words and what to do.

    diagnosis = diagnose(changes)               changes of one poller, in their order
    diagnosis.suspects[0].evidence              sentences with numbers
    diagnosis.notes                             what else was seen, and why it is no fault

Causes are told from consequences: packets that were damaged elsewhere point to where that was, ports that wait to what
they wait for, links that went down with a node to that node. Where very many links are bad at once it says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from weft.monitor import evidence, traffic_trouble
from weft.monitor.causes import suspects_of_links
from weft.monitor.chance import is_chance
from weft.monitor.change import Change
from weft.monitor.down import Down, note_recabled, suspects_down
from weft.monitor.health import health
from weft.monitor.signs import Signs, look
from weft.monitor.suspects import Diagnosis, Suspect
from weft.monitor.thresholds import thresholds


def diagnose(changes: Sequence[Change], *, looks: int = 1) -> Diagnosis:
    """From one change or more; more is longer, and sees less. `looks`: it is one of so many, of which none may err."""
    well = health(changes)
    signs = look(well, looks)
    links = sorted(suspects_of_links(signs), key=lambda one: -one.strength)
    slow, explained = traffic_trouble.overloaded_receivers(well)
    down, links = _merge(suspects_down(well.ports), links)
    return Diagnosis(
        suspects=(*down, *links, *traffic_trouble.senders_of_marked(well), *slow, *traffic_trouble.misrouted(well)),
        notes=(
            *_whole_fabric(signs, len(links)),
            *_restarts(signs),
            *note_recabled(well.ports),
            *traffic_trouble.note_congestion(well, explained),
        ),
        seconds=well.seconds,
        stamp_s=changes[-1].stamp_s,
        ports=int((well.known_s > 0).any(axis=1).sum()),
        links=len(well.links),
        tests=signs.tests,
        symbol_ber=signs.symbol_ber,
    )


def _merge(down: list[Down], links: list[Suspect]) -> tuple[list[Suspect], list[Suspect]]:
    """Add what a link that is down counted before to its evidence; links of what is down are no suspects themselves."""
    explained = {port for one in down for port in one.ports}
    suspects = []
    for one in down:
        before = [line for link in links if one.ports & set(link.ends) for line in link.evidence]
        more = before if one.suspect.kind == "link down" else []
        suspects.append(replace(one.suspect, evidence=(*one.suspect.evidence, *more)))
    return suspects, [link for link in links if not explained.intersection(link.ends)]


def _whole_fabric(signs: Signs, suspects: int) -> list[str]:
    """Is it the fabric, and no cable?"""
    at_once, limit, links = thresholds().at_once, signs.limit, len(signs.well.links)
    most = max(at_once.least, at_once.limit * links)
    over = int((~is_chance(signs.published, signs.tests)).sum())
    said = []
    if signs.symbol_ber > limit.limit:
        said.append(
            f"The whole fabric errs: {signs.symbol_ber:.1e} of all bits, and {over:,} of {links:,} links are above the "
            f"{limit.limit:g} of {limit.name}. That is no cable: look for what they share, a kind of cable, firmware, "
            "heat. Suspects are those that are worse still."
        )
    if suspects > most:
        said.append(
            f"{suspects:,} of {links:,} links are bad at once; {at_once.name} takes away no more than {most:.0f}. Look "
            "for what they share before you swap cables."
        )
    return said


def _restarts(signs: Signs) -> list[str]:
    """Links that went down with a node: of a host that is started again its switch counts LinkDowned too."""
    links = np.flatnonzero(signs.is_restart)
    if not len(links):
        return []
    return [
        f"{evidence.number(len(links), 'link')} went down with a node that began anew or fell silent: "
        f"{evidence.some_links(signs.well, links)}. A host that restarts looks so, also at its switch; with a bad "
        "cable both ends go on counting."
    ]
