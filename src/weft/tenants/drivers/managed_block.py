"""A part of somebody's file that weft writes, between two marks at its end; all other bytes stay as they are.

    Default=0x7fff, ipoib : ALL=limited, SELF=full ;       the operator's

    # >>> weft tenants: written by weft, changes here are lost
    acme=0x0101 : 0x0002c90300001231=full ;
    # <<< weft tenants

The empty line before the mark belongs to it: what is taken out leaves the file as it was.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from weft.errors import FileError
from weft.fabric.files.atomic import write_atomically

_BEGIN, _END = "# >>> weft tenants", "# <<< weft tenants"
_RULE = ": written by weft, changes here are lost"
_OPEN = " (not yet obeyed)"
_BLOCK = re.compile(
    rf"\n?^{re.escape(_BEGIN)}(?P<open>{re.escape(_OPEN)})?[^\n]*\n(?P<body>.*?)^{re.escape(_END)}[^\n]*(?:\n|\Z)",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Managed:
    """A file of two authors."""

    outside: str = ""  # theirs
    body: str = ""  # ours
    is_open: bool = False  # it is not known whether anybody has obeyed it yet

    @property
    def text(self) -> str:
        if not self.body and not self.is_open:
            return self.outside
        blank = "\n" if self.outside else ""
        return f"{self.outside}{blank}{_BEGIN}{_OPEN if self.is_open else ''}{_RULE}\n{self.body}{_END}\n"


def read_managed(path: Path) -> Managed:
    """Empty where there is no file; FileError where marks do not pair."""
    try:
        text = path.read_bytes().decode("utf-8", "surrogateescape")  # what is theirs may be written as they like
    except FileNotFoundError:
        return Managed()
    except OSError as error:
        raise FileError(path, None, error.strerror or str(error), "a file that can be read") from None
    found = _BLOCK.search(text)
    if found is None:
        managed = Managed(outside=text)
    else:
        outside = text[: found.start()] + text[found.end() :]
        managed = Managed(outside=outside, body=found["body"], is_open=found["open"] is not None)
    for number, line in enumerate(text.split("\n"), 1):
        if line.startswith((_BEGIN, _END)) and line in managed.outside.split("\n"):
            raise FileError(path, number, line, f"one {_BEGIN!r} and behind it one {_END!r}; take out what is between")
    return managed


def write_managed(path: Path, managed: Managed) -> None:
    write_atomically(path, managed.text.encode("utf-8", "surrogateescape"))
