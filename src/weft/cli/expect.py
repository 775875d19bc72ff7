"""`weft expect`: the results that a healthy cluster should have, and measured ones held to them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from weft.cli.arguments import NAMES_FILE, TABLES, File, Form, Kinds, OnByDefault, Servers, Whole
from weft.cli.output import Cell, console, print_data, progress_bar, report_written, table
from weft.errors import ConfigError
from weft.units import format_size_bytes

if TYPE_CHECKING:
    from weft.acceptance.expectation import Expectation, Verdict
    from weft.acceptance.outputs import Output
    from weft.acceptance.prediction import Curve, Setup

_SHOWN = {  # sizes of the table, of those that a test has
    "nccl-tests": (8, 1 << 20, 256 << 20, 8 << 30),
    "perftest": (2, 64 << 10, 8 << 20),
    "OSU micro-benchmarks": (8, 1 << 20),
}
_TRUST = (
    "How far to trust it: acceptable is the slow end of a 90 % band; a test fails if more than a tenth of its rows are "
    "beyond it"
)


def expect(
    spec: Annotated[str, NAMES_FILE],
    /,
    *,
    measured: Annotated[tuple[str, ...], Parameter(name=["--measured", "-m"])] = (),
    kinds: Kinds = "",
    servers: Servers = "",
    network: str | None = None,
    paths: str | None = None,
    gpudirect: OnByDefault = True,
    nccl: str = "",
    ppn: Whole = 1,
    output: Annotated[File, Parameter(name=["--output", "-o"])] = None,
    form: Form = TABLES,
) -> None:
    """Print expected benchmark results, and check measured ones.

    Exit status 1: a measured test fails.

    Parameters
    ----------
    spec
        A topology, `superpod:su=1`, the path of a fabric's file, or a file that `weft expect -o` wrote.
    measured
        The output of nccl-tests, rccl-tests, perftest or an OSU program; - is standard input. For an old nccl-tests,
        whose output does not name the test, all_reduce_perf=FILE. Repeat it for several.
    network
        Protocol: infiniband, omni-path, roce, roce-v1 or tcp. [that of the links; roce on Ethernet]
    paths
        Choice of paths: table, adaptive, ecmp or spray. [table; ecmp on Ethernet]
    gpudirect
        Let adapters read and write GPU memory; otherwise data is copied through host memory.
    nccl
        NCCL version to model: 2.18 to 2.32. [2.30]
    ppn
        Processes per server, in OSU's collectives.
    output
        The file to write: all expected and acceptable values as JSON, for this command and for scripts.
    """
    expectation = _expectation(
        spec,
        kinds=kinds,
        servers=servers,
        network=network,
        paths=paths,
        gpudirect=gpudirect,
        nccl=nccl,
        ppn=ppn,
    )
    if output is not None:
        from weft.acceptance import write_expectation

        write_expectation(expectation, output)
    if measured:
        _check(expectation, measured, form)
    elif form.is_data:
        print_data(form, [_facts(curve) for curve in expectation.tests], "rows")
    else:
        out = console()
        title = f"Expected of {expectation.setup.spec}: {expectation.servers:,} servers, {expectation.ranks:,} ranks"
        rows = [row for curve in expectation.tests for row in _rows(curve)]
        out.print(table(title, ("test", "size", "expected", "acceptable", "unit"), rows))
        out.print(f"{_TRUST}. --json has all sizes.", markup=False)
    report_written(output)


def _expectation(spec: str, **settings: Any) -> Expectation:
    from weft.acceptance import Setup, read_expectation
    from weft.acceptance import expect as predict_all

    setup = Setup(spec=spec, **settings)
    if spec.endswith(".json") and _is_expectation(Path(spec)):
        if setup != Setup(spec=spec):
            raise ConfigError(f"{spec} has its settings: leave out the others, or give the topology")
        return read_expectation(Path(spec))
    with progress_bar("benchmarks") as change:
        return predict_all(setup, lambda done, of: change(completed=done, total=of))


def _is_expectation(path: Path) -> bool:
    try:
        with path.open(encoding="utf-8") as file:
            return '"weft expectation' in file.read(200)
    except (OSError, UnicodeDecodeError):
        return False


# -- expected results -------------------------------------------------------------------------------------------------


def _rows(curve: Curve) -> list[tuple[Cell, ...]]:
    from weft.acceptance.prediction import suite_of

    rows: list[tuple[Cell, ...]] = []
    for size in _SHOWN[suite_of(curve.program)]:
        if size in curve.sizes_bytes:
            index = curve.sizes_bytes.index(size)
            unit, (expected, acceptable) = _in_unit(curve, size, curve.expected[index], curve.acceptable[index])
            rows.append((curve.program, format_size_bytes(size), expected, acceptable, unit))
    return rows


def _in_unit(curve: Curve, size_bytes: int, *values: float) -> tuple[str, list[float]]:
    """Return values as people quote them: bus bandwidth of large messages, message rates of small ones, or a time."""
    if curve.bus_factor and size_bytes >= 1 << 20:
        return "GB/s (bus)", [curve.bus_factor * size_bytes / value / 1e3 for value in values]
    if curve.is_bandwidth and size_bytes < 1 << 10:
        return "million messages/s", [value * 1e3 / 8 / size_bytes for value in values]
    return ("Gbit/s" if curve.is_bandwidth else "us"), [*values]


def _facts(curve: Curve) -> dict[str, Any]:
    unit = "Gbit/s" if curve.is_bandwidth else "us"
    return {
        "test": curve.program,
        "unit": unit,
        "rows": [
            {"size_bytes": size, "expected": expected, "acceptable": acceptable}
            for size, expected, acceptable in zip(curve.sizes_bytes, curve.expected, curve.acceptable, strict=True)
        ],
    }


# -- measured results -------------------------------------------------------------------------------------------------


def _check(expectation: Expectation, files: Sequence[str], form: Form) -> None:
    from weft.acceptance import check

    verdicts = [check(expectation, output) for output in _read(files)]
    if form.is_data:
        print_data(form, [_verdict_facts(expectation.setup, verdict) for verdict in verdicts], "rows")
    else:
        out = console()
        failed = [verdict for verdict in verdicts if not verdict.passed]
        out.print(f"{len(verdicts) - len(failed)} of {len(verdicts)} tests pass.", markup=False)
        for verdict in failed:
            for line in _explain(expectation.setup, verdict):
                out.print(line, markup=False)
        columns = ("file", "test", "result", "rows beyond", "worst at", "measured", "expected", "acceptable", "unit")
        out.print(table("", columns, [_verdict_row(verdict) for verdict in verdicts]))
        out.print(f"{_TRUST}.", markup=False)
    if not all(verdict.passed for verdict in verdicts):
        raise SystemExit(1)


def _read(files: Sequence[str]) -> list[Output]:
    from weft.acceptance import read_outputs

    outputs = []
    for text in files:
        program, equals, name = text.partition("=")
        is_named = bool(equals) and program.endswith("_perf")
        outputs += read_outputs(Path(name if is_named else text), program if is_named else "")
    return outputs


def _verdict_row(verdict: Verdict) -> tuple[Cell, ...]:
    index = verdict.worst
    size = int(verdict.sizes_bytes[index])
    values = (float(column[index]) for column in (verdict.measured, verdict.expected, verdict.acceptable))
    unit, shown = _in_unit(verdict.curve, size, *values)
    rows = f"{verdict.failures} of {len(verdict.measured)}"
    output, result = verdict.output, "pass" if verdict.passed else "FAIL"
    return (Path(output.source).name, output.program, result, rows, format_size_bytes(size), *shown, unit)


def _explain(setup: Setup, verdict: Verdict) -> list[str]:
    from weft.acceptance import find_causes

    with progress_bar("looking for a cause"):
        causes = find_causes(setup, verdict.output)
    program = f"{verdict.output.program} of {Path(verdict.output.source).name}"
    if not causes:
        return [f"{program} fails, unlike with any defect that weft models; weft diagnose checks the cables."]
    return [f"{program} fails as with {cause.name}. Check: {cause.check}." for cause in causes]


def _verdict_facts(setup: Setup, verdict: Verdict) -> dict[str, Any]:
    from weft.acceptance import find_causes

    columns = zip(
        verdict.sizes_bytes.tolist(),
        verdict.measured.tolist(),
        verdict.expected.tolist(),
        verdict.acceptable.tolist(),
        verdict.is_beyond.tolist(),
        strict=True,
    )
    names = ("size_bytes", "measured", "expected", "acceptable", "beyond")
    causes = [] if verdict.passed else find_causes(setup, verdict.output)
    return {
        "file": verdict.output.source,
        "test": verdict.output.program,
        "passed": verdict.passed,
        "unit": "Gbit/s" if verdict.curve.is_bandwidth else "us",
        "causes": [cause.name for cause in causes],
        "rows": [dict(zip(names, row, strict=True)) for row in columns],
    }
