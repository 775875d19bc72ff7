"""Print the header of perftest's table with the properties of weft's adapter."""

from __future__ import annotations

from weft.verbs.perftest.endpoint import Address, Endpoint
from weft.verbs.perftest.kinds import Verb
from weft.verbs.perftest.report import LINE


def settings(end: Endpoint, engine: str) -> list[str]:
    plan, port = end.plan, end.port
    kind = f"{plan.atomic} " if plan.verb is Verb.ATOMIC else ""
    lines = [
        LINE,
        plan.test.headline(bidirectional=plan.bidirectional, kind=kind),
        f" Dual-port       : OFF\t\tDevice         : {port.ctx.name}",
        f" Number of qps   : {plan.qps}\t\tTransport type : IB",
        f" Connection type : {plan.connection}\t\tUsing SRQ      : OFF",
        " PCIe relax order: Unsupported\t\tLock-free      : OFF",
        " ibv_wr* API     : OFF\t\tUsing Enhanced Reorder      : OFF",
    ]
    if not end.side or plan.bidirectional:
        lines.append(f" TX depth        : {plan.depth}")
    if plan.verb is Verb.SEND and (end.side or plan.bidirectional):
        lines.append(f" RX depth        : {plan.rx_depth}")
    if not plan.test.is_latency:
        lines += [f" CQ Moderation   : {plan.messages_per_completion(max(end.sizes))}", " CQE Poll Batch  : 16"]
    lines += [
        f" Mtu             : {end.mtu_bytes}[B]",
        f" Link type       : {'Ethernet' if port.is_ethernet else 'IB'}",
    ]
    if port.gid_index >= 0:
        lines.append(f" GID index       : {port.gid_index}")
    lines += [
        f" Outstand reads  : {plan.outs}"
        if plan.verb.is_answered
        else f" Max inline data : {plan.inline_max_bytes}[B]",
        " rdma_cm QPs\t : OFF",
        f" Data ex. method : Ethernet\t\tEngine         : {engine}",  # the last is weft's own
    ]
    return lines


def addresses(end: Endpoint) -> list[str]:
    sides = (("local", end.addresses()), ("remote", end.remote))
    return [line for side, ends in sides for address in ends for line in _address(end, side, address)]


def _address(end: Endpoint, side: str, address: Address) -> list[str]:
    text = f" {side} address: LID {_hex(address.lid, 4)} QPN {_hex(address.qpn, 6)} PSN {_hex(address.psn, 6)}"
    if end.plan.verb is Verb.READ:
        text += f" OUT {_hex(address.outs, 4)}"
    if end.plan.verb in (Verb.READ, Verb.WRITE):
        text += f" RKey {_hex(address.rkey, 8)} VAddr {_hex(address.vaddr, 16)}"
    if end.port.gid_index < 0:
        return [text]
    return [text, " GID: " + ":".join(f"{number:02d}" for number in bytes.fromhex(address.gid.replace(":", "")))]


def _hex(value: int, width: int) -> str:
    """Format a number as C's %#0*x, which omits the 0x of 0."""
    return f"{value:#0{width}x}" if value else "0" * width
