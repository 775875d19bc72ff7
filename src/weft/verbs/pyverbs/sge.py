"""Scatter/gather elements: pieces of registered memory."""

from __future__ import annotations

import struct
from typing import Any, SupportsIndex

from weft.verbs.attributes.objects import PyverbsCM, table, unsigned
from weft.verbs.pyverbs.mem_alloc import read
from weft.verbs.shm.layout import PLACE_FORM

WORD = {32: struct.Struct("<I4x"), 64: struct.Struct("<Q")}
_pack_sge = PLACE_FORM.pack


class Packed:
    """A number of so many bits in a word of `raw`."""

    def __init__(self, bits: int, word: int) -> None:
        self.bits, self._at, self._form = bits, 8 * word, WORD[bits]

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, obj: Any, owner: type) -> int:
        return self._form.unpack_from(obj.raw, self._at)[0] if obj is not None else self  # type: ignore[return-value]

    def __set__(self, obj: Any, value: SupportsIndex | float) -> None:
        raw, number = obj.raw, unsigned(self.name, self.bits, value)
        obj.raw = raw[: self._at] + self._form.pack(number) + raw[self._at + 8 :]


class SGE(PyverbsCM, is_held=False):
    """A piece of registered memory."""

    addr, length, lkey = Packed(64, 0), Packed(32, 1), Packed(32, 2)

    def __init__(self, addr: int, length: int, lkey: int) -> None:
        try:
            self.raw = _pack_sge(addr, length, lkey)
        except struct.error:
            self.raw = bytes(PLACE_FORM.size)
            self.addr, self.length, self.lkey = addr, length, lkey

    def read(self, length: int, offset: int) -> bytes:
        return read(self.addr, length, offset)

    def __str__(self) -> str:
        return table(Address=hex(self.addr), Length=self.length, Key=hex(self.lkey))
