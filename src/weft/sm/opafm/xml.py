"""opafm.xml as a tree whose elements know their line, and the notations in it.

A DOCTYPE is refused: it could define entities that grow without end, and the fabric manager's file has none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from xml.parsers import expat

from weft.errors import FileError
from weft.ids import Gid, Guid

_NAME_CHARACTERS = "[A-Za-z0-9,=._-]"
_WIDEST_RANGE = 100_000
_PIECES = re.compile(r"\[(\d+)-(\d+)\]|([*?])|([^][*?]+)|(.)", re.DOTALL)
_PORTS = re.compile(r":\[(\d+)-(\d+)\]$")


@dataclass(slots=True)
class Element:
    """A tag, with the text in it and the elements below it."""

    path: Path | str
    tag: str
    line: int
    text: str = ""
    children: list[Element] = field(default_factory=list)

    def all(self, tag: str) -> list[Element]:
        return [child for child in self.children if child.tag == tag]

    def find(self, tag: str) -> Element | None:
        """Return the last such element: a later setting replaces an earlier one."""
        elements = self.all(tag)
        return elements[-1] if elements else None

    def below(self, *tags: str) -> Iterator[Element]:
        """Yield elements by the path to them: `below("DeviceGroups", "DeviceGroup")`."""
        for child in self.all(tags[0]):
            if len(tags) == 1:
                yield child
            else:
                yield from child.below(*tags[1:])

    def string(self, tag: str) -> str:
        element = self.find(tag)
        return element.text if element else ""

    def number(self, tag: str, low: int, high: int, suffix: str = "") -> int | None:
        """Return a decimal number, or a hexadecimal one with 0x; None if the tag is absent or empty."""
        element = self.find(tag)
        if element is None or not element.text:
            return None
        try:
            number = int(element.text.removesuffix(suffix).strip(), 0)
        except ValueError:
            number = low - 1
        if not low <= number <= high:
            raise element.refuse(
                f"<{tag}> to be from {low:#x} to {high:#x}" if low else f"<{tag}> to be at most {high}"
            )
        return number

    def flag(self, tag: str) -> bool:
        return bool(self.number(tag, 0, 1))

    def guid(self) -> int:
        try:
            return Guid(int(self.text, 0))
        except ValueError:
            raise self.refuse("a GUID like 0x0011750101671234") from None

    def refuse(self, expected: str) -> FileError:
        return FileError(self.path, self.line, self.text or f"<{self.tag}>", expected)


def parse(text: str, path: Path | str) -> Element:
    """Return the root of a document."""
    top = Element(path, "", 0)
    stack = [top]
    parser = expat.ParserCreate()

    def on_start(tag: str, _attributes: dict[str, str]) -> None:
        stack.append(Element(path, tag, parser.CurrentLineNumber))
        stack[-2].children.append(stack[-1])

    def on_end(_tag: str) -> None:
        closed = stack.pop()
        closed.text = closed.text.strip()

    def on_text(data: str) -> None:
        stack[-1].text += data

    def on_doctype(*_declared: object) -> None:
        raise FileError(path, parser.CurrentLineNumber, "<!DOCTYPE", "no document type and no entities of its own")

    parser.StartElementHandler, parser.EndElementHandler = on_start, on_end
    parser.CharacterDataHandler, parser.StartDoctypeDeclHandler = on_text, on_doctype
    try:
        parser.Parse(text.encode(), True)
    except expat.ExpatError as error:
        raise FileError(path, error.lineno, expat.errors.messages[error.code], "well-formed XML") from None
    return top.children[0]


def mgid_of(element: Element) -> Gid:
    """Read `0xff12401b80010000:0x00000000ffffffff`: two halves."""
    upper, _, lower = element.text.partition(":")
    try:
        return Gid(int(upper, 16) << 64 | int(lower, 16))
    except ValueError:
        raise element.refuse("an MGID of two hexadecimal numbers, 0xff12401b80010000:0x00000000ffffffff") from None


def pattern_of(element: Element) -> tuple[str, tuple[int, int] | None]:
    """Return a NodeDesc as a regular expression, and the ports that `:[2-4]` at its end names.

    `*` and `?` stand for letters, digits and -,=._ only; but a `*` at either end for anything, as the fabric manager
    does not anchor it there. `[06-10]` is 06, 07, ... 10: zeros must match.
    """
    text = element.text
    ports = _PORTS.search(text)
    if ports:
        text = text[: ports.start()]
    parts: list[str] = []
    for first, last, wild, literal, stray in _PIECES.findall(text):
        if first:
            parts.append(_range(element, first, last))
        elif stray:
            raise element.refuse("a range of numbers like [1-4] or [06-10]")
        else:
            parts.append(_NAME_CHARACTERS + wild if wild else re.escape(literal))
    if text.startswith("*"):
        parts[0] = ".*"
    if text.endswith("*"):
        parts[-1] = ".*"
    return "".join(parts), (int(ports[1]), int(ports[2])) if ports else None


def _range(element: Element, first: str, last: str) -> str:
    if not 0 <= int(last) - int(first) < _WIDEST_RANGE:
        raise element.refuse(f"a range that goes up, by less than {_WIDEST_RANGE:,}")
    width = len(first) if first.startswith("0") else 0
    return "(?:" + "|".join(str(number).zfill(width) for number in range(int(first), int(last) + 1)) + ")"
