"""Parallel groups of the same ranks, one for each kind of memory; a call uses one of them.

Ranks with a tensor on a GPU and ranks without are in different groups, and receive nothing from each other. So a rank
that waits long writes its call to the store, and reads the calls of the ranks that it waits for.
"""

from __future__ import annotations

from contextlib import suppress

from weft.collectives.live.rendezvous import Store
from weft.errors import SubnetError


class Calls:
    """The calls of one rank in all of these groups; `name` differs from those of the groups."""

    def __init__(self, store: Store, name: str, rank: int) -> None:
        self._store, self._name, self._rank = store, name, rank
        self._count = 0
        self._words = ""  # the present call; empty: none
        self._is_left = False

    def begin(self, words: str) -> None:
        self._count += 1
        self._words, self._is_left = words, False

    def end(self) -> None:
        self._words = ""

    def compare(self, peer: int) -> None:
        """Raise an error if a peer waits in the same call with another kind of memory; ignore a closed store."""
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
