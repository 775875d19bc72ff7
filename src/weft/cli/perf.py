"""`weft perf`: what ib_write_bw and its like would print between two hosts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from cyclopts import Parameter

from weft.cli.output import Cell, console, print_json, table

if TYPE_CHECKING:
    from weft.fabric.model import Fabric
    from weft.sim.calibration import Figure, Measurement
    from weft.sim.perftest import BandwidthRow, LatencyRow, Settings

# As perftest prints them, tabs and blanks included, so that what parses perftest parses this.
_LINE = "-" * 87
_BW_HEAD = " #bytes     #iterations    BW peak[{0}]    BW average[{0}]   MsgRate[Mpps]"
_BW_ROW = " {:<7d}    {:<10d}       {:<7.2f}            {:<7.2f}\t\t     {:<7.6f}"
_BW_ROW_EXACT = " {:<7d}    {:d}           {:<7.6f}            {:<7.6f}            {:<7.6f}"
_LAT_HEAD = (
    " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]"
    "   99% percentile[usec]   99.9% percentile[usec] "
)
_LAT_ROW = (
    " {:<7d} {:d}          {:<7.2f}        {:<7.2f}      {:<7.2f}  \t       {:<7.2f}     \t{:<7.2f}"
    "\t\t{:<7.2f} \t\t{:<7.2f}"
)
_One = TypeVar("_One")
_VERBS = {"write": "RDMA_Write", "read": "RDMA_Read", "send": "Send"}
_MIB_S = 1e9 / 8 / (1 << 20)  # of one Gbit/s


def perf(
    test: str,
    client: str = "",
    server: str = "",
    spec: str = "",
    /,
    *,
    size: Annotated[str, Parameter(name=["--size", "-s"])] = "",
    all_sizes: Annotated[bool, Parameter(name=["--all", "-a"], negative="")] = False,
    iterations: Annotated[int, Parameter(name=["--iterations", "--iters", "-n"])] = 0,
    qps: Annotated[int, Parameter(name=["--qps", "--qp", "-q"])] = 1,
    tx_depth: Annotated[int, Parameter(name=["--tx-depth", "-t"])] = 128,
    outstanding_reads: Annotated[int, Parameter(name=["--outstanding-reads", "--outs"])] = 16,
    mtu: Annotated[int, Parameter(name=["--mtu", "-m"])] = 0,
    connection: Annotated[str, Parameter(name=["--connection", "-c"])] = "RC",
    network: str | None = None,
    memory: str = "host",
    bidirectional: Annotated[bool, Parameter(name=["--bidirectional", "-b"], negative="")] = False,
    report_gbits: Annotated[bool, Parameter(name=["--report_gbits", "--report-gbits"], negative="")] = False,
    json: bool = False,
) -> None:
    """Measure bandwidth or latency between two hosts as perftest does; or run all published measurements again.

    Parameters
    ----------
    test
        write_bw, read_bw, send_bw, write_lat, read_lat or send_lat; or `calibration`, alone or with the name of a
        published measurement.
    client
        The host that starts: a server, an adapter or a port.
    server
        The other one.
    spec
        A topology, `star:hosts=2`, or the path of a file.
    size
        Bytes of a message, `64K`; or several, `2,4K,1M`. Else 64K, latency tests 2.
    all_sizes
        From 2 bytes to 8 MiB.
    iterations
        Messages of each queue pair. Else as many as it takes; the first ones fill the pipeline and are not counted.
    qps
        Queue pairs.
    tx_depth
        Messages that a queue pair has under way.
    outstanding_reads
        RDMA reads among them.
    mtu
        Payload of a packet. Else 4096, 8960 over TCP.
    connection
        RC, UC or UD.
    network
        infiniband, omni-path, roce, roce-v1 or tcp. Else as the links speak; Ethernet is roce.
    memory
        host, gpudirect or staged: where the payload lies.
    bidirectional
        Both hosts send; the figures are the sums.
    report_gbits
        Bandwidth in Gb/sec, not MiB/sec.
    json
        Print JSON.
    """
    from weft.errors import ConfigError
    from weft.sim.engine import Memory, Network, Options
    from weft.sim.perftest import Settings, parse_test
    from weft.sim.traffic import Transport

    if test == "calibration":
        _calibrate(client, json)
        return
    kind = parse_test(test)
    if not spec:
        raise ConfigError(f"{test} needs two hosts and a fabric: weft perf {test} h1 h2 star:hosts=2")
    if size and all_sizes:
        raise ConfigError("-a runs all sizes: leave out -s, or -a")
    options = Options(
        network=_pick("network", network, {one.value: one for one in Network}) if network else None,
        memory=_pick("memory", memory, {one.value: one for one in Memory}),
        mtu_bytes=mtu,
    )
    settings = Settings(
        test=kind,
        iterations=iterations,
        qps=qps,
        tx_depth=1 if kind.is_latency else tx_depth,
        outstanding_reads=outstanding_reads,
        connection=_pick("connection type", connection.upper(), Transport.__members__),
        bidirectional=bidirectional,
        options=options,
    )
    _measure(client, server, spec, settings, _sizes(size, all_sizes, settings), report_gbits, json)


def _pick(what: str, name: str, known: Mapping[str, _One]) -> _One:
    from weft.errors import UnknownName

    if name not in known:
        raise UnknownName(what, name, known)
    return known[name]


def _sizes(size: str, all_sizes: bool, settings: Settings) -> list[int]:
    from weft.sim.perftest import ALL_SIZES
    from weft.sim.traffic import Transport
    from weft.units import parse_size_bytes

    if all_sizes:
        largest = settings.options.mtu_bytes or 4096 if settings.connection is Transport.UD else ALL_SIZES[-1]
        return [one for one in ALL_SIZES if one <= largest]
    if size:
        return [parse_size_bytes(one) for one in size.split(",")]
    return [2 if settings.test.is_latency else 65_536]


def _measure(
    client: str, server: str, spec: str, settings: Settings, sizes: list[int], gbits: bool, json: bool
) -> None:
    from weft.fabric.spec import load
    from weft.sim.perftest import LatencyRow, measure, prepare

    fabric = prepare(load(spec))
    rows = measure(fabric, client, server, settings, sizes)
    first = next(rows)  # what cannot run is refused before anything is printed
    if json:
        print_json(_facts(fabric, client, server, settings, [first, *rows]))
        return
    for line in _settings_block(fabric, client, server, settings):
        print(line)
    print(_LAT_HEAD if settings.test.is_latency else _BW_HEAD.format("Gb/sec" if gbits else "MiB/sec"))
    for row in (first, *rows):
        print(_latency_line(row) if isinstance(row, LatencyRow) else _bandwidth_line(row, gbits), flush=True)
    print(_LINE)


def _bandwidth_line(row: BandwidthRow, gbits: bool) -> str:
    scale = 1.0 if gbits else _MIB_S
    exact = gbits and row.average_gbit_s < 0.1
    return (_BW_ROW_EXACT if exact else _BW_ROW).format(
        row.size_bytes, row.iterations, row.peak_gbit_s * scale, row.average_gbit_s * scale, row.message_rate_mpps
    )


def _latency_line(row: LatencyRow) -> str:
    from dataclasses import astuple

    return _LAT_ROW.format(*astuple(row))


def _settings_block(fabric: Fabric, client: str, server: str, settings: Settings) -> list[str]:
    """What perftest prints before its table, as far as it is true here."""
    from weft.sim.layout.rules import fill_in
    from weft.sim.perftest import run_options
    from weft.sim.traffic import Operation, find_host_port

    options, _ = fill_in(fabric, run_options(fabric, settings))
    ports = [fabric.port(find_host_port(fabric, name)) for name in (client, server)]
    verb, _, what = settings.test.partition("_")
    both = "Bidirectional " if settings.bidirectional else ""
    kind = "Latency" if what == "lat" else f"{both}BW"
    link = "IB" if options.network == "infiniband" else "Ethernet" if options.network != "omni-path" else "Omni-Path"
    lines = [
        _LINE,
        f"                    {_VERBS[verb]} {kind} Test",
        f" Dual-port       : OFF\t\tDevice         : {ports[0].node.name}",
        f" Number of qps   : {settings.qps}\t\tTransport type : {'TCP' if options.network == 'tcp' else 'IB'}",
        f" Connection type : {settings.connection.name}\t\tUsing SRQ      : OFF",
        f" TX depth        : {settings.tx_depth}",
        f" Mtu             : {options.mtu_bytes}[B]",
        f" Link type       : {link}",
    ]
    if settings.test.operation is Operation.READ:
        lines.append(f" Outstand reads  : {settings.outstanding_reads}")
    lines += [f" Memory          : {options.memory}", " Data ex. method : simulated, weft's packet engine", _LINE]
    for side, port in zip(("local", "remote"), ports, strict=True):
        lid = int(fabric.tables.lid[port.slot])
        lines += [f" {side} address: LID {lid:#04x} QPN {qp:#06x} PSN 0x000000" for qp in range(1, settings.qps + 1)]
    return [*lines, _LINE]


def _facts(
    fabric: Fabric, client: str, server: str, settings: Settings, rows: list[BandwidthRow | LatencyRow]
) -> dict[str, Any]:
    """The rows under the names of perftest's own JSON; bandwidth in Gbit/s."""
    from dataclasses import asdict, astuple

    import weft

    lat = ("t_min", "t_max", "t_typical", "t_avg", "t_stdev", "percentile_99", "percentile_99.9")
    values = lat if settings.test.is_latency else ("BW_peak", "BW_average", "MsgRate")
    return {
        "weft": weft.__version__,
        "spec": fabric.spec,
        "client": client,
        "server": server,
        "settings": asdict(settings) | {"connection": settings.connection.name},
        "results": [dict(zip(("MsgSize", "n_iterations", *values), astuple(row), strict=True)) for row in rows],
    }


