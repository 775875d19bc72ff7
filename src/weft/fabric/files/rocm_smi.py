"""`rocm-smi --showtopo`: the links between AMD's GPUs of a server, and their NUMA nodes.

    ================= Hops between two GPUs ================
           GPU0         GPU1
    GPU0   0            1
    GPU1   1            0
    =============== Link Type between two GPUs =============
           GPU0         GPU1
    GPU0   0            XGMI
    GPU1   XGMI         0
    ======================= Numa Nodes =====================
    GPU[0]          : (Topology) Numa Node: 0

One hop over XGMI is a direct link. The output has neither adapters nor the number of links of a pair.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path

from weft.errors import FileError
from weft.fabric import catalog
from weft.fabric.files.parts import Machine

_TITLE = re.compile(r"=+ (.+?) =+")
_GPU = re.compile(r"GPU([0-9]{1,3})")
_NUMA = re.compile(r"GPU\[([0-9]{1,3})\]\s*:\s*\(Topology\) Numa Node:\s*(-?[0-9]+)")
_TYPES, _HOPS = "Link Type between two GPUs", "Hops between two GPUs"
_KINDS = ("0", "X", "XGMI", "PCIE")
_MOST = 64  # GPUs of a server
_WHOLE = "the whole output: rocm-smi --showtopo > topo.txt"


def is_rocm(begin: bytes) -> bool:
    """Return whether a text begins as the output of rocm-smi."""
    return any(word in begin for word in (b"ROCm System Management", b"between two GPUs"))


def read(path: Path, text: str, adapters: Sequence[str], gpu: str) -> Machine:
    """Return the machine; `adapters` are the rails in the order of the GPUs, of the model `gpu` of the catalog."""
    if gpu and not catalog.gpu(gpu).gcn:
        raise FileError(path, None, f"{gpu}, which is not AMD's", "a GPU of AMD's: --gpu MI300X")
    lines = text.splitlines()
    kinds, hops = _matrix(path, lines, _TYPES), _matrix(path, lines, _HOPS)
    if len(kinds) != len(hops):
        raise FileError(path, None, f"{len(kinds)} GPUs in one table and {len(hops)} in another", _WHOLE)
    n = len(kinds)
    numa = {int(match[1]): int(match[2]) for match in map(_NUMA.match, map(str.strip, lines)) if match}
    lost = next((number for number in range(n) if number not in numa), None)
    if lost is not None:
        raise FileError(path, None, f"no NUMA node of GPU[{lost}]", _WHOLE)
    if len(adapters) != n and len(adapters) * 2 != n:
        raise FileError(
            path,
            None,
            f"{n} GPUs, no adapters, and --compute with {len(adapters)}",
            f"the adapters in the order of the GPUs, one for each or each two: --compute mlx5_0,... ({n} or {n // 2})",
        )
    pairs = [(a, b) for a, b in combinations(range(n), 2) if kinds[a][b] == "XGMI" and hops[a][b] == "1"]
    each = n // len(adapters)
    groups: dict[int, list[list[str]]] = {}
    for number, adapter in enumerate(adapters):
        group = [f"gpu{number * each + place}" for place in range(each)]
        groups.setdefault(numa[number * each], []).append([*group, adapter])
    return Machine(
        gpus=[f"gpu{number}" for number in range(n)],
        adapters=list(adapters),
        sockets=[groups[node] for node in sorted(groups)],
        nvlink_pairs=_counted([(f"gpu{a}", f"gpu{b}") for a, b in pairs], gpu),
    )


def _counted(pairs: Sequence[tuple[str, str]], gpu: str) -> list[tuple[str, str, int]]:
    """Return the pairs with their links: those of a template of the catalog with the same pairs, else one each."""
    for template in catalog.servers():
        known = {(a, b): links for a, b, links in template.nvlink_pairs}
        if template.gpu.lower() == gpu.lower() and set(known) == set(pairs):
            return [(*pair, known[pair]) for pair in pairs]
    return [(*pair, 1) for pair in pairs]


def _matrix(path: Path, lines: Sequence[str], title: str) -> list[list[str]]:
    """Return the rows below a title, which must be symmetric."""
    titles = [
        number for number, line in enumerate(lines) if (match := _TITLE.match(line.strip())) and match[1] == title
    ]
    if not titles:
        raise FileError(path, None, f"no table of {title!r}", _WHOLE)
    rows: list[list[str]] = []
    columns: list[str] = []
    for number in range(titles[0] + 1, len(lines)):
        words = lines[number].split()
        if not words or _TITLE.match(lines[number].strip()):
            break
        if not columns:
            columns = words
            if not all(map(_GPU.fullmatch, columns)) or len(columns) > _MOST:
                raise FileError(path, number + 1, lines[number].strip(), f"GPU0 GPU1 ..., at most {_MOST}")
            continue
        cells = words[1:]
        allowed = _KINDS if title == _TYPES else tuple(map(str, range(_MOST)))
        if words[0] != f"GPU{len(rows)}" or len(cells) != len(columns) or not all(cell in allowed for cell in cells):
            raise FileError(
                path, number + 1, lines[number].strip(), f"a row of GPU{len(rows)} with {len(columns)} cells"
            )
        rows.append(cells)
    if not rows or len(rows) != len(columns):
        raise FileError(path, titles[0] + 1, title, f"a row for each of {len(columns)} GPUs")
    for a, b in combinations(range(len(rows)), 2):
        if rows[a][b] != rows[b][a]:
            raise FileError(path, titles[0] + 1, title, f"GPU{a} and GPU{b} with the same link in both rows")
    return rows
