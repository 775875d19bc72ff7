"""The text of a file, or a reason why there is none."""

from __future__ import annotations

import stat
from pathlib import Path

from weft.errors import FileError


def read_text(path: Path) -> str:
    """All of a UTF-8 file, with or without a byte order mark."""
    data = read_bytes(path)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise FileError(path, line, repr(data[error.start : error.end]), "text in UTF-8") from None


def read_bytes(path: Path, limit: int = -1) -> bytes:
    """The first `limit` bytes of a regular file, or all."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            found = "a directory" if path.is_dir() else "a device or a pipe"
            raise FileError(path, None, found, "a regular file")
        with path.open("rb") as file:
            return file.read(limit)
    except FileNotFoundError:
        raise FileError(path, None, "no such file", "a file that exists") from None
    except (OSError, ValueError) as error:  # ValueError: a null character in the name
        raise FileError(path, None, getattr(error, "strerror", None) or str(error), "a file that can be read") from None
