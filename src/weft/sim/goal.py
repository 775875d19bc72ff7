"""Write traffic as a GOAL schedule, as `weft replay`, LogGOPSim and ATLAHS read it.

    num_ranks 2
    rank 0 {
    m0: send 4096b to 1 tag 0
    }
    rank 1 {
    m0: recv 4096b from 0 tag 0
    m1: send 4096b to 0 tag 1
    m1 requires m0
    }

Ranks are the hosts of the fabric, in order; message n has tag n. A message waits for others at its sender: for those
that its sender receives, and for those that its sender has sent, which in GOAL are over when they have arrived. A start
time, or a delay after the others, is a `calc` before it, in whole nanoseconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from weft.errors import ConfigError
from weft.fabric.model import Fabric
from weft.routing.patterns import host_ports
from weft.sim.traffic import Operation, Traffic

GOAL = ".goal"
_PS_PER_NS = 1000


def format_goal(path: Path | str, fabric: Fabric, traffic: Traffic) -> str:
    """Return the schedule of unicast traffic as text."""
    if (traffic.operation == Operation.READ).any():
        raise ConfigError(f"{path}: GOAL has sends, no RDMA reads; write a .json file")
    if traffic.outstanding:
        raise ConfigError(f"{path}: GOAL has no limit of outstanding messages; write a .json file")
    rank_of_slot = np.full(len(fabric.ports), -1)
    hosts = host_ports(fabric)
    rank_of_slot[hosts] = np.arange(len(hosts))
    src, dst = rank_of_slot[traffic.src], rank_of_slot[traffic.dst]
    if min(src.min(initial=0), dst.min(initial=0)) < 0:
        raise ConfigError(f"{path}: GOAL has one rank for each adapter port, and messages inside servers have none")
    lines: list[list[str]] = [[] for _ in hosts]
    after, first = traffic.after.tolist(), traffic.after_first.tolist()
    for number, (sender, receiver, size) in enumerate(zip(src.tolist(), dst.tolist(), traffic.size_bytes, strict=True)):
        waits = after[first[number] : first[number + 1]]
        for other in waits:
            if sender not in (src[other], dst[other]):
                raise ConfigError(
                    f"{path}: message {number} waits for message {other} between other hosts, which GOAL cannot say; "
                    f"write a .json file"
                )
        delay_ps = int(traffic.delay_ps[number] if waits else traffic.start_ps[number])
        lines[sender] += _send(number, f"send {size}b to {receiver} tag {number}", waits, round(delay_ps / _PS_PER_NS))
        lines[receiver].append(f"m{number}: recv {size}b from {sender} tag {number}")
    return "\n".join(_file(lines)) + "\n"


def _send(number: int, operation: str, waits: list[int], delay_ns: int) -> list[str]:
    """Return the lines of a message at its sender."""
    label = f"m{number}"
    lines = [f"{label}: {operation}"]
    if delay_ns:
        lines += [f"d{number}: calc {delay_ns}", f"{label} requires d{number}"]
        label = f"d{number}"
    return lines + [f"{label} requires m{other}" for other in waits]


def _file(lines: list[list[str]]) -> Iterator[str]:
    """Yield the lines of all ranks; dependencies come last, since a label may be waited for above its line."""
    yield f"num_ranks {len(lines)}"
    for rank, own in enumerate(lines):
        yield f"rank {rank} {{"
        yield from sorted(own, key=lambda line: ":" not in line)
        yield "}"
