"""Structures that C and Python share."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from weft.compiler import structure

needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")


def compile_text(text: str) -> str:
    done = subprocess.run(
        ["cc", "-fsyntax-only", "-x", "c", "-"],
        input=f"#include <stddef.h>\n#include <stdint.h>\n{text}",
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stderr


@needs_compiler
def test_structure_has_one_layout_in_c_and_python():
    form, text = structure("mixed", "u8 a", "x8 pad[3]", "be32 b", "u64 c[2]", "char name[8]", tail="void *last[2]")
    assert form.pack(1, b"\0\0\0\2", 3, 4, b"h1") == bytes([1, 0, 0, 0, 0, 0, 0, 2, 3]) + bytes(7) + b"\4" + bytes(
        7
    ) + b"h1" + bytes(6)
    assert compile_text(text) == ""
    form, text = structure("frame", "u32 length", "u16 kind", "u32 number", packed=True)
    assert (form.size, compile_text(text)) == (10, "")


@needs_compiler
def test_padding_that_is_no_field_is_a_compile_error():
    _, text = structure("gap", "u8 a", "u32 b")
    assert "padding is a field" in compile_text(text)
