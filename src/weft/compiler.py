"""The user's C compiler, and where what it made is kept."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

_COMPILERS = ("cc", "gcc", "clang")


def find() -> str | None:
    """$CC and nothing else if it is set, else what there is."""
    named = os.environ.get("CC")
    return next((found for name in ([named] if named else _COMPILERS) if (found := shutil.which(name))), None)


def cache(folder: Path | None = None) -> Path:
    return folder or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "weft"
