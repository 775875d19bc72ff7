"""Find faulty links: suspects, the worst first, with evidence in sentences and an action.

    diagnosis = diagnose(changes)               changes of one poller, in order
    diagnosis.suspects[0].evidence              sentences with numbers
    diagnosis.notes                             other observations that are not faults

Consequences are traced to their causes: packets that arrive marked as damaged to the link that damaged them, waiting
ports to the port they wait for, links that went down with a node to that node. If very many links are bad at once, a
note reports it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from weft.monitor import evidence, traffic_trouble
from weft.monitor.causes import suspects_of_links
from weft.monitor.chance import is_chance, thresholds
from weft.monitor.change import Change
from weft.monitor.down import Down, absent_hosts, note_recabled, suspects_down
from weft.monitor.health import health
from weft.monitor.signs import Signs, look
from weft.monitor.suspects import Diagnosis, Suspect
from weft.units import format_items


def diagnose(changes: Sequence[Change], *, looks: int = 1) -> Diagnosis:
    """Diagnose a fabric from its changes.

    Longer observation detects lower error rates. `looks` is the number of diagnoses that share the false-alarm rate.
    """
    well = health(changes)
    signs = look(well, looks)
    links = sorted(suspects_of_links(signs), key=lambda suspect: -suspect.strength)
    slow, explained = traffic_trouble.overloaded_receivers(well)
    down, links = _merge(gone := suspects_down(well.ports), links)
    wrong, dropped = traffic_trouble.misrouted(well, absent_hosts(well.ports, gone))
    return Diagnosis(
        suspects=(*down, *links, *traffic_trouble.senders_of_marked(well), *slow, *wrong),
        notes=(
            *_whole_fabric(signs, len(links)),
            *_restarts(signs),
            *note_recabled(well.ports),
            *dropped,
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
    """Add earlier evidence to links that are down, and drop suspects that are explained by something that is down."""
    explained = {port for item in down for port in item.ports}
    suspects = []
    for item in down:
        before = [line for link in links if item.ports & set(link.ends) for line in link.evidence]
        more = before if item.suspect.kind == "link down" else []
        suspects.append(replace(item.suspect, evidence=(*item.suspect.evidence, *more)))
    return suspects, [link for link in links if not explained.intersection(link.ends)]


def _whole_fabric(signs: Signs, suspects: int) -> list[str]:
    """Note problems of the whole fabric, which no single cable explains."""
    at_once, limit, links = thresholds().at_once, signs.limit, len(signs.well.links)
    most = max(at_once.least, at_once.limit * links)
    over = int((~is_chance(signs.published, signs.tests)).sum())
    notes = []
    if signs.symbol_ber > limit.limit:
        notes.append(
            f"The whole fabric has errors: {signs.symbol_ber:.1e} of all bits, and {over:,} of {links:,} links are "
            f"above the {limit.limit:g} of {limit.name}. No single cable explains that: look for a common cause, such "
            "as cable type, firmware or heat. Suspects are links that are significantly worse than the others."
        )
    if suspects > most:
        notes.append(
            f"{suspects:,} of {links:,} links are bad at once; {at_once.name} isolates at most {most:.0f}. Look for a "
            "common cause before you swap cables."
        )
    return notes


def _restarts(signs: Signs) -> list[str]:
    """Note links that went down with a node: when a host restarts, its switch counts LinkDowned too."""
    links = np.flatnonzero(signs.is_restart)
    if not len(links):
        return []
    return [
        f"{format_items(len(links), 'link')} went down with a node that restarted or stopped answering: "
        f"{evidence.some_links(signs.well, links)}. A restarting host looks like that, also at its switch; with a "
        "bad cable both ends keep counting."
    ]
