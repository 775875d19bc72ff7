"""Files that are no files: `-`, `/dev/stdin`, `/dev/fd/63`, pipes and devices. Their bytes come and go in order, once.

A name that leads to a descriptor of this process means that descriptor, not what it was opened on: so
`weft export ... -o /dev/stdout >> log` goes on where the log ends, and replaces nothing.
"""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

STANDARD = "-"
_LINKS = 40  # as many as Linux follows


def descriptor(path: Path | str, standard: int) -> int | None:
    """Which descriptor of this process a name means; `-` means `standard`. None if it names a file."""
    name = str(path)
    if name == STANDARD:
        return standard
    own = re.compile(rf"/proc/{os.getpid()}(?:/task/\d+)?/fd/(\d+)")
    for _ in range(_LINKS):
        folder, last = os.path.split(os.path.abspath(name))
        name = os.path.join(os.path.realpath(folder), last)
        found = own.fullmatch(name)
        if found:
            return int(found[1])
        try:
            name = os.path.join(os.path.dirname(name), os.readlink(name))
        except (OSError, ValueError):  # no link; a null character in it
            return None
    return None


def is_stream(path: Path | str) -> bool:
    """Not a file by name: a suffix tells nothing about it, and it has no size."""
    if descriptor(path, 0) is not None:
        return True
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):
        return False
    return not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)


def suffix_of(path: Path | str, otherwise: str) -> str:
    """What a name's end says of the format, in small letters; `otherwise` for a stream."""
    return otherwise if is_stream(path) else Path(path).suffix.lower()
