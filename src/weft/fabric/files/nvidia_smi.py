"""`nvidia-smi topo -m`: how far each GPU and adapter of a server is from every other.

            GPU0    GPU1    NIC0    NIC1    CPU Affinity    NUMA Affinity   GPU NUMA ID
    GPU0     X      NV18    PIX     NODE    0-55,112-167    0               N/A
    GPU1    NV18     X      NODE    PIX     0-55,112-167    0               N/A
    NIC0    PIX     NODE     X      NODE
    NIC1    NODE    PIX     NODE     X

    NIC Legend:
      NIC0: mlx5_0
      NIC1: mlx5_1

PIX and PXB are below one PCIe switch, or switches below it; PHB and NODE at one processor; SYS at two. NV# hides how
far two GPUs are over PCIe: there, one NUMA domain is one processor. It is the same for NVSwitches and for NVLinks from
GPU to GPU: where some pairs have none, they are direct. Older drivers have no legend: columns are mlx5_0.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import combinations
from pathlib import Path
from typing import NamedTuple, NoReturn

from weft.errors import FileError
from weft.fabric.files.parts import Machine

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")  # the heads are underlined
_GPU, _NIC = re.compile(r"GPU[0-9]{1,3}"), re.compile(r"NIC[0-9]{1,3}")
_LEGEND = re.compile(r"\s*(NIC[0-9]{1,3}):\s*(\S+)\s*")
_CELL = re.compile(r"X|SYS|NODE|PHB|PXB|PIX|NV[0-9]{1,3}")
_ONE_SWITCH, _ONE_CPU = ("PIX", "PXB"), ("PIX", "PXB", "PHB", "NODE")
_EXPECTED = "a row of `nvidia-smi topo -m`: GPU0 X NV18 PIX ..."
_WHOLE = "lines that no terminal broke: nvidia-smi topo -m > topo.txt"
_AMD = re.compile(r"\bXGMI\b|\bROCm\b")
_MOST = 256  # GPUs and adapters of a server


class _Row(NamedTuple):
    line: int
    cells: Sequence[str]
    numa: str  # empty where it is not said


def read(path: Path, text: str) -> Machine:
    lines = [_COLOUR.sub("", line) for line in text.splitlines()]
    strange = next((number for number, line in enumerate(lines, 1) if _AMD.search(line)), None)
    if strange is not None:
        raise FileError(path, strange, lines[strange - 1].strip(), "GPUs of NVIDIA: weft has none of AMD, and no RCCL")
    at, columns, has_numa = _heads(path, lines)
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


def _heads(path: Path, lines: Sequence[str]) -> tuple[int, list[str], bool]:
    """Where the heads are, the columns that are devices, and whether NUMA domains are told."""
    for number, line in enumerate(lines):
        words = line.split()
        if words and _GPU.fullmatch(words[0]) and (len(words) == 1 or not _CELL.fullmatch(words[1])):
            columns = words[: words.index("CPU")] if "CPU" in words else words
            if len(set(columns)) < len(columns) or len(columns) > _MOST:
                raise FileError(path, number + 1, line.strip(), f"heads of columns that differ, {_MOST} at most")
            return number, columns, "NUMA Affinity" in " ".join(words)
    raise FileError(path, None, "no line of GPU0 GPU1 ...", "the heads of `nvidia-smi topo -m`, or NCCL's XML")


def _rows(path: Path, lines: Sequence[str], at: int, columns: Sequence[str], has_numa: bool) -> dict[str, _Row]:
    rows: dict[str, _Row] = {}
    for number in range(at + 1, len(lines)):
        words = lines[number].split()
        if words and _CELL.fullmatch(words[0]) and "=" not in words:  # which a legend has
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
        raise FileError(path, None, f"a column {missing} without its row", "a row for each column")
    for one, column in enumerate(columns):
        for other, peer in enumerate(columns):
            cell, back = rows[column].cells[other], rows[peer].cells[one]
            if (cell == "X") != (one == other) or cell != back:
                _refuse(path, lines, rows[column], f"X for itself alone, and what {peer} says of {column}: {back}")
    return rows


def _refuse(path: Path, lines: Sequence[str], row: _Row, expected: str) -> NoReturn:
    raise FileError(path, row.line, lines[row.line - 1].strip(), expected)


def _names(path: Path, lines: Iterable[str], columns: Sequence[str]) -> dict[str, str]:
    """Column -> device."""
    legend = {found[1]: found[2] for found in map(_LEGEND.fullmatch, lines) if found}
    nameless = next((one for one in columns if _NIC.fullmatch(one) and one not in legend), None)
    if nameless is not None:
        raise FileError(path, None, f"a column {nameless}", f"its name in the NIC legend below: {nameless}: mlx5_0")
    lost = next((one for one in legend if one not in columns), None)
    if lost is not None:
        raise FileError(path, None, f"{lost}: {legend[lost]} in the legend", f"a column {lost}, and {_WHOLE}")
    gpus = [column for column in columns if _GPU.fullmatch(column)]
    numbered = {column: f"gpu{number}" for number, column in enumerate(gpus)}
    return {column: numbered.get(column) or legend.get(column, column) for column in columns}


def _joined(
    order: Sequence[str], rows: dict[str, _Row], columns: Sequence[str], near: Sequence[str], numa: bool = False
) -> list[list[str]]:
    """Devices that are near each other, directly or through others; by the first of each."""
    group = list(range(len(columns)))
    for one, column in enumerate(columns):
        for other, cell in enumerate(rows[column].cells[:one]):
            same_domain = numa and rows[column].numa and rows[column].numa == rows[columns[other]].numa
            if cell in near or same_domain:
                low, high = sorted((group[one], group[other]))
                group = [low if number == high else number for number in group]
    return [[order[n] for n in range(len(order)) if group[n] == which] for which in sorted(set(group))]


def _nvlinks(
    rows: dict[str, _Row], columns: Sequence[str], names: dict[str, str]
) -> tuple[list[int], list[tuple[str, str, int]]]:
    """What all pairs of GPUs have, over NVSwitches or directly; or those that have some, where others have none."""
    gpus = [column for column in columns if _GPU.fullmatch(column)]
    told = [(one, other, rows[one].cells[columns.index(other)]) for one, other in combinations(gpus, 2)]
    pairs = [(names[one], names[other], int(cell[2:])) for one, other, cell in told if cell.startswith("NV")]
    if pairs and len(pairs) == len(told) and len({links for _, _, links in pairs}) == 1:
        return [pairs[0][2]], []
    return [], pairs
