"""What can go wrong, in three kinds that are never mixed.

    WeftError
    ├── ConfigError          you: a value, a name, a spec or a file that cannot be used (exit status 2)
    │   ├── UnknownName      no such node, port, model, topology; suggests near ones
    │   └── FileError        a file that cannot be read: file, line, what was read, what was expected
    ├── SubnetError          the fabric: it does not do what was asked of it
    │   └── Silent           who was asked does not answer
    └── SimulationBug        us: weft contradicts itself; please report it

Every message names the thing as the operator knows it, the value, the rule, and the way out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TypeVar

_Thing = TypeVar("_Thing")


class WeftError(Exception):
    """The root: `except WeftError` catches all that weft raises on purpose."""


class ConfigError(WeftError):
    """Something you gave cannot be used."""


class UnknownName(ConfigError):
    """A name that is not there."""

    def __init__(self, what: str, name: str, known: Iterable[str], hint: str = "") -> None:
        import difflib

        known = list(known)
        near = difflib.get_close_matches(name, known, n=3, cutoff=0.5) or (
            known if len(known) <= (12 if hint else 40) else []
        )
        message = f"there is no {what} {name!r}"
        if near:
            message += f"; did you mean {_either(near)}?" if len(near) < 4 else f"; there are {', '.join(near)}"
        if hint:
            message += f"\n  {hint}"
        super().__init__(message)
        self.name = name


def find_named(what: str, name: str, known: Mapping[str, _Thing], hint: str = "") -> _Thing:
    """What is known by that name, in any case."""
    key = name if name in known else {one.lower(): one for one in known}.get(name.lower())
    if key is None:
        raise UnknownName(what, name, known, hint)
    return known[key]


class FileError(ConfigError):
    """A file that weft refuses, with the place and the reason."""

    def __init__(self, path: Path | str, line: int | None, read: str, expected: str) -> None:
        place = f"{path}:{line}" if line is not None else f"{path}"
        super().__init__(f"{place}: read {_shorten(read)}, expected {expected}")
        self.path, self.line, self.read, self.expected = path, line, read, expected


class SubnetError(WeftError):
    """The fabric does not do what was asked of it."""


class Silent(SubnetError):
    """Who was asked does not answer: to ask again at once is of no use."""


class SimulationBug(WeftError):
    """weft contradicts itself."""


def _either(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"


def _shorten(text: str, limit: int = 80) -> str:
    shown = repr(text)
    return shown if len(shown) <= limit else f"{shown[: limit - 4]}...'"
