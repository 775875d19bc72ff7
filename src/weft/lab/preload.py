"""Compile preload*.c once with the system's C compiler: the library by which unmodified programs see a whole lab.

Without a compiler programs run over Debian's libumad2sim, which carries single MADs: no RMPP, first port only.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
from importlib.resources import files
from pathlib import Path

from weft import compiler, user_cache
from weft.errors import ConfigError
from weft.lab import layouts

_SOURCES = ("preload.c", "preload_interfaces.c")
_FLAGS = ["-O2", "-shared", "-fPIC", "-pthread"]


def source() -> bytes:
    return layouts.declarations().encode() + b"".join(
        files("weft.lab").joinpath(name).read_bytes() for name in _SOURCES
    )


def library(cache: Path | None = None) -> Path | None:
    """Return the compiled preload, compiled now if it is not in the cache; None without a compiler."""
    text = source()
    name = f"preload-{os.uname().machine}-{hashlib.sha256(text).hexdigest()[:16]}.so"
    folder = cache or user_cache.root()
    compiled = folder / name
    if compiled.is_file():
        return user_cache.mark_used(compiled)
    c_compiler = compiler.find()
    if c_compiler is None:
        return None
    folder.mkdir(parents=True, exist_ok=True)
    partial = folder / f"{name}.{os.getpid()}"  # renamed when it is whole: others may compile at the same time
    done = subprocess.run(
        [c_compiler, *_FLAGS, "-x", "c", "-", "-o", str(partial), "-ldl"], input=text, capture_output=True, check=False
    )
    if done.returncode:
        raise ConfigError(
            f"{c_compiler} cannot compile weft's preload: {done.stderr.decode(errors='replace').strip()[:500]}\n"
            "  Set CC to a working C compiler, or to a name that does not exist to do without."
        )
    partial.replace(compiled)
    user_cache.remove_unused(compiled)
    return compiled


def environment(preload: Path, path: Path, host: str) -> dict[str, str]:
    """Return the environment variables of a program on that host of the lab at `path`."""
    before = os.environ.get("LD_PRELOAD")
    return {
        "LD_PRELOAD": f"{preload}:{before}" if before else str(preload),
        "WEFT_SOCKET": str(path),
        "WEFT_HOST": host,
    }
