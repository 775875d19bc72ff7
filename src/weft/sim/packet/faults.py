"""Apply faults of links during a run.

A cut cable loses every packet that has not arrived, and every packet sent until it is back: the sending port discards
them, as a port that is down does. Credits and pause frames are not lost, since a link that comes back starts with fresh
ones. Forwarding tables stay as they are: the time is too short for a subnet manager. A policy that goes by the load of
ports (adaptive routing) avoids a port that is down; ECMP does not.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from weft.errors import ConfigError
from weft.sim.link_faults import NO_END_PS, LinkFault
from weft.sim.packet.plan import PacketPlan
from weft.sim.packet.state import LOSSY, State

DOWN_BYTES = 1 << 29  # added to the load of a port that is down, so that adaptive routing avoids it


class FaultSchedule:
    """The faults of a run and the time of the next change."""

    def __init__(self, packet_plan: PacketPlan) -> None:
        self._wiring = wiring = packet_plan.wiring
        self._faults = packet_plan.faults
        self._ends = [_ends(packet_plan, fault) for fault in self._faults]
        self._rate = [int(np.searchsorted(wiring.rate_gbit_s, gbit_s)) for gbit_s in packet_plan.fault_gbit_s]
        self._times_ps = sorted({at for fault in self._faults for at in (fault.begin_ps, fault.end_ps)})
        self.next_ps = self._times_ps[0] if self._times_ps else NO_END_PS
        self.down = np.zeros(len(wiring.ports), np.bool_)
        self.extra_busy_ps = np.zeros(len(wiring.ports))  # time that slow rates added
        self._counted_bytes = self._peak_bytes = np.zeros(len(wiring.ports), np.int64)

    def change(self, state: State, now_ps: int) -> None:
        """Apply the faults that are active from now on."""
        self.count_busy(state)
        self._peak_bytes = self.peak_bytes(state)
        state.loads.peak_bytes = 0
        down, rate = np.zeros_like(self.down), self._wiring.ports.rate.astype(np.int64)
        for fault, ends, index in zip(self._faults, self._ends, self._rate, strict=True):
            if fault.begin_ps <= now_ps < fault.end_ps:
                if fault.label:
                    rate[ends] = np.minimum(rate[ends], index)
                else:
                    down[ends] = True
        state.loads.bytes += DOWN_BYTES * (down.astype(np.int32) - self.down.astype(np.int32))
        state.plugs.down, self.down = down, down
        lossy = down | (state.plugs.bytes_per_error > 0)
        state.buffers.extra = (state.buffers.extra & ~LOSSY) | (LOSSY * lossy)
        state.ports.rate = state.buffers.rate = rate
        self.next_ps = min((at for at in self._times_ps if at > now_ps), default=NO_END_PS)

    def count_busy(self, state: State) -> None:
        """Count the extra time of the bytes that slow ports have sent since the last change."""
        sent_bytes = state.ports.xmit_bytes - self._counted_bytes
        usual, now = (self._wiring.rate_gbit_s[rates] for rates in (self._wiring.ports.rate, state.ports.rate))
        self.extra_busy_ps += sent_bytes * 8_000 * (1 / now - 1 / usual)
        self._counted_bytes = state.ports.xmit_bytes.copy()

    def queue_bytes(self, state: State, ports: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the queues of ports, without the load that keeps adaptive routing away."""
        load_bytes: NDArray[np.int64] = np.asarray(state.loads)["bytes"][ports].astype(np.int64)
        return load_bytes - DOWN_BYTES * self.down[ports]

    def peak_bytes(self, state: State) -> NDArray[np.int64]:
        """Return the largest queue of each port."""
        now: NDArray[np.int64] = state.loads.peak_bytes.astype(np.int64)
        return np.maximum(self._peak_bytes, now - DOWN_BYTES * (now >= DOWN_BYTES))

    def check_used(self, end_ps: int) -> None:
        """Raise ConfigError if a fault would have begun after the end of the run."""
        for fault in self._faults:
            if fault.begin_ps > end_ps:
                raise ConfigError(
                    f"--fault {fault.text} begins after the end of the run, {end_ps / 1e6:,.3f} µs: "
                    f"give an earlier time"
                )


def _ends(packet_plan: PacketPlan, fault: LinkFault) -> list[int]:
    """Return the two ports of the cable."""
    wiring = packet_plan.wiring
    port = int(wiring.port_of_slot[wiring.fabric.find_port(fault.port).slot])
    if port < 0 or wiring.ports.peer[port] < 0:
        raise ConfigError(
            f"--fault {fault.text}: {fault.port} has no cable of the {packet_plan.options.network} network"
        )
    return [port, int(wiring.ports.peer[port])]
