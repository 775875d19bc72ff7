"""The runs of a study: one command line, and lists of values for it.

    run = "sim fat-tree:hosts={hosts} --traffic permutation"
    [grid]
    hosts = [64, 128]             replaces its name in braces
    size = "64K,1M"               has no braces, so it is a flag: --size=64K. A text is parsed as after --grid
    seed = "1..10"                both ends included
    "tp,pp" = [[8, 1], [4, 2]]    changed together, not combined

All values are combined; the last list changes fastest.
"""

from __future__ import annotations

import itertools
import json
import math
import re
import shlex
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from weft.errors import ConfigError, FileError, UnknownName

Value = str | int | float | bool
FILES = {".toml": tomllib.loads, ".json": json.loads}
_MOST = 1_000_000  # runs of a study
_SOME = 20  # values checked before anything runs: each takes as long as a short run
_NAME = re.compile(r"[A-Za-z][\w-]*")
_PLACE = re.compile(r"\{([A-Za-z][\w-]*)\}")
_RANGE = re.compile(r"(-?\d{1,18})\.\.(-?\d{1,18})")
_HOW = "write --grid size=64K,1M or --grid seed=1..10; separate values that have commas by ;"


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """A group of names that change together, usually one, and their values."""

    names: tuple[str, ...]
    values: tuple[tuple[Value, ...], ...]

    def samples(self) -> Sequence[tuple[Value, ...]]:
        """Return values, besides the first, that represent all: of numbers the extremes, of others a limited number."""
        if all(type(value) in (int, float) for row in self.values for value in row) and len(self.names) == 1:
            return [min(self.values), max(self.values)]
        return self.values[1:_SOME]


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A run of a study: its place in the grid, its values, and its command line."""

    place: int
    values: dict[str, Value]
    words: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """A command line and its lists of values."""

    words: tuple[str, ...]
    axes: tuple[Axis, ...]

    def __post_init__(self) -> None:
        names = self.names
        if not names:
            raise ConfigError(f"a study needs lists of values: {_HOW}")
        for name in names:
            if names.count(name) > 1:
                raise ConfigError(f"grid: {name} is in two lists: merge them")
        for place in _PLACE.findall(" ".join(self.words)):
            if place not in names:
                raise UnknownName("list of values for", f"{{{place}}}", names, f"Add one: --grid {place}=1,2")
        if len(self) > _MOST:
            raise ConfigError(f"grid: {len(self):,} runs are more than {_MOST:,}: split the study")

    @property
    def names(self) -> list[str]:
        return [name for axis in self.axes for name in axis.names]

    def __len__(self) -> int:
        return math.prod(len(axis.values) for axis in self.axes)

    def runs(self) -> Iterator[Run]:
        """Return all runs, in the order of the table."""
        chosen = itertools.product(*(axis.values for axis in self.axes))
        return (self._run(place, values) for place, values in enumerate(chosen))

    def samples(self) -> Iterator[Run]:
        """Yield a few runs that check whether a command accepts all values."""
        first = [axis.values[0] for axis in self.axes]
        yield self._run(0, first)
        for i, axis in enumerate(self.axes):
            for value in axis.samples():
                yield self._run(0, [*first[:i], value, *first[i + 1 :]])

    def _run(self, place: int, chosen: Sequence[tuple[Value, ...]]) -> Run:
        values = dict(zip(self.names, itertools.chain(*chosen), strict=True))
        placed = set(_PLACE.findall(" ".join(self.words)))
        words = [_PLACE.sub(lambda match: _word(values[match[1]]), word) for word in self.words]
        for name, value in values.items():
            if name not in placed:
                words += _flag(name, value)
        return Run(place=place, values=values, words=tuple(words))

    def describe(self) -> dict[str, Any]:
        """Return the study as JSON; equal studies have equal JSON."""
        grid = {
            ",".join(axis.names): [list(row) if len(axis.names) > 1 else row[0] for row in axis.values]
            for axis in self.axes
        }
        return {"run": shlex.join(self.words), "grid": grid}


def _word(value: Value) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _flag(name: str, value: Value) -> list[str]:
    if isinstance(value, bool):
        return [f"--{name}" if value else f"--no-{name}"]
    return [f"-{name}", _word(value)] if len(name) == 1 else [f"--{name}={_word(value)}"]


# -- reading ----------------------------------------------------------------------------------------------------------


def read(words: Sequence[str], grids: Sequence[str]) -> Study:
    """Read a study: a command or a file that has one, further words, and lists NAME=VALUES."""
    lists: dict[str, Any] = {}
    if words and Path(words[0]).suffix in FILES:
        line, lists = _read_file(Path(words[0]))
        words = [*line, *words[1:]]
    if not words:
        raise ConfigError("a study runs a command: weft study sim star:hosts=8 --grid size=64K,1M -o study.csv")
    overrides: dict[str, Any] = {}
    for text in grids:
        names, equals, values = text.partition("=")
        if not equals:
            raise ConfigError(f"--grid {text} has no values: {_HOW}")
        if names in overrides:
            raise ConfigError(f"--grid {names} is given twice: merge its values")
        overrides[names] = values
    return make(words, lists | overrides)


def make(words: Sequence[str], grid: Mapping[str, Any]) -> Study:
    """Return a study of words and lists of values; a text is parsed as after --grid."""
    return Study(words=tuple(words), axes=tuple(_axis(names, values) for names, values in grid.items()))


def _read_file(path: Path) -> tuple[list[str], dict[str, Any]]:
    try:
        facts = FILES[path.suffix](path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    except ValueError as error:
        raise FileError(path, None, str(error), path.suffix[1:].upper()) from None
    for key in facts if isinstance(facts, dict) else ():
        if key not in ("run", "grid"):
            raise UnknownName(f"key of the study {path}:", key, ("run", "grid"))
    if not isinstance(facts, dict) or not isinstance(facts.get("run"), str):
        raise FileError(path, None, json.dumps(facts), 'run = "sim star:hosts=8", and [grid]')
    grid = facts.get("grid", {})
    if not isinstance(grid, dict):
        raise FileError(path, None, json.dumps(grid), "[grid], with a list of values for each name")
    try:
        return shlex.split(facts["run"]), grid
    except ValueError:
        raise FileError(path, None, facts["run"], "words with closed quotes") from None


def _axis(key: str, source: Any) -> Axis:
    names = tuple(name.strip().removeprefix("--") for name in key.split(","))
    for name in names:
        if not _NAME.fullmatch(name):
            raise ConfigError(f"grid: {name!r} is not a flag or a name in braces: {_HOW}")
    values = _split(key, source, together=len(names) > 1) if isinstance(source, str) else source
    listed = values if isinstance(values, list) else [values]
    rows = [tuple(item) if isinstance(item, list) else (item,) for item in listed]
    if not rows:
        raise ConfigError(f"grid: {key} has no values: {_HOW}")
    for row in rows:
        if len(row) != len(names):
            raise ConfigError(f"grid: {key} needs {len(names)} values each time, not {_show(row)}")
        if not all(isinstance(value, Value) for value in row):
            raise ConfigError(f"grid: {key} has {_show(row)}; a value must be a text, a number, true or false")
    if len(set(rows)) < len(rows):
        repeated = next(row for row in rows if rows.count(row) > 1)
        raise ConfigError(f"grid: {key} has {_show(repeated)} twice: remove one")
    return Axis(names=names, values=tuple(rows))


def _show(row: Sequence[Any]) -> str:
    return ",".join(map(str, row))


def _split(key: str, text: str, *, together: bool) -> list[Any]:
    """Split `64K,1M`, `1..10`, `a;b`; for names together `8,1;4,2`."""
    separator = ";" if ";" in text or together else ","
    items = [item.strip() for item in text.removesuffix(";").split(separator)]
    if "" in items:
        raise ConfigError(f"grid: {key}={text} has an empty value: {_HOW}")
    if together:
        return [[_value(part.strip()) for part in item.split(",")] for item in items]
    return [value for item in items for value in _range(key, item)]


def _range(key: str, item: str) -> Sequence[Value]:
    match = _RANGE.fullmatch(item)
    if match is None:
        return [_value(item)]
    first, last = int(match[1]), int(match[2])
    if not 0 <= last - first < _MOST:
        raise ConfigError(f"grid: {key}={item} must increase, by less than {_MOST:,}: write 1..10")
    return range(first, last + 1)


def _value(text: str) -> Value:
    """Return a number only if the text is its usual spelling, so that a command gets the text as typed."""
    if text in ("true", "false"):
        return text == "true"
    for kind in (int, float):
        try:
            number = kind(text)
        except ValueError:
            continue
        if str(number) == text and (kind is int or math.isfinite(number)):
            return number
    return text
