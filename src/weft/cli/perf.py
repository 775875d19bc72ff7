"""`weft perf`: predict the output of perftest (ib_write_bw and others) between two hosts, or run it with --live."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from weft.cli.arguments import NAMES_FILE, TABLES, Form, Whole
from weft.cli.output import Cell, console, print_data, progress_bar, table
from weft.errors import ConfigError, find_named
from weft.units import parse_size_bytes
from weft.version import __version__

if TYPE_CHECKING:
    from weft.fabric.model import Fabric
    from weft.sim.calibration import Figure, Measurement
    from weft.sim.perftest import Settings
    from weft.verbs.perftest.report import BandwidthRow, LatencyRow


def perf(
    test: str,
    client: str = "",
    server: str = "",
    spec: Annotated[str, NAMES_FILE] = "",
    /,
    *,
    size: Annotated[str, Parameter(name=["--size", "-s"])] = "",
    all_sizes: Annotated[bool, Parameter(name=["--all", "-a"])] = False,
    iterations: Annotated[Whole, Parameter(name=["--iterations", "--iters", "-n"])] = 0,
    qps: Annotated[Whole, Parameter(name=["--qps", "--qp", "-q"])] = 1,
    tx_depth: Annotated[Whole, Parameter(name=["--tx-depth", "-t"])] = 128,
    outstanding_reads: Annotated[Whole, Parameter(name=["--outstanding-reads", "--outs"])] = 16,
    mtu: Annotated[Whole, Parameter(name=["--mtu", "-m"])] = 0,
    connection: Annotated[str, Parameter(name=["--connection", "-c"])] = "RC",
    network: str | None = None,
    memory: str = "host",
    bidirectional: Annotated[bool, Parameter(name=["--bidirectional", "-b"])] = False,
    live: bool = False,
    lab: str = "",
    duration: Annotated[Whole, Parameter(name=["--duration", "-D"])] = 0,
    report_gbits: Annotated[bool, Parameter(name=["--report_gbits", "--report-gbits"])] = False,
    form: Form = TABLES,
) -> None:
    """Predict perftest between two hosts, or measure it.

    `weft perf calibration` compares weft with published measurements.

    Parameters
    ----------
    test
        write_bw, read_bw, send_bw, write_lat, read_lat or send_lat; or `calibration`, alone or with the name of a
        published measurement.
    client
        The host that starts the test: a server, an adapter or a port.
    server
        The other host.
    spec
        A topology, `star:hosts=2`, or the path of a file.
    size
        Message size, `64K`; or several, `2,4K,1M`. [64K; 2 for latency tests]
    all_sizes
        Run all sizes from 2 bytes to 8 MiB.
    iterations
        Messages per queue pair. [as many as a steady result needs; those that fill the pipeline are not counted]
    qps
        Queue pairs.
    tx_depth
        Messages in flight per queue pair.
    outstanding_reads
        RDMA reads in flight per queue pair.
    mtu
        Bytes of payload per packet. [4096; 8960 over TCP]
    connection
        RC, UC or UD.
    network
        Protocol: infiniband, omni-path, roce, roce-v1 or tcp. [that of the links; roce on Ethernet]
    memory
        Location of the payload: host, gpudirect or staged.
    bidirectional
        Send in both directions; the figures are the sums.
    live
        Measure instead of simulating: two processes of this machine exchange data through weft's software adapter, as
        hosts of a lab if hosts are given. Also atomic_bw and atomic_lat.
    lab
        The lab, if several run; with --live.
    duration
        With --live: seconds to run, instead of --iterations.
    report_gbits
        Print bandwidth in Gb/sec instead of MiB/sec.
    """
    from weft.sim.engine import Options
    from weft.sim.perftest import Settings
    from weft.sim.traffic import Transport
    from weft.verbs.perftest.kinds import parse_test

    if test == "calibration":
        _calibrate(client, form)
        return
    if live:
        options = {"-s": size, "-n": iterations, "-q": qps, "-t": tx_depth, "-o": outstanding_reads, "-m": mtu}
        options |= {"-c": connection, "-D": duration}
        flags = {"-a": all_sizes, "-b": bidirectional, "--report_gbits": report_gbits, "--json": form.json}
        for name, value in (("spec", spec), ("network", network), ("memory", memory if memory != "host" else "")):
            if value:
                raise ConfigError(f"--live does not simulate: leave out {name} {value}, or --live")
        if form.csv:
            raise ConfigError("--live prints what perftest does, which has no CSV: leave out --csv, or take --json")
        _run_live(test, client, server, lab, options, flags)
        return
    if lab or duration:
        raise ConfigError("--lab and --duration are of tests that really run: add --live")
    kind = parse_test(test, "calibration")
    if not spec:
        raise ConfigError(f"{test} needs two hosts and a fabric: weft perf {test} h1 h2 star:hosts=2")
    if size and all_sizes:
        raise ConfigError("-a runs all sizes: leave out -s, or -a")
    chosen: dict[str, Any] = {"network": network, "memory": memory}  # strings, which Options checks and converts
    settings = Settings(
        test=kind,
        iterations=iterations,
        qps=qps,
        tx_depth=kind.depth(tx_depth),
        outs=outstanding_reads,
        connection=find_named("connection type", connection, Transport.__members__),
        bidirectional=bidirectional,
        options=Options(**chosen, mtu_bytes=mtu),
    )
    _measure(client, server, spec, settings, _sizes(size, all_sizes, settings), report_gbits, form)


def _sizes(size: str, all_sizes: bool, settings: Settings) -> tuple[int, ...]:
    from weft.sim.traffic import Transport
    from weft.verbs.perftest.kinds import ALL_SIZES

    most = settings.options.mtu_bytes or 4096 if settings.connection is Transport.UD else ALL_SIZES[-1]
    sizes = tuple(parse_size_bytes(text) for text in size.split(",")) if size else ()
    return settings.test.sizes(most, sizes, all_sizes=all_sizes)


def _measure(
    client: str, server: str, spec: str, settings: Settings, sizes: tuple[int, ...], gbits: bool, form: Form
) -> None:
    from weft.fabric.spec import load
    from weft.sim.perftest import measure, prepare
    from weft.verbs.perftest.report import LINE, head

    fabric = prepare(load(spec))
    rows = measure(fabric, client, server, settings, sizes)
    first = next(rows)  # raises an error before the header is printed
    if form.is_data:
        print_data(form, _facts(fabric, client, server, settings, [first, *rows]), "results")
        return
    for line in _settings_block(fabric, client, server, settings):
        print(line)
    print(head(is_latency=settings.test.is_latency, gbits=gbits))
    for row in (first, *rows):
        print(row.line(gbits=gbits), flush=True)
    print(LINE)


def _settings_block(fabric: Fabric, client: str, server: str, settings: Settings) -> list[str]:
    """Return the lines that perftest prints before its table, without those that do not apply to a simulation."""
    from weft.sim.layout.rules import fill_in
    from weft.sim.perftest import run_options
    from weft.sim.traffic import Operation, find_host_port
    from weft.verbs.perftest.report import LINE

    options, _ = fill_in(fabric, run_options(fabric, settings))
    ports = [fabric.port(find_host_port(fabric, name)) for name in (client, server)]
    link = "IB" if options.network == "infiniband" else "Ethernet" if options.network != "omni-path" else "Omni-Path"
    lines = [
        LINE,
        settings.test.headline(bidirectional=settings.bidirectional),
        f" Dual-port       : OFF\t\tDevice         : {ports[0].node.name}",
        f" Number of qps   : {settings.qps}\t\tTransport type : {'TCP' if options.network == 'tcp' else 'IB'}",
        f" Connection type : {settings.connection.name}\t\tUsing SRQ      : OFF",
        f" TX depth        : {settings.tx_depth}",
        f" Mtu             : {options.mtu_bytes}[B]",
        f" Link type       : {link}",
    ]
    if settings.operation is Operation.READ:
        lines.append(f" Outstand reads  : {settings.outs}")
    lines += [f" Memory          : {options.memory}", " Data ex. method : simulated, weft's packet engine", LINE]
    for side, port in zip(("local", "remote"), ports, strict=True):
        lid = int(fabric.tables.lid[port.slot])
        lines += [f" {side} address: LID {lid:#04x} QPN {qp:#06x} PSN 0x000000" for qp in range(1, settings.qps + 1)]
    return [*lines, LINE]


def _facts(
    fabric: Fabric, client: str, server: str, settings: Settings, rows: list[BandwidthRow | LatencyRow]
) -> dict[str, Any]:
    """Return the rows with the names of perftest's JSON; bandwidth in Gbit/s."""
    return {
        "weft": __version__,
        "spec": fabric.spec,
        "client": client,
        "server": server,
        "settings": asdict(settings) | {"connection": settings.connection.name},
        "results": [row.facts() for row in rows],
    }


