"""ib_write_bw, ib_read_lat and the like: the client decides what runs and prints; the server does its part.

client                                          server
hello: plan, MTU                        ->      checks it against what it was told
                                        <-      hello: its MTU
addresses of its queue pairs            <->     the same
batch: size, iterations                 ->      fills its memory, posts receives
                                        <-      ready
...messages...
ran                                     ->      looks at what came
                                        <-      arrived: whether all is right, how much came
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
from weft.verbs.perftest.exchange import build
from weft.verbs.perftest.header import addresses, settings
from weft.verbs.perftest.kinds import Connection, Verb, parse_test
from weft.verbs.perftest.loop import Batch, Loop
from weft.verbs.perftest.plan import Plan, Seat, Style, parse
from weft.verbs.perftest.report import BandwidthRow, LatencyRow, Row, Times, bandwidth_row, row_of
from weft.verbs.perftest.watch import is_over
from weft.version import __version__

WAITING = "* Waiting for client to connect... *"
_STARS = "*" * len(WAITING)
_FIRST_BATCH, _LONGEST_BATCH = 200, 1 << 20
_BATCHES_IN_DURATION = 4

Say = Callable[[str], None]


def main(name: str, words: Sequence[str], say: Say) -> None:
    """Run one end of the test, until it is over."""
    plan, seat, style = parse(parse_test(name), words)
    try:
        if seat.host:
            _Client(plan, seat, style, say).run()
        else:
            _Server(plan, seat, style, say).run()
    except PyverbsError as error:
        raise SubnetError(str(error)) from error


class _End:
    """What client and server share."""

    side: int
    peer: exchange.Peer
    port: Port
    end: Endpoint
    loop: Loop
    engines: tuple[str, str]  # here and there

    def __init__(self, plan: Plan, seat: Seat, style: Style, say: Say) -> None:
        self.plan, self.seat, self.style, self.say_data = plan, seat, style, say
        self.say: Say = (lambda line: None) if style.json else say  # JSON stands alone

    def _connect(self, mtu_bytes: int) -> None:
        """Make the queue pairs, tell the other end of them, and wait until it is there too."""
        self.end = Endpoint(self.port, self.plan, mtu_bytes=mtu_bytes, side=self.side)
        load(self.end)
        self.peer.send(addresses=[asdict(one) for one in self.end.addresses()])
        self.end.connect([build(Address, one) for one in self.peer.told("addresses")])
        self.peer.send(connected=True)
        self.peer.told("connected")
        self.loop = choose(self.end, functools.partial(is_over, self.peer, self.plan))
        self.peer.send(engine=self.loop.engine)
        self.engines = (self.loop.engine, self.peer.told("engine"))

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
        self.port = open_port(self.seat.device, self.seat.ib_port, self.seat.gid_index)
        listener = exchange.Listener(self.seat.bind, self.seat.port)
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
        told = self.peer.told("hello", "plan", "mtu_bytes")
        client = Plan.of(told["plan"])
        self.plan.check_against(client)
        self.plan = client
        self.peer.send(hello={"host": exchange.own_host(), "mtu_bytes": self.port.mtu_bytes})
        self._connect(_smaller_mtu(client, self.port, told["mtu_bytes"]))
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
        self.peer.told("ran")
        reads_alone = plan.verb is Verb.READ and not plan.bidirectional
        right = reads_alone or self.end.has_arrived(batch.number, batch.size_bytes, batch.iterations)
        self.peer.send(arrived={"right": right, "came": came, "row": row})


class _Client(_End):
    side = 0

    def run(self) -> None:
        self.port = open_port(self.seat.device, self.seat.ib_port, self.seat.gid_index)
        self.peer = exchange.call(self.seat.host, self.seat.port)
        try:
            self._measure()
        finally:
            self._close()

    def _measure(self) -> None:
        self.peer.send(hello={"plan": asdict(self.plan), "mtu_bytes": self.port.mtu_bytes})
        server = self.peer.told("hello", "host", "mtu_bytes")
        exchange.check_host(self.seat.host, server["host"])
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
            took = np.concatenate([np.diff(one) for one, _ in batches if isinstance(one, np.ndarray)])
            return LatencyRow.of(size_bytes, took / 1e3 / self.plan.test.ways)
        runs = [one for one, _ in batches if isinstance(one, Times)]
        row = bandwidth_row(size_bytes, runs, no_peak=self.style.no_peak)
        others = [theirs for _, theirs in batches if theirs is not None]
        return row.plus(_together(others)) if others else row

    def _run_for(self, size_bytes: int, seconds: float) -> list[tuple[Any, BandwidthRow | None]]:
        """Batches that grow until the time is over; the pauses between them are not counted."""
        done: list[tuple[Any, BandwidthRow | None]] = []
        begin_s, iterations = time.monotonic(), _FIRST_BATCH
        while (left_s := begin_s + seconds - time.monotonic()) > 0:
            batch_s = time.monotonic()
            done.append(self._run(size_bytes, iterations))
            batch_s = max(time.monotonic() - batch_s, 1e-6)
            wanted_s = min(seconds / _BATCHES_IN_DURATION, max(left_s - batch_s, 0.0))
            iterations = int(np.clip(iterations * wanted_s / batch_s, _FIRST_BATCH // 10, _LONGEST_BATCH))
        return done

    def _run(self, size_bytes: int, iterations: int) -> tuple[Any, BandwidthRow | None]:
        """One batch: its times, and what the server sent meanwhile."""
        self.number += 1
        batch = Batch(number=self.number, size_bytes=size_bytes, iterations=iterations)
        self._prepare(batch)  # first: when the server is ready, it may send
        self.peer.send(batch=asdict(batch))
        self.peer.told("ready")
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
        arrived = self.peer.told("arrived", "right", "came", "row")
        self._check(batch, arrived)
        row = None if arrived["row"] is None else row_of(arrived["row"])
        assert not isinstance(row, LatencyRow)
        return measured, row

    def _check(self, batch: Batch, arrived: dict[str, Any]) -> None:
        """The bytes of this batch must be where they were sent to."""
        plan = self.plan
        if plan.verb is Verb.SEND and not plan.test.is_latency:
            self.lost += batch.iterations * plan.qps - arrived["came"]
        expects = plan.verb is Verb.READ or plan.bidirectional or (plan.test.is_latency and not plan.verb.is_answered)
        here = not expects or self.end.has_arrived(batch.number, batch.size_bytes, batch.iterations)
        if here and arrived["right"]:
            return
        where = "at the server" if here else "here"
        if plan.connection is Connection.RC:
            raise SimulationBug(
                f"{plan.test} of {batch.size_bytes} bytes: wrong bytes arrived {where}; please report it"
            )
        raise SubnetError(f"{plan.test} of {batch.size_bytes} bytes: nothing whole arrived {where}: all was lost")

    def _facts(self, rows: Sequence[Row], server: str) -> dict[str, Any]:
        """All that ran, so that the figures can be judged."""
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
            "verified": True,  # else there are no rows
            "results": [row.facts() for row in rows],
        }


def _smaller_mtu(plan: Plan, port: Port, theirs: int) -> int:
    most = min(port.mtu_bytes, theirs)
    if plan.mtu_bytes > most:
        raise ConfigError(f"mtu {plan.mtu_bytes} is more than the ports have: {most} at most")
    return plan.mtu_bytes or most


def _together(rows: Sequence[BandwidthRow]) -> BandwidthRow:
    """Of batches after each other, weighted by their messages."""
    messages = [row.iterations for row in rows]
    return BandwidthRow(
        size_bytes=rows[0].size_bytes,
        iterations=sum(messages),
        peak_gbit_s=max(row.peak_gbit_s for row in rows),
        average_gbit_s=float(np.average([row.average_gbit_s for row in rows], weights=messages)),
        message_rate_mpps=float(np.average([row.message_rate_mpps for row in rows], weights=messages)),
    )
