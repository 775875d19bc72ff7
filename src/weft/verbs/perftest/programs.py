"""List the tools by name, and write executables for them to a folder for PATH."""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import sys
import tempfile
from pathlib import Path
from shlex import join

from weft import user_cache
from weft.verbs.perftest.kinds import Test

_EXAMPLES = ["ibv_devices", "ibv_devinfo", *(f"ibv_{kind}_pingpong" for kind in ("rc", "uc", "ud"))]
PROGRAMS = {name: ["perftest", name] for name in Test} | {name: [name] for name in _EXAMPLES}  # arguments of `weft`


def command(*words: str) -> list[str]:
    """Return the command line that runs this weft, regardless of a `weft` in the current folder."""
    return [sys.executable, "-P", "-m", "weft", *words]


def program_folder(cache: Path | None = None) -> Path:
    """Return the folder with the executables. It is written in one step, because other processes may write it too."""
    texts = {name: f'#!/bin/sh\nexec {join(command(*words))} "$@"\n' for name, words in PROGRAMS.items()}
    digest = hashlib.sha256("".join(texts.values()).encode()).hexdigest()[:16]
    parent = cache or user_cache.root()
    folder = parent / f"programs-{digest}"
    if not folder.is_dir():
        parent.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(dir=parent))
        for name, text in texts.items():
            (partial / name).write_text(text, encoding="utf-8")
            (partial / name).chmod(0o755)
        partial.chmod(0o755)
        with contextlib.suppress(OSError):  # another process was faster
            partial.rename(folder)
        shutil.rmtree(partial, ignore_errors=True)
        user_cache.remove_unused(folder)
    return user_cache.mark_used(folder)
