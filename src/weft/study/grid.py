"""What a study runs: one command line, and lists of values for it.

    run = "sim fat-tree:hosts={hosts} --traffic permutation"
    [grid]
    hosts = [64, 128]             goes where its name stands in braces
    size = "64K,1M"               stands nowhere, so it is a flag: --size=64K. A text is read as after --grid
    seed = "1..10"                both ends are in
    "tp,pp" = [[8, 1], [4, 2]]    together, not each with each

Every value is run with every other; the last list changes fastest.
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
_SOME = 20  # values that are looked at before anything runs: each takes as long as a short run
_NAME = re.compile(r"[A-Za-z][\w-]*")
_PLACE = re.compile(r"\{([A-Za-z][\w-]*)\}")
_RANGE = re.compile(r"(-?\d{1,18})\.\.(-?\d{1,18})")
_HOW = "write --grid size=64K,1M, --grid seed=1..10, or with ; between values that have commas"


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """Names that change together, mostly one, and what they are in turn."""

    names: tuple[str, ...]
    values: tuple[tuple[Value, ...], ...]

    def telling(self) -> Sequence[tuple[Value, ...]]:
        """After the first, those that tell whether all can be: of numbers the ends, of others not more than some."""
        if all(type(one) in (int, float) for row in self.values for one in row) and len(self.names) == 1:
            return [min(self.values), max(self.values)]
        return self.values[1:_SOME]


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One of a study: its place in the grid, what differs from others, and its command line."""

    place: int
    values: dict[str, Value]
    words: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """A command line and what changes in it."""

    words: tuple[str, ...]
    axes: tuple[Axis, ...]

    def __post_init__(self) -> None:
        names = self.names
        if not names:
            raise ConfigError(f"a study needs lists of values: {_HOW}")
        for name in names:
            if names.count(name) > 1:
                raise ConfigError(f"grid: {name} stands in two lists, and has one value in a run: put them together")
        for place in _PLACE.findall(" ".join(self.words)):
            if place not in names:
                raise UnknownName("list of values for", f"{{{place}}}", names, f"Add one: --grid {place}=1,2")
        if len(self) > _MOST:
            raise ConfigError(f"grid: {len(self):,} runs are more than the {_MOST:,} that a study may have: split it")

    @property
    def names(self) -> list[str]:
        return [name for axis in self.axes for name in axis.names]

    def __len__(self) -> int:
        return math.prod(len(axis.values) for axis in self.axes)

    def runs(self) -> Iterator[Run]:
        """All, in the order of the table."""
        chosen = itertools.product(*(axis.values for axis in self.axes))
        return (self._run(place, values) for place, values in enumerate(chosen))

    def samples(self) -> Iterator[Run]:
        """Few runs that tell whether a command takes all values."""
        first = [axis.values[0] for axis in self.axes]
        yield self._run(0, first)
        for i, axis in enumerate(self.axes):
            for value in axis.telling():
                yield self._run(0, [*first[:i], value, *first[i + 1 :]])

    def _run(self, place: int, chosen: Sequence[tuple[Value, ...]]) -> Run:
        values = dict(zip(self.names, itertools.chain(*chosen), strict=True))
        placed = set(_PLACE.findall(" ".join(self.words)))
        words = [_PLACE.sub(lambda found: _word(values[found[1]]), word) for word in self.words]
        for name, value in values.items():
            if name not in placed:
                words += _flag(name, value)
        return Run(place=place, values=values, words=tuple(words))

    def describe(self) -> dict[str, Any]:
        """As JSON; two studies are the same if this is."""
        grid = {
            ",".join(axis.names): [list(one) if len(axis.names) > 1 else one[0] for one in axis.values]
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
    """Of a command line: a command, or a file that has one, with more of its words; and lists, NAME=VALUES."""
    lists: dict[str, Any] = {}
    if words and Path(words[0]).suffix in FILES:
        line, lists = _read_file(Path(words[0]))
        words = [*line, *words[1:]]
    if not words:
        raise ConfigError("a study runs a command: weft study sim star:hosts=8 --grid size=64K,1M -o study.csv")
    given: dict[str, Any] = {}
    for text in grids:
        names, equals, values = text.partition("=")
        if not equals:
            raise ConfigError(f"--grid {text} has no values: {_HOW}")
        if names in given:
            raise ConfigError(f"--grid {names} is given twice: put its values together")
        given[names] = values
    return make(words, lists | given)


def make(words: Sequence[str], grid: Mapping[str, Any]) -> Study:
    """Of words and lists of values; a text is read as after --grid."""
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
        raise FileError(path, None, facts["run"], "words, and quotes that end") from None


def _axis(key: str, given: Any) -> Axis:
    names = tuple(name.strip().removeprefix("--") for name in key.split(","))
    for name in names:
        if not _NAME.fullmatch(name):
            raise ConfigError(f"grid: {name!r} is no name of a flag or of a place in braces: {_HOW}")
    values = _split(key, given, together=len(names) > 1) if isinstance(given, str) else given
    listed = values if isinstance(values, list) else [values]
    rows = [tuple(one) if isinstance(one, list) else (one,) for one in listed]
    if not rows:
        raise ConfigError(f"grid: {key} has no values: {_HOW}")
    for row in rows:
        if len(row) != len(names):
            raise ConfigError(f"grid: {key} needs {len(names)} values each time, not {_show(row)}")
        if not all(isinstance(one, Value) for one in row):
            raise ConfigError(f"grid: {key} has {_show(row)}, and a value is a text, a number, true or false")
    if len(set(rows)) < len(rows):
        twice = next(row for row in rows if rows.count(row) > 1)
        raise ConfigError(f"grid: {key} has {_show(twice)} twice: leave out one")
    return Axis(names=names, values=tuple(rows))


def _show(row: Sequence[Any]) -> str:
    return ",".join(map(str, row))


def _split(key: str, text: str, *, together: bool) -> list[Any]:
    """`64K,1M`, `1..10`, `a;b`; of names together `8,1;4,2`."""
    apart = ";" if ";" in text or together else ","
    items = [item.strip() for item in text.removesuffix(";").split(apart)]
    if "" in items:
        raise ConfigError(f"grid: {key}={text} has a value that is empty: {_HOW}")
    if together:
        return [[_value(one.strip()) for one in item.split(",")] for item in items]
    return [value for item in items for value in _range(key, item)]


def _range(key: str, item: str) -> Sequence[Value]:
    found = _RANGE.fullmatch(item)
    if found is None:
        return [_value(item)]
    first, last = int(found[1]), int(found[2])
    if not 0 <= last - first < _MOST:
        raise ConfigError(f"grid: {key}={item} must go up, and by less than {_MOST:,}: write 1..10")
    return range(first, last + 1)


def _value(text: str) -> Value:
    """A number only if it is written as numbers are, so that a command gets what was typed."""
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
