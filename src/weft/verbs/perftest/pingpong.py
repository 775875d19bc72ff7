"""Run ibv_rc_pingpong, ibv_uc_pingpong and ibv_ud_pingpong with the options and output of rdma-core's examples.

A server accepts rdma-core's own clients, which send their address as text of a fixed length, receive the server's, send
"done" and close the connection. Clients of weft send their options too, so that both ends can compare them.
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
from weft.verbs.perftest.exchange import is_over
from weft.verbs.perftest.kinds import LIMITS, Connection, Test
from weft.verbs.perftest.loop import Batch
from weft.verbs.perftest.plan import EndpointArguments, Plan, create_from

NAMES = {f"ibv_{kind.lower()}_pingpong": kind for kind in Connection}
_MTU_BYTES = 1024  # rdma-core's default; its programs do not exchange the MTU, which both ends need for RC and UC
_SIZES = {Connection.RC: 4096, Connection.UC: 4096, Connection.UD: 1024}

Say = Callable[[str], None]


def main(name: str, words: Sequence[str], say: Say) -> None:
    """Run one end of a ping-pong."""
    connection = find_named("program", name, NAMES)
    arguments = _arguments(name).parse_args(list(words))
    sizes = (parse_size_bytes(arguments.size),)
    plan = create_from(arguments, Plan, test=Test.SEND_LAT, sizes=sizes, connection=connection, inline_bytes=0)
    try:
        _run(plan, create_from(arguments, EndpointArguments), with_events=arguments.events, say=say)
    except PyverbsError as error:
        raise SubnetError(str(error)) from error


def _arguments(name: str) -> Arguments:
    kind = NAMES[name]
    parser = Arguments(name, f"Exchange messages over {kind} in turns.")
    parser.add_connection("default the port's" if kind is Connection.UD else f"default {_MTU_BYTES}")
    parser.add_argument("-s", "--size", default=str(_SIZES[kind]), help=f"bytes (default {_SIZES[kind]})")
    for letter, option, field, usual, text in (
        ("-r", "rx-depth", "rx_depth", 500, "receives posted (default 500)"),
        ("-n", "iters", "iterations", 1000, "messages (default 1000)"),
        ("-l", "sl", "sl", 0, "service level"),
    ):
        reader = number(option, *LIMITS[field])
        parser.add_argument(letter, f"--{option}", dest=field, type=reader, default=usual, help=text)
    parser.add_argument("-e", "--events", action="store_true", help="wait for events instead of polling")
    gid_index = number("gid-idx", 0, 254)
    parser.add_argument("-g", "--gid-idx", dest="gid_index", type=gid_index, default=-1, help="of this end's port")
    parser.add_argument("-c", "--chk", action="store_true", help="check the received data; weft always does")
    return parser


def _run(plan: Plan, arguments: EndpointArguments, *, with_events: bool, say: Say) -> None:
    port = open_port(arguments.device, arguments.ib_port, arguments.gid_index)
    if plan.mtu_bytes > port.mtu_bytes:
        raise ConfigError(f"-m {plan.mtu_bytes} is above the MTU of the port, {port.mtu_bytes}")
    side = 0 if arguments.host else 1
    usual_bytes = port.mtu_bytes if plan.connection is Connection.UD else min(port.mtu_bytes, _MTU_BYTES)
    end = Endpoint(port, plan, mtu_bytes=plan.mtu_bytes or usual_bytes, side=side, with_events=with_events)
    listener = None if arguments.host else exchange.Listener(arguments.bind, arguments.port)
    (mine,) = end.addresses()
    say(_line("local address: ", mine))
    peer = listener.accept() if listener else exchange.call(arguments.host, arguments.port)
    try:
        if listener is not None and not peer.is_of_weft():
            other = _address_in(peer.read(len(_text(mine))))
            say(_line("remote address:", other))
            _serve_rdma_core(end, peer, mine, other, say)
            return
        other = _meet(peer, plan, arguments, mine)
        say(_line("remote address:", other))
        _exchange_messages(end, peer, other, say)
    except ConfigError as error:
        peer.refuse(str(error))
        raise
    finally:
        peer.close()
        end.close()


def _meet(peer: exchange.Peer, plan: Plan, arguments: EndpointArguments, mine: Address) -> Address:
    """Exchange addresses. Raise ConfigError if the options of both ends differ."""
    options = {"kind": plan.connection, "size": plan.sizes[0], "iters": plan.iterations, "mtu": plan.mtu_bytes}
    peer.send(pingpong={"options": options, "host": exchange.own_host(), "address": asdict(mine)})
    facts = peer.expect("pingpong", "options", "host", "address")
    for name, ours in options.items():
        if (theirs := facts["options"].get(name)) != ours:
            raise ConfigError(f"--{name} is {ours} here and {theirs} at the peer: give both the same")
    if arguments.host:
        exchange.check_host(arguments.host, facts["host"])
    return exchange.build(Address, facts["address"])


# -- rdma-core's clients -----------------------------------------------------------------------------------------------


def _text(address: Address) -> bytes:
    """Format an address as rdma-core does: LID, QPN, PSN and GID in hexadecimal, with a zero at the end."""
    return b"%04x:%06x:%06x:%s\0" % (address.lid, address.qpn, address.psn, address.gid.replace(":", "").encode())


def _address_in(text: bytes) -> Address:
    try:
        lid, qpn, psn = (int(word, 16) for word in text[:18].split(b":"))
        raw = bytes.fromhex(text[19:51].decode())
    except ValueError as error:
        raise SubnetError(f"the peer is not a pingpong: it sent {text!r}") from error
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
    loop = choose(end, lambda quiet_s: False)  # the client may have closed its connection; the transport reports errors
    _say_figures(loop.pingpong(batch, begins=False), batch, say)


def _exchange_messages(end: Endpoint, peer: exchange.Peer, other: Address, say: Say) -> None:
    plan, (size_bytes,) = end.plan, end.sizes
    batch = Batch(number=1, size_bytes=size_bytes, iterations=plan.iterations)
    load(end)
    end.connect([other])
    end.fill(batch.number, size_bytes)
    end.fill_receives()
    peer.send(ready=True)
    peer.expect("ready")
    loop = choose(end, functools.partial(is_over, peer, plan))
    peer.send(engine=loop.engine)
    peer.expect("engine")
    _say_figures(loop.pingpong(batch, begins=not end.side), batch, say)
    if not end.has_arrived(batch.number, size_bytes, plan.iterations):
        raise SubnetError(f"wrong data received: {size_bytes} bytes differ from those sent")
    peer.send(over=True)  # the peer may still need this process
    peer.expect("over")


def _say_figures(stamps: NDArray[np.int64], batch: Batch, say: Say) -> None:
    took_us = max(int(stamps[-1] - stamps[0]), 1) / 1e3
    total_bytes = 2 * batch.size_bytes * batch.iterations
    say(f"{total_bytes} bytes in {took_us / 1e6:.2f} seconds = {total_bytes * 8 / took_us:.2f} Mbit/sec")
    say(f"{batch.iterations} iters in {took_us / 1e6:.2f} seconds = {took_us / batch.iterations:.2f} usec/iter")


def _line(side: str, address: Address) -> str:
    gid = gid_text(bytes.fromhex(address.gid.replace(":", "")))
    return f"  {side} LID {address.lid:#06x}, QPN {address.qpn:#08x}, PSN {address.psn:#08x}, GID {gid}"
