"""The rendezvous of ranks through a store: they connect, wait for each other, and give up together.

A link comes up when both ends want it: each writes its address to the store, reads the other's, and reports that it is
ready. `try_to_connect` makes progress without waiting.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from weft.collectives.live.link import Address, Broken, Endpoint, Link
from weft.errors import SubnetError

_SPINS = 50  # polls that find nothing before a rank rests: some 100 us
_REST_S = 0.01
_PROBE_S = 0.1  # between two looks whether the other end is still there
_CHECK_S = 0.5  # between checks whether a rank without a link to this one gave up
_LOOK_S = 1e-3  # between two looks into the store
_READS = b"ready, and reads"  # the memory of the other end, where it is
_HEAR_S = 5.0  # for what was certainly said


class Store(Protocol):
    """A key-value store for the addresses of ranks: PyTorch's, or `store.JobStore`."""

    def set(self, key: str, value: bytes) -> None: ...

    def get(self, key: str, timeout_s: float) -> bytes:
        """Wait for a value, with 0 only look. Raise TimeoutError if there is none."""
        ...


class PeerAborted(SubnetError):
    """An error of another rank, with its reason."""


class Rendezvous:
    """The rendezvous of `rank` with the others of `size`; `name` is unique in the store."""

    def __init__(self, end: Endpoint, store: Store, name: str, rank: int, size: int, timeout_s: float) -> None:
        self.end, self.rank, self.size, self.timeout_s = end, rank, size, timeout_s
        self._store, self._name = store, name
        self._waits = Waits(self._tell, self._hear, rank, size)
        self._links: dict[tuple[str, int], Link] = {}
        self._unready: dict[Link, float] = {}  # links whose other end may not be ready: when to check again
        self.failed: SubnetError | None = None
        self.on_idle: Callable[[], bool] = lambda: False  # something else that can be done while waiting
        self.on_long: Callable[[int], None] = lambda rank: None  # a look at one that is waited for

    # -- links --------------------------------------------------------------------------------------------------------

    def link(self, peer: int, use: str) -> Link:
        """Return the link to a rank for one use; it may not be up yet."""
        if (existing := self._links.get((use, peer))) is not None:
            return existing
        link = self._links[use, peer] = self.end.link(peer, use)
        self._unready[link] = 0.0
        self._tell(f"{use}/{self.rank}/{peer}", link.address.encode())
        return link

    def is_up(self, link: Link) -> bool:
        """Connect a link if the other end is ready; return whether it is up."""
        look_s, now_s = self._unready.get(link), time.monotonic()
        if look_s is None:
            return True
        if now_s < look_s:
            return False
        self._unready[link] = now_s + _LOOK_S
        return self._bring_up(link, 0.0)

    def bring_up(self, link: Link, deadline_s: float) -> None:
        end_s, before = deadline_s, None
        while link in self._unready and not self._bring_up(link, min(_CHECK_S, end_s - time.monotonic())):
            self._check(link)
            with suppress(TimeoutError):
                self._hear_why(0.0)
            self._waits.say(link.rank)
            self.on_long(link.rank)
            now_s = time.monotonic()
            if before is None and now_s > deadline_s:
                end_s, before = now_s + SETTLE_S, self._waits.look()
            elif before is not None and now_s > end_s:
                raise self._late(link, before, f"it did not come within the timeout of {self.timeout_s:g} s")

    def _late(self, link: Link, before: dict[int, bytes], reason: str) -> Broken:
        """Return the error that names the rank which is late: the other end of a link may only wait for it too."""
        late = self._waits.late(link.rank, before)
        if late == link.rank:
            return Broken(link.who, reason)
        return Broken(f"rank {late}", f"{reason}; {link.who}, which this rank waits for, waits for it too")

    def _bring_up(self, link: Link, timeout_s: float) -> bool:
        forward, back = f"{link.use}/{link.rank}/{self.rank}", f"{link.use}/{self.rank}/{link.rank}"
        try:
            if not link.is_connected:
                link.connect(Address.decode(self._hear(forward, timeout_s)))
                self._tell(f"ready/{back}", _READS if link.process else b"ready")
            link.is_read = self._hear(f"ready/{forward}", timeout_s) == _READS
        except TimeoutError:
            return False
        del self._unready[link]
        return True

    def _tell(self, key: str, value: bytes) -> None:
        self._store.set(f"{self._name}/{key}", value)

    def _hear(self, key: str, timeout_s: float) -> bytes:
        return self._store.get(f"{self._name}/{key}", max(0.0, timeout_s))

    # -- waiting ------------------------------------------------------------------------------------------------------

    def wait(
        self,
        link: Link | None,
        is_ready: Callable[[], bool],
        deadline_s: float,
        words: str,
        timeout_s: float | None = None,
    ) -> None:
        """Wait for a condition of a link, or of any; errors show `words` and the timeout."""
        idle, probed_s, looked_s = 0, 0.0, 0.0
        end_s, before = deadline_s, None
        while not is_ready():
            self._check(link, words)
            if self.end.poll() or self.on_idle():
                idle = 0
                continue
            idle += 1
            if idle < _SPINS:
                os.sched_yield()
                time.sleep(0)  # Python's lock, which that does not let go
                continue
            self.end.rest(_REST_S)
            now_s = time.monotonic()
            if now_s > end_s:
                why = link.why_lost() if link is not None else ""
                reason = f"nothing within {timeout_s or self.timeout_s:g} s{why}, in {words}"
                if link is None or (timeout_s is not None and timeout_s < self.timeout_s):
                    raise Broken(link.who if link is not None else "any rank", reason)
                if before is not None:
                    raise self._late(link, before, reason)
                end_s, before = now_s + SETTLE_S, self._waits.look()
            if now_s > probed_s + _PROBE_S:
                probed_s = now_s
                for other in self._links.values():
                    if other is link or other.completed < other.posted:
                        other.probe()
            looked_s = looked_s or now_s
            if link is not None and now_s > looked_s + _CHECK_S:
                looked_s = now_s
                self._waits.say(link.rank)
                self.on_long(link.rank)

    def look(self) -> None:
        """Poll all links once."""
        if self.failed is not None:
            raise self.failed
        self._check(None)
        while self.end.poll():
            pass
        self.on_idle()

    def _check(self, link: Link | None, words: str = "") -> None:
        for other in self._links.values():
            if other.broken is not None and (other is link or other.completed < other.posted):
                raise Broken(other.who, f"{other.broken.reason}, in {words}" if words else other.broken.reason)
        self._check_others(words)

    def check_read(self, words: str) -> None:
        """Check that no rank gave up while memory was read in place, since it may have changed then."""
        while self.end.poll():
            pass
        self._check_others(words)

    def _check_others(self, words: str) -> None:
        gave_up = next((link for link in self._links.values() if link.aborted), None)
        if gave_up is not None:
            with suppress(TimeoutError):  # it could not say
                self._hear_why(_HEAR_S, words)
            raise self._aborted(f"{gave_up.who} gave up without a reason", words)

    def _hear_why(self, timeout_s: float, words: str = "") -> None:
        raise self._aborted(self._hear("gave up", timeout_s).decode(), words)

    def _aborted(self, reason: str, words: str) -> PeerAborted:
        return PeerAborted(f"{reason} (this is rank {self.rank}{f', in {words}' if words else ''})")

    # -- the end ------------------------------------------------------------------------------------------------------

    def give_up(self, error: SubnetError) -> None:
        """Abort the group for good, since its state is undefined, and notify the others."""
        self.failed = error
        if not isinstance(error, PeerAborted):
            with suppress(OSError, RuntimeError, SubnetError):  # without a store they hear that much from links
                self._tell("gave up", f"rank {self.rank} gave up: {error}".encode())
        for link in self._links.values():
            link.abort()

    def close(self) -> None:
        for link in self._links.values():
            self.end.forget(link)
        self._links.clear()


# Find the rank that delays the others at a timeout: each writes to the store for which rank it waits.
#
#     rank 3 waits for 2, which waits for 1, which waits for none: 1 is late
#
# A rank that hangs writes nothing more. So waiting ranks write repeatedly, with a growing number, and readers compare
# two reads.

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
