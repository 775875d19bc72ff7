"""A group of ranks that run collectives.

    group.run(program, memory, "all_reduce of 1,024 float32")

carries out a checked program: this rank's steps of it (`plan`), in order, over a link to each rank that it sends to or
hears from. Ranks must call the same things in the same order. Every fragment carries a number made of the words that
describe the call and of how many came before it, so that a rank that does something else is found out by the first
that hears from it; it gives up, and tells all that it has links to.
"""

from __future__ import annotations

import time
from functools import lru_cache

from weft.collectives.live.beside import Calls
from weft.collectives.live.execution import Execution, Memory
from weft.collectives.live.link import Endpoint
from weft.collectives.live.message_queue import MessageQueue
from weft.collectives.live.plan import Step, steps
from weft.collectives.live.record import record_of
from weft.collectives.live.rendezvous import Rendezvous, Store
from weft.collectives.schedules.program import Program
from weft.errors import SubnetError


class Group:
    """A group of `size` ranks; `name` is unique in the store. All ranks must create it.

    calls: this rank's calls in this group and in those for other memory.
    """

    def __init__(
        self,
        end: Endpoint,
        store: Store,
        name: str,
        rank: int,
        size: int,
        timeout_s: float = 300,
        calls: Calls | None = None,
    ) -> None:
        self.rank, self.size, self.name = rank, size, name
        self._rendezvous = Rendezvous(end, store, name, rank, size, timeout_s)
        self.record = record_of(name, rank, size)
        self.message_queue = MessageQueue(self._rendezvous, self.record)
        self._count = 0
        self._calls = calls
        if calls is not None:
            self._rendezvous.on_long = calls.compare

    def run(self, program: Program, memory: Memory, words: str) -> None:
        """Run a program. All ranks must pass the same `words`, which errors show."""
        self._count += 1
        rendezvous, call = self._rendezvous, f"{words}, call {self._count} of its group"
        if rendezvous.failed is not None:
            raise rendezvous.failed
        begin_s = self.record.begin() if self.record is not None else 0.0
        sizes = memory.size_bytes, memory.item_bytes
        plan = _steps(program, self.rank, *sizes, rendezvous.end.fragment_bytes)
        if self._calls is not None:
            self._calls.begin(words)
        try:
            Execution(rendezvous, memory, call, time.monotonic() + rendezvous.timeout_s).run(plan)
        except BaseException as error:  # also one of the memory's, or Ctrl-C: it cannot go on from here
            reason = (
                error if isinstance(error, SubnetError) else SubnetError(f"{type(error).__name__} in {call}: {error}")
            )
            rendezvous.give_up(reason)
            raise
        finally:
            if self._calls is not None:
                self._calls.end()
        if self.record is not None:
            self.record.collective(begin_s, program.collective, *sizes, program.root, words)

    def close(self) -> None:
        self._rendezvous.close()


@lru_cache(maxsize=256)
def _steps(program: Program, rank: int, size_bytes: int, item_bytes: int, fragment_bytes: int) -> list[Step]:
    return steps(program, rank, size_bytes, item_bytes, fragment_bytes)
