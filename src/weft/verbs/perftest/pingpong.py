"""ibv_rc_pingpong, ibv_uc_pingpong and ibv_ud_pingpong of rdma-core's examples: their options, their lines.

A server understands rdma-core's own clients, which send their address as text of a fixed length, get the server's,
say "done" and close the connection. Clients of weft say more, so that both ends know that they do the same.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import asdict

import numpy as np
from numpy.typing import NDArray

from weft.errors import ConfigError, SubnetError, find_named
from weft.units import parse_size_bytes
from weft.verbs.errors import PyverbsError
from weft.verbs.perftest import exchange
from weft.verbs.perftest.arguments import Arguments, number
from weft.verbs.perftest.devinfo import gid_text
from weft.verbs.perftest.endpoint import Address, Endpoint, open_port
from weft.verbs.perftest.engines import choose, load
from weft.verbs.perftest.kinds import LIMITS, Connection, Test
from weft.verbs.perftest.loop import Batch
from weft.verbs.perftest.plan import Plan, Seat, made_of
from weft.verbs.perftest.watch import is_over

NAMES = {f"ibv_{kind.lower()}_pingpong": kind for kind in Connection}
_SIZES = {Connection.RC: 4096, Connection.UC: 4096, Connection.UD: 1024}

Say = Callable[[str], None]


def main(name: str, words: Sequence[str], say: Say) -> None:
    """One end, until both have sent and received all."""
    connection = find_named("program", name, NAMES)
    given = _arguments(name).parse_args(list(words))
    sizes = (parse_size_bytes(given.size),)
    plan = made_of(given, Plan, test=Test.SEND_LAT, sizes=sizes, connection=connection, inline_bytes=0)
    try:
        _run(plan, made_of(given, Seat), with_events=given.events, say=say)
    except PyverbsError as error:
        raise SubnetError(str(error)) from error


def _arguments(name: str) -> Arguments:
    kind = NAMES[name]
    made = Arguments(name, f"A message there and one back over {kind}, again and again.")
    made.add_meeting()
    made.add_argument("-s", "--size", default=str(_SIZES[kind]), help=f"bytes (default {_SIZES[kind]})")
    for letter, option, field, usual, text in (
        ("-r", "rx-depth", "rx_depth", 500, "receives posted (default 500)"),
        ("-n", "iters", "iterations", 1000, "messages (default 1000)"),
        ("-l", "sl", "sl", 0, "service level"),
    ):
        reader = number(option, *LIMITS[field])
        made.add_argument(letter, f"--{option}", dest=field, type=reader, default=usual, help=text)
    made.add_argument("-e", "--events", action="store_true", help="sleep until something comes, instead of polling")
    gid_index = number("gid-idx", 0, 254)
    made.add_argument("-g", "--gid-idx", dest="gid_index", type=gid_index, default=-1, help="of this end's port")
    made.add_argument("-c", "--chk", action="store_true", help="look at what was received; weft always does")
    return made


def _run(plan: Plan, seat: Seat, *, with_events: bool, say: Say) -> None:
    port = open_port(seat.device, seat.ib_port, seat.gid_index)
    if plan.mtu_bytes > port.mtu_bytes:
        raise ConfigError(f"mtu {plan.mtu_bytes} is more than the port has: {port.mtu_bytes} at most")
    side = 0 if seat.host else 1
    end = Endpoint(port, plan, mtu_bytes=plan.mtu_bytes or port.mtu_bytes, side=side, with_events=with_events)
    listener = None if seat.host else exchange.Listener(seat.bind, seat.port)
    (mine,) = end.addresses()
    say(_line("local address: ", mine))
    peer = listener.accept() if listener else exchange.call(seat.host, seat.port)
    try:
        if listener is not None and not peer.is_of_weft():
            other = _address_in(peer.read(len(_text(mine))))
            say(_line("remote address:", other))
            _serve_rdma_core(end, peer, mine, other, say)
            return
        other = _meet(peer, plan, seat, mine)
        say(_line("remote address:", other))
        _exchange_messages(end, peer, other, say)
    except ConfigError as error:
        peer.refuse(str(error))
        raise
    finally:
        peer.close()
        end.close()


def _meet(peer: exchange.Peer, plan: Plan, seat: Seat, mine: Address) -> Address:
    """Both must have been given the same."""
    alike = {"kind": plan.connection, "size": plan.sizes[0], "iters": plan.iterations, "mtu": plan.mtu_bytes}
    peer.send(pingpong={"alike": alike, "host": exchange.own_host(), "address": asdict(mine)})
    facts = peer.told("pingpong", "alike", "host", "address")
    for name, ours in alike.items():
        if (theirs := facts["alike"].get(name)) != ours:
            raise ConfigError(f"{name}: {ours} here, {theirs} at the other end: give both the same")
    if seat.host:
        exchange.check_host(seat.host, facts["host"])
    return exchange.build(Address, facts["address"])


# -- with rdma-core's -------------------------------------------------------------------------------------------------


def _text(address: Address) -> bytes:
    """As rdma-core writes it: LID, QPN, PSN and GID in hexadecimal, and the zero at the end of a string of C."""
    return b"%04x:%06x:%06x:%s\0" % (address.lid, address.qpn, address.psn, address.gid.replace(":", "").encode())


def _address_in(text: bytes) -> Address:
    try:
        lid, qpn, psn = (int(word, 16) for word in text[:18].split(b":"))
        raw = bytes.fromhex(text[19:51].decode())
    except ValueError as error:
        raise SubnetError(f"what is at the other end is no pingpong: it says {text!r}") from error
    gid = ":".join(raw[at : at + 2].hex() for at in range(0, len(raw), 2))
    return Address(lid=lid, qpn=qpn, psn=psn, gid=gid, rkey=0, vaddr=0, outs=0)


def _serve_rdma_core(end: Endpoint, peer: exchange.Peer, mine: Address, other: Address, say: Say) -> None:
    plan, (size_bytes,) = end.plan, end.sizes
    load(end)
    end.connect([other])
    end.fill_receives()
    peer.write(_text(mine))
    peer.read(len(b"done\0"))
    batch = Batch(number=1, size_bytes=size_bytes, iterations=plan.iterations)
    loop = choose(end, lambda quiet_s: False)  # the connection to the other end may be over: the transport tells
    _say_figures(loop.pingpong(batch, begins=False), batch, say)


def _exchange_messages(end: Endpoint, peer: exchange.Peer, other: Address, say: Say) -> None:
    plan, (size_bytes,) = end.plan, end.sizes
    batch = Batch(number=1, size_bytes=size_bytes, iterations=plan.iterations)
    load(end)
    end.connect([other])
    end.fill(batch.number, size_bytes)
    end.fill_receives()
    peer.send(ready=True)
    peer.told("ready")
    loop = choose(end, functools.partial(is_over, peer, plan))
    peer.send(engine=loop.engine)
    peer.told("engine")
    _say_figures(loop.pingpong(batch, begins=not end.side), batch, say)
    if not end.has_arrived(batch.number, size_bytes, plan.iterations):
        raise SubnetError(f"invalid data in what was received: {size_bytes} bytes are not those that were sent")
    peer.send(over=True)  # its messages may still be on their way while this process could end
    peer.told("over")


def _say_figures(stamps: NDArray[np.int64], batch: Batch, say: Say) -> None:
    took_us = max(int(stamps[-1] - stamps[0]), 1) / 1e3
    total_bytes = 2 * batch.size_bytes * batch.iterations
    say(f"{total_bytes} bytes in {took_us / 1e6:.2f} seconds = {total_bytes * 8 / took_us:.2f} Mbit/sec")
    say(f"{batch.iterations} iters in {took_us / 1e6:.2f} seconds = {took_us / batch.iterations:.2f} usec/iter")


def _line(side: str, address: Address) -> str:
    shown = gid_text(bytes.fromhex(address.gid.replace(":", "")))
    return f"  {side} LID {address.lid:#06x}, QPN {address.qpn:#08x}, PSN {address.psn:#08x}, GID {shown}"
