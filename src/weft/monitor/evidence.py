"""The evidence of a diagnosis in short sentences with numbers, units, limits and their sources."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from weft.monitor.chance import thresholds
from weft.monitor.columns import Column
from weft.monitor.health import NONE, Health
from weft.monitor.signs import Signs, supported_rate
from weft.monitor.suspects import JobCost, Suspect
from weft.units import format_items
from weft.wire.port_info import LinkSpeed

_MINUTE_S, _HOUR_S, _DAY_S = 60.0, 3600.0, 86_400.0
_MANY = 4  # intervals from which errors in only one of them suggest a burst
_BEYOND = 30  # largest exponent printed
_FEW = 3  # names in a sentence
FELT = 0.999  # share of the undisturbed rate from which a job counts as unaffected


def seconds_in_words(seconds: float) -> str:
    """Format a duration: `20 s`, `10 min`, `2.1 h`."""
    if seconds < 2 * _MINUTE_S:
        return f"{seconds:.3g} s"
    return f"{seconds / _MINUTE_S:.3g} min" if seconds < 2 * _HOUR_S else f"{seconds / _HOUR_S:.3g} h"


def end_name(well: Health, slot: int, other: int) -> str:
    """Return the name of a port, or the number and node GUID that the other end knows if it does not answer."""
    if slot != NONE:
        return well.ports.name(slot)
    return f"port {well.ports.far_number[other]} of node 0x{int(well.ports.far_guid[other]):016x}"


def link_name(well: Health, link: int) -> str:
    a, b = well.links.ends[link].tolist()
    return f"{end_name(well, a, b)} - {end_name(well, b, a)}"


def some_links(well: Health, links: NDArray[np.intp]) -> str:
    """Return the first few link names and the number of others."""
    names = ", ".join(link_name(well, link) for link in links[:_FEW].tolist())
    return f"{names} and {len(links) - _FEW:,} more" if len(links) > _FEW else names


def times(count: int) -> str:
    return "once" if count == 1 else f"{count:,} times"


def of_errors(signs: Signs, link: int) -> list[str]:
    """Return sentences on symbol errors and damaged packets at both ends, the worse end first."""
    well, sentences = signs.well, []
    near, far = worse_first(signs, link)
    for slot, other in ((near, far), (far, near)):
        if slot == NONE or not well.line_bits[slot]:
            sentences.append(f"{end_name(well, slot, other)} does not report its errors.")
        elif slot == near:
            sentences.append(_of_symbols(signs, slot))
        else:
            sentences.append(_of_other_end(signs, link, slot, near))
    return [*sentences, *(line for slot in (near, far) if slot != NONE for line in _of_packets(well, slot))]


def _of_other_end(signs: Signs, link: int, slot: int, near: int) -> str:
    name, errors = signs.well.ports.name(slot), int(signs.well.count(Column.SYMBOL_ERROR)[slot])
    if not signs.is_one_way[link]:
        return f"{name}, the other end, counted {format_items(errors, 'error')}: both directions, as with a bad cable."
    direction = f"{format_items(errors, 'error')}: mostly one direction" if errors else "none: one direction only"
    return (
        f"{name}, the other end, counted {direction}, so it is the transmitter of {name}, "
        f"that direction of the cable, or the receiver of {signs.well.ports.name(near)}."
    )


def worse_first(signs: Signs, link: int) -> tuple[int, int]:
    """Return the slots of a link's ends, the one with more errors first."""
    well = signs.well
    a, b = well.links.ends[link].tolist()
    at_a, at_b = (well.counts[end, Column.SYMBOL_ERROR] + well.damaged[end] for end in (a, b))
    return (b, a) if b != NONE and (a == NONE or at_b > at_a) else (a, b)


def _of_symbols(signs: Signs, slot: int) -> str:
    well, limit = signs.well, signs.limit
    errors = format_items(int(well.count(Column.SYMBOL_ERROR)[slot]), "symbol error")
    background = f"{signs.symbol_ber:.1e}" if signs.symbol_ber else "none"
    return (
        f"{well.ports.name(slot)} counted {errors} in {seconds_in_words(well.known_s[slot, Column.SYMBOL_ERROR])}, "
        f"{well.line_bits[slot]:.1e} bits: a bit error rate of {well.symbol_ber[slot]:.1e}. "
        f"The rest of the fabric has {background}; {limit.name} allows {limit.limit:g}."
    )


