"""Find the rank that delays the others at a timeout: each writes to the store for which rank it waits.

    rank 3 waits for 2, which waits for 1, which waits for none: 1 is late

A rank that hangs writes nothing more. So waiting ranks write repeatedly, with a growing number, and readers compare two
reads.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from weft.errors import SubnetError

SETTLE_S = 2.0  # between the two looks: several times as long as between two words of a rank that waits
_ABSENT = (TimeoutError, OSError, RuntimeError, SubnetError)  # nothing was said, or the store is gone


class Waits:
    """The waits of a rank; `tell` and `hear` are the store of its group."""

    def __init__(
        self, tell: Callable[[str, bytes], None], hear: Callable[[str, float], bytes], rank: int, size: int
    ) -> None:
        self._tell, self._hear, self._rank, self._size = tell, hear, rank, size
        self._count = 0

    def say(self, peer: int) -> None:
        """Write that this rank waits for another."""
        self._count += 1
        with suppress(*_ABSENT):
            self._tell(f"waits/{self._rank}", f"{peer} {self._count}".encode())

    def look(self) -> dict[int, bytes]:
        """Return the last entries of the other ranks."""
        values: dict[int, bytes] = {}
        for rank in range(self._size):
            with suppress(*_ABSENT):
                values[rank] = self._hear(f"waits/{rank}", 0.0)
        return values

    def late(self, peer: int, before: dict[int, bytes]) -> int:
        """Return the rank at the end of the chain that begins with `peer`; `peer` itself if the chain is a circle."""
        now, visited, late = self.look(), {self._rank}, peer
        while late not in visited and late in now and now[late] != before.get(late):
            visited.add(late)
            late = int(now[late].split()[0])
        return peer if late in visited else late
