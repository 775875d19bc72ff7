"""Traps wake a follower, and name the nodes to read."""

from __future__ import annotations

from types import SimpleNamespace
from typing import ClassVar

import pytest
from tests.patience import PATIENCE_S, wait_until

from weft.errors import SubnetError
from weft.twin import trap_listener
from weft.twin.trap_listener import TrapListener
from weft.wire.notice import GmpNotice, LinkStateDetails, LocalChangesDetails, Trap


class Watch:
    """A subscription that yields given notices once."""

    notices_left: ClassVar[list[GmpNotice]] = []
    failures = 0

    def __init__(self, carrier, *, traps):
        assert set(traps) == {Trap.LINK_STATE_CHANGED, Trap.LOCAL_CHANGES}
        if Watch.failures:
            Watch.failures -= 1
            raise SubnetError("no subnet administrator")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def notices(self, seconds):
        while Watch.notices_left:
            yield Watch.notices_left.pop()


@pytest.fixture
def listener(monkeypatch):
    monkeypatch.setattr(trap_listener, "Watch", Watch)
    monkeypatch.setattr(trap_listener, "_AGAIN_S", 0.01)
    return TrapListener(lambda: SimpleNamespace(close=lambda: None))


def notice(trap, details):
    return GmpNotice(trap_number=int(trap), data_details=details.raw)


def test_the_lids_that_traps_name_are_returned_once(listener):
    link = notice(Trap.LINK_STATE_CHANGED, LinkStateDetails(lid_addr=7))
    port = notice(Trap.LOCAL_CHANGES, LocalChangesDetails(lid_addr=9))
    Watch.notices_left, lids = [link, port, link], set()

    def collect():
        lids.update(listener.wait(0.1))
        return lids == {7, 9}

    with listener:
        wait_until(collect, "both LIDs")
        assert listener.wait(0.0) == frozenset()


def test_a_subscription_that_fails_is_tried_again(listener):
    Watch.failures = 2
    Watch.notices_left = [notice(Trap.LINK_STATE_CHANGED, LinkStateDetails(lid_addr=5))]
    with listener:
        assert listener.wait(PATIENCE_S) == {5}
