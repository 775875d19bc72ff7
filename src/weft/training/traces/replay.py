"""Run a trace on a fabric: rank n on GPU n, each node as soon as its dependencies are done.

    trace = read(["run/chakra.0.et", "run/chakra.1.et"])
    result = replay(trace, prepare(weft.load("superpod:su=1")), engine="flow")
    result.total_s, result.ranks[0].exposed_s
    write_chrome(result.spans, "replay.json")

Computing takes what the trace says. Communication is run anew:

    flow, packet   all messages of all collectives as one traffic (`together`); they share the network
    analytic       each collective and message alone, in closed form (`alone`)

A trace of more than MOST_MESSAGES messages is run in closed form by the flow engine too, over networks that this engine
measures; the packet engine refuses it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from weft.collectives.ranks import Ranks, place
from weft.errors import ConfigError
from weft.fabric.model import Fabric
from weft.fabric.nvlink import join_nvlinks
from weft.sim.engine import Memory, Options, Progress
from weft.sim.engines import find_engine
from weft.training.timeline import Span
from weft.training.traces.alone import Clock, run_alone
from weft.training.traces.link import Linked, link
from weft.training.traces.times import RankTime, S, Times, rank_times, spans_of
from weft.training.traces.together import count_messages, run_together
from weft.training.traces.trace import Kind, Trace

MOST_MESSAGES = 200_000
MOST_NODES = 2_000_000  # about a gigabyte when linked


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Replay:
    """The result of running a trace."""

    trace: Trace
    spec: str
    engine: str
    method: str  # together: messages share the network; alone: closed forms
    runs: int  # engine runs until all times agreed; 0 for closed forms
    total_s: float
    ranks: tuple[RankTime, ...]
    spans: tuple[Span, ...]  # only of the first rank if all do the same

    def report(self) -> dict[str, Any]:
        """Return the fields of `--json`."""
        trace = self.trace
        return {
            "trace": trace.source,
            "format": trace.format,
            "spec": self.spec,
            "engine": self.engine,
            "method": self.method,
            "runs": self.runs,
            "nodes": {str(kind): _count(trace, kind) for kind in Kind},
            "notes": list(trace.notes),
            "total_s": self.total_s,
            "ranks": [
                {
                    "rank": time.rank,
                    "compute_s": time.compute_s,
                    "exposed_s": time.exposed_s,
                    "waiting_s": time.waiting_s,
                }
                for time in self.ranks
            ],
        }


def replay(
    trace: Trace,
    fabric: Fabric,
    *,
    engine: str = "flow",
    servers: Sequence[str] | None = None,
    options: Options | None = None,
    progress: Progress | None = None,
) -> Replay:
    """Run a trace on a routed fabric, on these servers or on as many as it needs."""
    clock = find_engine(engine)
    ranks, joined = _place(trace, fabric, servers)
    if options is None:
        options = Options(memory=Memory.GPUDIRECT if (joined.nvlink >= 0).all() else Memory.HOST)
    whole = not trace.alike or _few(trace)
    linked = link(trace, None if whole else (0,))
    about = {"spec": fabric.spec, "engine": clock.name}
    if clock.name != "analytic" and whole and count_messages(linked, joined) <= MOST_MESSAGES:
        times, runs = run_together(linked, joined, clock, options, progress)
        return _replay(linked, times, method="together", runs=runs, **about)
    if clock.name == "packet":
        raise ConfigError(
            f"{trace.source} has over {MOST_MESSAGES:,} messages, too many to run packet by packet: use --engine flow"
        )
    alone = Clock(trace=trace, ranks=ranks, joined=joined, options=options, engine=clock)
    return _replay(linked, run_alone(linked, alone), method="alone", runs=0, **about)


def _few(trace: Trace) -> bool:
    """Return whether all of many equal ranks can be run, or one must represent them."""
    own, world = trace.ranks[0], len(trace.ranks)
    talks = sum(node.kind is Kind.COLLECTIVE for node in own)
    return talks * world <= MOST_MESSAGES and len(own) * world <= MOST_NODES


def _place(trace: Trace, fabric: Fabric, servers: Sequence[str] | None) -> tuple[Ranks, Ranks]:
    """Place ranks on GPUs in the order of the servers; return them without and with NVLinks."""
    needed = len(trace.ranks)
    everywhere = place(fabric, servers)
    if len(everywhere) < needed:
        raise ConfigError(
            f"{trace.source} has {needed} ranks, and {fabric.spec} has {len(everywhere)} on "
            f"{'its' if servers is None else 'these'} {len(everywhere.servers)} servers: "
            f"take a larger fabric or more servers"
        )
    used = everywhere.servers[: -(-needed // everywhere.per_server)]
    return place(fabric, used), place(join_nvlinks(fabric), used)


def _replay(linked: Linked, times: Times, **about: Any) -> Replay:
    by_rank = rank_times(linked, times)
    if len(linked.ranks) < len(linked.trace.ranks):
        first = by_rank[0]
        by_rank = [
            RankTime(rank=rank, compute_s=first.compute_s, exposed_s=first.exposed_s, waiting_s=first.waiting_s)
            for rank in range(len(linked.trace.ranks))
        ]
    return Replay(
        trace=linked.trace,
        total_s=max(times.end_ps, default=0) * S,
        ranks=tuple(by_rank),
        spans=tuple(spans_of(linked, times)),
        **about,
    )


def _count(trace: Trace, kind: Kind) -> int:
    counts = {id(own): sum(node.kind is kind for node in own) for own in trace.ranks}
    return sum(counts[id(own)] for own in trace.ranks)
