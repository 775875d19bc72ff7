"""Sample the watched ports of a run at regular times."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from weft.errors import ConfigError
from weft.sim.layout.records import FlowControl
from weft.sim.packet.faults import FaultSchedule
from weft.sim.packet.plan import PacketPlan
from weft.sim.packet.state import State
from weft.sim.result import PortSamples

_FOREVER_PS = 1 << 52


class Sampler:
    """The samples of the watched ports so far, and the time of the next one."""

    def __init__(self, packet_plan: PacketPlan) -> None:
        self._plan = packet_plan
        options, wiring = packet_plan.options, packet_plan.wiring
        slots = [wiring.fabric.find_port(name).slot for name in options.watch]
        self._ports = wiring.port_of_slot[np.array(slots, np.int64)]
        for name, port in zip(options.watch, self._ports.tolist(), strict=True):
            if port < 0:
                raise ConfigError(f"{name} cannot be watched: it is not a port of the {options.network} network")
        self.next_ps = options.watch_every_ps if slots else _FOREVER_PS
        self._has_credits = packet_plan.state.run.flow[0] == FlowControl.CREDITS
        self._unknown = np.full(len(self._ports), np.nan)
        hosts = wiring.host[self._ports].tolist()
        self._hosts = [(column, host) for column, host in enumerate(hosts) if host >= 0]
        self._times_ps: list[int] = []
        self._rows: list[NDArray[np.float64]] = []  # [quantity, port]

    def sample(self, state: State, faults: FaultSchedule) -> None:
        """Take the sample that is due."""
        at, now_ps = self._ports, self.next_ps
        # Plain arrays: an attribute of a record array takes as long as all that is read here.
        ports, plugs, queues = np.asarray(state.ports), np.asarray(state.plugs), np.asarray(state.queues)
        waits = ports["starved"][at] > 0
        wait_ps = plugs["wait_ps"][at] + np.where(waits, now_ps - plugs["wait_since_ps"][at], 0)
        credit_bytes = queues["credits"].reshape(len(ports), -1)[at].sum(axis=1)
        row = (
            faults.queue_bytes(state, at),
            ports["xmit_bytes"][at],
            wait_ps,
            plugs["pauses"][at],
            credit_bytes if self._has_credits else self._unknown,
            self._allowed_rates(np.asarray(state.qps)),
        )
        self._times_ps.append(now_ps)
        self._rows.append(np.array(row, np.float64))
        self.next_ps += self._plan.options.watch_every_ps

    def _allowed_rates(self, qps: NDArray[np.void]) -> NDArray[np.float64]:
        """Return the mean rate that congestion control allows the sending queue pairs of each watched port."""
        rates = self._unknown.copy()
        for column, host in self._hosts:
            sending = (qps["host"] == host) & (qps["unsent"] >= 0)
            if sending.any():
                rates[column] = qps["rate"][sending].mean()
        return rates

    def result(self) -> PortSamples:
        n, width = len(self._times_ps), len(self._ports)
        rows = np.array(self._rows, np.float64).reshape(n, 6, width)
        queue, sent, wait, pauses, credit_bytes, rates = (rows[:, at] for at in range(6))
        every_ps = self._plan.options.watch_every_ps
        line = self._plan.wiring.port_rate_gbit_s[self._ports] / 8_000  # bytes per ps

        def grown(column: NDArray[np.float64]) -> NDArray[np.float64]:
            return np.diff(column, axis=0, prepend=np.zeros((1, width)))

        return PortSamples(
            port=self._plan.options.watch,
            time_ps=np.array(self._times_ps, np.int64),
            queue_bytes=queue.astype(np.int64),
            utilisation=grown(sent) / (line * every_ps),
            blocked=grown(wait) / every_ps,
            pauses=grown(pauses).astype(np.int64),
            credit_bytes=credit_bytes,
            allowed_rate=rates,
        )
