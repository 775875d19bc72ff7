"""Batches of packets have the results of single packets: delivery, counters, and traps."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from weft.errors import ConfigError
from weft.fabric.forwarding import Reason
from weft.mad import faults
from weft.mad.many_packets import carry_many
from weft.mad.packets import carry
from weft.wire.crc import vcrc_bytes
from weft.wire.headers import BTH, DETH, GRH, LNH, LRH, RWH, Opcode
from weft.wire.packet import Packet
from weft.wire.port_info import PortInfo

KEYS = (0xFFFF, 0x7FFF, 0x8010, 0x0010, 0x8020, 0x0020)
PAYLOAD = 52  # bytes; the same packet length with DETH and GRH or without both
BYTES = LRH.size + BTH.size + PAYLOAD + DETH.size + 6


def spoiled(bench, dice: Random):
    """Set random keys, checks and VLs and pull a cable, reproducibly for the same random generator."""
    devices = bench.devices
    devices.fabric.counters[:] = 0
    for slot in range(len(devices.cable)):
        devices.tables.pkey[slot, :3] = dice.choices(KEYS, k=3)
        if devices.port_info[slot] is not None and dice.random() < 0.4:
            for name in ("partition_enforcement_inbound", "partition_enforcement_outbound", "filter_raw_inbound"):
                PortInfo.fields[name].set(devices.info(slot), dice.randrange(2))
    devices.tables.sl2vl[:, 3] = 15
    faults.pull_cable(devices, bench.slot_of("leaf1/4"))
    return bench


def one(bench, dice: Random) -> tuple[int, bytes]:
    hosts = [f"h{n}" for n in range(1, 9)]
    sender, receiver = dice.choices(hosts, k=2)
    dlid = dice.choices((bench.lid(receiver), 999), (18, 1))[0]
    lrh = LRH(slid=bench.lid(sender), dlid=dlid, sl=dice.choice((0, 0, 1, 3)))
    bth = BTH(opcode=Opcode.UD_SEND_ONLY, dest_qp=dice.choice((7, 7, 7, 0)), p_key=dice.choice(KEYS))
    kind = dice.random()
    if kind < 0.05:
        raw = lrh.pack(lnh=LNH.RAW, slid=1, dlid=dlid, pkt_len=(BYTES - 2) // 4) + RWH.pack(ether_type=0x0800)
        raw = raw.ljust(BYTES - 2, b"\0")
        return bench.slot_of(f"{sender}/1"), raw + vcrc_bytes(raw)
    deth = DETH(q_key=0x1234, src_qp=5)
    headers = (lrh, GRH(sgid=1, dgid=2), bth, deth) if kind < 0.2 else (lrh, bth, deth)
    body = BYTES - 6 - sum(type(header).size for header in headers)
    return bench.slot_of(f"{sender}/1"), Packet(headers, b"x" * body).pack()


@pytest.mark.parametrize("seed", range(4))
def test_they_end_and_count_as_one_by_one(make_bench, seed):
    single, many = (spoiled(make_bench().bring_up(), Random(seed)) for _ in range(2))
    sent = [one(single, dice) for dice in [Random(seed)] for _ in range(400)]
    fates = [carry(single.devices, slot, raw) for slot, raw in sent]
    rows = np.frombuffer(b"".join(raw for _, raw in sent), np.uint8).reshape(len(sent), BYTES)
    result = carry_many(many.devices, np.array([slot for slot, _ in sent]), rows)
    for at, fate in enumerate(fates):
        ended = fate.dropped[0].slot if fate.dropped else fate.delivered[0]
        reason = fate.dropped[0].reason if fate.dropped else Reason.ARRIVED
        assert (result.end[at], result.reason[at]) == (ended, reason), sent[at]
        assert reason is not Reason.ARRIVED or result.vl[at] == fate.vls[0]
    assert (single.devices.fabric.counters == many.devices.fabric.counters).all()
    assert single.devices.details == many.devices.details
    assert (single.devices.tables.port_info == many.devices.tables.port_info).all()
    messages = [{key[:2] for key in bench.devices.traps.pending} for bench in (single, many)]
    assert messages[0] == messages[1] != set()
    observed = {Reason(int(reason)) for reason in result.reason}
    assert observed >= {Reason.ARRIVED, Reason.P_KEY, Reason.INBOUND, Reason.NO_ROUTE, Reason.MANAGEMENT}


def test_a_bad_cable_hurts_them_too(make_bench):
    bench = make_bench().bring_up()
    faults.degrade(bench.devices, bench.slot_of("h1/1"), 1e-3)
    raw = Packet(
        (LRH(slid=1, dlid=bench.lid("h2")), BTH(opcode=Opcode.UD_SEND_ONLY, dest_qp=7, p_key=0xFFFF), DETH()),
        b"x" * 200,
    ).pack()
    rows = np.tile(np.frombuffer(raw, np.uint8), (200, 1))
    result = carry_many(bench.devices, np.full(200, bench.slot_of("h1/1")), rows)
    assert set(result.reason.tolist()) == {Reason.BIT_ERROR, Reason.ARRIVED}


def test_packets_to_groups_are_refused(make_bench):
    bench = make_bench().bring_up()
    raw = Packet((LRH(slid=1, dlid=0xC003), BTH(opcode=Opcode.UD_SEND_ONLY, dest_qp=7), DETH())).pack()
    with pytest.raises(ConfigError, match="groups"):
        carry_many(bench.devices, np.array([bench.slot_of("h1/1")]), np.frombuffer(raw, np.uint8)[None])
