"""What weft makes once and keeps in the user's cache: compiled kernels and libraries, little programs.

Each is a folder or a file with a hash in its name, of all that it is made of. Another version of weft, or an edit,
makes another one beside it, and nobody knows when the old one has had its day. So who uses one says so, and what nobody
has used for a month goes when one of its kind is made.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from contextlib import suppress
from pathlib import Path

_DAY_S = 24 * 3600
_LONGEST_S = 30 * _DAY_S
_NAME = re.compile(r"(.+)-[0-9a-f]{16}(\..+)?")  # with an ending: a file, or what somebody who was killed has left


def home() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "weft"


def use(kept: Path) -> Path:
    """The same; it was wanted today."""
    with suppress(OSError):  # gone meanwhile, or somebody else's
        if time.time() - kept.stat().st_mtime > _DAY_S:
            os.utime(kept)
    return kept


def replace_old(made: Path) -> None:
    """Take away those of its kind that were not used for a month."""
    kind = _kind(made)
    assert kind is not None
    with suppress(OSError):
        for one in made.parent.iterdir():
            if _kind(one) != kind or time.time() - one.lstat().st_mtime < _LONGEST_S:
                continue
            if one.is_dir():
                shutil.rmtree(one, ignore_errors=True)
            else:
                one.unlink(missing_ok=True)


def _kind(kept: Path) -> str | None:
    found = _NAME.fullmatch(kept.name)
    return found[1] if found is not None else None
