"""The user's C compiler."""

from __future__ import annotations

import os
import shutil

_COMPILERS = ("cc", "gcc", "clang")


def find() -> str | None:
    """$CC and nothing else if it is set, else what there is."""
    named = os.environ.get("CC")
    return next((found for name in ([named] if named else _COMPILERS) if (found := shutil.which(name))), None)
