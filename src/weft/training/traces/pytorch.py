"""PyTorch's names for communication, which its profiler and its ExecutionTraceObserver share."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from weft.collectives.kinds import Collective, collective
from weft.errors import find_named

SEND, RECV = "send", "recv"
IGNORED = ("wait", "init", "coalesced")  # no data of their own
_ELEMENT_BYTES = {  # c10::ScalarType
    "Byte": 1,
    "Char": 1,
    "Bool": 1,
    "Short": 2,
    "Int": 4,
    "Long": 8,
    "Half": 2,
    "BFloat16": 2,
    "Float": 4,
    "Double": 8,
    "Float8_e4m3fn": 1,
    "Float8_e5m2": 1,
    "UInt16": 2,
    "UInt32": 4,
    "UInt64": 8,
    "ComplexFloat": 8,
    "ComplexDouble": 16,
}
# Forms of one collective: _allgather_base, all_gather_into_tensor_coalesced, all_to_allv.
_FORMS = ("base", "coalesced", "intotensor", "tensor", "single", "outofplace")


def find_collective(name: str) -> Collective:
    """Find a collective by one of PyTorch's names."""
    bare = name.lower().replace("_", "")
    for form in _FORMS:
        bare = bare.replace(form, "")
    return collective("all_to_all" if bare == "alltoallv" else bare)


def size_bytes(elements_in: int, elements_out: int, dtype: str) -> int:
    """Return the size of the larger buffer."""
    return max(elements_in, elements_out) * find_named("dtype", dtype, _ELEMENT_BYTES)


def listed(ranks: Any) -> tuple[int, ...] | None:
    """Parse ranks from a list or its text, `[0, 1]`; None if the text is abbreviated, [0, 1, ..., 63]."""
    if isinstance(ranks, str):
        try:
            ranks = json.loads(ranks)
        except ValueError:
            return None
    return tuple(int(rank) for rank in ranks) if isinstance(ranks, list) and ranks else None


class Groups:
    """The process groups of a trace. One name of PyTorch's may mean different groups on different ranks."""

    def __init__(self) -> None:
        self._name: dict[tuple[int, ...], str] = {}

    def name(self, wanted: str, members: tuple[int, ...]) -> str:
        """Return a name for these ranks: the given one, with a number if another group has it."""
        if members not in self._name:
            taken = set(self._name.values())
            name, number = wanted, 2
            while name in taken:
                name, number = f"{wanted} ({number})", number + 1
            self._name[members] = name
        return self._name[members]

    @property
    def by_name(self) -> Mapping[str, tuple[tuple[int, ...], ...]]:
        return {name: (members,) for members, name in self._name.items()}
