"""Streams instead of files: `-`, `/dev/stdin`, `/dev/fd/63`, pipes and devices. Their bytes are read or written once.

A name that leads to a descriptor of this process means that descriptor, not the file it was opened on: so `weft export
... -o /dev/stdout >> log` appends to the log and replaces nothing.
"""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

STANDARD = "-"
_LINKS = 40  # the limit of Linux


def descriptor(path: Path | str, standard: int) -> int | None:
    """Return the descriptor of this process that a name means; `-` means `standard`. None if it names a file."""
    name = str(path)
    if name == STANDARD:
        return standard
    own = re.compile(rf"/proc/{os.getpid()}(?:/task/\d+)?/fd/(\d+)")
    for _ in range(_LINKS):
        folder, last = os.path.split(os.path.abspath(name))
        name = os.path.join(os.path.realpath(folder), last)
        match = own.fullmatch(name)
        if match:
            return int(match[1])
        try:
            name = os.path.join(os.path.dirname(name), os.readlink(name))
        except (OSError, ValueError):  # not a link, or a null character in the name
            return None
    return None


def is_stream(path: Path | str) -> bool:
    """Return whether a path is a stream: its suffix has no meaning, and it has no size."""
    if descriptor(path, 0) is not None:
        return True
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):
        return False
    return not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)


def suffix_of(path: Path | str, otherwise: str) -> str:
    """Return the suffix of a name in lower case; `otherwise` for a stream."""
    return otherwise if is_stream(path) else Path(path).suffix.lower()
