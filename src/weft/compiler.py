"""The user's C compiler."""

from __future__ import annotations

import os
import shutil

_COMPILERS = ("cc", "gcc", "clang")


def find() -> str | None:
    """Return the path of $CC if it is set, else of the first compiler on the PATH; None if there is none."""
    named = os.environ.get("CC")
    return next((path for name in ([named] if named else _COMPILERS) if (path := shutil.which(name))), None)
