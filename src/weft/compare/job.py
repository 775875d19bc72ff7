"""Jobs: one collective, or all collectives of a trace.

    all_reduce:1G            one collective and its size: the larger of a rank's two buffers, as in nccl-tests
    trace:FILE               lines `collective,size,count`: the calls of a training step, and how often

A trace may have blank lines and comments after `#`, and a first line with the column names.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from weft.collectives.kinds import Collective, collective
from weft.errors import ConfigError, FileError
from weft.fabric.files.text import read_text
from weft.sim.figures import format_size
from weft.units import parse_size_bytes

COLLECTIVES = (
    Collective.ALL_REDUCE,
    Collective.ALL_GATHER,
    Collective.REDUCE_SCATTER,
    Collective.BROADCAST,
    Collective.REDUCE,
    Collective.ALL_TO_ALL,
)  # those with a closed form
LARGEST_BYTES = 1 << 42
_USAGE = "write all_reduce:1G, all_to_all:64M or trace:FILE"
_LINE = "collective,size,count such as all_reduce,64M,12"


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A collective of one size, called `count` times."""

    collective: Collective
    size_bytes: int
    count: int = 1

    def __str__(self) -> str:
        times = f"{self.count:,} × " if self.count > 1 else ""
        return f"{times}{self.collective} of {format_size(self.size_bytes)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveJob:
    """A sequence of calls."""

    name: str  # as requested
    calls: tuple[Call, ...]

    @property
    def leading(self) -> Call:
        """The call with the most bytes in total, for which curves are drawn."""
        return max(self.calls, key=lambda call: call.size_bytes * call.count)

    def bus_gbyte_s(self, ranks: int, time_us: float) -> float:
        """Return the bandwidth of each rank's link over all calls, as in nccl-tests."""
        moved = sum(call.count * call.size_bytes * call.collective.bus_factor(ranks) for call in self.calls)
        return moved / time_us / 1000

    def __str__(self) -> str:
        if len(self.calls) == 1:
            return str(self.calls[0])
        return f"the {sum(call.count for call in self.calls):,} collectives of {self.name.removeprefix('trace:')}"


def parse_job(text: str) -> CollectiveJob:
    """Parse `all_reduce:1G` or `trace:FILE`."""
    kind, colon, rest = text.partition(":")
    if not colon or not rest:
        raise ConfigError(f"--job must be a collective and its size, got {text!r}: {_USAGE}")
    if kind.strip().lower() == "trace":
        return CollectiveJob(name=text, calls=_read_trace(Path(rest)))
    return CollectiveJob(name=text, calls=(_call(kind, rest, "1"),))


def _call(name: str, size: str, count: str) -> Call:
    kind = collective(name.strip())
    if kind not in COLLECTIVES:
        raise ConfigError(f"{kind} is not supported by compare; it supports {', '.join(COLLECTIVES)}")
    size_bytes = parse_size_bytes(size)
    if not 1 <= size_bytes <= LARGEST_BYTES:
        raise ConfigError(f"{kind} of {size_bytes:,} bytes: the size must be 1 byte to 4 TiB")
    number = count.strip()
    if not (number.isascii() and number.isdecimal() and 1 <= int(number) <= 10**9):
        raise ConfigError(f"the count must be 1 to 1,000,000,000, got {count.strip()!r}")
    return Call(collective=kind, size_bytes=size_bytes, count=int(number))


def _read_trace(path: Path) -> tuple[Call, ...]:
    """Read the calls of a file; equal calls are counted together, in the order of their first occurrence."""
    lines = read_text(path).splitlines()
    counts: Counter[tuple[Collective, int]] = Counter()
    for number, line in enumerate(lines, 1):
        content = line.partition("#")[0].strip()
        if not content or (not counts and content.replace(" ", "").lower().startswith("collective,size")):
            continue
        fields = content.split(",")
        if len(fields) not in (2, 3):
            raise FileError(path, number, content, _LINE)
        try:
            call = _call(fields[0], fields[1], fields[2] if len(fields) == 3 else "1")
        except ConfigError as error:
            raise FileError(path, number, content, f"{_LINE}: {error}") from error
        counts[call.collective, call.size_bytes] += call.count
    if not counts:
        raise FileError(path, None, "no collective", f"lines {_LINE}")
    return tuple(Call(collective=kind, size_bytes=size, count=count) for (kind, size), count in counts.items())