# -- live tests -------------------------------------------------------------------------------------------------------


def _run_live(
    test: str, client: str, server: str, lab: str, values: Mapping[str, object], flags: Mapping[str, bool]
) -> None:
    """Run both ends of the test: on hosts of a lab, or as two processes with this machine's own device."""
    from weft.lab import control, registry
    from weft.verbs.perftest.exchange import free_port
    from weft.verbs.perftest.kinds import parse_test
    from weft.verbs.perftest.pair import run_pair
    from weft.verbs.perftest.plan import parse
    from weft.verbs.perftest.programs import command

    name = parse_test(test).value
    options = [word for flag, value in values.items() if value for word in (flag, str(value))]
    options += [flag for flag, is_set in flags.items() if is_set]
    parse(parse_test(test), options)  # raises an error before a process is started
    if bool(client) != bool(server) or (client and client == server):
        raise ConfigError(f"--live needs two hosts of a lab, or none: weft perf {test} h1 h2 --live")
    port = ["-p", str(free_port())]
    ends = [[*command("perftest", name), *port], [*command("perftest", name, server or "localhost"), *port, *options]]
    if client:
        entry, hosts = registry.find(lab), (server, client)
        for host in hosts:
            control.ask(entry, "host", name=host)
        ends = [[*command("exec", "--lab", entry.name, host), *end] for host, end in zip(hosts, ends, strict=True)]
    raise SystemExit(run_pair(*ends))


