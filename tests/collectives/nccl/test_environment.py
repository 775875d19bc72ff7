"""NCCL_ALGO and NCCL_PROTO, as NCCL reads them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from weft.collectives.kinds import Algorithm, Collective, Protocol
from weft.collectives.nccl.choose import choose
from weft.collectives.nccl.cluster import from_server
from weft.collectives.nccl.environment import permitted
from weft.collectives.nccl.estimate import estimate
from weft.errors import ConfigError

RING, TREE = Algorithm.RING, Algorithm.TREE
PAIR = from_server("dgx-h100", nodes=2)


@pytest.mark.parametrize(
    ("text", "reduced", "cast"),
    [
        ("", (), ()),
        ("ring", (RING,), (RING,)),
        ("Ring,TREE", (TREE, RING), (TREE, RING)),
        ("Tree;broadcast:Ring", (TREE,), (RING,)),
        ("AllReduce:tree", (TREE,), ()),
        ("tree;;", (TREE,), (TREE,)),
    ],
)
def test_a_list_says_what_is_allowed_for_each_collective(text, reduced, cast):
    result = (permitted("NCCL_ALGO", text, kind, Algorithm) for kind in (Collective.ALL_REDUCE, Collective.BROADCAST))
    assert tuple(result) == (reduced, cast)


def test_a_caret_allows_all_others():
    allowed = permitted("NCCL_ALGO", "ring;allreduce:^NVLS,NVLSTree", Collective.ALL_REDUCE, Algorithm)
    assert set(Algorithm) - set(allowed) == {Algorithm.NVLS, Algorithm.NVLS_TREE}
    assert permitted("NCCL_PROTO", "^LL128", Collective.REDUCE, Protocol) == (Protocol.LL, Protocol.SIMPLE)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Ring,Star", "there is no NCCL_ALGO 'Star'; there are Tree, Ring"),
        ("Ring;Tree", "'Tree' must begin with its collective, allreduce:Tree"),
        ("allreduse:Tree", "there is no collective 'allreduse'"),
        ("allreduce:", "NCCL_ALGO=allreduce: allows nothing for all_reduce"),
        ("^Tree,Ring,CollNetDirect,CollNetChain,NVLS,NVLSTree,PAT", "allows nothing for all_reduce"),
    ],
)
def test_values_that_nccl_rejects_are_refused(text, said):
    with pytest.raises(ConfigError, match=said.replace("^", r"\^")):
        permitted("NCCL_ALGO", text, Collective.ALL_REDUCE, Algorithm)


def test_nccl_chooses_among_those_that_are_allowed():
    both = replace(PAIR, algorithms=(TREE, RING))
    chosen = {choose(both, Collective.ALL_REDUCE, size).algorithm for size in (8, 8 << 30)}
    assert chosen == {TREE, RING}
    assert choose(PAIR, Collective.ALL_REDUCE, 8 << 30).algorithm == Algorithm.NVLS_TREE
    assert "NVLSTree off: NCCL_ALGO is Tree,Ring" in choose(both, Collective.ALL_REDUCE, 8).explain()


def test_where_none_of_them_can_be_taken_the_reasons_are_said():
    only = replace(PAIR, algorithms=(Algorithm.NVLS,))
    with pytest.raises(ConfigError, match="NVLS is off, more than one node without SHARP"):
        estimate(only, Collective.ALL_REDUCE, 1 << 20)


def test_sends_between_pairs_have_no_algorithm_to_choose():
    only = replace(PAIR, algorithms=(Algorithm.NVLS,))
    assert estimate(only, Collective.ALL_TO_ALL, 1 << 20).parts == estimate(PAIR, Collective.ALL_TO_ALL, 1 << 20).parts


def test_explicit_ll128_is_used_where_nccl_would_not_choose_it():
    far = replace(PAIR, near=False)
    assert estimate(far, Collective.BROADCAST, 1 << 20).protocol != Protocol.LL128
    requests = replace(far, protocols=(Protocol.LL128,))
    assert estimate(requests, Collective.BROADCAST, 1 << 20).protocol == Protocol.LL128
    with pytest.raises(ConfigError, match="there is no LL128 for it"):
        estimate(requests, Collective.ALL_TO_ALL, 1 << 20)


def test_sends_between_pairs_take_the_protocol_that_is_left():
    small = [replace(PAIR, protocols=item) for item in ((), (Protocol.SIMPLE,), (Protocol.LL128, Protocol.LL))]
    result = [estimate(item, Collective.ALL_TO_ALL, 64 << 20).protocol for item in small]
    assert result == [Protocol.SIMPLE, Protocol.SIMPLE, Protocol.LL]
