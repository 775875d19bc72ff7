"""RC in the adapter and in the packet engine: if the same packet is lost, both retransmit the same packets.

All packets are in flight before the first answer returns, so that timing does not matter: go-back-N resends from the
first missing packet after a NAK, or from the first unacknowledged one after a timeout. A responder answers every
duplicate, as Linux's rxe does.
"""

from __future__ import annotations

import pytest
from tests.verbs.wires import Wire, connected

import weft
from weft.fabric import faults
from weft.routing.route import route
from weft.sim.engine import Options
from weft.sim.packet import engine
from weft.sim.traffic import Traffic
from weft.verbs.enums import ibv_wr_opcode
from weft.verbs.hca.segment import Op

MTU_BYTES, PACKETS, MESSAGES = 1024, 6, 2
SIZE_BYTES = MTU_BYTES * PACKETS
FAR = 1 << 60
NOBODY = -1


def by_the_adapter(data: int, ack: int) -> tuple[int, int]:
    """Return the numbers of data packets and answers sent if this data packet and this acknowledgement are lost."""
    counts = {True: 0, False: 0}

    def fate(packet):
        is_ack = packet.op == Op.ACKNOWLEDGE
        counts[is_ack] += 1
        return [] if counts[is_ack] - 1 == (ack if is_ack else data) else [packet]

    wire = Wire(fate)
    a, _ = connected(wire, mtu_bytes=MTU_BYTES)
    for number in range(MESSAGES):
        opcode = ibv_wr_opcode.IBV_WR_RDMA_WRITE
        wire.a.send(a, number, 0, SIZE_BYTES, opcode, va=wire.b.at, rkey=wire.b.region.key)
    wire.run(10.0)
    assert wire.a.done() == [(number, 0) for number in range(MESSAGES)]
    return counts[False], counts[True]


def by_the_engine(data: int, ack: int, monkeypatch: pytest.MonkeyPatch) -> tuple[int, int]:
    fabric = faults.degrade(route(weft.load("star:hosts=2")).fabric, "h1/1", 1e-15)  # so that losses are simulated
    plan, local = engine.plan, fabric.find_port("h1/1").slot

    def with_loss(*given):
        result = plan(*given)
        plugs, size_bytes = result.state.plugs, result.state.size_bytes
        message, own = result.posting.messages[0], int(result.wiring.port_of_slot[local])
        kinds = [message.first, *[message.full] * (PACKETS - 2), message.last] * MESSAGES
        plugs.clean_bytes, plugs.bytes_per_error = FAR, FAR  # one loss each
        if data != NOBODY:
            plugs.clean_bytes[plugs.peer[own]] = int(size_bytes[kinds[: data + 1]].sum()) - 1
        if ack != NOBODY:
            plugs.clean_bytes[own] = (ack + 1) * int(size_bytes[result.posting.ack_size]) - 1
        return result

    monkeypatch.setattr(engine, "plan", with_loss)
    traffic = Traffic.of(fabric, [("h1", "h2", SIZE_BYTES)] * MESSAGES)
    result = engine.PacketEngine().run(fabric, traffic, Options(mtu_bytes=MTU_BYTES))
    assert result.use.corrupted_packets.sum() == (data != NOBODY) + (ack != NOBODY)
    return int(result.use.xmit_packets[local]), int(result.use.xmit_packets[fabric.find_port("h2/1").slot])


CASES = [(NOBODY, NOBODY), *((data, NOBODY) for data in range(MESSAGES * PACKETS)), (NOBODY, 0), (NOBODY, 1)]


@pytest.mark.parametrize(("data", "ack"), CASES)
def test_loss_costs_as_many_packets_in_the_engine_as_in_the_adapter(data, ack, monkeypatch):
    assert by_the_engine(data, ack, monkeypatch) == by_the_adapter(data, ack)
