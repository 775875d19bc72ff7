"""A block at the end of an operator's file that weft writes, between two marks; all other bytes are unchanged.

    Default=0x7fff, ipoib : ALL=limited, SELF=full ;       the operator's

    # >>> weft tenants: written by weft, changes here are lost
    acme=0x0101 : 0x0002c90300001231=full ;
    # <<< weft tenants

The empty line before the mark is part of the block: removing the block restores the file.
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
    """A file with the operator's text and weft's block."""

    outside: str = ""  # the operator's text
    body: str = ""  # weft's block
    is_open: bool = False  # it is unknown whether OpenSM has applied the block

    @property
    def text(self) -> str:
        if not self.body and not self.is_open:
            return self.outside
        blank = "\n" if self.outside else ""
        return f"{self.outside}{blank}{_BEGIN}{_OPEN if self.is_open else ''}{_RULE}\n{self.body}{_END}\n"


def read_managed(path: Path) -> Managed:
    """Read a file; a missing file is empty. Raise FileError if the marks do not pair."""
    try:
        text = path.read_bytes().decode("utf-8", "surrogateescape")  # the operator's text may have any encoding
    except FileNotFoundError:
        return Managed()
    except OSError as error:
        raise FileError(path, None, error.strerror or str(error), "a file that can be read") from None
    block = _BLOCK.search(text)
    if block is None:
        managed = Managed(outside=text)
    else:
        outside = text[: block.start()] + text[block.end() :]
        managed = Managed(outside=outside, body=block["body"], is_open=block["open"] is not None)
    for number, line in enumerate(text.split("\n"), 1):
        if line.startswith((_BEGIN, _END)) and line in managed.outside.split("\n"):
            raise FileError(
                path, number, line, f"one {_BEGIN!r} and after it one {_END!r}; remove the lines between them"
            )
    return managed


def write_managed(path: Path, managed: Managed) -> None:
    write_atomically(path, managed.text.encode("utf-8", "surrogateescape"))
