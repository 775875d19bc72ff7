"""The flow engine: messages as fluids, for networks too large to run packet by packet.

A message flows over the links of its path at its max-min fair rate, and is there when its last packet would be: it
is ready, its bytes pass at that rate, then what the packet engine needs on an idle network beyond those bytes, then
receiving.
Alone on the network it finishes when the packet engine says, to the picosecond. Who shares a link gets the same rate.

Not here: queues, credits, VLs and their arbitration, congestion control, TCP's windows and losses. A flow that is
limited elsewhere leaves its share to others at once, so nobody is the victim of another's full buffer; acknowledgements
take no room. `buffer_bytes`, `skip_tolerance` and `congestion_control` change nothing. TCP runs as flows
limited by the cores that copy and process, without slow start. Waits and peaks of ports are 0, `events` counts the
solutions of rates. Watched ports and cables with bit errors are refused.
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
from weft.sim.result import NEVER, Result
from weft.sim.traffic import Traffic

SLICE_MOMENTS = 200_000  # between two words of progress
_FOREVER_PS = 1 << 52


class FlowEngine:
    """Fair rates, no packets."""

    name = "flow"

    def run(
        self, fabric: Fabric, traffic: Traffic, options: Options | None = None, *, progress: Progress | None = None
    ) -> Result:
        """Run the traffic; raises ConfigError before the clock starts."""
        made = plan(fabric, traffic, options or Options())
        run_moments(made.state, 0)  # compiled, or read from the cache, before the clock
        begin = time.perf_counter()
        _finish(made, progress)
        _cut_off(made)
        events = int(made.state.run.solutions[0])
        return collect(made, traffic, self.name, events, time.perf_counter() - begin)


def _finish(made: FlowPlan, progress: Progress | None) -> None:
    state = made.state
    run = state.run[0]
    run.until_ps = made.options.stop_at_ps or _FOREVER_PS
    while True:
        why = Stop(run_moments(state, SLICE_MOMENTS))
        if progress is not None:
            progress(len(state.messages) - int(run.left), len(state.messages))
        if why is Stop.SLICE:
            continue
        if why is Stop.DONE and run.left:
            raise SimulationBug(f"nothing is left to happen, and {int(run.left):,} messages have not arrived")
        return


def _cut_off(made: FlowPlan) -> None:
    """At `stop_at_ps` what has not arrived has not, and what was under way was sent in part."""
    stop_ps = made.options.stop_at_ps
    if not stop_ps:
        return
    state = made.state
    messages, flows = state.messages, state.flows
    late = messages.finish_ps - flows.receive_ps[messages.qp] > stop_ps
    messages.finish_ps[late] = NEVER
    messages.acked_ps[messages.acked_ps > stop_ps] = NEVER
    under_way = flows[flows.message >= 0]
    sent_bytes = under_way.rate * (stop_ps - under_way.since_ps)
    full_bytes = state.size_bytes[messages.full[under_way.message]]
    flows.sent_bytes[flows.message >= 0] += sent_bytes.astype(np.int64)
    flows.sent_packets[flows.message >= 0] += np.ceil(sent_bytes / full_bytes).astype(np.int64)
