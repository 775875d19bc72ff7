"""The packet engine: plan, run the kernels in slices, collect the result."""

from __future__ import annotations

import time

import numpy as np

from weft.errors import SimulationBug, SubnetError, WeftError
from weft.fabric.model import Fabric
from weft.sim.engine import Options, Progress
from weft.sim.layout.records import FlowControl
from weft.sim.packet.capture import Capture
from weft.sim.packet.deadlock import blocked_queues, find_cycle
from weft.sim.packet.faults import FaultSchedule
from weft.sim.packet.parallel import make_runner
from weft.sim.packet.plan import PacketPlan, plan
from weft.sim.packet.reliability import RETRIES, TCP_RETRIES
from weft.sim.packet.samples import Sampler
from weft.sim.packet.skip import SteadyStateSkip
from weft.sim.packet.state import State, Stop
from weft.sim.planes import run_over_planes
from weft.sim.result import NEVER, PortUse, Result
from weft.sim.traffic import Traffic

_FOREVER_PS = 1 << 52


class PacketEngine:
    """The packet engine: simulates every packet and every credit."""

    name = "packet"

    def run(
        self, fabric: Fabric, traffic: Traffic, options: Options | None = None, *, progress: Progress | None = None
    ) -> Result:
        """Run the traffic.

        Raise ConfigError before it starts if the input is invalid, SubnetError if a message can never arrive.
        """
        return run_over_planes(self._run, fabric, traffic, options, progress)

    def _run(self, fabric: Fabric, traffic: Traffic, options: Options, progress: Progress | None) -> Result:
        packet_plan = plan(fabric, traffic, options)
        run = _Run(packet_plan)
        begin = time.perf_counter()
        run.finish(progress)
        return run.result(traffic, time.perf_counter() - begin)


class _Run:
    """A run in progress: the state, and the checks between slices."""

    def __init__(self, packet_plan: PacketPlan) -> None:
        self.plan = packet_plan
        self.sampler = Sampler(packet_plan)
        self.skip = SteadyStateSkip(packet_plan)
        self.faults = FaultSchedule(packet_plan)
        self.capture = Capture(packet_plan)
        self.runner = make_runner(packet_plan)
        self.sliced_ps = 0  # the clock at the end of the last slice
        self.next_search = 0  # for a deadlock, in events

    @property
    def state(self) -> State:
        return self.runner.state

    def finish(self, progress: Progress | None) -> None:
        """Run until all messages are delivered or the run stops."""
        options = self.plan.options
        stop_ps = options.stop_at_ps or _FOREVER_PS
        while True:
            until_ps = min(stop_ps, self.sampler.next_ps, self.skip.next_window_ps, self.faults.next_ps)
            why = self.runner.advance(until_ps)
            self.capture.take(self.state)
            if progress is not None:
                progress(int(self.state.run.delivered[0]), len(self.state.messages))
            if why is Stop.MOMENT:
                if until_ps >= stop_ps:
                    return
                if until_ps == self.faults.next_ps:
                    self.faults.change(self.state, until_ps)
                if until_ps == self.sampler.next_ps:
                    self.sampler.sample(self.state, self.faults)
                if until_ps == self.skip.next_window_ps:
                    self.skip.end_window(self.state)
            elif why is Stop.DONE:
                check_all_acknowledged(self.state)
                return
            elif why not in (Stop.SLICE, Stop.ROOM) or self._is_deadlocked():
                raise explain(self.plan, self.state, why)

    def _is_deadlocked(self) -> bool:
        """Return whether there is a deadlock beside traffic that still moves.

        The search runs if a queue had no credits during a whole slice, and half as often each time that it finds
        nothing.
        """
        run = self.state.run[0]
        suspects = blocked_queues(self.state, self.sliced_ps)
        self.sliced_ps = int(run.now_ps)
        if run.events < self.next_search or not suspects.any():
            return False
        self.next_search = 2 * int(run.events)
        return find_cycle(self.state) is not None

    def result(self, traffic: Traffic, wall_s: float) -> Result:
        state, wiring, posting = self.state, self.plan.wiring, self.plan.posting
        messages, n = state.messages, len(traffic)
        last = posting.last_of
        retransmitted = messages.retransmitted[:n].copy()
        reads = last != np.arange(n)
        self.faults.check_used(int(state.run.now_ps[0]))
        retransmitted[reads] += messages.retransmitted[last[reads]]
        return Result(
            engine=PacketEngine.name,
            fabric=wiring.fabric,
            traffic=traffic,
            options=self.plan.options,
            start_ps=messages.start_ps[:n].copy(),
            finish_ps=np.where(messages.finish_ps[last] < 0, NEVER, messages.finish_ps[last]),
            acked_ps=np.where(reads, messages.finish_ps[last], messages.acked_ps[:n]),
            retransmitted=retransmitted,
            use=self._port_use(),
            groups=self.plan.trees.use(wiring.fabric),
            samples=self.sampler.result(),
            frames=self.capture.result(traffic),
            packets=int(state.run.packets[0]),
            packet_hops=int(state.ports.xmit_packets.sum()),
            events=int(state.run.events[0]),
            skipped_ps=self.skip.skipped_ps,
            wall_s=wall_s,
            threads=self.runner.threads,
            note=self.runner.note,
        )

    def _port_use(self) -> PortUse:
        """Return the use of the ports by slot of the fabric."""
        state, wiring = self.state, self.plan.wiring
        spread, ports, plugs = wiring.by_slot, state.ports, state.plugs
        self.faults.count_busy(state)
        busy_ps = ports.xmit_bytes * 8_000 / wiring.port_rate_gbit_s + self.faults.extra_busy_ps
        return PortUse(
            xmit_bytes=spread(ports.xmit_bytes),
            xmit_packets=spread(ports.xmit_packets),
            busy_ps=spread(np.rint(busy_ps)),
            xmit_wait_ps=spread(plugs.wait_ps),
            queue_peak_bytes=spread(self.faults.peak_bytes(state)),
            buffer_peak_bytes=spread(state.buffers.held_peak),
            corrupted_packets=spread(plugs.corrupted),
            dropped_packets=spread(plugs.dropped),
            trimmed_packets=spread(plugs.trimmed),
            marked_packets=spread(plugs.marked),
            pauses=spread(plugs.pauses),
        )


def check_all_acknowledged(state: State) -> None:
    """Raise SimulationBug if the run ended while a reliable queue pair still has something to send or to receive."""
    waiting = np.flatnonzero(state.qps.acked & ((state.qps.unsent >= 0) | (state.qps.oldest >= 0)))
    if state.run[0].left and len(waiting):
        raise SimulationBug(f"the run ended, and {len(waiting)} queue pairs still wait for acknowledgements")


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
        port, vl = divmod(int(run.stop_a), int(run.n_vls))
        return SimulationBug(
            f"the input buffer of {name(port)} holds {int(state.held[port, vl]):,} bytes and has room for "
            f"{int(state.buffers[port].room):,}: flow control failed"
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
        retries = f"{TCP_RETRIES} retries (ETIMEDOUT)" if tcp else f"{RETRIES} retries"
        retries += "" if tcp or run.uet else " (IBV_WC_RETRY_EXC_ERR)"
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
