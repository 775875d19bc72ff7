"""Requests that a shared-memory path carries out, how its words lie, and what its kernel (`execute`) returns."""

from __future__ import annotations

import ctypes
from typing import Any

from weft.verbs.enums import ibv_wr_opcode
from weft.verbs.shm import layout

CARRIED = tuple(ibv_wr_opcode)[:7]  # and as plain numbers, which kernels take
WRITE, WRITE_IMM, SEND, SEND_IMM, READ, SWAP, ADD = (int(opcode) for opcode in CARRIED)
RECEIVED, ATOMICS, ANSWERED = (SEND, SEND_IMM, WRITE_IMM), (SWAP, ADD), (READ, SWAP, ADD)

DONE, RING, UNTOLD, SLOW, BUSY, CLOSED, WAKE = 0, 1, 2, 4, 8, 16, 32
# RING, UNTOLD and WAKE: done, and there is something left to do: wake the other process, complete it, or wake this one.

REQUEST_MAX_BYTES = layout.SendRequest.size + layout.SGE_MAX * layout.SgeRecord.size
_FOUND_BYTES = layout.SGE_MAX * layout.Word.size
PATH_BYTES = layout.PathRecord.size + REQUEST_MAX_BYTES + _FOUND_BYTES + layout.Scratch.size


def fill_in(words: Any) -> layout.PathRecord:
    """Return the path in these words, which are its own from now on; `request` and the rest lie behind its record."""
    path = layout.PathRecord.from_buffer(words)
    path.request = ctypes.addressof(path) + layout.PathRecord.size
    path.found = path.request + REQUEST_MAX_BYTES
    path.scratch = path.found + _FOUND_BYTES
    return path
