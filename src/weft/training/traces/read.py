"""Detect the format of a trace by its content, and read it.

read(["run/"])                      a folder, with a file for each rank
read(["run/chakra.*.et"])           a pattern
read(["r0.json.gz", "r1.json.gz"])  files
"""

from __future__ import annotations

import glob
import gzip
import re
import zlib
from collections.abc import Sequence
from pathlib import Path

from weft.errors import ConfigError, FileError
from weft.fabric.files.text import read_bytes
from weft.training.traces import chakra, goal, kineto, observer, simai
from weft.training.traces.trace import Trace

FORMATS = "Chakra (.et), PyTorch's profiler or ExecutionTraceObserver (.json, .json.gz), SimAI's workloads or GOAL"
_HEAD_BYTES = 65_536
_GZIP = b"\x1f\x8b"


def read(names: Sequence[str | Path]) -> Trace:
    """Read the trace of these files, folders or patterns."""
    paths = _paths(names)
    source = str(names[0]) if len(names) == 1 else f"{names[0]} ... ({len(paths)} files)"
    data = {path: _content(path) for path in paths}
    kinds = {path: _kind(path, data[path]) for path in paths}
    first = kinds[paths[0]]
    for path, kind in kinds.items():
        if kind != first:
            raise ConfigError(f"{paths[0]} is {first}, {path} is {kind}: a trace has files of one kind")
    if first in ("GOAL", "SimAI"):
        if len(paths) > 1:
            raise ConfigError(f"{paths[0]} and {paths[1]}: all ranks of a {first} trace are in one file; give one")
        text = data[paths[0]].decode("utf-8-sig", errors="replace")
        return goal.read_goal(paths[0], text) if first == "GOAL" else simai.read_simai(paths[0], text)
    if first == "Kineto":
        return kineto.read_kineto(data, source)
    ranks = _by_name(paths)
    by_rank = {rank: data[path] for rank, path in ranks.items()}
    reader = chakra.read_chakra if first == "Chakra" else observer.read_observer
    return reader(ranks, by_rank, source)


def _paths(names: Sequence[str | Path]) -> list[Path]:
    files: list[Path] = []
    for name in names:
        path = Path(name)
        if path.is_dir():
            whole = sorted(file for file in path.iterdir() if file.is_file() and not file.name.startswith("."))
            below = [file for file in whole if file.suffix == ".et"] or whole  # other files beside those are metadata
        elif path.exists() or not glob.has_magic(str(name)):
            below = [path]
        else:
            below = sorted(Path(match) for match in glob.glob(str(name)))
        if not below:
            raise ConfigError(f"{name}: no file there. Give the files of a trace, a folder or a pattern: {FORMATS}")
        files += below
    if not files:
        raise ConfigError(f"give the files of a trace, a folder or a pattern: {FORMATS}")
    return list(dict.fromkeys(files))


def _content(path: Path) -> bytes:
    data = read_bytes(path)
    if not data.startswith(_GZIP):
        return data
    try:
        return gzip.decompress(data)
    except (OSError, EOFError, zlib.error) as error:
        raise FileError(path, None, str(error), "a complete gzip file") from None


def _kind(path: Path, data: bytes) -> str:
    head = data[:_HEAD_BYTES]
    text = head.decode("utf-8-sig", errors="replace")
    if text.lstrip().startswith("{"):
        return observer.JSON if observer.is_observer(text) else "Kineto"
    if goal.is_goal(text):
        return "GOAL"
    if simai.is_simai(text):
        return "SimAI"
    if chakra.is_chakra(data):
        return "Chakra"
    raise FileError(path, None, text.partition("\n")[0], FORMATS)


def _by_name(paths: Sequence[Path]) -> dict[int, Path]:
    """Return files by rank, the last number in their names."""
    paths_by_rank: dict[int, Path] = {}
    for path in paths:
        numbers = re.findall(r"\d+", path.name.removesuffix(".gz").removesuffix(".et").removesuffix(".json"))
        if not numbers:
            raise ConfigError(f"{path}: whose rank is it? Name files NAME.<rank>{path.suffix}")
        rank = int(numbers[-1])
        if rank in paths_by_rank:
            raise ConfigError(f"{paths_by_rank[rank]} and {path} are both of rank {rank}")
        paths_by_rank[rank] = path
    return paths_by_rank
