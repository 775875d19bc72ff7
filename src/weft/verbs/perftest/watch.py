"""Detect that a peer is gone or that messages are lost."""

from __future__ import annotations

from weft.errors import SubnetError
from weft.verbs.perftest.exchange import Peer
from weft.verbs.perftest.kinds import Connection
from weft.verbs.perftest.plan import Plan

_LOST_AFTER_S = 5.0
_QUIET_S = 0.2  # after the peer has reported that it sent all


def is_over(peer: Peer, plan: Plan, quiet_s: float) -> bool:
    """Return whether missing messages are lost. Reliable connections report that themselves."""
    if peer.is_gone():
        raise SubnetError("the peer closed the connection")
    if plan.connection is Connection.RC:
        return False
    return quiet_s > _LOST_AFTER_S or (quiet_s > _QUIET_S and peer.has_message())
