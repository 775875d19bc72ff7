"""Output in the text and JSON formats of nccl-tests 2.19, so that its parsers can read weft's results.

Same columns, same widths, a `#` before everything else (nccl-tests, src/util.cu). In place and out of place are one
thing here. `#wrong` is 0 where the program of the algorithm was executed on symbols and proved, N/A where it was not.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from itertools import groupby
from typing import Any

from weft.collectives.kinds import Collective
from weft.collectives.nccl.bench import Row, Settings, Table
from weft.collectives.nccl.constants import constants
from weft.collectives.nccl.rccl import constants as rccl
from weft.collectives.nccl.tuner import much_slower_choices
from weft.collectives.ranks import Ranks
from weft.fabric import catalog
from weft.fabric.kinds import NodeKind
from weft.version import __version__

VERSION = "2.19.6"  # the version of nccl-tests with this output
JSON_VERSION = 3
_MOST_LINES, _END_LINES = 16, 4  # ranks: all up to the first number, else the first and last few
_TIME = "%Y-%m-%d %H:%M:%S"
_ROOTED = frozenset({Collective.BROADCAST, Collective.REDUCE, Collective.GATHER, Collective.SCATTER})
# nccl-tests says `sum` for sendrecv_perf too.
_SUMS = frozenset({Collective.ALL_REDUCE, Collective.REDUCE, Collective.REDUCE_SCATTER, Collective.SEND_RECV})


# -- text -------------------------------------------------------------------------------------------------------------


def text(table: Table, *, explain: bool = False) -> Iterator[str]:
    """Yield the lines of nccl-tests. `explain` adds columns: the choice, its limit, and the band."""
    settings, sizes = table.settings, table.settings.sizes
    step = f"{sizes.factor}(factor)" if sizes.factor > 1 else f"{sizes.step_bytes}(bytes)"
    yield f"# nccl-tests version {VERSION} nccl-headers={_nccl_code(table)} nccl-library={_nccl_code(table)}"
    yield from (f"# {line}" for line in about(table))
    yield f"# Collective test starting: {settings.program}"
    yield (
        f"# nThread 1 nGpus 1 minBytes {sizes.min_bytes} maxBytes {sizes.max_bytes} step: {step} warmup iters: 0 "
        f"iters: 1 agg iters: 1 validation: {int(_validated(table))} graph: 0 unalign: 0"
    )
    yield "#"
    yield "# Using devices"
    yield from _device_lines(table.ranks)
    yield "#"
    yield from _head(explain)
    for row in table.rows:
        yield _line(settings, row) + (f"  {row.choice:<27} {row.bound:<9} {_band(row)}" if explain else "")
    yield from (f"# {line}" for line in (*bands(table), *much_slower_choices(table)))
    yield "# Out of bounds values : 0 OK"
    yield f"# Avg bus bandwidth    : {table.average_gbyte_s:g} "
    yield "#"
    yield f"# Collective test concluded: {settings.program}"
    yield "#"
    yield ""


def about(table: Table) -> list[str]:
    """Return lines that say that the run is simulated, and with which settings."""
    settings, options = table.settings, table.settings.options
    forced = settings.environment | {"network": options.network or "", "paths": options.paths or ""}
    variables = "".join(f" {name}={value}" for name, value in forced.items() if value) + " -R 2" * settings.windows
    lines = [
        f"Simulated by weft {__version__}, not measured: {table.ranks.fabric.spec} seed={options.seed} "
        f"memory={options.memory}{variables}",
        *(f"  with {change}" for change in table.ranks.fabric.changes),
        f"Job: {table.cluster}; {_library(table)}",
    ]
    for pattern, network in (table.networks or {}).items():
        lines.append(f"{pattern}: a step {network.step_us:.2f} us, an adapter {network.adapter_gbyte_s:.2f} GB/s")
    return lines


def _library(table: Table) -> str:
    return f"RCCL {rccl.model().version}" if table.cluster.gcn else f"NCCL {constants(table.cluster.nccl).version}"


def bands(table: Table) -> list[str]:
    """Return lines for the bands around times, by kind, and for properties that no published run has."""
    lines = []
    for (kind, clusters), group in groupby(table.rows, key=lambda row: (row.band.kind, row.band.clusters)):
        rows = list(group)
        sizes = " to ".join(dict.fromkeys((f"{rows[0].size_bytes:,}", f"{rows[-1].size_bytes:,}")))
        low, high = min(row.band.low for row in rows), rows[0].band.high
        least = ", cut where NVLinks are full" if any(row.band.low > 1.001 * low for row in rows) else ""
        lines.append(f"90 % band at {sizes} bytes: x{low:.2f} to x{high:.2f}{least} ({clusters} clusters with {kind})")
    far = dict.fromkeys(why for row in table.rows for why in row.band.far)
    doubts = dict.fromkeys(why for row in table.rows for why in row.estimate.doubts)
    lines += [f"Far from anything published: {why}" for why in far]
    return lines + [f"In doubt: {why}" for why in doubts]


def _band(row: Row) -> str:
    low, high = (_fit(time_us, 7).strip() for time_us in row.band_us)
    return f"{low} to {high}"


def _head(explain: bool) -> Iterator[str]:
    """Yield the table head, with the trailing blanks of nccl-tests."""
    words = "{:>10}  {:>12}  {:>8}  {:>6}  {:>6}".format
    body = "  {:>7}  {:>6}  {:>6}  {:>6}  {:>7}  {:>6}  {:>6}  {:>6} ".format
    names = ("time", "algbw", "busbw", "#wrong")
    units = ("(us)", "(GB/s)", "(GB/s)", "")
    more = (f" {'algorithm/protocol/channels':<27}", f" {'bound by':<9} band (us)") if explain else ("", "")
    yield f"# {words('', '', '', '', '')}           out-of-place                       in-place          "
    yield f"# {words('size', 'count', 'type', 'redop', 'root')}{body(*names, *names)}{''.join(more)}"
    yield f"# {words('(B)', '(elements)', '', '', '')}{body(*units, *units)}"


def _line(settings: Settings, row: Row) -> str:
    estimate = row.estimate
    wrong = f"  {row.wrong:6g}" if row.wrong is not None else "    N/A"
    time, algo, bus = _fit(estimate.time_us, 7), _fit(estimate.algo_gbyte_s, 6), _fit(estimate.bus_gbyte_s, 6)
    body = f"  {time}  {algo}  {bus}{wrong}"
    columns = f"{settings.datatype:>8}  {_redop(settings):>6}  {_root(settings):6d}"
    return f"{row.size_bytes:12d}  {row.count:12d}  {columns}{body}{body}"


def _fit(value: float, width: int) -> str:
    """Format a value with as many decimals as fit (getFloatStr, src/util.cu)."""
    for decimals in (2, 1, 0):
        text = f"{value:{width}.{decimals}f}"
        if len(text) <= width:
            return text
    return f"{value:{width}.{1 if width >= 7 else 0}e}"


def _redop(settings: Settings) -> str:
    return "sum" if settings.collective in _SUMS else "none"


def _root(settings: Settings) -> int:
    return 0 if settings.collective in _ROOTED else -1


def _validated(table: Table) -> bool:
    return any(row.wrong is not None for row in table.rows)


def _nccl_code(table: Table) -> int:
    """Return NCCL's version code: 23007 for 2.30.7, 22800 for 2.28."""
    version = rccl.model().version if table.cluster.gcn else constants(table.cluster.nccl).version
    major, minor, patch, *_ = (*map(int, version.split(".")), 0)
    return major * 10_000 + minor * 100 + patch


