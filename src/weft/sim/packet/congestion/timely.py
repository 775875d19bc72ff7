"""TIMELY: a rate that follows the gradient of the round trip.

Mittal et al., "TIMELY: RTT-based Congestion Control for the Datacenter", SIGCOMM 2015. Longer round trips lower
the rate in proportion, others raise it; below a low threshold it always rises, above a high one it always falls. The
rate changes once per segment of 64 KB.
"""

from __future__ import annotations

from typing import Any

from weft.sim.congestion import Control, Parameters, Ports
from weft.sim.engine import Network

SEGMENT_PACKETS = 16
WEIGHT = 0.875  # alpha: of the latest difference in the mean
DECREASE = 0.8  # beta
STEP = 1 / 1000  # delta: 10 Mbit/s of the paper's 10 Gbit/s
HYPER_ROUNDS, HYPER_STEPS = 5, 5  # after five rounds without a longer round trip five steps at once
# Round trip without queues, and thresholds above it: 20, 50 and 500 µs in the paper, for its line of 10 Gbit/s. The
# queues that they stand for, 25, 37.5 and 600 KB, stay the same in bytes. A gradient in units of a much shorter round
# trip would be above 1 for a few packets, and each of them would cost four fifths of the rate.
LINE_GBIT_S, LEAST_PS, LOW_PS, HIGH_PS = 10, 20_000_000, 30_000_000, 480_000_000
SLOWEST = 1 / 1000

# Fields: shortest round trip, the previous one, mean difference, rounds without a longer one, packets in the segment
_RTT, _BEFORE, _DIFFERENCE, _ROUNDS, _PACKETS = 0, 1, 2, 3, 4


def prepare(ports: Ports, qps: Any) -> Parameters:
    return Parameters(fields=5)


def on_packet(qp, now_ps, table, fields, hops):
    rtt_ps = qp.rtt_ps
    if fields[_RTT] == 0 or rtt_ps < fields[_RTT]:
        fields[_RTT] = rtt_ps
    fields[_PACKETS] += 1
    if fields[_PACKETS] < SEGMENT_PACKETS:
        return
    fields[_PACKETS] = 0
    slower = LINE_GBIT_S * qp.line_ps_per_kib / (1024 * 8000)
    if fields[_BEFORE] > 0:
        fields[_DIFFERENCE] = (1 - WEIGHT) * fields[_DIFFERENCE] + WEIGHT * (rtt_ps - fields[_BEFORE])
    fields[_BEFORE] = rtt_ps
    gradient = fields[_DIFFERENCE] / max(fields[_RTT], LEAST_PS * slower)
    high_ps = fields[_RTT] + HIGH_PS * slower
    if rtt_ps < fields[_RTT] + LOW_PS * slower:
        qp.rate += STEP
    elif rtt_ps > high_ps:
        qp.rate *= 1 - DECREASE * (1 - high_ps / rtt_ps)
        fields[_ROUNDS] = 0
    elif gradient <= 0:
        fields[_ROUNDS] += 1
        qp.rate += STEP * (HYPER_STEPS if fields[_ROUNDS] >= HYPER_ROUNDS else 1)
    else:
        qp.rate *= 1 - DECREASE * min(gradient, 1.0)
        fields[_ROUNDS] = 0
    qp.rate = min(max(qp.rate, SLOWEST), 1.0)


TIMELY = Control(
    name="timely",
    networks=(Network.ROCE, Network.ROCE_V1, Network.INFINIBAND, Network.OMNI_PATH),
    prepare=prepare,
    on_packet=on_packet,
)
