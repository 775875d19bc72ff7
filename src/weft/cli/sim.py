"""`weft sim`: simulate traffic on a fabric, and print times, goodput, latency and the busiest links."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from weft.cli.arguments import Spec
from weft.cli.output import Cell, console, print_data, progress_bar, report_written, table
from weft.cli.sim_flags import NO_MESSAGES, NO_NETWORK, NO_OUTPUTS, Messages, Network, Outputs
from weft.errors import ConfigError
from weft.units import parse_size_bytes
from weft.version import __version__

if TYPE_CHECKING:
    from pathlib import Path

    from weft.fabric.model import Fabric
    from weft.sim.engine import Options, Progress
    from weft.sim.result import Engine, Result


_BUSIEST = 8  # links in the table
SWEPT = ("uniform", "adversarial", "tornado")  # traffic with a load
Step = Callable[[str], "Progress"]  # names the current step and returns the callback for the engine


def sim(
    spec: Spec,
    /,
    *,
    traffic: str | None = None,
    engine: str = "packet",
    messages: Annotated[Messages, Parameter(name="*", group="Traffic")] = NO_MESSAGES,
    network: Annotated[Network, Parameter(name="*", group="Network")] = NO_NETWORK,
    outputs: Annotated[Outputs, Parameter(name="*", group="Results")] = NO_OUTPUTS,
) -> None:
    """Simulate traffic: times, goodput, latency.

    Also shows the busiest links.

    Parameters
    ----------
    traffic
        permutation, incast, uniform, adversarial (dragonfly), tornado (torus), shift, bisection, all-to-all, rails,
        multicast; a collective with its algorithm, all_reduce:ring, all_reduce:sharp (switches add); or the path of a
        traffic file, .csv, .json or .cm (htsim). [permutation]
    engine
        Simulation engine: packet (each packet, credit and queue), flow (fair rates), analytic (closed forms), or
        auto (packet up to 20 million packet-hops and where flows lack something, else flow).
    """
    from weft.api.traffic import check_traffic, make_traffic, read_parameters, route_traffic
    from weft.fabric.spec import load
    from weft.sim.engines import find_engine
    from weft.sim.files import write_traffic

    _check_outputs(outputs)
    chosen = find_engine(engine, auto=True)
    _check_network(network, chosen.name)
    if messages.sl is not None and chosen.name in ("flow", "analytic"):
        raise ConfigError(f"--sl chooses a virtual lane, and the {chosen.name} engine has none: leave it out")
    loads = _loads(traffic, messages, outputs)
    if loads and chosen.name == "auto":
        raise ConfigError("--sweep-load compares loads by one engine: use --engine packet or flow")
    ways = (network.paths or "").split(",") if loads else [network.paths]
    options = [_options(network, outputs, way or None) for way in ways]
    parameters = read_parameters(**asdict(messages))
    name = traffic or ("uniform" if loads else "permutation")
    check_traffic(name, parameters)
    with _progress() as step:
        fabric, routed_by = route_traffic(
            load(spec),
            options,
            tables=network.tables,
            routing_engine=network.routing_engine,
            lmc=network.lmc,
            traffic=name,
        )
        if loads:
            runs = _run_sweep(chosen, fabric, name, parameters, loads, options, step)
        else:
            sent = make_traffic(name, fabric, parameters, network.seed)
            if outputs.write_traffic is not None:
                write_traffic(outputs.write_traffic, fabric, sent)
            result = chosen.run(fabric, sent, options[0], progress=step(sent.description))
    if loads:
        _report_sweep(runs, routed_by, outputs)
    else:
        _report_run(result, routed_by, outputs)


# -- options ----------------------------------------------------------------------------------------------------------


def _check_outputs(outputs: Outputs) -> None:
    """Refuse unwritable files before a long run."""
    from weft.draw import RENDERERS
    from weft.draw.chart import check_suffix
    from weft.sim import files, frames, series

    for path, check in (
        (outputs.picture_queue, check_suffix),
        (outputs.picture_watch, check_suffix),
        (outputs.picture_cdf, check_suffix),
        (outputs.write_messages, series.check_columns_file),
        (outputs.write_samples, series.check_samples_file),
        (outputs.write_capture, frames.check_capture_file),
        (outputs.picture, partial(check_suffix, formats=RENDERERS) if outputs.sweep_load is None else check_suffix),
        (outputs.write_traffic, files.check_writable),
    ):
        if path is not None:
            check(path)
    if not outputs.watch:
        for flag, path in _of_watched(outputs).items():
            if path is not None:
                raise ConfigError(f"{flag} needs ports to sample: add --watch leaf1/3, or several separated by commas")
    if (outputs.capture is None) != (outputs.write_capture is None):
        raise ConfigError("--capture names ports and --write-capture the file: give both, or leave both out")
    if outputs.watch_every_us is not None and not outputs.watch:
        raise ConfigError("--watch-every-us says how often --watch looks: add --watch leaf1/3, or leave it out")


def _of_watched(outputs: Outputs) -> dict[str, Path | None]:
    """Return the files of samples by flag."""
    return {
        "--picture-queue": outputs.picture_queue,
        "--picture-watch": outputs.picture_watch,
        "--write-samples": outputs.write_samples,
    }


def _check_network(network: Network, engine: str) -> None:
    """Refuse options that this engine or network does not have."""
    of_packets = {
        "--buffer": network.buffer is not None,
        "--skip-tolerance": network.skip_tolerance > 0,
        "--congestion-control": network.congestion_control is not None,
        "--crossbar": network.crossbar is not None,
        "--threads": network.threads > 0,
    }
    for flag, is_set in of_packets.items():
        if is_set and engine in ("flow", "analytic"):
            raise ConfigError(f"{flag} is about packets, and the {engine} engine has none: leave it out")
    if network.routed and network.network != "roce-v1":
        raise ConfigError("--routed keeps packets of RoCE v1 below their leaf: add --network roce-v1, or leave it out")


def _loads(traffic: str | None, messages: Messages, outputs: Outputs) -> list[float]:
    """Return the loads of a sweep; none for a single run."""
    if outputs.sweep_load is None:
        return []
    if traffic not in (None, *SWEPT):
        raise ConfigError(f"--sweep-load runs {', '.join(SWEPT)} traffic, not {traffic}: leave out --traffic")
    single = {"--load": messages.load, "--watch": outputs.watch, "--write-traffic": outputs.write_traffic}
    single |= {"--capture": outputs.capture}
    single |= {"--picture-cdf": outputs.picture_cdf, "--write-messages": outputs.write_messages}
    for flag, value in single.items():
        if value is not None:
            raise ConfigError(f"{flag} is for a single run: leave it out, or --sweep-load")
    try:
        loads = [float(load) for load in outputs.sweep_load.split(",")]
    except ValueError:
        loads = []
    if not loads or not all(0 < load <= 1 for load in loads):
        raise ConfigError(
            f"--sweep-load {outputs.sweep_load} is not a list of loads above 0 and up to 1: write 0.1,0.5,0.9"
        )
    return loads


def _options(network: Network, outputs: Outputs, paths: str | None) -> Options:
    from weft.api.traffic import read_ps
    from weft.sim.engine import Options

    chosen: dict[str, Any] = {"network": network.network, "paths": paths, "switching": network.switching}
    chosen |= {"plane_choice": network.plane_choice, "in_order": network.in_order}
    chosen |= {"congestion_control": network.congestion_control, "memory": network.memory}
    chosen |= {"full_queue": network.full_queue, "link_retry": network.link_retry}
    if network.crossbar is not None:
        chosen["crossbar"] = network.crossbar
    return Options(
        **chosen,  # strings, which Options checks and converts
        seed=network.seed,
        faults=network.fault,
        routed=network.routed,
        mtu_bytes=network.mtu,
        buffer_bytes=parse_size_bytes(network.buffer) if network.buffer else 0,
        ack_every_bytes=parse_size_bytes(network.ack_every) if network.ack_every else 0,
        skip_tolerance=network.skip_tolerance,
        threads=network.threads,
        capture=tuple(outputs.capture.split(",")) if outputs.capture else (),
        watch=tuple(outputs.watch.split(",")) if outputs.watch else (),
        watch_every_ps=read_ps("--watch-every-us", 1.0 if outputs.watch_every_us is None else outputs.watch_every_us),
    )


# -- runs -------------------------------------------------------------------------------------------------------------


def _run_sweep(
    engine: Engine,
    fabric: Fabric,
    name: str,
    parameters: dict[str, Any],
    loads: list[float],
    options: list[Options],
    step: Step,
) -> list[tuple[float, Result]]:
    from weft.api.traffic import make_traffic

    runs = []
    for run_options in options:
        for load in loads:
            traffic = make_traffic(name, fabric, parameters | {"load": load}, run_options.seed)
            progress = step(f"load {load:g}, paths {run_options.paths or 'as usual'}")
            runs.append((load, engine.run(fabric, traffic, run_options, progress=progress)))
    return runs


@contextmanager
def _progress() -> Iterator[Step]:
    with progress_bar("routing") as change:

        def step(description: str) -> Callable[[int, int], None]:
            change(description=description, completed=0, total=None)
            return lambda count, total: change(completed=count, total=total)

        yield step


# -- one run ----------------------------------------------------------------------------------------------------------


def _report_run(result: Result, routed_by: str, outputs: Outputs) -> None:
    from weft.sim import frames, plots, series

    files = (
        (outputs.picture, plots.draw_heat),
        (outputs.picture_queue, plots.draw_queues),
        (outputs.picture_watch, plots.draw_watched),
        (outputs.picture_cdf, plots.draw_cdf),
        (outputs.write_messages, series.write_messages),
        (outputs.write_samples, series.write_samples),
        (outputs.write_capture, frames.write_capture_of),
    )
    for path, write in files:
        if path is not None:
            write(path, result)
    if outputs.form.is_data:
        print_data(outputs.form, _facts(result, routed_by))
        return
    _print_run(result, routed_by)
    report_written(outputs.write_traffic, *(path for path, _ in files))


def _print_run(result: Result, routed_by: str) -> None:
    from weft.sim.figures import busiest_links, describe_run, describe_traffic, headline, name_fabric

    out = console()
    out.print(f"{name_fabric(result.fabric)}, {routed_by}", markup=False)
    out.print(describe_traffic(result.traffic), markup=False)
    choice = f" (auto: {result.choice})" if result.choice else ""
    out.print(f"{describe_run(result.options)}, {result.engine} engine{choice}", markup=False, end="\n\n")
    for label, value in headline(result):
        out.print(f"{label:<12}{value}", markup=False)
    out.print()
    heads = ("from", "to", "Gbit/s", "utilisation %", "wait µs", "most queued KiB")
    rows = [
        (link.port, link.peer, link.gbit_s, 100 * link.utilisation, link.wait_us, link.queue_peak_bytes / 1024)
        for link in busiest_links(result, _BUSIEST)
    ]
    note = "Utilisation: part of the run that the port was sending. Wait: it had packets, and no credit or a pause."
    out.print(table("Busiest links", heads, rows, note))
    out.print(_speed_line([result]), markup=False)


def _facts(result: Result, routed_by: str) -> dict[str, Any]:
    from weft.sim.figures import busiest_links, goodput_per_sender_gbit_s

    each = goodput_per_sender_gbit_s(result)
    spread = {"min": each.min(), "mean": each.mean(), "max": each.max()} if len(each) else {}
    return result.report() | {
        "routing": routed_by,
        "goodput_per_sender_gbit_s": {name: float(value) for name, value in spread.items()},
        "busiest_links": [asdict(link) for link in busiest_links(result, _BUSIEST)],
    }


def _speed_line(results: list[Result]) -> str:
    """Return the version, the seed, the packet-hops and the speed of the runs."""
    hops, wall_s = sum(result.packet_hops for result in results), sum(result.wall_s for result in results)
    speed = f"{hops / wall_s / 1e6:.3g} M packet-hops/s" if wall_s else "in no time"
    first = results[0]
    threads = f" on {first.threads} threads" if first.threads > 1 else f", {first.note}" if first.note else ""
    return f"weft {__version__}, seed {first.options.seed}: {hops:,} packet-hops in {wall_s:.3g} s, {speed}{threads}"


# -- a sweep ----------------------------------------------------------------------------------------------------------


def _report_sweep(runs: list[tuple[float, Result]], routed_by: str, outputs: Outputs) -> None:
    from weft.sim.figures import format_size, name_fabric

    first = runs[0][1]
    options, size = first.options, format_size(int(first.traffic.size_bytes[0]))
    note = f"{first.traffic.description.split(', ')[0]} traffic of {size}; {options.network}, "
    note += f"MTU {options.mtu_bytes}, seed {options.seed}, {first.engine} engine"
    if outputs.picture is not None:
        _draw_sweep(runs, outputs.picture, name_fabric(first.fabric), note)
    if outputs.form.is_data:
        print_data(outputs.form, [{"load": load} | _facts(result, routed_by) for load, result in runs])
        return
    out = console()
    out.print(f"{name_fabric(first.fabric)}, {routed_by}\n{note}", markup=False, end="\n\n")
    heads = ("paths", "load", "messages", "carried", "min µs", "median µs", "p99 µs", "max µs")
    rows = [_sweep_row(load, result) for load, result in runs]
    explanation = (
        "Load: payload offered, as a share of the hosts' line rate. Carried: delivered in the second half of the time."
    )
    out.print(table("Latency against load", heads, rows, explanation))
    out.print(_speed_line([result for _, result in runs]), markup=False)
    report_written(outputs.picture)


def _draw_sweep(runs: list[tuple[float, Result]], path: Path, title: str, note: str) -> None:
    from weft.sim.plots import Curve, draw_latency

    curves: dict[str, list[tuple[float, Result]]] = {}
    for load, result in runs:
        curves.setdefault(f"paths {result.options.paths}", []).append((load, result))
    drawn = [Curve.of(name, points) for name, points in curves.items()]
    draw_latency(path, drawn, title, f"{note}; weft {__version__}")


def _sweep_row(load: float, result: Result) -> tuple[Cell, ...]:
    from weft.sim.figures import carried_load

    spread = [result.report()["latency_us"].get(name) for name in ("min", "p50", "p99", "max")]
    return str(result.options.paths), load, len(result.traffic), round(carried_load(result), 3), *spread
