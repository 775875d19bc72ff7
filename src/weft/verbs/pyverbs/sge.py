"""Define scatter/gather elements."""

from __future__ import annotations

import struct
from typing import Any, SupportsIndex

from weft.verbs.attributes.objects import PyverbsCM, table, unsigned
from weft.verbs.pyverbs.mem_alloc import read
from weft.verbs.shm.layout import SgeRecord
from weft.verbs.shm.record import Record

WORD = {32: struct.Struct("<I4x"), 64: struct.Struct("<Q")}
_pack_sge = SgeRecord.form.pack


class Packed:
    """A field of the record in `raw`."""

    def __init__(self, record: type[Record], field: str) -> None:
        self.bits, self._at = record.bits(field), record.offset(field)
        self._form = WORD[self.bits]

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, obj: Any, owner: type) -> int:
        return self._form.unpack_from(obj.raw, self._at)[0] if obj is not None else self  # type: ignore[return-value]

    def __set__(self, obj: Any, value: SupportsIndex | float) -> None:
        raw, number = obj.raw, unsigned(self.name, self.bits, value)
        obj.raw = raw[: self._at] + self._form.pack(number) + raw[self._at + 8 :]


class SGE(PyverbsCM, is_held=False):
    """A piece of registered memory."""

    addr, length, lkey = (Packed(SgeRecord, name) for name in SgeRecord.names)

    def __init__(self, addr: int, length: int, lkey: int) -> None:
        try:
            self.raw = _pack_sge(addr, length, lkey)
        except struct.error:
            self.raw = bytes(SgeRecord.size)
            self.addr, self.length, self.lkey = addr, length, lkey

    def read(self, length: int, offset: int) -> bytes:
        return read(self.addr, length, offset)

    def __str__(self) -> str:
        return table(Address=hex(self.addr), Length=self.length, Key=hex(self.lkey))
