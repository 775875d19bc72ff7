"""The preload is compiled once; without a compiler the lab works without it."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from weft.errors import ConfigError
from weft.lab import preload

needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")


@needs_compiler
def test_it_is_compiled_once(tmp_path, monkeypatch):
    result = preload.library(tmp_path)
    assert [result] == list(tmp_path.iterdir())
    monkeypatch.setenv("CC", "no-such-compiler")
    assert preload.library(tmp_path) == result


def test_without_a_compiler_there_is_none(tmp_path, monkeypatch):
    monkeypatch.setenv("CC", "no-such-compiler")
    assert preload.library(tmp_path) is None


def test_a_compiler_that_fails_is_named_with_the_way_out(tmp_path, monkeypatch):
    monkeypatch.setenv("CC", "false")
    with pytest.raises(ConfigError, match=r"false cannot compile(.|\n)*Set CC"):
        preload.library(tmp_path)
    assert not list(tmp_path.iterdir())


@needs_compiler
def test_it_compiles_without_a_warning(tmp_path):
    flags = ["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-x", "c", "-"]
    done = subprocess.run(["cc", *flags], input=preload.source(), capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()


def test_a_preload_that_was_there_stays_behind_ours(tmp_path, monkeypatch):
    monkeypatch.setenv("LD_PRELOAD", "/lib/other.so")
    result = preload.environment(tmp_path / "a.so", tmp_path / "lab", "h1")
    assert result == {
        "LD_PRELOAD": f"{tmp_path}/a.so:/lib/other.so",
        "WEFT_SOCKET": f"{tmp_path}/lab",
        "WEFT_HOST": "h1",
    }
