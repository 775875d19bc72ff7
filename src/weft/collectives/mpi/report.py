"""The text of OSU's programs, version 7.5, and the same as JSON.

The first columns are theirs, so that their parsers work; weft's follow: the band of published runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from weft.collectives.mpi.bench import Row, Table, Test
from weft.version import __version__

VERSION = "7.5"
_SIZE, _FIELD = 10, 18  # widths of their columns
_BARE = 17  # width of osu_barrier's only column


def text(table: Table, *, full: bool = False, band: bool = True, explain: bool = False) -> Iterator[str]:
    """Yield the lines; `full` is -f: the least and the most of all ranks."""
    test = table.settings.test
    full = full and test.collective is not None
    yield ""
    yield f"# OSU MPI {test.heading} Test v{VERSION}"
    if test.datatype:
        yield f"# Datatype: {test.datatype}."
    yield f"# Simulated by weft: {where(table)}."
    yield from (f"#   with {change}" for change in table.ranks.fabric.changes)
    if band:
        yield from (f"# {remark}." for remark in dict.fromkeys(remark for row in table.rows for remark in row.remarks))
    unit = "MB/s" if test.is_bandwidth else "us"
    heads = ["Bandwidth (MB/s)" if test.is_bandwidth else "Avg Latency(us)"]
    heads += ["Min Latency(us)", "Max Latency(us)", "Iterations"] if full else []
    heads += [f"Low({unit})", f"High({unit})"] if band else []
    if test is Test.BARRIER:
        yield "# " + heads[0] + "".join(f"{head:>{_FIELD}}" for head in heads[1:]) + ("  Algorithm" if explain else "")
    else:
        how = "  Protocol" if test.collective is None else "  Algorithm"
        yield f"{'# Size':<{_SIZE}}" + "".join(f"{head:>{_FIELD}}" for head in heads) + (how if explain else "")
    for row in table.rows:
        cells = [f"{value:.2f}" for value in _values(row, full=full, band=band)]
        if full:
            cells.insert(3, "1")
        first = f"{cells[0]:>{_BARE}}" if test is Test.BARRIER else f"{row.size_bytes:<{_SIZE}}{cells[0]:>{_FIELD}}"
        yield first + "".join(f"{cell:>{_FIELD}}" for cell in cells[1:]) + (f"  {row.how}" if explain else "")


def _values(row: Row, *, full: bool, band: bool) -> list[float]:
    return [row.value, *((row.least, row.most) if full else ()), *((row.low, row.high) if band else ())]


def where(table: Table) -> str:
    settings = table.settings
    servers = len(table.ranks.servers)
    network = f" over {table.network}" if table.network else " in shared memory"
    processes = "1 process" if settings.ppn == 1 else f"{settings.ppn} processes"
    each = f"{processes} on each of {servers} servers" if servers > 1 else f"{processes} on one server"
    words = [settings.mpi, *([settings.coll] if settings.coll else []), each]
    more = [f"UCX_TLS={settings.ucx_tls}"] if settings.ucx_tls else []
    more += ["mapped by node"] if settings.by_node else []
    more += ["SHARP"] if settings.sharp else []
    more += ["pods"] if settings.pods else []
    return f"{', '.join(words)} of {table.ranks.fabric.spec}{network}{''.join(f', {extra}' for extra in more)}"


def report(table: Table) -> dict[str, Any]:
    """Return the fields of `--json`."""
    settings = table.settings
    unit = "mbyte_s" if settings.test.is_bandwidth else "us"
    return {
        "weft": __version__,
        "test": f"osu_{settings.test}",
        "spec": table.ranks.fabric.spec,
        "changes": list(table.ranks.fabric.changes),
        "servers": list(table.ranks.servers),
        "ppn": settings.ppn,
        "mpi": settings.mpi,
        "coll": settings.coll,
        "UCX_TLS": settings.ucx_tls,
        "map_by": settings.map_by,
        "sharp": settings.sharp,
        "pods": settings.pods,
        "registration_cache": settings.cached,
        "window": settings.window,
        "network": table.network,
        "paths": settings.options.paths,
        "seed": settings.options.seed,
        "results": [
            {
                "size_bytes": row.size_bytes,
                unit: row.value,
                f"low_{unit}": row.low,
                f"high_{unit}": row.high,
                **({f"min_{unit}": row.least, f"max_{unit}": row.most} if settings.test.collective else {}),
                "how": row.how,
                "kind": ", ".join(row.kind),
                "remarks": list(row.remarks),
            }
            for row in table.rows
        ],
    }
