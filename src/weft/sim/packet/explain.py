"""Explain why a run cannot continue, with the names of ports."""

from __future__ import annotations

from weft.errors import SimulationBug, SubnetError, WeftError
from weft.sim.layout.records import FlowControl
from weft.sim.packet.deadlock import find_cycle
from weft.sim.packet.plan import PacketPlan
from weft.sim.packet.reliability import RETRIES, TCP_RETRIES
from weft.sim.packet.state import State, Stop


class Deadlock(SubnetError):
    """A cycle of packets that wait for each other's buffers. `cycle` lists the blocked ports in order."""

    def __init__(self, message: str, cycle: tuple[str, ...], since_ps: int) -> None:
        super().__init__(message)
        self.cycle = cycle
        self.since_ps = since_ps  # when the cycle formed


def explain(packet_plan: PacketPlan, state: State, why: Stop) -> WeftError:
    """Return the error to raise."""
    run, name = state.run[0], packet_plan.wiring.name
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
            f"whose switch has no route for it: route the fabric again"
        )
    if why is Stop.RETRIES:
        qp = state.qps[run.stop_a]
        tcp = run.flow == FlowControl.DROP
        retries = f"{TCP_RETRIES} retries (ETIMEDOUT)" if tcp else f"{RETRIES} retries (IBV_WC_RETRY_EXC_ERR)"
        return SubnetError(
            f"{name(int(state.hosts[qp.host].port))} got no acknowledgement from {name(int(qp.dst))} after {retries}: "
            f"a cable on the path loses nearly every packet"
        )
    return _deadlock(packet_plan, state)


def _deadlock(packet_plan: PacketPlan, state: State) -> WeftError:
    cycle = find_cycle(state)
    left = len(state.messages) - int(state.run[0].delivered)
    if cycle is None:
        return SimulationBug(f"no events left, {left:,} messages have not arrived, and there is no deadlock")
    n_vls = int(state.run[0].n_vls)
    names = [
        packet_plan.wiring.name(queue // n_vls) + (f" VL {queue % n_vls}" if n_vls > 1 else "")
        for queue in cycle.queues
    ]
    arrows = " -> ".join((*names, *names[:1]))
    return Deadlock(
        f"deadlock at {cycle.since_ps / 1e6:,.3f} µs, {left:,} messages will not arrive: a cycle of {len(names)} "
        f"ports, each waiting for buffer space of the next: {arrows}\n"
        f"  Route with engine auto or dfsssp, which avoid such cycles; `weft check` finds them without a simulation.",
        tuple(names),
        cycle.since_ps,
    )
