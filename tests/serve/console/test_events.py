"""Log lines of the console from two states of a fabric; no service runs."""

from __future__ import annotations

from types import SimpleNamespace

import msgspec
import pytest

from weft.serve.acknowledgements import alarm_id
from weft.serve.console.events import FabricState, LinkStates, SubnetManagerOut, SuspectOut, log_lines
from weft.serve.rates import Load

FABRIC = SimpleNamespace(
    nodes=SimpleNamespace(name=["h1", "leaf1"]),
    links=SimpleNamespace(a=[0, 0], a_port=[1, 2], b=[1, 1], b_port=[3, 4]),
)
MASTER = SubnetManagerOut(state="MASTER", host="h1", standby=None, sweeps=7)


def suspect(*ends: str) -> SuspectOut:
    words = {"kind": "flaps", "confidence": 0.9, "evidence": [], "action": "replace it", "impact": ""}
    return SuspectOut(id=alarm_id("flaps", ends), link=list(ends), **words)


def state(links: str = "up up", revision: str = "1", sm: SubnetManagerOut | None = MASTER, *suspects: SuspectOut):
    return FabricState(
        t=0.0,
        revision=revision,
        seconds=1.0,
        links=LinkStates(load=[], wait=[], errors=[], state=links.split()),
        jobs=[],
        sm=sm,
        suspects=list(suspects),
        notes=[],
        drift=[],
        runs=[],
        trouble="",
    )


@pytest.mark.parametrize(
    ("before", "now", "lines"),
    [
        (None, state("down up"), []),
        (state(), state(), []),
        (state(), state("down up"), [("link", "h1/1 - leaf1/3 is down")]),
        (state("up down"), state("up up"), [("link", "h1/2 - leaf1/4 is up again")]),
        (state("up down"), state("up bad"), [("link", "h1/2 - leaf1/4 is up again")]),
        (state(), state("bad up"), []),
        (state(), state("down", "2"), [("fabric", "cabling changed: 2 nodes, 2 cables")]),
        (state(), state(sm=None), [("sm", "the subnet manager does not answer")]),
        (state(sm=None), state(sm=None), []),
        (state(sm=None), state(), [("sm", "subnet manager: h1, MASTER")]),
        (state(), state(sm=msgspec.structs.replace(MASTER, sweeps=8)), []),
        (state(), state(sm=msgspec.structs.replace(MASTER, host="h2")), [("sm", "subnet manager: h2, MASTER")]),
        (state(), state("up up", "1", MASTER, suspect("b", "a")), [("alert", "flaps: a - b; replace it")]),
        (state("up up", "1", MASTER, suspect("a", "b")), state("up up", "1", MASTER, suspect("b", "a")), []),
        (state("up up", "1", MASTER, suspect("a", "b")), state(), [("clear", "a - b is no longer suspected")]),
    ],
)
def test_changes_between_two_states_are_log_lines(before, now, lines):
    assert list(log_lines(before, now, FABRIC)) == lines


def test_requests_and_bytes_of_a_caller_are_limited_until_they_end():
    load = Load(most=2, most_bytes=10)
    assert [load.begin("a"), load.begin("a"), load.begin("a"), load.begin("b")] == [True, True, False, True]
    assert [load.hold("a", 4), load.hold("a", 6), load.hold("a", 1), load.hold("b", 10)] == [True, True, False, True]
    load.end("a", 11)
    assert (load.begin("a"), load.begin("a"), load.hold("a", 10)) == (True, False, True)
    load.end("a", 10)
    load.end("a", 0)
    assert load.hold("a", 10)