def _of_packets(well: Health, slot: int) -> list[str]:
    sentences, name, damaged = [], well.ports.name(slot), int(well.damaged[slot])
    if well.changes >= _MANY and well.changes_with_errors[slot] == 1:
        sentences.append(f"All errors of {name} came in one of {well.changes} intervals: it may have been one burst.")
    if damaged:
        packets = int(well.count(Column.PORT_RCV_PKTS)[slot])
        sentences.append(f"{format_items(damaged, 'packet')} of {packets:,} were damaged on their way into {name}.")
    beyond = int(well.count(Column.FEC_UNCORRECTED)[slot])
    if beyond:
        corrected = int(well.count(Column.FEC_CORRECTED)[slot])
        corrected_too = f" and corrected {corrected:,}" if well.known_s[slot, Column.FEC_CORRECTED] else ""
        sentences.append(
            f"Error correction at {name} could not correct {format_items(beyond, 'block')}{corrected_too}."
        )
    recovered = int(well.count(Column.LINK_ERROR_RECOVERY)[slot])
    if recovered:
        sentences.append(f"{name} lost the signal {times(recovered)} and recovered (LinkErrorRecovery).")
    return sentences


def of_flaps(signs: Signs, link: int) -> list[str]:
    well, ends = signs.well, signs.well.links.ends[link]
    between_switches = bool((ends != NONE).all() and well.is_switch[ends].all())
    limit = thresholds().flaps_of_cable if between_switches else thresholds().flaps_of_host
    usual = limit.limit * well.seconds / _DAY_S * len(well.links)
    counted_by = " and ".join(well.ports.name(slot) for slot in ends[well.link_known[link]].tolist())
    return [
        f"The link went down {times(int(well.flaps[link]))} in {seconds_in_words(well.seconds)}, counted by "
        f"{counted_by}; neither end restarted. At the rate of {limit.name}, {limit.limit:g} a day, all "
        f"{len(well.links):,} links together would do so {usual:.1g} times."
    ]


def of_marked(well: Health) -> list[str]:
    """Return a sentence on packets that arrived marked as damaged."""
    marked = well.count(Column.PORT_RCV_REMOTE_PHYSICAL_ERRORS)
    if not marked.any():
        return []
    return [
        f"{format_items(int((marked > 0).sum()), 'port')} received {int(marked.sum()):,} packets already marked as "
        "damaged (PortRcvRemotePhysicalErrors): a consequence."
    ]


def of_width(signs: Signs, link: int) -> list[str]:
    ports, (a, b) = signs.well.ports, signs.well.links.ends[link].tolist()
    lanes, speed = (int(values[link]) for values in supported_rate(signs.well))
    runs = f"{ports.width_active[a]}x{LinkSpeed.highest(int(ports.speed_active[a])).name}"
    could = f"{lanes}x{LinkSpeed.highest(speed).name}"
    return [
        f"It runs at {runs}, {ports.rate_gbit_s[a]:,.4g} Gbit/s; {ports.name(a)} and {ports.name(b)} both support "
        f"{could}, and most such links of this fabric run at that rate."
    ]


def of_chance(signs: Signs, link: int) -> str:
    """Return a sentence on how likely the counts are by chance, over all tests."""
    places = signs.strength[link]
    if np.isinf(places):
        return "This is certain: both ends report it."
    rare = (
        f"one healthy fabric of 1e{places:.0f}" if places < _BEYOND else f"less than one healthy fabric of 1e{_BEYOND}"
    )
    return f"Chance produces such a link in {rare}; {signs.tests:,} counts were tested."


def concerns(suspect: Suspect) -> list[str]:
    """Return sentences on the affected jobs and tenants, if the impact was computed."""
    if suspect.impact is None:
        return []
    sentences = [_cost(job, " while it is down" if suspect.kind == "flapping" else "") for job in suspect.impact.jobs]
    tenants = ", ".join(suspect.impact.tenants)
    return [*sentences, f"Tenants with packets on this link, by P_Key: {tenants}."] if tenants else sentences


def _cost(job: JobCost, when: str) -> str:
    if job.slowest > FELT * job.without_slowest:
        return f"Job {job.name} uses it and loses less than {1 - FELT:.1%} (simulated)."
    return (
        f"Job {job.name} uses it{when}: {job.gbit_s:,.0f} instead of {job.without_gbit_s:,.0f} Gbit/s, slowest pair "
        f"{job.slowest:.1%} instead of {job.without_slowest:.1%} of its demand (simulated)."
    )
