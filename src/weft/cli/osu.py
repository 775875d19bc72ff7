"""`weft osu`: predict the output of the OSU micro-benchmarks (osu_latency, osu_allreduce, …) on a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from weft.cli.arguments import NAMES_FILE, TABLES, Faults, File, Form, Kinds, OnByDefault, Servers, Whole
from weft.cli.elsewhere import check_first_argument
from weft.cli.output import console, print_data, progress_bar, report_written, table
from weft.errors import ConfigError
from weft.units import parse_size_bytes

if TYPE_CHECKING:
    from weft.collectives.mpi.bench import Settings
    from weft.collectives.mpi.calibration import Figure, Run
    from weft.collectives.ranks import Ranks

_TITLE = "Published runs of the OSU micro-benchmarks, and how far weft is off"
_CROSS_VALIDATION = "Each cluster held to bands that it had no part in"


def osu(
    test: str,
    spec: Annotated[str, NAMES_FILE] = "",
    /,
    *,
    ppn: Whole | None = None,
    mpi: str = "openmpi",
    coll: str = "",
    ucx_tls: Annotated[str, Parameter(name="--UCX_TLS")] = "",
    map_by: str = "",
    message_size: Annotated[str, Parameter(name=["--message-size", "-m"])] = "",
    kinds: Kinds = "",
    servers: Servers = "",
    fault: Faults = (),
    sharp: bool = False,
    pods: bool = False,
    registration_cache: OnByDefault = True,
    window: Annotated[Whole | None, Parameter(name=["--window-size", "-W"])] = None,
    network: str | None = None,
    paths: str | None = None,
    full: Annotated[bool, Parameter(name=["--full", "-f"])] = False,
    band: OnByDefault = True,
    explain: bool = False,
    picture: File = None,
    seed: Whole = 1,
    iterations: Annotated[Whole, Parameter(name=["--iterations", "-i"])] = 1,
    warmup: Annotated[Whole, Parameter(name=["--warmup", "-x"])] = 0,
    form: Form = TABLES,
) -> None:
    """Predict the OSU micro-benchmarks for MPI.

    The output has the form of the OSU programs. `weft osu calibration` compares weft with published runs.

    Parameters
    ----------
    test
        latency, bw, bibw, allreduce, alltoall, bcast, allgather, reduce or barrier, with or without osu_; or
        `calibration`, alone or with the name of a published run. Latency and bandwidth use the first two servers.
    spec
        A topology, `fat-tree:hosts=64`, or the path of a file.
    ppn
        Processes per server, which communicate through shared memory. [1] Latency and bandwidth are between two
        servers, or between 2 processes of one server.
    mpi
        MPI library to model: openmpi or mvapich2.
    coll
        Collective component of Open MPI: tuned, the default of 4.1, or han, the default since 5.0.
    ucx_tls
        Transports that UCX may use; without sm, as in `ib,self`, processes of a server communicate through its adapter;
        with ud and without dc, as in `ud,rc,sm`, more than 256 ranks communicate by datagrams.
    map_by
        slot or core: fill one server after the other; node: one rank to each server in turn. [slot]
    message_size
        The largest message size, or the smallest and the largest: 1M, 4:1M. [as the OSU program]
    sharp
        Use SHARP for allreduce, reduce, bcast and barrier.
    pods
        Processes run in pods of Kubernetes: collectives between many servers wait for nodes that run more than the job,
        and a message of bw over TCP takes two network stacks.
    registration_cache
        Cache memory registrations; otherwise each rendezvous registers its buffer again.
    window
        Messages in flight of bw and bibw. [64]
    network
        Protocol: infiniband, omni-path, roce, roce-v1 or tcp. [that of the links; roce on Ethernet]
    paths
        Choice of paths: table, adaptive, ecmp or spray. [table; ecmp on Ethernet]
    full
        Add two columns for collectives: the times of the first and of the last rank to finish.
    band
        Add two columns: the 90 % band, from the errors against published runs.
    explain
        Print more: a column with the algorithm, or eager or rendezvous.
    picture
        The picture to write: the figures over size with their band, .png, .svg or .pdf.
    seed
        Random seed, for ECMP hashing.
    iterations
        Iterations, which are all the same in a simulation. No effect; accepted for compatibility.
    warmup
        Warm-up iterations. No effect; accepted for compatibility.
    """
    from weft.collectives.mpi import curve, report
    from weft.collectives.mpi.bench import Settings, find_test, run
    from weft.draw.chart import check_suffix
    from weft.fabric.spec import as_kinds
    from weft.sim.engine import Options

    check_first_argument("osu", test, spec)
    if test == "calibration":
        _calibrate(spec, form)
        return
    columns = {"--full": full, "--no-band": not band, "--explain": explain}
    for flag in (flag for flag, is_set in columns.items() if is_set and form.is_data):
        raise ConfigError(f"{flag} is about columns of the table, and data has them all: leave it out")
    chosen: dict[str, Any] = {"network": network, "paths": paths}  # strings, which Options checks and converts
    least, most = _limits(message_size)
    settings = Settings(
        test=find_test(test, "calibration"),
        mpi=mpi,
        coll=coll,
        ucx_tls=ucx_tls,
        map_by=map_by or "slot",
        ppn=1 if ppn is None else ppn,
        min_bytes=least,
        max_bytes=most,
        window=64 if window is None else window,
        sharp=sharp,
        pods=pods,
        cached=registration_cache,
        options=Options(**chosen, seed=seed),
    )
    if not spec:
        raise ConfigError(f"{test} needs a cluster: weft osu {test} fat-tree:hosts=64 --ppn 32")
    if picture is not None:
        check_suffix(picture)
        curve.check_picture(settings.test)
    with progress_bar(f"reading {spec}"):
        ranks = _place(as_kinds(spec, kinds), servers, fault)
    _check_idle(settings, len(ranks.servers), ppn=ppn, map_by=map_by, window=window, full=full)
    with progress_bar("sizes") as change:
        results = run(ranks, settings, lambda done, of: change(completed=done, total=of))
    if picture is not None:
        curve.draw_curve(picture, results)
    if form.is_data:
        print_data(form, report.report(results), "results")
        return
    for line in report.text(results, full=full, band=band, explain=explain):
        print(line)
    report_written(picture, prefix="# ")


def _check_idle(
    settings: Settings, servers: int, *, ppn: int | None, map_by: str, window: int | None, full: bool
) -> None:
    """Refuse options that change nothing in this test on this number of servers."""
    test, options = settings.test, settings.options
    pair = test.collective is None
    two = f"osu_{test} is between two processes"
    alone = "one server sends nothing over a network"
    for flag, idle, why in (
        ("--ppn", pair and ppn is not None and (servers > 1 or ppn > 2), f"{two}, of two servers or of one"),
        ("--coll", pair and bool(settings.coll), two),
        ("--map-by", bool(map_by) and (pair or servers == 1 or settings.ppn == 1), "ranks lie as they do without"),
        ("--window-size", window is not None and not test.is_bandwidth, "only bw and bibw have windows"),
        ("--message-size", test.max_bytes == 0 and settings.max_bytes is not None, "a barrier has no bytes"),
        ("--full", pair and full, two),
        ("--network", servers == 1 and options.network is not None, alone),
        ("--paths", servers == 1 and options.paths is not None, alone),
        ("--no-registration-cache", servers == 1 and not settings.cached, "shared memory is not registered"),
    ):
        if idle:
            raise ConfigError(f"{flag} changes nothing here: {why}. Leave it out")


def _limits(message_size: str) -> tuple[int | None, int | None]:
    """Return the smallest and the largest size of -m: `1M` sets the largest, `4:1M` both."""
    if not message_size:
        return None, None
    least, colon, most = message_size.rpartition(":")
    return parse_size_bytes(least) if colon else None, parse_size_bytes(most)


def _place(spec: str, servers: str, faults: Sequence[str]) -> Ranks:
    from weft.collectives.ranks import pick_servers, place
    from weft.fabric.spec import load
    from weft.sim.perftest import prepare
    from weft.training.failures import break_permanently

    fabric = prepare(break_permanently(load(spec), faults))
    return place(fabric, pick_servers(fabric, servers))


# -- published runs ---------------------------------------------------------------------------------------------------


def _calibrate(name: str, form: Form) -> None:
    from weft.calibration.cross_validation import CLASS_COLUMNS, class_rows
    from weft.collectives.mpi import calibration

    chosen = (calibration.find(name),) if name else calibration.runs()
    compared: list[tuple[Run, tuple[Figure, ...]]] = []
    with progress_bar("runs") as change:
        for run in chosen:
            change(description=run.name, completed=len(compared), total=len(chosen))
            compared.append((run, calibration.compare(run)))
    out = console()
    if form.is_data:
        print_data(form, [_run_facts(*run) for run in compared], "figures")
    elif name:
        _print_figures(*compared[0])
    else:
        rows, note = calibration.summary(compared)
        out.print(table(_TITLE, calibration.COLUMNS, rows))
        out.print(note, markup=False)
        figures = [figure for _, of in compared for figure in of]
        predictions = calibration.cross_validate(figures)
        rows, note = calibration.cross_validation(predictions)
        out.print(table(_CROSS_VALIDATION, calibration.CLUSTER_COLUMNS, rows))
        out.print(table("The same by class, the largest error first", CLASS_COLUMNS, class_rows(predictions)))
        out.print(note, markup=False)


def _print_figures(run: Run, figures: tuple[Figure, ...]) -> None:
    unit = "MB/s" if run.test.is_bandwidth else "us"
    heads = ("bytes", f"measured {unit}", f"weft {unit}", "error", "low", "high", "in the band", "how")
    rows = [
        (
            f"{figure.row.size_bytes:,}",
            f"{figure.measured:,.2f}",
            f"{figure.row.value:,.2f}",
            f"{figure.error:+.1%}",
            f"{figure.row.low:,.2f}",
            f"{figure.row.high:,.2f}",
            "yes" if figure.is_in_band else "NO" if run.promised else "no",
            figure.row.how,
        )
        for figure in figures
    ]
    out = console()
    settings = "".join(f", {key} {value}" for key, value in (("coll", run.coll), ("UCX_TLS", run.ucx_tls)) if value)
    out.print(table(f"osu_{run.test}, {run.spec}, {run.ppn} processes on each{settings}", heads, rows))
    out.print(f"Source: {run.source}" + (f"\nNote: {run.note}" if run.note else ""), markup=False)


def _run_facts(run: Run, figures: tuple[Figure, ...]) -> dict[str, Any]:
    about = {
        key: getattr(run, key)
        for key in ("name", "where", "test", "spec", "ppn", "mpi", "coll", "ucx_tls", "promised", "counted")
    } | {"source": run.source, "date": run.date, "note": run.note}
    return about | {
        "figures": [
            {
                "size_bytes": figure.row.size_bytes,
                "measured": figure.measured,
                "simulated": figure.row.value,
                "low": figure.row.low,
                "high": figure.row.high,
                "error": figure.error,
                "kept": figure.is_in_band,
                "how": figure.row.how,
            }
            for figure in figures
        ],
    }
