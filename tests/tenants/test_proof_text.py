"""The text of a proof of isolation lists a few pairs and ports and counts the others."""

from __future__ import annotations

from dataclasses import replace

import pytest

from weft.tenants.isolation import Pair, Proof

PAIR = Pair(sender="h1/1", receiver="h2/1", partition="red", p_key=0x8101, why="it arrived")
PROOF = Proof(
    ports=4, is_open=False, promised=2, arrive=2, leak_count=0, cut_count=0, leaks=(), cuts=(), vls={}, unguarded=(),
    raw=(), absent=(),
)  # fmt: skip


@pytest.mark.parametrize(("count", "more"), [(5, ""), (6, " and 1 more"), (1005, " and 1,000 more")])
def test_five_pairs_and_ports_are_named(count, more):
    names = tuple(f"h{number}" for number in range(count))
    text = replace(PROOF, leak_count=count, leaks=(PAIR,) * count, absent=names).explain()
    assert text.count(str(PAIR)) == 5
    assert text.endswith(f"not in the fabric now: h0, h1, h2, h3, h4{more}")
    assert text.count(" more") == 2 * bool(more)


@pytest.mark.parametrize(
    ("is_open", "leaks", "cuts", "verdict"),
    [
        (False, 0, 0, "isolated: "),
        (False, 0, 1, "isolated: "),
        (False, 1, 0, "NOT isolated: "),
        (True, 0, 0, "open, as all are full members of Default: "),
        (True, 0, 1, "open, but not as it should be: "),
        (True, 1, 0, "open, but not as it should be: "),
    ],
)
def test_the_verdict_depends_on_leaks_and_the_default_partition(is_open, leaks, cuts, verdict):
    proof = replace(PROOF, is_open=is_open, leak_count=leaks, cut_count=cuts)
    assert proof.explain().startswith(verdict)
    assert (proof.is_isolated, proof.ok) == (not leaks, not leaks and not cuts)


def test_a_proof_lists_all_that_it_found():
    cut = replace(PAIR, sender="h3/1", why="no route")
    proof = replace(
        PROOF, ports=1234, promised=2000, arrive=1999, leak_count=1, leaks=(PAIR,), cut_count=1, cuts=(cut,),
        unguarded=("h1/1", "h2/1"), raw=("h3/1",), absent=("0x05",),
    )  # fmt: skip
    assert proof.explain().split("\n") == [
        "NOT isolated: 1,234 ports, 1,999 of 2,000 promised pairs arrive",
        "  1 pairs can talk and should not:",
        "    h1/1 to h2/1 on 0x8101 (red): it arrived",
        "  1 pairs should talk and cannot:",
        "    h3/1 to h2/1 on 0x8101 (red): no route",
        "  no switch checks the P_Keys of h1/1, h2/1: these adapters must be trusted",
        "  raw packets, which have no P_Key, get in from h3/1",
        "  not in the fabric now: 0x05",
    ]
    assert PROOF.explain().split("\n") == [
        "isolated: 4 ports, 2 of 2 promised pairs arrive",
        "  0 pairs can talk and should not",
        "  0 pairs should talk and cannot",
    ]
