"""Read the text of a file or a stream, with errors that name the problem.

A stream is `-`, `/dev/stdin`, `/dev/fd/63`, a pipe or a device; its bytes are read or written once. A name that leads
to a descriptor of this process means that descriptor, not the file it was opened on: so `weft export ... -o /dev/stdout
>> log` appends to the log and replaces nothing.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from weft.errors import FileError

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


_buffered: dict[str, bytes] = {}  # streams within `peek`, by name


def read_text(path: Path) -> str:
    """Return the text of a UTF-8 file, with or without a byte order mark."""
    data = read_bytes(path)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise FileError(path, line, f"not a text file (byte 0x{data[error.start]:02x})") from None


def read_bytes(path: Path, limit: int = -1) -> bytes:
    """Return the first `limit` bytes of a file or a pipe, or all; `-` is standard input."""
    data = _buffered[str(path)] if str(path) in _buffered else _read(path, limit)
    return data if limit < 0 else data[:limit]


@contextmanager
def peek(path: Path, limit: int) -> Iterator[bytes]:
    """Yield the first bytes of a file. A pipe can be read only once: the block buffers it for other readers."""
    stream = is_stream(path)
    if stream:
        _buffered[str(path)] = _read(path, -1)
    try:
        yield read_bytes(path, limit)
    finally:
        if stream:
            del _buffered[str(path)]


def _read(path: Path, limit: int) -> bytes:
    try:
        number = descriptor(path, 0)
        _refuse_directories_and_devices(path, number)
        with open(path if number is None else os.dup(number), "rb") as file:
            return file.read(limit)
    except FileNotFoundError:
        raise FileError(path, None, "no such file") from None
    except (OSError, ValueError) as error:  # ValueError: a null character in the name
        raise FileError(path, None, f"cannot be read: {getattr(error, 'strerror', None) or error}") from None


def _refuse_directories_and_devices(path: Path, number: int | None) -> None:
    """Raise FileError before opening: some devices react to being opened, or never end."""
    mode = os.stat(path if number is None else number).st_mode
    if stat.S_ISDIR(mode):
        raise FileError(path, None, "is a directory; give a file")
    if stat.S_ISBLK(mode) or (stat.S_ISCHR(mode) and not (number is not None and os.isatty(number))):
        raise FileError(path, None, "is a device; give a file or a pipe")
