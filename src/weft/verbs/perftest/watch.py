"""Whether waiting is in vain: the other end is gone, or what is missing was lost."""

from __future__ import annotations

from weft.errors import SubnetError
from weft.verbs.perftest.exchange import Peer
from weft.verbs.perftest.kinds import Connection
from weft.verbs.perftest.plan import Plan

_LOST_AFTER_S = 5.0
_QUIET_S = 0.2  # after the other end has said that it sent all


def is_over(peer: Peer, plan: Plan, quiet_s: float) -> bool:
    """True: what is still missing will not come. Reliable connections tell that themselves."""
    if peer.is_gone():
        raise SubnetError("the other end is gone: it closed the connection")
    if plan.connection is Connection.RC:
        return False
    return quiet_s > _LOST_AFTER_S or (quiet_s > _QUIET_S and peer.says_something())
