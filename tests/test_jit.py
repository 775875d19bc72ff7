from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from weft import jit


def folder(boundscheck: str) -> str:
    code = "from weft import jit; import numba; print(numba.config.CACHE_DIR)"
    environment = os.environ | {"NUMBA_BOUNDSCHECK": boundscheck}
    return subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    ).stdout.strip()


def test_the_cache_of_checked_kernels_is_another_than_that_of_fast_ones():
    assert folder("0") != folder("1")


def test_an_edit_in_what_a_kernel_calls_names_another_cache(monkeypatch):
    before = jit._cache_folder()
    sources = jit._sources()
    assert "weft.routing.kernels.paths" in sources
    assert "weft.fabric.tables" in sources, "kernels use its constants"
    monkeypatch.setattr(jit, "_sources", lambda: {**sources, "weft.fabric.tables": b"NO_ROUTE = 254"})
    assert jit._cache_folder() != before
    assert Path(before).name.startswith("kernels-")
