"""The library for programs in C is made in one step, and what does not become it does not stay."""

from __future__ import annotations

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

    monkeypatch.setattr(build, "_compile_in", slowly)
    made = build.folder(tmp_path)
    assert made is not None
    assert list(tmp_path.iterdir()) == [made]
    assert (made / build.NAME).read_text() == "theirs"
