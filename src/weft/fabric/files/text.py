"""Read the text of a file, with errors that name the problem."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from weft.errors import FileError
from weft.fabric.files.streams import descriptor, is_stream

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
