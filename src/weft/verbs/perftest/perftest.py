"""Run ib_write_bw, ib_read_lat and the other tests of perftest. The client chooses the options and prints the result.

client                                          server
hello: plan, MTU                        ->      compares it with its own options
                                        <-      hello: its MTU
addresses of its queue pairs            <->     the same
batch: size, iterations                 ->      fills its memory, posts receives
                                        <-      ready
...messages...
ran                                     ->      checks the received data
                                        <-      arrived: whether the data is right, number of messages
end: all rows                           ->      prints them
"""

from __future__ import annotations

import functools
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.errors import ConfigError, SimulationBug, SubnetError
from weft.verbs.errors import PyverbsError
from weft.verbs.perftest import exchange, report
from weft.verbs.perftest.endpoint import Address, Endpoint, Port, open_port
from weft.verbs.perftest.engines import choose, load
from weft.verbs.perftest.exchange import build, is_over
from weft.verbs.perftest.kinds import Connection, Verb, parse_test
from weft.verbs.perftest.loop import Batch, Loop
from weft.verbs.perftest.plan import EndpointArguments, Plan, Style, parse
from weft.verbs.perftest.report import LINE, BandwidthRow, LatencyRow, Row, Times, bandwidth_row, row_of
from weft.version import __version__

WAITING = "* Waiting for client to connect... *"
_STARS = "*" * len(WAITING)
_FIRST_BATCH, _LONGEST_BATCH = 200, 1 << 20
_BATCHES_IN_DURATION = 4

Say = Callable[[str], None]


def main(name: str, words: Sequence[str], say: Say) -> None:
    """Run one end of a test."""
    plan, arguments, style = parse(parse_test(name), words)
    try:
        if arguments.host:
            _Client(plan, arguments, style, say).run()
        else:
            _Server(plan, arguments, style, say).run()
    except PyverbsError as error:
        raise SubnetError(str(error)) from error


class _End:
    """An end of a test: the common parts of client and server."""

    side: int
    peer: exchange.Peer
    port: Port
    end: Endpoint
    loop: Loop
    engines: tuple[str, str]  # of this end and of the peer

    def __init__(self, plan: Plan, arguments: EndpointArguments, style: Style, say: Say) -> None:
        self.plan, self.arguments, self.style, self.say_data = plan, arguments, style, say
        self.say: Say = (lambda line: None) if style.json else say  # JSON is the only output

    def _connect(self, mtu_bytes: int) -> None:
        """Create the queue pairs, exchange addresses, and wait until the peer is connected."""
        self.end = Endpoint(self.port, self.plan, mtu_bytes=mtu_bytes, side=self.side)
        load(self.end)
        self.peer.send(addresses=[asdict(address) for address in self.end.addresses()])
        self.end.connect([build(Address, fields) for fields in self.peer.expect("addresses")])
        self.peer.send(connected=True)
        self.peer.expect("connected")
        self.loop = choose(self.end, functools.partial(is_over, self.peer, self.plan))
        self.peer.send(engine=self.loop.engine)
        self.engines = (self.loop.engine, self.peer.expect("engine"))

    def _prepare(self, batch: Batch) -> None:
        self.end.fill(batch.number, batch.size_bytes)
        self.end.fill_receives()

    def _close(self) -> None:
        self.peer.close()
        if hasattr(self, "end"):
            self.end.close()

    # -- text ---------------------------------------------------------------------------------------------------------

    def _print_settings(self) -> None:
        for line in (*settings(self.end, self.loop.engine), report.LINE, *addresses(self.end), report.LINE):
            self.say(line)
        self.say(report.head(is_latency=self.plan.test.is_latency, gbits=self.style.gbits))

    def _print_rows(self, rows: Sequence[Row]) -> None:
        for row in rows:
            self.say(row.line(gbits=self.style.gbits))


