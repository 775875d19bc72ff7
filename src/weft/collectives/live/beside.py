"""Groups of the same ranks beside each other, one for each kind of memory, of which a call takes one.

A rank whose tensor is on a GPU and one whose tensor is not are in two groups, and never hear of each other there. So
who waits long leaves word of its call in the store, and looks what those have left that it waits for.
"""

from __future__ import annotations

from contextlib import suppress

from weft.collectives.live.meeting import Store
from weft.errors import SubnetError


class Calls:
    """Of one rank, in all of these groups; `name` is none that a group has."""

    def __init__(self, store: Store, name: str, rank: int) -> None:
        self._store, self._name, self._rank = store, name, rank
        self._count = 0
        self._words = ""  # of the call that it is in; empty: in none
        self._is_left = False

    def begin(self, words: str) -> None:
        self._count += 1
        self._words, self._is_left = words, False

    def end(self) -> None:
        self._words = ""

    def compare(self, peer: int) -> None:
        """If that one waits too, in the same call, is it the same to both? A store that is gone knows nothing."""
        if not self._words:
            return
        far = b""
        with suppress(TimeoutError, OSError, RuntimeError, SubnetError):
            if not self._is_left:
                self._store.set(f"{self._name}/{self._rank}", f"{self._count} {self._words}".encode())
                self._is_left = True
            far = self._store.get(f"{self._name}/{peer}", 0.0)
        count, _, words = far.decode().partition(" ")
        if count == str(self._count) and words != self._words:
            raise SubnetError(
                f"rank {self._rank} is in {self._words}, and rank {peer} is in {words}: all ranks must call the same, "
                "with tensors of the same kind of memory"
            )
