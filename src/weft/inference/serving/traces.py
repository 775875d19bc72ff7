"""Loads from trace files: Azure's LLM traces, Mooncake's with prefix hashes, and plain CSV.

azure.csv         TIMESTAMP,ContextTokens,GeneratedTokens
mooncake.jsonl    {"timestamp": 27482, "input_length": 6955, "output_length": 52, "hash_ids": [46, 47, ...]}
plain.csv         arrival_s,prompt,output
"""

from __future__ import annotations

import csv
import json
from datetime import UTC, datetime
from math import isfinite
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from weft.errors import ConfigError
from weft.fabric.files.text import read_text
from weft.inference.serving.load import Load

MOONCAKE_BLOCK = 512  # tokens of a hash
_MOST_TOKENS = 1 << 30
_COLUMNS = {
    "arrival": ("arrival_s", "timestamp"),
    "prompt": ("prompt", "contexttokens", "input_length", "prompt_tokens"),
    "output": ("output", "generatedtokens", "output_length", "output_tokens"),
}


def read_trace(path: Path | str, *, speed: float = 1.0, most: int | None = None) -> Load:
    """Read the requests of a trace; `speed` compresses its time, `most` keeps the first requests."""
    if not 0 < speed < np.inf:
        raise ConfigError(f"--trace-speed must be above 0, got {speed:g}")
    path = Path(path)
    text = read_text(path)
    if not text.strip():
        raise ConfigError(f"{path} is empty")
    load = _read_json_lines(path, text) if text.lstrip().startswith("{") else _read_csv(path, text)
    order = np.argsort(load.arrival_s, kind="stable")[: most or len(load)]
    arrival_s = (load.arrival_s[order] - load.arrival_s[order[0]]) / speed
    first = np.cumsum(load.blocks) - load.blocks
    hashes = [load.hashes[first[i] : first[i] + load.blocks[i]] for i in order.tolist()] if len(load.blocks) else []
    faster = f" at {speed:g} times its speed" if speed != 1 else ""
    return Load(
        arrival_s=arrival_s,
        prompt=load.prompt[order],
        output=load.output[order],
        block_tokens=load.block_tokens,
        blocks=load.blocks[order] if len(load.blocks) else load.blocks,
        hashes=np.concatenate(hashes) if hashes else load.hashes,
        description=f"{len(order):,} requests of {path.name}{faster}",
    )


def _read_csv(path: Path, text: str) -> Load:
    rows = csv.reader(text.splitlines())
    header = [name.strip().lower() for name in next(rows, [])]
    places = {key: next((i for i, name in enumerate(header) if name in names), None) for key, names in _COLUMNS.items()}
    missing = [key for key, place in places.items() if place is None]
    if missing:
        raise ConfigError(
            f"{path} has no column for {' and '.join(missing)}: its first line must be arrival_s,prompt,output, or "
            "TIMESTAMP,ContextTokens,GeneratedTokens as in Azure's traces"
        )
    arrivals, prompts, outputs = [], [], []
    for number, row in enumerate(rows, 2):
        if not row:
            continue
        try:
            arrival, prompt, output = (row[place].strip() for place in places.values() if place is not None)
            arrivals.append(_finite(_seconds(arrival)))
            prompts.append(_tokens(prompt))
            outputs.append(_tokens(output))
        except (ValueError, IndexError):
            raise ConfigError(
                f"{path}, line {number}: {','.join(row)!r} is not a time and two whole numbers of tokens"
            ) from None
    return _load(path, np.array(arrivals), np.array(prompts), np.array(outputs))


def _seconds(text: str) -> float:
    """Parse a number of seconds, or a date with a time, which is UTC unless it has a time zone."""
    try:
        return float(text)
    except ValueError:
        moment = datetime.fromisoformat(text)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _finite(seconds: float) -> float:
    """Return a time; raise ValueError if it is infinite or not a number."""
    if not isfinite(seconds):
        raise ValueError(seconds)
    return seconds


def _tokens(value: str | float) -> int:
    """Return a number of tokens, which some tools write as 374.0; raise ValueError if it is none."""
    number = float(value)
    if not (number.is_integer() and 0 <= number <= _MOST_TOKENS):
        raise ValueError(value)
    return int(number)


def _read_json_lines(path: Path, text: str) -> Load:
    arrivals, prompts, outputs, hashes = [], [], [], []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            arrivals.append(_finite(row["timestamp"] / 1000))
            prompts.append(_tokens(row["input_length"]))
            outputs.append(_tokens(row["output_length"]))
            hashes.append([int(value) for value in row.get("hash_ids") or []])
        except (ValueError, TypeError, KeyError, AttributeError):
            raise ConfigError(
                f"{path}, line {number}: not a request: timestamp (ms), input_length and output_length (tokens) are "
                "needed, and hash_ids, if given, are whole numbers"
            ) from None
    load = _load(path, np.array(arrivals), np.array(prompts), np.array(outputs))
    if not any(hashes):
        return load
    blocks = np.minimum([len(row) for row in hashes], load.prompt // MOONCAKE_BLOCK).astype(np.int32)
    kept = [value for row, count in zip(hashes, blocks.tolist(), strict=True) for value in row[:count]]
    numbers: dict[int, int] = {}
    dense = np.array([numbers.setdefault(value, len(numbers)) for value in kept], np.int32)
    return Load(
        arrival_s=load.arrival_s,
        prompt=load.prompt,
        output=load.output,
        block_tokens=MOONCAKE_BLOCK,
        blocks=blocks,
        hashes=dense,
    )


def _load(path: Path, arrival_s: NDArray[np.float64], prompt: NDArray[np.int64], output: NDArray[np.int64]) -> Load:
    """Return the requests. An answer of no tokens counts as one: the engine computes a token with each prefill."""
    if not len(prompt):
        raise ConfigError(f"{path} has no requests")
    if prompt.min() < 1:
        raise ConfigError(f"{path}: request {int(prompt.argmin()) + 1} has no prompt")
    outputs = np.maximum(output, 1).astype(np.int32)
    return Load(arrival_s=arrival_s, prompt=prompt.astype(np.int32), output=outputs)
