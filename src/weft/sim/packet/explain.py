"""Why a run cannot go on, by names: who waits for whom."""

from __future__ import annotations

from weft.errors import SimulationBug, SubnetError, WeftError
from weft.sim.packet.plan import Plan
from weft.sim.packet.state import State, Stop


def explain(made: Plan, state: State, why: Stop) -> WeftError:
    """The error to raise."""
    run, wiring = state.run[0], made.wiring
    if why is Stop.OVERFLOW:
        queue = state.queues[run.stop_a]
        return SimulationBug(
            f"the input buffer of {wiring.name(int(queue.port))} holds {int(queue.held):,} bytes and has room for "
            f"{int(queue.room):,}: flow control failed"
        )
    if why is Stop.NO_ROUTE:
        message = state.messages[state.packets[run.stop_b].message]
        return SubnetError(
            f"a packet from {wiring.name(int(message.src))} to {wiring.name(int(message.dst))} came to "
            f"{wiring.name(int(run.stop_a))}, whose switch has no way on: route the fabric again"
        )
    if why is Stop.RETRIES:
        qp = state.qps[run.stop_a]
        source = wiring.name(int(state.hosts[qp.host].port))
        return SubnetError(
            f"{source} got no acknowledgement from {wiring.name(int(qp.dst))} after 7 retries "
            f"(IBV_WC_RETRY_EXC_ERR): a cable on the way loses nearly every packet"
        )
    return Deadlock("deadlock")


class Deadlock(SubnetError):
    """Packets wait for each other's buffers, in a circle."""
