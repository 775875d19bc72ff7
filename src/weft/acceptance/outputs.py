"""Read the output of nccl-tests, rccl-tests, perftest and the OSU micro-benchmarks.

A file may contain several tests, other lines, and the prefixes that mpirun and srun put before each line. Times are
out of place, in microseconds; latencies of perftest are the typical ones (the median); bandwidths are in Gbit/s.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from weft.collectives.mpi import bench as osu
from weft.errors import FileError
from weft.fabric.files.text import read_text

_PREFIX = re.compile(r"\[\d+,\d+\]<\w+>:?\s?|\s*\d+: (?=[# ])")  # mpirun --tag-output, srun --label
_NCCL_NAME = re.compile(r"# Collective test starting: (\w+_perf)")
_NCCL_HEAD = re.compile(r"#\s+size\s+count\s+type\b")
_RANK = re.compile(r"#\s+Rank\s+(\d+)\b")
_PERFTEST_HEAD = re.compile(r"\s*(RDMA_Write|RDMA_Read|Send|Atomic) (Bidirectional |Post List )*(BW|Latency) Test")
_PERFTEST_UNIT = re.compile(r"BW average\[(\S+?)/sec\]")
_OSU_HEAD = re.compile(r"# OSU MPI(?:-[A-Z]+)? (.+?) Test\b")
_VERBS = {"RDMA_Write": "write", "RDMA_Read": "read", "Send": "send", "Atomic": "atomic"}
_GBIT_S = {"Gb": 1.0, "MiB": 8 * (1 << 20) / 1e9, "MB": 8 * (1 << 20) / 1e9}  # MB of old perftest are 2^20 bytes too
_OSU_GBIT_S = 8e-3
_AVERAGE, _TYPICAL = 3, 4  # columns of perftest


@dataclass(slots=True, kw_only=True)
class Output:
    """The measured values of one run of a benchmark."""

    source: str
    program: str
    ranks: int | None = None  # if the output names them
    sizes_bytes: list[int] = field(default_factory=list)
    values: list[float] = field(default_factory=list)  # microseconds, or Gbit/s of a bandwidth test

    def add(self, size_bytes: int, value: float) -> None:
        if value > 0:
            self.sizes_bytes.append(size_bytes)
            self.values.append(value)


def read_outputs(path: Path, program: str = "") -> list[Output]:
    """Read all tests of a file; `program` names the test of an old nccl-tests, whose output does not."""
    text = read_text(path)
    if text.lstrip().startswith("{"):
        return [_read_json(path, text)]
    outputs = [output for output in _Reader(str(path), program or _named_by(path)).read(text) if output.values]
    if not outputs:
        raise FileError(path, None, "no results of nccl-tests, perftest or OSU: give the text that one printed")
    return outputs


def _named_by(path: Path) -> str:
    """Return the test that a file's name contains: `all_reduce_perf` of `all_reduce_perf-2nodes.txt`."""
    match = re.search(r"(all_reduce|all_gather|reduce_scatter|broadcast|reduce|alltoall|sendrecv)_perf", path.name)
    return match[0] if match else ""


class _Reader:
    """The state while the lines of a file are read."""

    def __init__(self, source: str, program: str) -> None:
        self.source, self.program = source, program
        self.ranks = 0
        self.columns: list[str] = []  # the header of nccl-tests
        self.gbit_s = 1.0  # per unit of perftest's bandwidth

    def read(self, text: str) -> Iterator[Output]:
        output: Output | None = None
        for number, raw in enumerate(text.splitlines(), 1):
            line = _PREFIX.sub("", raw, count=1) if _PREFIX.match(raw) else raw
            started = self._head(line, number)
            if started is not None:
                if output is not None:
                    yield output
                output = started
            elif output is not None and line.split()[:1] and line.split()[0].isdecimal():
                self._row(output, line.split())
        if output is not None:
            yield output

    def _head(self, line: str, number: int) -> Output | None:
        """Return a new output if this line begins one."""
        if match := _NCCL_NAME.match(line):
            self.program, self.ranks = match[1], 0
        elif match := _RANK.match(line):
            self.ranks = max(self.ranks, int(match[1]) + 1)
        elif _NCCL_HEAD.match(line):
            self.columns = line.lstrip("#").split()
            if not self.program:
                raise FileError(self.source, number, "nothing names the test: give --measured all_reduce_perf=FILE")
            return Output(source=self.source, program=self.program, ranks=self.ranks or None)
        elif match := _PERFTEST_HEAD.match(line):
            kind = "lat" if match[3] == "Latency" else "bw"
            both = " -b" if "Bidirectional" in line else ""
            return Output(source=self.source, program=f"ib_{_VERBS[match[1]]}_{kind}{both}")
        elif match := _PERFTEST_UNIT.search(line):
            self.gbit_s = _GBIT_S[match[1]]
        elif match := _OSU_HEAD.match(line):
            heading = match[1].replace("All-Reduce", "Allreduce").replace("All-Gather", "Allgather")
            name = next((test for test in osu.Test if test.heading == heading), heading)
            return Output(source=self.source, program=f"osu_{name}")
        return None

    def _row(self, output: Output, words: list[str]) -> None:
        is_perftest = output.program.startswith("ib_")
        if output.program.endswith("_perf"):
            missing = max(len(self.columns) - len(words), 0)  # old versions leave columns of some tests empty
            column, scale = self.columns.index("time") - missing, 1.0
        elif is_perftest:
            is_latency = output.program.endswith("lat")
            column, scale = (_TYPICAL, 1.0) if is_latency else (_AVERAGE, self.gbit_s)
        else:
            column, scale = 1, _OSU_GBIT_S if output.program.endswith("bw") else 1.0
        try:
            output.add(int(words[0]), float(words[column]) * scale)
        except (ValueError, IndexError):
            return  # a line of another program


class _Time(msgspec.Struct):
    time: float


class _Result(msgspec.Struct):
    size: int
    out_of_place: _Time


class _Config(msgspec.Struct):
    devices: list[msgspec.Raw] = []


class _NcclTests(msgspec.Struct):
    args: list[str]
    results: list[_Result]
    config: _Config = msgspec.field(default_factory=_Config)


def _read_json(path: Path, text: str) -> Output:
    try:
        read = msgspec.json.decode(text, type=_NcclTests)
        output = Output(source=str(path), program=Path(read.args[0]).name, ranks=len(read.config.devices) or None)
    except (msgspec.DecodeError, IndexError) as error:
        raise FileError(
            path, None, f"not the JSON of nccl-tests -J: {error}; give that, or the text of a test"
        ) from None
    for row in read.results:
        output.add(row.size, row.out_of_place.time)
    return output
