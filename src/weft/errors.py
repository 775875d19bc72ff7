"""The errors of weft, in three kinds that are never mixed.

    WeftError
    ├── ConfigError          you: a value, a name, a spec or a file that cannot be used (exit status 2)
    │   ├── UnknownName      no such node, port, model, topology; suggests near ones
    │   └── FileError        a file that cannot be used: file, line, the wrong text and the expected text
    ├── SubnetError          the fabric: it refused or failed a request (exit status 1)
    │   └── NoResponseError  a peer does not answer
    └── SimulationBug        us: weft contradicts itself; please report it

Every message names the object as the operator knows it, the value, the rule, and the way out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TypeVar

_Value = TypeVar("_Value")
# The extra of the distribution that installs an optional package.
EXTRA_OF = {
    "fastapi": "serve",
    "httptools": "serve",
    "matplotlib": "plots",
    "mpl_toolkits": "plots",
    "pandas": "pandas",
    "psycopg": "postgres",
    "pyarrow": "parquet",
    "ray": "ray",
    "sqlalchemy": "serve",
    "starlette": "serve",
    "torch": "torch",
    "uvicorn": "serve",
}


class WeftError(Exception):
    """The base of all errors that weft raises on purpose."""


class ConfigError(WeftError):
    """An unusable value, name, spec or file from the user."""


class UnknownName(ConfigError):
    """An unknown name; the message suggests similar ones."""

    def __init__(self, kind: str, name: str, choices: Iterable[str], hint: str = "") -> None:
        import difflib

        choices = list(choices)
        near = difflib.get_close_matches(name, choices, n=3, cutoff=0.5) or (
            choices if len(choices) <= (12 if hint else 40) else []
        )
        message = f"there is no {kind} {name!r}"
        if near:
            message += f"; did you mean {_either(near)}?" if len(near) < 4 else f"; there are {', '.join(near)}"
        if hint:
            message += f"\n  {hint}"
        super().__init__(message)
        self.name = name


def find_named(kind: str, name: str, choices: Mapping[str, _Value], hint: str = "") -> _Value:
    """Return the value for a name, ignoring case; raise UnknownName if there is none."""
    key = name if name in choices else {other.lower(): other for other in choices}.get(name.lower())
    if key is None:
        raise UnknownName(kind, name, choices, hint)
    return choices[key]


class FileError(ConfigError):
    """A file that cannot be used, with the line and the reason: a problem, and the expected text if there is one.

    With a line, `read` is the text of the file that is wrong; without one, it describes the problem.
    """

    def __init__(self, path: Path | str, line: int | None, read: str, expected: str = "") -> None:
        place = f"{path}:{line}" if line is not None else f"{path}"
        problem = read
        if expected:
            problem = _shorten(read) if line is None else f"{_shorten(repr(read))} is not valid"
            problem += f"; expected {expected}"
        super().__init__(f"{place}: {problem}")
        self.path, self.line, self.read, self.expected = path, line, read, expected


class SubnetError(WeftError):
    """A fabric that refused or failed a request."""


class NoResponseError(SubnetError):
    """A peer that does not answer; do not retry immediately."""


class SimulationBug(WeftError):
    """A contradiction within weft: a bug."""


def _either(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"


def _shorten(text: str, limit: int = 80) -> str:
    return text if len(text) <= limit else f"{text[: limit - 4]}...{text[-1] * (text[0] == text[-1])}"
