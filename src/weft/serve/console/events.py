"""What changes in a fabric, as it is told; and what of it is worth a line in the log."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from weft.monitor.evidence import concerns
from weft.monitor.suspects import Suspect
from weft.serve.console.layout import FabricOut
from weft.serve.console.runs import RunOut


class SubnetManagerOut(msgspec.Struct, kw_only=True):
    """The master, as it says of itself."""

    state: str
    host: str
    standby: list[str]  # of a lab; elsewhere nobody tells
    sweeps: int  # its activity count


class LinkStates(msgspec.Struct, kw_only=True):
    """In the order of the links that were drawn; None: not known."""

    load: list[float | None]  # of the busier direction
    wait: list[float | None]  # part of the time that a packet waited for credits
    errors: list[int | None]  # at both ends, since the last look
    state: list[str]  # up, down, bad


class SuspectOut(msgspec.Struct, kw_only=True):
    link: list[str]
    kind: str
    confidence: float
    evidence: list[str]
    action: str
    impact: str  # whom it concerns; "": nobody, or it is not known yet


class FabricState(msgspec.Struct, kw_only=True):
    t: float  # seconds since 1970
    revision: str
    seconds: float  # that loads and errors are of
    links: LinkStates
    jobs: list[dict[str, Any]]
    sm: SubnetManagerOut | None  # None: it does not answer
    suspects: list[SuspectOut]
    notes: list[str]
    drift: list[str]  # how the fabric differs from the ledger
    runs: list[RunOut]
    trouble: str  # why there is nothing new; "": there is


def suspect_out(one: Suspect) -> SuspectOut:
    return SuspectOut(
        link=list(one.ends),
        kind=one.kind,
        confidence=one.confidence,
        evidence=list(one.evidence),
        action=one.action,
        impact=" ".join(concerns(one)),
    )


def news(before: FabricState | None, now: FabricState, shown: FabricOut) -> Iterator[tuple[str, str]]:
    """Kind and text of a line, of cables, the manager and suspects."""
    if before is None:
        return
    if before.revision == now.revision:
        yield from _of_links(before.links.state, now.links.state, shown)
    else:
        yield "fabric", f"another cabling: {len(shown.nodes.name):,} nodes, {len(shown.links.a):,} cables"
    old, new = before.sm, now.sm
    if new is None and old is not None:
        yield "sm", "the subnet manager does not answer"
    elif new is not None and (old is None or (old.host, old.state) != (new.host, new.state)):
        yield "sm", f"{new.host} is the subnet manager, {new.state}"
    were, are = ({tuple(sorted(one.link)): one for one in state.suspects} for state in (before, now))
    for ends in are.keys() - were.keys():
        yield "alert", f"{are[ends].kind}: {' - '.join(ends)}; {are[ends].action}"
    for ends in were.keys() - are.keys():
        yield "clear", f"{' - '.join(ends)} is no longer suspected"


def _of_links(were: list[str], are: list[str], shown: FabricOut) -> Iterator[tuple[str, str]]:
    nodes, links = shown.nodes.name, shown.links
    for link, (was, is_now) in enumerate(zip(were, are, strict=True)):
        if was != is_now and "down" in (was, is_now):
            ends = ((links.a[link], links.a_port[link]), (links.b[link], links.b_port[link]))
            name = " - ".join(f"{nodes[node]}/{port}" for node, port in ends)
            yield "link", f"{name} is {'down' if is_now == 'down' else 'up again'}"