def _devices(ranks: Ranks) -> Iterator[dict[str, Any]]:
    """Yield a rank on each GPU, with the PCI address of the real machine; process ids are 0."""
    yield from _devices_of(ranks, 0, len(ranks.servers))


def _devices_of(ranks: Ranks, first: int, last: int) -> Iterator[dict[str, Any]]:
    """Yield the ranks of some servers, by the numbers of the first and of the one after the last."""
    servers = [ranks.fabric.find_server(name) for name in ranks.servers[first:last]]
    bus_id = catalog.server(servers[0].of_kind(NodeKind.CPU)[0].model).bus_id
    for place, (device, gpu) in enumerate(place for server in servers for place in enumerate(server.gpus)):
        yield {
            "rank": first * ranks.per_server + place,
            "group": 0,
            "pid": 0,
            "hostname": str(gpu.server),
            "device": device,
            "device_hex": bus_id.get(gpu.name.rpartition("/")[2], "0000:00:00.0").rpartition(".")[0],
            "device_info": gpu.model,
        }


def _device_lines(ranks: Ranks) -> Iterator[str]:
    """Return the lines of the first and last of many ranks; the JSON has all."""

    def line(device: dict[str, Any]) -> str:
        return (
            f"#  Rank {device['rank']:2d} Group {device['group']:2d} Pid {device['pid']:6d} on "
            f"{device['hostname']:>10} device {device['device']:2d} [{device['device_hex']}] {device['device_info']}"
        )

    if len(ranks) <= _MOST_LINES:
        yield from map(line, _devices(ranks))
        return
    servers, few = len(ranks.servers), -(-_END_LINES // ranks.per_server)
    yield from [line(device) for device in _devices_of(ranks, 0, few)][:_END_LINES]
    yield f"#  ... {len(ranks) - 2 * _END_LINES:,} more ranks (--json lists all {len(ranks):,})"
    yield from [line(device) for device in _devices_of(ranks, servers - few, servers)][-_END_LINES:]


# -- JSON -------------------------------------------------------------------------------------------------------------


def report(table: Table) -> dict[str, Any]:
    """Return the JSON of nccl-tests' `-J`, version 3, with weft's own fields under `weft`."""
    settings = table.settings
    now = datetime.datetime.now().strftime(_TIME)
    return {
        "version": JSON_VERSION,
        "start_time": now,
        "args": [settings.program, *_args(settings)],
        "env": _env(settings),
        "nccl_version": _nccl_code(table),
        "config": _config(table),
        "results": [_result(settings, row) for row in table.rows],
        "out_of_bounds": {"count": 0, "okay": "true"},
        "average_bus_bandwidth": {"bandwidth": table.average_gbyte_s, "okay": "unchecked"},
        "errors": [],
        "end_time": now,
        "weft": _facts(table),
    }


def _config(table: Table) -> dict[str, Any]:
    """Return the configuration; nccl-tests writes booleans as strings."""
    sizes = table.settings.sizes
    return {
        "nthreads": 1,
        "ngpus": 1,
        "minimum_bytes": sizes.min_bytes,
        "maximum_bytes": sizes.max_bytes,
        **({"step_factor": sizes.factor} if sizes.factor > 1 else {"step_bytes": sizes.step_bytes}),
        "warmup_iters": 0,
        "iterations": 1,
        "aggregated_iterations": 1,
        "validation": int(_validated(table)),
        "graph": 0,
        "blocking_collectives": "false",
        "per_iter_timing": "false",
        "per_iter_skip": 0,
        "parallel_init": "false",
        "devices": list(_devices(table.ranks)),
    }


def _args(settings: Settings) -> list[str]:
    """Return the equivalent arguments of nccl-tests."""
    sizes = settings.sizes
    args = ["-b", str(sizes.min_bytes), "-e", str(sizes.max_bytes)]
    args += ["-f", str(sizes.factor)] if sizes.factor > 1 else ["-i", str(sizes.step_bytes)]
    args += ["-d", settings.datatype] if settings.datatype != "float" else []
    return args + (["-R", "2"] if settings.windows else [])


def _env(settings: Settings) -> list[str]:
    """Return the equivalent environment of NCCL."""
    return [f"{name}={value}" for name, value in settings.environment.items()]


def _result(settings: Settings, row: Row) -> dict[str, Any]:
    estimate = row.estimate
    wrong = None if row.wrong is None else float(row.wrong)
    body = {"time": estimate.time_us, "alg_bw": estimate.algo_gbyte_s, "bus_bw": estimate.bus_gbyte_s, "nwrong": wrong}
    return {
        "size": row.size_bytes,
        "count": row.count,
        "type": settings.datatype,
        "redop": _redop(settings),
        "root": f"{_root(settings):6d}",
        "out_of_place": body,
        "in_place": body,
        "actual_iterations": 1,
        "experiment_name": "",
        "weft": {
            "algorithm": estimate.algorithm.label if estimate.algorithm else None,
            "kernel": estimate.kernel or None,
            "protocol": estimate.protocol.label,
            "channels": estimate.channels,
            "bound": estimate.bound,
            "parts_us": estimate.parts,
            "band_us": list(row.band_us),
            "band_kind": row.band.kind,
            "band_clusters": row.band.clusters,
            "far": list(row.band.far),
            "doubts": list(row.estimate.doubts),
        },
    }


def _facts(table: Table) -> dict[str, Any]:
    options = table.settings.options
    return {
        "version": __version__,
        "spec": table.ranks.fabric.spec,
        "changes": list(table.ranks.fabric.changes),
        "servers": list(table.ranks.servers),
        "seed": options.seed,
        "network": options.network,
        "paths": options.paths,
        "memory": options.memory,
        "slower_choices": much_slower_choices(table),
        "patterns": {
            pattern.value: {"step_us": network.step_us, "adapter_gbyte_s": network.adapter_gbyte_s}
            for pattern, network in (table.networks or {}).items()
        },
    }