# -- published measurements -------------------------------------------------------------------------------------------


def _calibrate(name: str, json: bool) -> None:
    from weft.sim import calibration

    chosen = (calibration.find(name),) if name else calibration.measurements()
    found = [(one, list(calibration.run(one))) for one in chosen]
    if json:
        print_json([_measurement_facts(one, figures) for one, figures in found])
    elif name:
        _print_figures(*found[0])
    else:
        _print_summary(found)
    if any(figure.kept is False for _, figures in found for figure in figures):
        raise SystemExit(1)


def _measurement_facts(one: Measurement, figures: list[Figure]) -> dict[str, Any]:
    from dataclasses import asdict

    about = {key: getattr(one, key) for key in ("name", "test", "spec", "pair", "promised", "source", "date", "note")}
    rows = [
        {key: value for key, value in asdict(figure).items() if key != "measurement"}
        | {"error": figure.error, "kept": figure.kept}
        for figure in figures
    ]
    return about | {"figures": rows}


def _print_summary(found: list[tuple[Measurement, list[Figure]]]) -> None:
    rows: list[tuple[Cell, ...]] = []
    for one, figures in found:
        errors = sorted(figures, key=lambda figure: abs(figure.error))
        worst, middle = errors[-1], errors[len(errors) // 2]
        place = f"{worst.error:+.1%} at {worst.size_bytes:,} bytes"
        fitted = sum(figure.fitted for figure in figures)
        rows.append((one.name, len(figures), fitted, f"{abs(middle.error):.1%}", place, _verdict(figures)))
    note = "Each with its source, its note and every figure: weft perf calibration NAME, or --json"
    heads = ("measurement", "figures", "fitted", "median error", "worst error", "promise")
    console().print(table("Published measurements, and how far weft is off", heads, rows, note))


def _verdict(figures: list[Figure]) -> str:
    broken = sum(figure.kept is False for figure in figures)
    if figures[0].limit is None:
        return "none: reported"
    return f"broken by {broken}" if broken else "kept"


def _print_figures(one: Measurement, figures: list[Figure]) -> None:
    rows: list[tuple[Cell, ...]] = []
    for figure in figures:
        promise = "" if figure.limit is None else f"{figure.limit:.0%} {'kept' if figure.kept else 'BROKEN'}"
        measured, simulated = (f"{value:.4g} {figure.quantity}" for value in (figure.measured, figure.simulated))
        error = f"{figure.error:+.1%}{' fitted' if figure.fitted else ''}"
        rows.append((figure.size_bytes, measured, simulated, error, promise))
    heads = ("bytes", "measured", "weft", "error", "promise")
    where = one.spec or " at ".join(one.pair or ())
    out = console()
    out.print(table(f"{one.test}, {where}", heads, rows), markup=False)
    for line in (f"Source: {one.source}", f"Note: {one.note}" if one.note else ""):
        if line:
            out.print(line, markup=False)
