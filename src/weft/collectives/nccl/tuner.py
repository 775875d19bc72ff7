"""The configuration file of NCCL's example tuner plugin (plugins/tuner/example): algorithms by size.

    NCCL_TUNER_PLUGIN=libnccl-tuner-example.so NCCL_TUNER_CONFIG_FILE=tuner.csv all_reduce_perf -b 8 -e 8G -f 2

NCCL compares algorithms by general estimates. weft has measured this network, and may find another one faster. A range
begins at a size of the sweep and ends before the next size with another choice.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby

from weft.collectives.nccl.bench import Row, Table
from weft.collectives.nccl.choose import choose
from weft.collectives.nccl.estimate import Estimate, estimate
from weft.collectives.nccl.tuning import TUNED
from weft.errors import ConfigError
from weft.version import __version__

_LARGEST = (1 << 64) - 1  # that the plugin can read: a size_t
_LINE = 255  # characters; what is beyond them the plugin takes for another line
_ANY = -1  # pipelined operations, registered buffers
_MUCH_FASTER = 1.5  # times: bands of well-known collectives are about as wide


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """A range of sizes with one choice; `best` and `row` are of the size at which NCCL's own choice loses most."""

    first_bytes: int
    last_bytes: int
    best: Estimate
    row: Row


def ranges(table: Table) -> list[Range]:
    """Return the fastest algorithm, protocol and channels for every size from 0 on."""
    answers = [(_fastest(table, row), row) for row in table.rows]
    groups = [list(group) for _, group in groupby(answers, key=lambda pair: _answer(pair[0]))]
    first_bytes = [0, *(group[0][1].size_bytes for group in groups[1:])]
    last_bytes = [*(first - 1 for first in first_bytes[1:]), _LARGEST]
    losses = [max(group, key=lambda pair: pair[1].estimate.time_us / pair[0].time_us) for group in groups]
    return [
        Range(first_bytes=first, last_bytes=last, best=best, row=row)
        for first, last, (best, row) in zip(first_bytes, last_bytes, losses, strict=True)
    ]


def _answer(estimated: Estimate) -> tuple[object, ...]:
    return estimated.algorithm, estimated.protocol, estimated.channels


def _fastest(table: Table, row: Row) -> Estimate:
    """Return the fastest of the enabled rows, or NCCL's choice if none is faster."""
    settings, cluster, kind = table.settings, table.cluster, table.settings.collective
    best = row.estimate
    for other in choose(cluster, kind, row.size_bytes).rows:
        if other.off:
            continue
        estimated = estimate(
            cluster,
            kind,
            row.size_bytes,
            networks=table.networks,
            algorithm=other.algorithm,
            protocol=other.protocol,
            channels=settings.channels,
            chunk_bytes=settings.chunk_bytes,
            fitted=settings.times,
        )
        best = min(best, estimated, key=lambda candidate: candidate.time_us)
    return best


def much_slower_choices(table: Table) -> list[str]:
    """Return a line for each change of NCCL's choice where weft expects another row of its table to be much faster.

    NCCL compares rows by a latency and a bandwidth. It does not count that small chunks wait for each other, nor each
    step of a broadcast through the GPUs of a node. So times can jump where the choice changes.
    """
    if table.settings.collective not in TUNED or table.cluster.windows or table.cluster.gcn:
        return []
    lines = []
    for _, group in groupby(table.rows, key=lambda row: row.estimate.name):
        row = next(group)
        best = _fastest(table, row)
        if row.estimate.time_us > _MUCH_FASTER * best.time_us:
            lines.append(
                f"From {row.size_bytes:,} bytes on NCCL's tuning model takes {row.estimate.name}, and weft expects "
                f"{best.name} to be faster there: {best.time_us:.1f} instead of {row.estimate.time_us:.1f} us. "
                "--tuner writes the faster choice"
            )
    return lines


def to_text(table: Table) -> str:
    """Return the file. It always has channels: with -1 the plugin makes NCCL use one channel."""
    kind, cluster = table.settings.collective, table.cluster
    if kind not in TUNED:  # those that NCCL tunes are those that the plugin knows
        raise ConfigError(f"NCCL's tuner plugin knows no {kind}: it tunes {', '.join(TUNED)}")
    if cluster.gcn:
        raise ConfigError(f"--tuner: weft has no second choice to offer to RCCL on {cluster}. Leave it out")
    if cluster.windows:
        raise ConfigError("NCCL's tuner plugin is not asked about symmetric kernels: leave out -R 2, or --tuner")
    about = f"# weft {__version__}, simulated: {table.ranks.fabric.spec} seed={table.settings.options.seed}"
    lines = [
        about[:_LINE],
        "# collective,min_bytes,max_bytes,algorithm,protocol,channels,nNodes,nRanks,numPipeOps,regBuff",
    ]
    for span in ranges(table):
        algorithm, protocol, channels = span.best.algorithm, span.best.protocol, span.best.channels
        assert algorithm is not None
        if span.best.time_us < span.row.estimate.time_us:
            lines.append(
                f"# {span.best.time_us:.2f} us at {span.row.size_bytes} bytes; NCCL by itself takes {span.row.choice}: "
                f"{span.row.estimate.time_us:.2f} us"
            )
        name = algorithm.replace("-", "_")
        where = f"{cluster.nodes},{cluster.ranks},{_ANY},{_ANY}"
        sizes = f"{span.first_bytes},{span.last_bytes}"
        lines.append(f"{kind.replace('_', '')},{sizes},{name},{protocol},{channels},{where}")
    return "\n".join(lines) + "\n"
