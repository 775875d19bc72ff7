"""Why a run cannot go on, by names: who waits for whom."""

from __future__ import annotations

from collections import defaultdict

from weft.errors import SimulationBug, SubnetError, WeftError
from weft.sim.layout.records import Control
from weft.sim.packet.plan import Plan
from weft.sim.packet.reliability import RETRIES, TCP_RETRIES
from weft.sim.packet.state import State, Stop


class Deadlock(SubnetError):
    """Packets wait for each other's buffers, in a circle. `circle` has the ports that cannot send, in order."""

    def __init__(self, message: str, circle: tuple[str, ...]) -> None:
        super().__init__(message)
        self.circle = circle


def explain(made: Plan, state: State, why: Stop) -> WeftError:
    """The error to raise."""
    run, name = state.run[0], made.wiring.name
    if why is Stop.OVERFLOW:
        buffer = state.buffers[run.stop_a]
        return SimulationBug(
            f"the input buffer of {name(int(state.queues[run.stop_a].port))} holds {int(buffer.held):,} bytes and has "
            f"room for {int(buffer.room):,}: flow control failed"
        )
    if why is Stop.NO_ROUTE:
        message = state.messages[state.packets[run.stop_b].message]
        return SubnetError(
            f"a packet from {name(int(message.src))} to {name(int(message.dst))} came to {name(int(run.stop_a))}, "
            f"whose switch has no way on: route the fabric again"
        )
    if why is Stop.RETRIES:
        qp = state.qps[run.stop_a]
        tcp = run.control == Control.TCP
        retries = f"{TCP_RETRIES} retries (ETIMEDOUT)" if tcp else f"{RETRIES} retries (IBV_WC_RETRY_EXC_ERR)"
        return SubnetError(
            f"{name(int(state.hosts[qp.host].port))} got no acknowledgement from {name(int(qp.dst))} after {retries}: "
            f"a cable on the way loses nearly every packet"
        )
    return _deadlock(made, state)


def _deadlock(made: Plan, state: State) -> Deadlock:
    circle = _find_circle(state)
    n_vls = int(state.run[0].n_vls)
    names = [made.wiring.name(queue // n_vls) + (f" VL {queue % n_vls}" if n_vls > 1 else "") for queue in circle]
    arrows = " -> ".join((*names, *names[:1]))
    left = len(state.messages) - int(state.run[0].delivered)
    return Deadlock(
        f"deadlock at {int(state.run[0].now_ps) / 1e6:,.3f} µs with {left:,} messages under way: a circle of "
        f"{len(names)} ports, each without room in the buffer of the next: {arrows}\n"
        f"  Route with engine auto, or dfsssp, which have no such circle; `weft check` finds it without running.",
        tuple(names),
    )


def _find_circle(state: State) -> list[int]:
    """Output queues that wait for each other: each for a buffer that packets of the next one fill."""
    waits_in: dict[int, list[int]] = defaultdict(list)  # input buffer -> output queues with packets that it holds
    blocked = []
    for index, head in enumerate(state.queues.head.tolist()):
        if head >= 0:
            blocked.append(index)
        while head >= 0:
            waits_in[int(state.packets[head].held_in)].append(index)
            head = int(state.packets[head].next)
    for start in blocked:
        path: list[int] = []
        queue = start
        while queue >= 0 and queue not in path:
            path.append(queue)
            fills = waits_in[int(state.buffers[queue].upstream)]  # the same VL at the far end: the buffer it waits for
            queue = fills[0] if fills else -1
        if queue >= 0:
            return path[path.index(queue) :]
    return blocked  # no circle: they wait for something that is not there any more
