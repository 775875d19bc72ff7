"""A YAML or TOML file as plain data with line numbers, so that errors name the line.

Every such file may begin with `format: 1`, the version of its format; docs/compatibility.md has the rules.

YAML scalars are read as text: `no`, `1e-9` and `12:30` are not converted as YAML 1.1 would; the schema decides which
values are numbers. Aliases, tags and duplicate keys are refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import msgspec

from weft.errors import ConfigError, FileError
from weft.fabric.files.text import read_text
from weft.schemas import Place, explain, keys_like

T = TypeVar("T")


class Struct(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The schema of a mapping in the file."""


FORMAT = 1  # the newest format of files that this weft reads, and the one that it writes
_MAX_DEPTH = 10
_NULLS = ("", "~", "null")


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    path: Path
    data: Any
    text: str
    lines: dict[Place, int] = field(default_factory=dict)  # of YAML; TOML's are searched for when needed
    is_toml: bool = False

    def __post_init__(self) -> None:
        """Remove the version of the format, or refuse a newer one before its keys are read."""
        if not isinstance(self.data, dict) or "format" not in self.data:
            return
        if not 1 <= self.convert(("format",), int) <= FORMAT:
            self.refuse(
                ("format",), f"{FORMAT}, the format of files that this weft reads: upgrade weft for a newer one"
            )
        del self.data["format"]

    @classmethod
    def load(cls, path: Path, otherwise: str = ".yaml") -> Document:
        """Load TOML or YAML by the suffix of the name; other names and streams are in the format `otherwise`."""
        text = read_text(path)
        suffix = path.suffix if path.suffix in (".toml", ".yaml", ".yml") else otherwise
        if suffix == ".toml":
            return cls(path=path, data=_parse_toml(path, text), text=text, is_toml=True)
        lines: dict[Place, int] = {}
        data = _parse_yaml(path, text, lines)
        if data is None:
            raise FileError(path, None, "the file is empty")
        return cls(path=path, data=data, text=text, lines=lines)

    def refuse(self, place: Place, expected: str) -> NoReturn:
        """Raise FileError with the value at a place and the expected value."""
        raise FileError(self.path, self.line(place), self.spell(place), expected)

    def refuse_because(self, place: Place, error: ConfigError) -> NoReturn:
        """Raise FileError for an error that has no file or line."""
        raise FileError(self.path, self.line(place), self.spell(place), f"another value: {error}") from error

    def refuse_key(self, place: Place, allowed: Iterable[str]) -> NoReturn:
        """Raise FileError for an unknown key, with the nearest known one."""
        key = str(place[-1])
        raise FileError(self.path, self.line(place), key, keys_like(key, allowed))

    def convert(self, place: Place, type_: type[T], *, strict: bool = False) -> T:
        """Convert the value at a place to a type, or raise FileError for the part that differs: "1" is no number."""
        value = self.at(place)
        try:
            return msgspec.convert(value, type_, strict=strict, str_keys=True)
        except msgspec.ValidationError as error:
            misfit = explain(error, type_)
            at = (*place, *misfit.place)
            raise FileError(
                self.path, self.line(at), str(at[-1]) if misfit.is_key else self.spell(at), misfit.expected
            ) from None

    def at(self, place: Place) -> Any:
        value = self.data
        for step in place:
            value = value[step]
        return value

    def spell(self, place: Place) -> str:
        """Return the value at a place as text, on one line."""
        try:
            value = self.at(place)
        except (KeyError, IndexError, TypeError):
            return str(place[-1])
        return _spell(value)

    def line(self, place: Place) -> int | None:
        """Return the line of a place, or of the nearest place around it."""
        if self.is_toml:
            return _find_in_toml(self.text.splitlines(), place)
        while place and place not in self.lines:
            place = place[:-1]
        return self.lines.get(place)


