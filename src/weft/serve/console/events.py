"""State and log events of a fabric for the console."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from weft.monitor.evidence import concerns
from weft.monitor.suspects import Suspect
from weft.serve.acknowledgements import Acknowledgement, alarm_id
from weft.serve.console.layout import FabricOut
from weft.serve.console.runs import RunOut


class SubnetManagerOut(msgspec.Struct, kw_only=True):
    """The master subnet manager, by its SMInfo."""

    state: str
    host: str
    standby: list[str] | None  # None: unknown; only labs tell
    sweeps: int  # its activity counter


class LinkStates(msgspec.Struct, kw_only=True):
    """The state of the links, in the order of the drawing; None: unknown."""

    load: list[float | None]  # load of the busier direction
    wait: list[float | None]  # share of the time in which packets waited for credits
    errors: list[int | None]  # at both ends, since the last reading
    state: list[str]  # up, down, bad


class SuspectOut(msgspec.Struct, kw_only=True):
    """A suspected link."""

    id: str  # for its acknowledgement
    link: list[str]
    kind: str
    confidence: float
    evidence: list[str]
    action: str
    impact: str  # affected jobs; "": none, or not known yet
    acknowledged: Acknowledgement | None = None


class FabricState(msgspec.Struct, kw_only=True):
    """The current state of a fabric."""

    t: float  # seconds since 1970
    revision: str
    seconds: float  # interval of loads and errors
    links: LinkStates
    jobs: list[dict[str, Any]]
    sm: SubnetManagerOut | None  # None: it does not answer
    suspects: list[SuspectOut]
    notes: list[str]
    drift: list[str]  # differences between the fabric and the ledger
    runs: list[RunOut]
    trouble: str  # why there is no new reading; "": there is one


def suspect_out(suspect: Suspect, acknowledgements: Mapping[str, Acknowledgement] | None = None) -> SuspectOut:
    alarm = alarm_id(suspect.kind, suspect.ends)
    return SuspectOut(
        id=alarm,
        acknowledged=(acknowledgements or {}).get(alarm),
        link=list(suspect.ends),
        kind=suspect.kind,
        confidence=suspect.confidence,
        evidence=list(suspect.evidence),
        action=suspect.action,
        impact=" ".join(concerns(suspect)),
    )


def log_lines(before: FabricState | None, now: FabricState, fabric: FabricOut) -> Iterator[tuple[str, str]]:
    """Yield kind and text of log lines for the changes between two states."""
    if before is None:
        return
    if before.revision == now.revision:
        yield from _link_lines(before.links.state, now.links.state, fabric)
    else:
        yield "fabric", f"cabling changed: {len(fabric.nodes.name):,} nodes, {len(fabric.links.a):,} cables"
    old, new = before.sm, now.sm
    if new is None and old is not None:
        yield "sm", "the subnet manager does not answer"
    elif new is not None and (old is None or (old.host, old.state) != (new.host, new.state)):
        yield "sm", f"subnet manager: {new.host}, {new.state}"
    were, are = ({tuple(sorted(suspect.link)): suspect for suspect in state.suspects} for state in (before, now))
    for ends in are.keys() - were.keys():
        yield "alert", f"{are[ends].kind}: {' - '.join(ends)}; {are[ends].action}"
    for ends in were.keys() - are.keys():
        yield "clear", f"{' - '.join(ends)} is no longer suspected"


def _link_lines(were: list[str], are: list[str], fabric: FabricOut) -> Iterator[tuple[str, str]]:
    nodes, links = fabric.nodes.name, fabric.links
    for link, (was, is_now) in enumerate(zip(were, are, strict=True)):
        if was != is_now and "down" in (was, is_now):
            ends = ((links.a[link], links.a_port[link]), (links.b[link], links.b_port[link]))
            name = " - ".join(f"{nodes[node]}/{port}" for node, port in ends)
            yield "link", f"{name} is {'down' if is_now == 'down' else 'up again'}"
