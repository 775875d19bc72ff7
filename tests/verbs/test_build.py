"""The library for programs in C is built atomically: a failed build leaves no files."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from weft import compiler
from weft.errors import ConfigError
from weft.jit.sources import sources
from weft.verbs.c import build

pytestmark = pytest.mark.skipif(compiler.find() is None, reason="no C compiler")


def test_a_compiler_that_fails_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("CC", "false")
    with pytest.raises(ConfigError, match=r"cannot compile weft's libibverbs.so.1"):
        build.folder(tmp_path)
    assert [path for path in tmp_path.iterdir() if path.suffix != ".lock"] == []


def test_of_two_that_need_the_library_one_compiles_it(tmp_path, monkeypatch):
    compiled: list[Path] = []

    def link(partial: Path, *_: object) -> None:
        compiled.append(partial)
        (partial / build.NAME).write_text("")

    monkeypatch.setattr(build, "_compile_in", lambda *_: None)
    monkeypatch.setattr(build, "_link_in", link)
    with ThreadPoolExecutor(2) as threads:
        first, second = threads.map(build.folder, (tmp_path, tmp_path))
    assert first == second
    assert len(compiled) == 1


def test_nothing_is_compiled_again_for_other_packages(tmp_path, monkeypatch):
    """With another libibverbs of the system, which has other private names, the library is only linked again."""
    ran: list[str] = []

    def run(_cc: str, words: list[str], folder: Path | None = None) -> None:
        ran.append("compile" if "-c" in words else "link")
        if "-o" in words:
            Path(words[words.index("-o") + 1]).write_text("")

    monkeypatch.setattr(build, "_run", run)
    monkeypatch.setattr(build, "_private_names", lambda: ("", ()))
    result = build.folder(tmp_path)
    assert ran == ["compile"] * 2 + ["link"] * 3
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    assert build.folder(tmp_path) == result
    assert len(ran) == 5
    monkeypatch.setattr(build, "_private_names", lambda: ("IBVERBS_PRIVATE_34", ("ibv_cmd_reg_mr",)))
    assert build.folder(tmp_path) != result
    assert ran[5:] == ["link"] * 3


def test_a_change_of_any_module_of_the_linked_kernels_compiles_the_library_again():
    without_kernels = {"weft.errors", "weft.runtime", "weft.user_cache", "weft.verbs", "weft.verbs.errors"}
    without_kernels |= {"weft.verbs.gpudirect.cuda", "weft.verbs.gpudirect.gpu"}
    texts = {file.read_text(encoding="utf-8") for file in build._files()}
    assert {name for name, text in sources("weft.verbs.c.kernels").items() if text not in texts} <= without_kernels
