"""`weft replay`: replay the recorded trace of a job on a fabric."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from weft.cli.arguments import NAMES_FILE, TABLES, File, Form
from weft.cli.output import console, print_data, progress_bar, report_written, table

if TYPE_CHECKING:
    from weft.training.traces.replay import Replay

_MOST_ROWS = 16  # ranks in the table


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
        result = run(
            trace,
            on,
            engine=engine,
            servers=pick_servers(on, servers),
            progress=lambda done, of: change(completed=done, total=of),
        )
    if trace_out is not None:
        write_chrome(result.spans, trace_out)
    if form.is_data:
        print_data(form, result.report(), "ranks")
        return
    _print(result)
    report_written(trace_out)


def _print(result: Replay) -> None:
    facts = result.report()
    out = console()
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in facts["nodes"].items() if count)
    out.print(f"{result.trace.source}: {result.trace.format}, {len(result.ranks):,} ranks, {kinds}", markup=False)
    how = "messages share the network" if result.method == "together" else "each collective alone, in closed form"
    out.print(f"{result.spec}, {result.engine} engine: {how}", markup=False)
    for note in result.trace.notes:
        out.print(f"note: {note}", markup=False)
    out.print(f"\ntotal       {result.total_s * 1e3:,.6g} ms", markup=False)
    ranks = result.ranks if len(result.ranks) <= _MOST_ROWS else sorted(result.ranks, key=lambda rank: -rank.exposed_s)
    heads = ("rank", "compute ms", "exposed communication ms", "waiting ms")
    rows = [
        (rank.rank, rank.compute_s * 1e3, rank.exposed_s * 1e3, rank.waiting_s * 1e3) for rank in ranks[:_MOST_ROWS]
    ]
    note = "Exposed: the rank communicates and does not compute. Waiting: it does neither."
    if len(ranks) > len(rows):
        note += f" The {len(rows)} ranks of {len(ranks):,} with the most exposed communication."
    out.print(table("Time of each rank", heads, rows, note))
