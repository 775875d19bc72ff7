"""The text of a file, or a reason why there is none."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from weft.errors import FileError
from weft.fabric.files.streams import descriptor, is_stream

_seen: dict[str, bytes] = {}  # streams that are being read, by name: `first_look`


def read_text(path: Path) -> str:
    """All of a UTF-8 file, with or without a byte order mark."""
    data = read_bytes(path)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise FileError(path, line, repr(data[error.start : error.end]), "text in UTF-8") from None


def read_bytes(path: Path, limit: int = -1) -> bytes:
    """The first `limit` bytes of a file or a pipe, or all; `-` is standard input."""
    data = _seen[str(path)] if str(path) in _seen else _read(path, limit)
    return data if limit < 0 else data[:limit]


@contextmanager
def first_look(path: Path, limit: int) -> Iterator[bytes]:
    """What a file begins with. A pipe can be read only once: inside the block all of it is there, for who reads on."""
    stream = is_stream(path)
    if stream:
        _seen[str(path)] = _read(path, -1)
    try:
        yield read_bytes(path, limit)
    finally:
        if stream:
            del _seen[str(path)]


def _read(path: Path, limit: int) -> bytes:
    try:
        number = descriptor(path, 0)
        _refuse_what_never_ends(path, number)
        with open(path if number is None else os.dup(number), "rb") as file:
            return file.read(limit)
    except FileNotFoundError:
        raise FileError(path, None, "no such file", "a file that exists") from None
    except (OSError, ValueError) as error:  # ValueError: a null character in the name
        raise FileError(path, None, getattr(error, "strerror", None) or str(error), "a file that can be read") from None


def _refuse_what_never_ends(path: Path, number: int | None) -> None:
    """Before it is opened: that alone makes some devices do things."""
    mode = os.stat(path if number is None else number).st_mode
    if stat.S_ISDIR(mode):
        raise FileError(path, None, "a directory", "a regular file or a pipe")
    if stat.S_ISBLK(mode) or (stat.S_ISCHR(mode) and not (number is not None and os.isatty(number))):
        raise FileError(path, None, "a device", "a regular file or a pipe")
