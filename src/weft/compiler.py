"""The user's C compiler, and structures that C and Python share."""

from __future__ import annotations

import os
import re
import shutil
import struct

_COUNT, _NAME = re.compile(r"\[(\d+)\]"), re.compile(r"\w+")
_COMPILERS = ("cc", "gcc", "clang")
# Kinds of fields: the type in C, and the format in Python, where big-endian numbers and unused fields are bytes.
_KINDS = {
    "u8": ("uint8_t", "B"),
    "u16": ("uint16_t", "H"),
    "u32": ("uint32_t", "I"),
    "u64": ("uint64_t", "Q"),
    "int": ("int", "i"),
    "be16": ("uint16_t", "2s"),
    "be32": ("uint32_t", "4s"),
    "be64": ("uint64_t", "8s"),
    "char": ("char", "s"),
    "x8": ("uint8_t", "x"),
    "x32": ("uint32_t", "4x"),
    "u16*": ("uint16_t *", "8x"),
}


def find() -> str | None:
    """Return the path of $CC if it is set, else of the first compiler on the PATH; None if there is none."""
    named = os.environ.get("CC")
    return next((path for name in ([named] if named else _COMPILERS) if (path := shutil.which(name))), None)


def structure(name: str, *fields: str, tail: str = "", packed: bool = False) -> tuple[struct.Struct, str]:
    """Return the format of a structure in Python, and its declaration in C with a check that both have one layout.

    A field is `KIND NAME...`, a name with [N] for N of them: `u32 kind number`, `char host[64]`. Padding is a
    field too. `tail` is a last field for C alone.
    """
    form, lines = "=", []
    for field in fields:
        kind, *names = field.split()
        c_type, code = _KINDS[kind]
        form += "".join(f"{count[1]}{code}" if (count := _COUNT.search(name)) else code for name in names)
        lines.append(f"\t{c_type} {', '.join(names)};\n")
    result = struct.Struct(form)
    size = f"sizeof(struct {name})"
    if tail:
        lines.append(f"\t{tail};\n")
        size = f"offsetof(struct {name}, {_NAME.findall(tail.partition('[')[0])[-1]})"
    attribute = "__attribute__((packed)) " * packed
    check = f'_Static_assert({size} == {result.size}, "padding is a field");\n'
    return result, f"struct {attribute}{name} {{\n{''.join(lines)}}};\n{check}"
