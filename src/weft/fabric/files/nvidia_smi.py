"""`nvidia-smi topo -m`: the distances between the GPUs and adapters of a server.

            GPU0    GPU1    NIC0    NIC1    CPU Affinity    NUMA Affinity   GPU NUMA ID
    GPU0     X      NV18    PIX     NODE    0-55,112-167    0               N/A
    GPU1    NV18     X      NODE    PIX     0-55,112-167    0               N/A
    NIC0    PIX     NODE     X      NODE
    NIC1    NODE    PIX     NODE     X

    NIC Legend:
      NIC0: mlx5_0
      NIC1: mlx5_1

PIX and PXB are below one PCIe switch, or switches below it; PHB and NODE at one processor; SYS at two. NV# hides the
PCIe distance of two GPUs: there, one NUMA domain is one processor. NV# is the same for NVSwitches and for NVLinks
between GPUs: if some pairs have none, the links are direct. Older drivers have no legend: columns are mlx5_0.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import combinations
from pathlib import Path
from typing import NamedTuple, NoReturn

from weft.errors import FileError
from weft.fabric.files.parts import Machine

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")  # the heading is underlined
_GPU, _NIC = re.compile(r"GPU[0-9]{1,3}"), re.compile(r"NIC[0-9]{1,3}")
_LEGEND = re.compile(r"\s*(NIC[0-9]{1,3}):\s*(\S+)\s*")
_CELL = re.compile(r"X|SYS|NODE|PHB|PXB|PIX|NV[0-9]{1,3}")
_ONE_SWITCH, _ONE_CPU = ("PIX", "PXB"), ("PIX", "PXB", "PHB", "NODE")
_EXPECTED = "a row of `nvidia-smi topo -m`: GPU0 X NV18 PIX ..."
_WHOLE = "unwrapped lines: nvidia-smi topo -m > topo.txt"
_AMD = re.compile(r"\bXGMI\b|\bROCm\b")
_MOST = 256  # GPUs and adapters of a server


class _Row(NamedTuple):
    line: int
    cells: Sequence[str]
    numa: str  # empty if missing


def read(path: Path, text: str) -> Machine:
    lines = [_COLOUR.sub("", line) for line in text.splitlines()]
    amd_line = next((number for number, line in enumerate(lines, 1) if _AMD.search(line)), None)
    if amd_line is not None:
        raise FileError(path, amd_line, lines[amd_line - 1].strip(), "of AMD's GPUs the output of rocm-smi --showtopo")
    at, columns, has_numa = _heading(path, lines)
    rows = _rows(path, lines, at, columns, has_numa)
    names = _names(path, lines, columns)
    gpus = [names[column] for column in columns if _GPU.fullmatch(column)]
    order = [names[column] for column in columns]
    spread, pairs = _nvlinks(rows, columns, names)
    near = _joined(order, rows, columns, _ONE_SWITCH)
    same = _joined(order, rows, columns, _ONE_CPU, numa=True)
    sockets = [[group for group in near if group[0] in socket] for socket in same]
    return Machine(
        gpus=gpus,
        adapters=[name for name in order if name not in gpus],
        sockets=sockets,
        only_pairs=True,
        nvlink_spread=spread,
        nvlink_pairs=pairs,
    )


def _heading(path: Path, lines: Sequence[str]) -> tuple[int, list[str], bool]:
    """Return the line of the heading, the columns of devices, and whether NUMA domains are listed."""
    for number, line in enumerate(lines):
        words = line.split()
        if words and _GPU.fullmatch(words[0]) and (len(words) == 1 or not _CELL.fullmatch(words[1])):
            columns = words[: words.index("CPU")] if "CPU" in words else words
            if len(set(columns)) < len(columns) or len(columns) > _MOST:
                raise FileError(path, number + 1, line.strip(), f"different column names, at most {_MOST}")
            return number, columns, "NUMA Affinity" in " ".join(words)
    raise FileError(path, None, "no line of GPU0 GPU1 ...", "the heading of `nvidia-smi topo -m`, or NCCL's XML")


def _rows(path: Path, lines: Sequence[str], at: int, columns: Sequence[str], has_numa: bool) -> dict[str, _Row]:
    rows: dict[str, _Row] = {}
    for number in range(at + 1, len(lines)):
        words = lines[number].split()
        if words and _CELL.fullmatch(words[0]) and "=" not in words:  # as a legend has
            raise FileError(path, number + 1, lines[number].strip(), _WHOLE)
        if not words or words[0] not in columns:
            continue
        cells, rest = words[1 : len(columns) + 1], words[len(columns) + 1 :]
        if words[0] in rows or len(cells) < len(columns) or not all(map(_CELL.fullmatch, cells)):
            raise FileError(
                path, number + 1, lines[number].strip(), f"{_EXPECTED}, {len(columns)} cells, each row once"
            )
        numa = rest[1] if has_numa and len(rest) > 1 and rest[1] != "N/A" else ""
        rows[words[0]] = _Row(number + 1, cells, numa)
    missing = next((column for column in columns if column not in rows), None)
    if missing is not None:
        raise FileError(path, None, f"a column {missing} without a row", "a row for each column")
    for i, column in enumerate(columns):
        for j, peer in enumerate(columns):
            cell, back = rows[column].cells[j], rows[peer].cells[i]
            if (cell == "X") != (i == j) or cell != back:
                _refuse(
                    path, lines, rows[column], f"X only on the diagonal, and {back} as in row {peer}, column {column}"
                )
    return rows


def _refuse(path: Path, lines: Sequence[str], row: _Row, expected: str) -> NoReturn:
    raise FileError(path, row.line, lines[row.line - 1].strip(), expected)


def _names(path: Path, lines: Iterable[str], columns: Sequence[str]) -> dict[str, str]:
    """Return the device of each column."""
    legend = {match[1]: match[2] for match in map(_LEGEND.fullmatch, lines) if match}
    unnamed = next((column for column in columns if _NIC.fullmatch(column) and column not in legend), None)
    if unnamed is not None:
        raise FileError(path, None, f"a column {unnamed}", f"its name in the NIC legend below: {unnamed}: mlx5_0")
    lost = next((name for name in legend if name not in columns), None)
    if lost is not None:
        raise FileError(path, None, f"{lost}: {legend[lost]} in the legend", f"a column {lost}, and {_WHOLE}")
    gpus = [column for column in columns if _GPU.fullmatch(column)]
    numbered = {column: f"gpu{number}" for number, column in enumerate(gpus)}
    return {column: numbered.get(column) or legend.get(column, column) for column in columns}


def _joined(
    order: Sequence[str], rows: dict[str, _Row], columns: Sequence[str], near: Sequence[str], numa: bool = False
) -> list[list[str]]:
    """Return groups of devices that are near each other, directly or through others, ordered by their first."""
    group = list(range(len(columns)))
    for i, column in enumerate(columns):
        for j, cell in enumerate(rows[column].cells[:i]):
            same_domain = numa and rows[column].numa and rows[column].numa == rows[columns[j]].numa
            if cell in near or same_domain:
                low, high = sorted((group[i], group[j]))
                group = [low if number == high else number for number in group]
    return [[order[n] for n in range(len(order)) if group[n] == label] for label in sorted(set(group))]


def _nvlinks(
    rows: dict[str, _Row], columns: Sequence[str], names: dict[str, str]
) -> tuple[list[int], list[tuple[str, str, int]]]:
    """Return the links of each GPU if all pairs have the same number; else the pairs that have links."""
    gpus = [column for column in columns if _GPU.fullmatch(column)]
    cells = [(a, b, rows[a].cells[columns.index(b)]) for a, b in combinations(gpus, 2)]
    pairs = [(names[a], names[b], int(cell[2:])) for a, b, cell in cells if cell.startswith("NV")]
    if pairs and len(pairs) == len(cells) and len({links for _, _, links in pairs}) == 1:
        return [pairs[0][2]], []
    return [], pairs
