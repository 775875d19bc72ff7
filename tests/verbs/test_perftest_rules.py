"""Rules of perftest that need no device: message sizes, processors of the two ends, printed addresses."""

from __future__ import annotations

import os
from types import SimpleNamespace

import pytest

from weft.verbs.perftest.kinds import Test, Verb
from weft.verbs.perftest.pair import _halves
from weft.verbs.perftest.perftest import _address


@pytest.mark.parametrize(
    ("name", "usual_bytes"), [("ib_write_bw", 65_536), ("ib_read_lat", 2), ("ib_atomic_bw", 8), ("ib_atomic_lat", 8)]
)
def test_a_test_has_one_usual_size_unless_sizes_are_chosen(name, usual_bytes):
    test = Test(name)
    assert test.sizes(1 << 23) == (usual_bytes,)
    assert test.sizes(4) == (min(4, usual_bytes),)
    assert test.sizes(1 << 23, (1, 64)) == (1, 64)
    assert test.sizes(8, (1, 64), all_sizes=True) == (2, 4, 8)
    assert (test.depth(), test.depth(7)) == ((1, 1) if test.is_latency else (128, 7))


@pytest.mark.parametrize(
    ("processors", "server", "client"),
    [({0, 1, 2, 3}, {2, 3}, {0, 1}), ({1, 4, 6}, {4, 6}, {1}), ({5}, {5}, {5})],
)
def test_the_ends_have_different_processors_if_there_are_two(monkeypatch, processors, server, client):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: processors)
    assert _halves() == (server, client)


@pytest.mark.parametrize(
    ("verb", "more"),
    [
        (Verb.SEND, ""),
        (Verb.ATOMIC, ""),
        (Verb.WRITE, " RKey 0x00abcd VAddr 0x00000000001000"),
        (Verb.READ, " OUT 0x10 RKey 0x00abcd VAddr 0x00000000001000"),
    ],
)
def test_addresses_are_printed_as_in_perftest(verb, more):
    address = SimpleNamespace(lid=3, qpn=0x11, psn=0, outs=16, rkey=0xABCD, vaddr=0x1000, gid="fe80:0001")
    for gid_index, gid in ((-1, []), (0, [" GID: 254:128:00:01"])):
        end = SimpleNamespace(plan=SimpleNamespace(verb=verb), port=SimpleNamespace(gid_index=gid_index))
        text = f" local address: LID 0x03 QPN 0x0011 PSN 000000{more}"
        assert _address(end, "local", address) == [text, *gid]
