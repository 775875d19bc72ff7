"""`weft replay`: a trace of a training job, recorded elsewhere, on any fabric."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from weft.cli.arguments import NAMES_FILE, TABLES, File, Form
from weft.cli.output import console, print_data, progress_bar, report_written, table

if TYPE_CHECKING:
    from weft.training.traces.replay import Replay

_MOST_ROWS = 16  # ranks that are listed


def replay(
    *traces: str,
    fabric: Annotated[str, NAMES_FILE],
    engine: str = "flow",
    servers: str = "",
    trace_out: File = None,
    form: Form = TABLES,
) -> None:
    """Replay a job's trace: Chakra, PyTorch, SimAI, GOAL.

    Parameters
    ----------
    traces
        The files of a trace, a folder with them or a pattern: one for each rank, NAME.0.et and so on, or one for all.
    fabric
        The fabric: a topology, `superpod:su=1`, or the path of a file. Rank n runs on its GPU n, or on its host n.
    engine
        Simulation engine: flow (fair rates), packet (each packet) or analytic (NCCL's closed form).
    servers
        Servers: a number (the first N) or names, dgx1,dgx3. [as many as the trace needs]
    trace_out
        Write the timeline for Perfetto and chrome://tracing, .json.
    """
    from weft.collectives.ranks import pick_servers
    from weft.fabric.spec import load
    from weft.sim.engines import find_engine
    from weft.sim.perftest import prepare
    from weft.training.timeline import write_chrome
    from weft.training.traces.read import read
    from weft.training.traces.replay import replay as run

    find_engine(engine)  # before files are read
    trace = read(traces)
    on = prepare(load(fabric))
    with progress_bar("messages") as change:
        found = run(
            trace,
            on,
            engine=engine,
            servers=pick_servers(on, servers),
            progress=lambda done, of: change(completed=done, total=of),
        )
    if trace_out is not None:
        write_chrome(found.spans, trace_out)
    if form.is_data:
        print_data(form, found.report(), "ranks")
        return
    _print(found)
    report_written(trace_out)


def _print(found: Replay) -> None:
    facts = found.report()
    out = console()
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in facts["nodes"].items() if count)
    out.print(f"{found.trace.source}: {found.trace.format}, {len(found.ranks):,} ranks, {kinds}", markup=False)
    how = "messages share the network" if found.method == "together" else "each collective alone, in closed form"
    out.print(f"{found.spec}, {found.engine} engine: {how}", markup=False)
    for note in found.trace.notes:
        out.print(f"note: {note}", markup=False)
    out.print(f"\ntotal       {found.total_s * 1e3:,.6g} ms", markup=False)
    ranks = found.ranks if len(found.ranks) <= _MOST_ROWS else sorted(found.ranks, key=lambda one: -one.exposed_s)
    heads = ("rank", "compute ms", "exposed communication ms", "waiting ms")
    rows = [(one.rank, one.compute_s * 1e3, one.exposed_s * 1e3, one.waiting_s * 1e3) for one in ranks[:_MOST_ROWS]]
    note = "Exposed: data moves for the rank while it computes nothing. Waiting: neither, for others or at its end."
    if len(ranks) > len(rows):
        note += f" The {len(rows)} ranks with the most exposed of {len(ranks):,}."
    out.print(table("Where the time of the ranks goes", heads, rows, note))
