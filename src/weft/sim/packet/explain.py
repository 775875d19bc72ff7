"""Why a run cannot go on, by names: who waits for whom."""

from __future__ import annotations

from weft.errors import SimulationBug, SubnetError, WeftError
from weft.sim.layout.records import Flow
from weft.sim.packet.deadlock import find_circle
from weft.sim.packet.plan import PacketPlan
from weft.sim.packet.reliability import RETRIES, TCP_RETRIES
from weft.sim.packet.state import State, Stop


class Deadlock(SubnetError):
    """Packets wait for each other's buffers, in a circle. `circle` has the ports that cannot send, in order."""

    def __init__(self, message: str, circle: tuple[str, ...], since_ps: int) -> None:
        super().__init__(message)
        self.circle = circle
        self.since_ps = since_ps  # when the circle closed


def explain(made: PacketPlan, state: State, why: Stop) -> WeftError:
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
        tcp = run.flow == Flow.DROP
        retries = f"{TCP_RETRIES} retries (ETIMEDOUT)" if tcp else f"{RETRIES} retries (IBV_WC_RETRY_EXC_ERR)"
        return SubnetError(
            f"{name(int(state.hosts[qp.host].port))} got no acknowledgement from {name(int(qp.dst))} after {retries}: "
            f"a cable on the way loses nearly every packet"
        )
    return _deadlock(made, state)


def _deadlock(made: PacketPlan, state: State) -> WeftError:
    found = find_circle(state)
    left = len(state.messages) - int(state.run[0].delivered)
    if found is None:
        return SimulationBug(f"nothing is left to happen, {left:,} messages have not arrived, and no circle is closed")
    n_vls = int(state.run[0].n_vls)
    names = [made.wiring.name(queue // n_vls) + (f" VL {queue % n_vls}" if n_vls > 1 else "") for queue in found.queues]
    arrows = " -> ".join((*names, *names[:1]))
    return Deadlock(
        f"deadlock at {found.since_ps / 1e6:,.3f} µs, {left:,} messages will not arrive: a circle of {len(names)} "
        f"ports, each without room in the buffer of the next: {arrows}\n"
        f"  Route with engine auto, or dfsssp, which have no such circle; `weft check` finds it without running.",
        tuple(names),
        found.since_ps,
    )
