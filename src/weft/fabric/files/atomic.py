"""Write a file atomically, without replacing links, pipes and devices."""

from __future__ import annotations

import contextlib
import os
import stat
import sys
import tempfile
from pathlib import Path

from weft.errors import ConfigError
from weft.fabric.files.text import descriptor


def write_atomically(path: Path | str, content: str | bytes) -> None:
    """Write to a temporary name beside the file, then rename: a reader sees the old file or the new one.

    A link stays, and its target is replaced. Pipes and character devices get the bytes directly, and `-` is standard
    output.
    """
    data = content.encode() if isinstance(content, str) else content
    to = descriptor(path, 1)
    try:
        if to is not None:
            _write_descriptor(to, data)
        else:
            _write_named(Path(path), data)
    except BrokenPipeError:
        if to is not None:  # the reader has closed standard output, as after `| head`
            raise
        raise ConfigError(f"cannot write {path}: the reader closed it") from None
    except FileNotFoundError:
        raise ConfigError(f"cannot write {path}: no folder {Path(path).parent}; create it first") from None
    except OSError as error:
        target = "standard output" if to == 1 else path
        raise ConfigError(f"cannot write {target}: {error.strerror or error}") from error


def _write_descriptor(number: int, data: bytes) -> None:
    if number == 1:
        sys.stdout.flush()  # keep the order of earlier output
    _write_all(number, data)


def _write_named(path: Path, data: bytes) -> None:
    try:
        status = path.stat()
    except FileNotFoundError:  # or a dangling link
        _replace(Path(os.path.realpath(path)), data, None)
        return
    if stat.S_ISREG(status.st_mode):
        _replace(Path(os.path.realpath(path)), data, status)
    elif stat.S_ISBLK(status.st_mode):
        raise ConfigError(f"cannot write {path}: it is a block device; give a file")
    else:  # the system refuses a directory here
        number = os.open(path, os.O_WRONLY | os.O_NOCTTY)
        try:
            _write_all(number, data)
        finally:
            os.close(number)


def _write_all(number: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(number, rest) :]


def _replace(target: Path, data: bytes, old: os.stat_result | None) -> None:
    """Replace a file, keeping its permissions and, if permitted, its owner."""
    handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        if old is not None:
            with contextlib.suppress(PermissionError):
                os.chown(temporary, old.st_uid, old.st_gid)
        os.chmod(temporary, 0o666 & ~_umask() if old is None else stat.S_IMODE(old.st_mode))
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
