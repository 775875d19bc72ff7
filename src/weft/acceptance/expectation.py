"""The expected results of a cluster, their file, and a measured output held to them.

The acceptable value is the slow end of the 90 % band of a prediction, so one row of ten may be beyond it. A test fails
if more than a tenth of its rows are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from weft.acceptance.outputs import Output
from weft.acceptance.prediction import Curve, Floats, Setup, place_setup, predict, programs
from weft.errors import ConfigError, FileError
from weft.fabric.files.atomic import write_atomically
from weft.fabric.files.text import read_text
from weft.version import __version__

_TOLERATED = 0.1  # share of rows beyond a 90 % band


class Expectation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The expected and acceptable results of all benchmarks of a cluster."""

    format: Literal["weft expectation 1"] = "weft expectation 1"
    weft: str = __version__
    setup: Setup
    servers: int
    ranks: int
    tests: tuple[Curve, ...]

    def find(self, program: str) -> Curve | None:
        return next((curve for curve in self.tests if curve.program == program), None)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Verdict:
    """An output beside its expectation, by row."""

    output: Output
    curve: Curve
    sizes_bytes: NDArray[np.int64]
    measured: Floats
    expected: Floats
    acceptable: Floats

    @property
    def is_beyond(self) -> NDArray[np.bool_]:
        """Return the rows that are worse than acceptable."""
        if self.curve.is_bandwidth:
            return self.measured < self.acceptable
        return self.measured > self.acceptable

    @property
    def passed(self) -> bool:
        return float(self.is_beyond.mean()) <= _TOLERATED

    @property
    def failures(self) -> int:
        return int(self.is_beyond.sum())

    @property
    def worst(self) -> int:
        """Return the row whose measured value is the furthest on the slow side of the expected one."""
        slowdown = np.log(self.measured / self.expected) * (-1 if self.curve.is_bandwidth else 1)
        return int(slowdown.argmax())


def expect(setup: Setup, progress: Callable[[int, int], None] | None = None) -> Expectation:
    """Predict all benchmarks of a cluster; `progress` gets the number of tests done, and of all."""
    names, curves = programs(setup), []
    for name in names:
        curves.append(predict(setup, name))
        if progress is not None:
            progress(len(curves), len(names))
    ranks = place_setup(setup)
    return Expectation(setup=setup, servers=len(ranks.servers), ranks=len(ranks), tests=tuple(curves))


def check(expectation: Expectation, output: Output) -> Verdict:
    """Compare a measured output with its expectation."""
    curve = expectation.find(output.program)
    if curve is None:
        known = ", ".join(test.program for test in expectation.tests)
        raise ConfigError(f"{output.source}: nothing is expected of {output.program}: there are {known}")
    if output.ranks not in (None, expectation.ranks):
        raise ConfigError(
            f"{output.source}: {output.program} ran on {output.ranks:,} GPUs, and {expectation.ranks:,} are expected: "
            "give --servers as many as took part"
        )
    sizes = np.array(output.sizes_bytes, np.int64)
    expected, acceptable = curve.at(sizes, curve.expected), curve.at(sizes, curve.acceptable)
    known_sizes = ~np.isnan(expected)
    if not known_sizes.any():
        raise ConfigError(
            f"{output.source}: no size of {output.program} is from {curve.sizes_bytes[0]:,} to "
            f"{curve.sizes_bytes[-1]:,} bytes, for which results are expected"
        )
    return Verdict(
        output=output,
        curve=curve,
        sizes_bytes=sizes[known_sizes],
        measured=np.array(output.values)[known_sizes],
        expected=expected[known_sizes],
        acceptable=acceptable[known_sizes],
    )


def write_expectation(expectation: Expectation, path: Path) -> None:
    """Write an expectation as JSON."""
    write_atomically(path, msgspec.json.format(msgspec.json.encode(expectation), indent=1) + b"\n")


def read_expectation(path: Path) -> Expectation:
    """Read an expectation that `write_expectation` wrote."""
    try:
        return msgspec.json.decode(read_text(path), type=Expectation)
    except msgspec.DecodeError as error:
        raise FileError(path, None, f"not a file of `weft expect -o`: {error}; write it again") from None
