"""The library for programs in C is made in one step, and what does not become it does not stay."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from weft import compiler
from weft.errors import ConfigError
from weft.verbs.c import build

pytestmark = pytest.mark.skipif(compiler.find() is None, reason="no C compiler")


def test_a_compiler_that_fails_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("CC", "false")
    with pytest.raises(ConfigError, match=r"cannot compile weft's libibverbs.so.1"):
        build.folder(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_who_is_overtaken_takes_what_the_other_made(tmp_path, monkeypatch):
    def slowly(partial: Path, *_: object) -> None:
        (partial / build.NAME).write_text("mine")
        theirs = partial.with_name(partial.name.rpartition(".")[0])
        theirs.mkdir()
        (theirs / build.NAME).write_text("theirs")

    monkeypatch.setattr(build, "_compile_in", lambda *_: None)
    monkeypatch.setattr(build, "_link_in", slowly)
    made = build.folder(tmp_path)
    assert made is not None
    assert [one for one in tmp_path.iterdir() if "objects" not in one.name] == [made]
    assert (made / build.NAME).read_text() == "theirs"


def test_nothing_is_compiled_again_for_other_packages(tmp_path, monkeypatch):
    """Another libibverbs of the system, which has other private names, is linked."""
    ran: list[str] = []

    def run(_cc: str, words: list[str], folder: Path | None = None) -> None:
        ran.append("compile" if "-c" in words else "link")
        if "-o" in words:
            Path(words[words.index("-o") + 1]).write_text("")

    monkeypatch.setattr(build, "_run", run)
    monkeypatch.setattr(build, "_private_names", lambda: ("", ()))
    made = build.folder(tmp_path)
    assert ran == ["compile"] * 2 + ["link"] * 3
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    assert build.folder(tmp_path) == made
    assert len(ran) == 5
    monkeypatch.setattr(build, "_private_names", lambda: ("IBVERBS_PRIVATE_34", ("ibv_cmd_reg_mr",)))
    assert build.folder(tmp_path) != made
    assert ran[5:] == ["link"] * 3
