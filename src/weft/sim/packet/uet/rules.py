"""The rules of Ultra Ethernet as a kernel of their own, which the event loop calls by its address.

So the loop of the other networks does not compile them, and they compile in about the same time as it.
"""

from __future__ import annotations

from weft.jit import lean_kernel
from weft.sim.packet.state import UET_ACTIONS, UetAction
from weft.sim.packet.uet.acks import on_posted, on_probe_due, on_uet_timeout
from weft.sim.packet.uet.grants import on_pull
from weft.sim.packet.uet.queue import dequeue_uet, enqueue_uet
from weft.sim.packet.uet.receive import accept_uet
from weft.sim.packet.uet.send import may_send_uet, next_uet_packet


@lean_kernel
def obey(s, request):
    """Handle a request: an action and the index that it is about. Return what `UetAction` says."""
    action, index = request % UET_ACTIONS, request // UET_ACTIONS
    if action == UetAction.ENQUEUE:
        enqueue_uet(s, index >> 32, index & ((1 << 32) - 1))
        return 0
    if action == UetAction.DEQUEUE:
        return dequeue_uet(s, index)
    if action == UetAction.ACCEPT:
        return accept_uet(s, index)
    if action == UetAction.MAY_SEND:
        return 1 if may_send_uet(s, index) else 0
    if action == UetAction.NEXT_PACKET:
        return next_uet_packet(s, index)
    if action == UetAction.TIMEOUT:
        return on_uet_timeout(s, index)
    if action == UetAction.PROBE:
        return on_probe_due(s, index)
    if action == UetAction.POSTED:
        on_posted(s, index)
        return 0
    return on_pull(s, index)