class _Server(_End):
    side = 1

    def run(self) -> None:
        self.port = open_port(self.arguments.device, self.arguments.ib_port, self.arguments.gid_index)
        listener = exchange.Listener(self.arguments.bind, self.arguments.port)
        for line in ("", _STARS, WAITING, _STARS):
            self.say(line)
        self.peer = listener.accept()
        try:
            self._serve()
        except ConfigError as error:
            self.peer.refuse(str(error))
            raise
        finally:
            self._close()

    def _serve(self) -> None:
        hello = self.peer.expect("hello", "plan", "mtu_bytes")
        client = Plan.of(hello["plan"])
        self.plan.check_against(client)
        self.plan = client
        self.peer.send(hello={"host": exchange.own_host(), "mtu_bytes": self.port.mtu_bytes})
        self._connect(_smaller_mtu(client, self.port, hello["mtu_bytes"]))
        self._print_settings()
        while "batch" in (facts := self.peer.receive()):
            self._run(build(Batch, facts["batch"]))
        self._print_rows([row_of(row) for row in facts.get("end", ())])
        self.say(report.LINE)

    def _run(self, batch: Batch) -> None:
        plan = self.plan
        self._prepare(batch)
        self.peer.send(ready=True)
        came, row = 0, None
        if plan.test.is_latency:
            if not plan.verb.is_answered:
                self.loop.pingpong(batch, begins=False)
        elif plan.bidirectional or plan.verb is Verb.SEND:
            times, came = self.loop.bandwidth(batch, sends=plan.bidirectional, receives=plan.verb is Verb.SEND)
            if times is not None:
                row = bandwidth_row(batch.size_bytes, [times], no_peak=self.style.no_peak).facts()
        self.peer.expect("ran")
        reads_alone = plan.verb is Verb.READ and not plan.bidirectional
        right = reads_alone or self.end.has_arrived(batch.number, batch.size_bytes, batch.iterations)
        self.peer.send(arrived={"right": right, "came": came, "row": row})


