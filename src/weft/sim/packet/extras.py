"""Features of a run that are off the usual path: one read port an input, captured ports, reductions in switches."""

from __future__ import annotations

from weft.errors import ConfigError
from weft.sim.engine import Crossbar, Options
from weft.sim.layout.records import NONE, FlowControl, Records, records
from weft.sim.layout.wiring import Wiring
from weft.sim.packet.aggregation import Aggregation
from weft.sim.packet.state import CAPTURED, FRAME, INPUT, ONE_READ
from weft.sim.packet.trees import Trees

OWN_RECEIVER_FIELDS = 3  # of a receiving adapter, before those of its control
MOST_FRAMES = 1 << 18  # in one slice: more than its events


def add_extras(
    wiring: Wiring,
    options: Options,
    run: Records,
    buffers: Records,
    n_vls: int,
    trees: Trees,
    aggregation: Aggregation,
) -> tuple[Records, Records]:
    """Mark the buffers whose packets need more than the usual path; return the inputs and the room for frames."""
    copies = bool(trees.widest or aggregation.widest)
    one_read = options.crossbar is Crossbar.ONE_READ_PORT
    if aggregation.widest and (trees.widest or bool(run.losses[0])):
        raise ConfigError(
            "reductions in switches need a network without losses and without multicast: leave out bit errors, cut "
            "cables and multicast messages"
        )
    if one_read and (copies or run.flow[0] == FlowControl.DROP or run.network_rtt_ps[0]):
        raise ConfigError(
            f"--crossbar {options.crossbar} is for unicast on a lossless network: leave it out with TCP, Ultra "
            f"Ethernet, multicast and reductions in switches"
        )
    if options.skip_tolerance and (one_read or aggregation.widest or options.capture or run.network_rtt_ps[0]):
        raise ConfigError(
            "a skip tolerance leaves packets out: not with --capture, --crossbar one-read-port, Ultra Ethernet "
            "or reductions in switches"
        )
    run.one_read = one_read
    inputs = records(len(buffers) * n_vls if one_read else 1, INPUT)
    inputs.head = NONE
    if one_read:
        buffers.extra |= ONE_READ * (buffers.owner >= 0)
    for name in options.capture:
        port = int(wiring.port_of_slot[wiring.fabric.find_port(name).slot])
        if port < 0 or wiring.ports.peer[port] < 0:
            raise ConfigError(f"{name} cannot be captured: it has no cable of the {options.network} network")
        for end in (port, int(wiring.ports.peer[port])):
            buffers.extra[end] |= CAPTURED
    if options.capture and copies:
        raise ConfigError("--capture records unicast packets: leave it out with multicast and reductions in switches")
    return inputs, records(MOST_FRAMES if options.capture else 1, FRAME)