# -- published measurements -------------------------------------------------------------------------------------------


def _calibrate(name: str, form: Form) -> None:
    from weft.sim import calibration

    chosen = (calibration.find(name),) if name else calibration.measurements()
    results: list[tuple[Measurement, list[Figure]]] = []
    with progress_bar("") as change:
        for measurement in chosen:
            change(description=measurement.name, completed=len(results), total=len(chosen))
            results.append((measurement, list(calibration.run(measurement))))
    if form.is_data:
        print_data(form, [_measurement_facts(measurement, figures) for measurement, figures in results], "figures")
    elif name:
        _print_figures(*results[0])
    else:
        _print_summary(results)
    if any(figure.is_within_limit is False for _, figures in results for figure in figures):
        raise SystemExit(1)


def _measurement_facts(measurement: Measurement, figures: list[Figure]) -> dict[str, Any]:
    about = {
        key: getattr(measurement, key) for key in ("name", "test", "spec", "pair", "promised", "source", "date", "note")
    }
    rows = [
        {
            "size_bytes": figure.size_bytes,
            "quantity": figure.quantity,
            "measured": figure.measured,
            "simulated": figure.predicted,
            "limit": figure.limit,
            "fitted": figure.fitted,
            "error": figure.error,
            "kept": figure.is_within_limit,
        }
        for figure in figures
    ]
    return about | {"figures": rows}


def _print_summary(results: list[tuple[Measurement, list[Figure]]]) -> None:
    rows: list[tuple[Cell, ...]] = []
    for measurement, figures in results:
        errors = sorted(figures, key=lambda figure: abs(figure.error))
        worst, middle = errors[-1], errors[len(errors) // 2]
        place = f"{worst.error:+.1%} at {worst.size_bytes:,} bytes"
        fitted = sum(figure.fitted for figure in figures)
        rows.append((measurement.name, len(figures), fitted, f"{abs(middle.error):.1%}", place, _verdict(figures)))
    note = "Each with its source, its note and every figure: weft perf calibration NAME, or --json"
    heads = ("measurement", "figures", "fitted", "median error", "worst error", "promise")
    console().print(table("Published measurements, and how far weft is off", heads, rows, note))


def _verdict(figures: list[Figure]) -> str:
    broken = sum(figure.is_within_limit is False for figure in figures)
    if figures[0].limit is None:
        return "none: reported"
    return f"broken by {broken}" if broken else "kept"


def _print_figures(measurement: Measurement, figures: list[Figure]) -> None:
    rows: list[tuple[Cell, ...]] = []
    for figure in figures:
        promise = "" if figure.limit is None else f"{figure.limit:.0%} {'kept' if figure.is_within_limit else 'BROKEN'}"
        measured, simulated = (f"{value:.4g} {figure.quantity}" for value in (figure.measured, figure.predicted))
        error = f"{figure.error:+.1%}{' fitted' if figure.fitted else ''}"
        rows.append((figure.size_bytes, measured, simulated, error, promise))
    heads = ("bytes", "measured", "weft", "error", "promise")
    where = measurement.spec or " at ".join(measurement.pair or ())
    out = console()
    out.print(table(f"{measurement.test}, {where}", heads, rows), markup=False)
    for line in (f"Source: {measurement.source}", f"Note: {measurement.note}" if measurement.note else ""):
        if line:
            out.print(line, markup=False)