def _spell(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_spell(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list):
        return f"[{', '.join(map(_spell, value))}]"
    return "an empty value" if value is None else str(value)


# -- YAML ----------------------------------------------------------------------------------------------------------


def _parse_yaml(path: Path, text: str, lines: dict[Place, int]) -> Any:
    import yaml

    reader = _YamlReader(path, lines)
    try:
        for event in yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
            reader.take(event)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else None
        raise FileError(path, line, _line_of(text, line), f"YAML: {error.problem or error.context}") from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise FileError(path, line, repr(error.character), f"YAML: {error.reason}") from None
    return reader.data


def _line_of(text: str, line: int | None) -> str:
    lines = text.splitlines()
    return lines[line - 1].strip() if line and line <= len(lines) else "the end of the file"


class _YamlReader:
    """A builder of plain data from YAML events, without recursion."""

    def __init__(self, path: Path, lines: dict[Place, int]) -> None:
        self.path, self.lines = path, lines
        self.data: Any = None
        self.documents = 0
        self.open: list[tuple[Any, Place]] = []  # the open collections around the next event
        self.key: list[str | None] = []  # for each: the key that has no value yet

    def take(self, event: Any) -> None:
        line = event.start_mark.line + 1
        match type(event).__name__:
            case "AliasEvent":
                self._refuse(line, f"*{event.anchor}", "the value itself: aliases are not supported")
            case "DocumentStartEvent":
                self.documents += 1
                if self.documents > 1:
                    self._refuse(line, "---", "one document in a file")
            case "ScalarEvent":
                self._check_tag(event, line)
                bare = event.style in (None, "")
                self._put(None if bare and event.value in _NULLS else event.value, line)
            case "MappingStartEvent":
                self._open(event, {}, line)
            case "SequenceStartEvent":
                self._open(event, [], line)
            case "MappingEndEvent" | "SequenceEndEvent":
                self.open.pop()
                self.key.pop()

    def _open(self, event: Any, collection: dict[str, Any] | list[Any], line: int) -> None:
        self._check_tag(event, line)
        if len(self.open) == _MAX_DEPTH:
            self._refuse(line, "deeply nested collections", f"at most {_MAX_DEPTH} levels")
        place = self._put(collection, line)
        self.open.append((collection, place))
        self.key.append(None)

    def _put(self, value: Any, line: int) -> Place:
        if not self.open:
            self.data, self.lines[()] = value, line
            return ()
        around, place = self.open[-1]
        if isinstance(around, list):
            place = (*place, len(around))
            around.append(value)
        elif self.key[-1] is None:
            if not isinstance(value, str):
                self._refuse(line, "an empty key" if value is None else "a collection", "a key")
            if value in around:
                self._refuse(line, value, f"another key: line {self.lines[*place, value]} has this one")
            self.key[-1], around[value] = value, None
            self.lines[*place, value] = line
            return place
        else:
            place = (*place, self.key[-1])
            around[self.key[-1]], self.key[-1] = value, None
        self.lines.setdefault(place, line)
        return place

    def _check_tag(self, event: Any, line: int) -> None:
        if event.tag not in (None, "!"):
            self._refuse(line, str(event.tag), "plain data: tags are not supported")

    def _refuse(self, line: int, read: str, expected: str) -> NoReturn:
        raise FileError(self.path, line, read, expected)


# -- TOML ----------------------------------------------------------------------------------------------------------


def _parse_toml(path: Path, text: str) -> dict[str, Any]:
    import tomllib

    try:
        return tomllib.loads(text)
    except RecursionError:
        raise FileError(path, None, "deeply nested lists", f"at most {_MAX_DEPTH} levels") from None
    except ValueError as error:  # TOMLDecodeError, or a number with too many digits
        match = re.search(r"\(at line (\d+)", str(error))
        line = int(match[1]) if match else len(text.splitlines())
        raise FileError(path, line, _line_of(text, line), f"TOML: {str(error).partition(' (at')[0]}") from None


def _find_in_toml(lines: list[str], place: Place) -> int | None:
    """Return the line of the last key of a place, as far as a search from key to key finds it."""
    at, line = 0, None
    for depth, step in enumerate(place):
        if isinstance(step, int):
            table = re.escape(str(place[depth - 1])) if depth else ""
            pattern, skip = rf"\s*(\[\[\s*{table}\s*\]\]|[\[{{]\s*[^\[\s])", step
        else:
            name = re.escape(step)
            pattern, skip = rf"""(^|.*[\s.\[{{,])["']?{name}["']?\s*([=.\]]|$)""", 0
        matching = [i for i in range(at, len(lines)) if re.match(pattern, lines[i])]
        if len(matching) <= skip:
            break
        at = matching[skip]
        line = at + 1
    return line
