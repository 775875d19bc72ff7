"""The flow engine: messages as fluid flows, for networks too large to simulate packet by packet.

A message flows over the links of its path at its max-min fair rate. It arrives once its bytes have passed at that
rate, plus
the time beyond those bytes that the packet engine needs on an idle network, plus receiving. Alone on the network it
finishes
exactly when it does in the packet engine, to the picosecond. Flows that share a link get equal rates.

Not modelled: queues, credits, VLs and their arbitration, congestion control, TCP's windows and losses. A flow that is
limited elsewhere leaves its share to others at once, so there is no head-of-line blocking; acknowledgements use no
capacity. Options of packets (buffers, congestion control, timeouts), watched ports and cables with bit errors are
refused. TCP runs as flows limited by the cores that copy and process, without slow start. Waits and peaks of ports are
0; `events` counts the solutions of rates. `weft.sim.trust` has the measured differences from the packet engine.
"""

from __future__ import annotations

import time

import numpy as np

from weft.errors import SimulationBug
from weft.fabric.model import Fabric
from weft.sim.engine import Options, Progress
from weft.sim.flow.loop import run_moments
from weft.sim.flow.outcome import collect
from weft.sim.flow.plan import FlowPlan, plan
from weft.sim.flow.state import Stop
from weft.sim.planes import run_over_planes
from weft.sim.result import NEVER, Result
from weft.sim.traffic import Traffic

SLICE_MOMENTS = 200_000  # between two progress reports
_FOREVER_PS = 1 << 52


class FlowEngine:
    """The flow engine: fair rates, no packets."""

    name = "flow"

    def run(
        self, fabric: Fabric, traffic: Traffic, options: Options | None = None, *, progress: Progress | None = None
    ) -> Result:
        """Run the traffic. Raise ConfigError before it starts if the input is invalid."""
        return run_over_planes(self._run, fabric, traffic, options, progress)

    def _run(self, fabric: Fabric, traffic: Traffic, options: Options, progress: Progress | None) -> Result:
        flow_plan = plan(fabric, traffic, options)
        run_moments(flow_plan.state, 0)  # compile, or load from the cache, before timing starts
        begin = time.perf_counter()
        _finish(flow_plan, progress)
        _cut_off(flow_plan)
        events = int(flow_plan.state.run.solutions[0])
        return collect(flow_plan, traffic, self.name, events, time.perf_counter() - begin)


def _finish(flow_plan: FlowPlan, progress: Progress | None) -> None:
    state = flow_plan.state
    run = state.run[0]
    run.until_ps = flow_plan.options.stop_at_ps or _FOREVER_PS
    while True:
        why = Stop(run_moments(state, SLICE_MOMENTS))
        if progress is not None:
            progress(len(state.messages) - int(run.left), len(state.messages))
        if why is Stop.SLICE:
            continue
        if why is Stop.DONE and run.left:
            raise SimulationBug(f"no events left, but {int(run.left):,} messages have not arrived")
        return


def _cut_off(flow_plan: FlowPlan) -> None:
    """Stop at `stop_at_ps`: later arrivals did not happen, and messages in flight were sent in part."""
    stop_ps = flow_plan.options.stop_at_ps
    if not stop_ps:
        return
    state = flow_plan.state
    messages, flows = state.messages, state.flows
    late = messages.finish_ps - flows.receive_ps[messages.qp] > stop_ps
    messages.finish_ps[late] = NEVER
    messages.acked_ps[messages.acked_ps > stop_ps] = NEVER
    under_way = flows[flows.message >= 0]
    sent_bytes = under_way.rate * (stop_ps - under_way.since_ps)
    full_bytes = state.size_bytes[messages.full[under_way.message]]
    flows.sent_bytes[flows.message >= 0] += sent_bytes.astype(np.int64)
    flows.sent_packets[flows.message >= 0] += np.ceil(sent_bytes / full_bytes).astype(np.int64)