class _Client(_End):
    side = 0

    def run(self) -> None:
        self.port = open_port(self.arguments.device, self.arguments.ib_port, self.arguments.gid_index)
        self.peer = exchange.call(self.arguments.host, self.arguments.port)
        try:
            self._measure()
        finally:
            self._close()

    def _measure(self) -> None:
        self.peer.send(hello={"plan": asdict(self.plan), "mtu_bytes": self.port.mtu_bytes})
        server = self.peer.expect("hello", "host", "mtu_bytes")
        exchange.check_host(self.arguments.host, server["host"])
        self._connect(_smaller_mtu(self.plan, self.port, server["mtu_bytes"]))
        self._print_settings()
        self.lost = self.number = 0
        rows: list[Row] = []
        for size_bytes in self.end.sizes:
            rows.append(self._measure_size(size_bytes))
            self._print_rows(rows[-1:])
        self.peer.send(end=[row.facts() for row in rows])
        self.say(report.LINE)
        if self.lost:
            print(f"{self.lost} messages were lost: {self.plan.connection} does not repeat them", file=sys.stderr)
        if self.style.json:
            self.say_data(json.dumps(self._facts(rows, server["host"]), indent=2))

    def _measure_size(self, size_bytes: int) -> Row:
        if not self.plan.duration_s:
            batches = [self._run(size_bytes, self.plan.count)]
        else:
            batches = self._run_for(size_bytes, self.plan.duration_s)
        if self.plan.test.is_latency:
            took = np.concatenate([np.diff(stamps) for stamps, _ in batches if isinstance(stamps, np.ndarray)])
            return LatencyRow.of(size_bytes, took / 1e3 / self.plan.test.ways)
        runs = [times for times, _ in batches if isinstance(times, Times)]
        row = bandwidth_row(size_bytes, runs, no_peak=self.style.no_peak)
        peer_rows = [peer_row for _, peer_row in batches if peer_row is not None]
        return row.plus(_together(peer_rows)) if peer_rows else row

    def _run_for(self, size_bytes: int, seconds: float) -> list[tuple[Any, BandwidthRow | None]]:
        """Run growing batches for a time; the pauses between them are not counted."""
        done: list[tuple[Any, BandwidthRow | None]] = []
        begin_s, iterations = time.monotonic(), _FIRST_BATCH
        while (left_s := begin_s + seconds - time.monotonic()) > 0:
            batch_s = time.monotonic()
            done.append(self._run(size_bytes, iterations))
            batch_s = max(time.monotonic() - batch_s, 1e-6)
            next_s = min(seconds / _BATCHES_IN_DURATION, max(left_s - batch_s, 0.0))
            iterations = int(np.clip(iterations * next_s / batch_s, _FIRST_BATCH // 10, _LONGEST_BATCH))
        return done

    def _run(self, size_bytes: int, iterations: int) -> tuple[Any, BandwidthRow | None]:
        """Run a batch; return its times, and the server's row if it sent messages too."""
        self.number += 1
        batch = Batch(number=self.number, size_bytes=size_bytes, iterations=iterations)
        self._prepare(batch)  # first: when the server is ready, it may send
        self.peer.send(batch=asdict(batch))
        self.peer.expect("ready")
        plan = self.plan
        measured: Times | NDArray[np.int64] | None
        if plan.test.is_latency and plan.verb.is_answered:
            measured = self.loop.roundtrips(batch)
        elif plan.test.is_latency:
            measured = self.loop.pingpong(batch, begins=True)
        else:
            receives = plan.bidirectional and plan.verb is Verb.SEND
            measured, _ = self.loop.bandwidth(batch, sends=True, receives=receives)
        self.peer.send(ran=True)
        arrived = self.peer.expect("arrived", "right", "came", "row")
        self._check(batch, arrived)
        row = None if arrived["row"] is None else row_of(arrived["row"])
        assert not isinstance(row, LatencyRow)
        return measured, row

    def _check(self, batch: Batch, arrived: dict[str, Any]) -> None:
        """Raise if the data of a batch did not arrive."""
        plan = self.plan
        if plan.verb is Verb.SEND and not plan.test.is_latency:
            self.lost += batch.iterations * plan.qps - arrived["came"]
        expects = plan.verb is Verb.READ or plan.bidirectional or (plan.test.is_latency and not plan.verb.is_answered)
        is_right = not expects or self.end.has_arrived(batch.number, batch.size_bytes, batch.iterations)
        if is_right and arrived["right"]:
            return
        where = "at the server" if is_right else "at the client"
        if plan.connection is Connection.RC:
            raise SimulationBug(
                f"{plan.test} of {batch.size_bytes} bytes: wrong bytes arrived {where}; please report it"
            )
        raise SubnetError(f"{plan.test} of {batch.size_bytes} bytes: all messages were lost, none arrived {where}")

    def _facts(self, rows: Sequence[Row], server: str) -> dict[str, Any]:
        """Return the results with all options and the machine."""
        return {
            "weft": __version__,
            "test": self.plan.test,
            "engine": self.engines[0],
            "engine_of_server": self.engines[1],
            "client": exchange.own_host(),
            "server": server,
            "device": self.port.ctx.name,
            "options": asdict(self.plan) | {"mtu_bytes": self.end.mtu_bytes, "sizes": self.end.sizes},
            "host": {
                "name": platform.node(),
                "machine": platform.machine(),
                "cpus": os.cpu_count(),
                "load_1min": round(os.getloadavg()[0], 2),
                "python": platform.python_version(),
            },
            "lost": self.lost,
            "verified": True,  # wrong data raises
            "results": [row.facts() for row in rows],
        }


def _smaller_mtu(plan: Plan, port: Port, theirs: int) -> int:
    most = min(port.mtu_bytes, theirs)
    if plan.mtu_bytes > most:
        raise ConfigError(f"-m {plan.mtu_bytes} is above the MTU of the ports, {most}")
    return plan.mtu_bytes or most


def _together(rows: Sequence[BandwidthRow]) -> BandwidthRow:
    """Combine the rows of consecutive batches, weighted by their messages."""
    messages = [row.iterations for row in rows]
    return BandwidthRow(
        size_bytes=rows[0].size_bytes,
        iterations=sum(messages),
        peak_gbit_s=max(row.peak_gbit_s for row in rows),
        average_gbit_s=float(np.average([row.average_gbit_s for row in rows], weights=messages)),
        message_rate_mpps=float(np.average([row.message_rate_mpps for row in rows], weights=messages)),
    )


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
