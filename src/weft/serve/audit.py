"""The audit log: lines of bounded size, repeated refusals as one line with a count, and a hash chain.

Changes are one chain and refusals another, since both are pruned from their oldest end, but at different times. The
hash of a line covers the line and the hash of the line before it in its chain:

    base -> line 1 -> line 2 -> ... -> head         base and head are in the table `chains`

A line that is changed, added or removed later breaks the chain. Someone with write access to the database can write a
new chain: so store the heads elsewhere (`weft serve audit check` prints them), and compare.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections import Counter, deque
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

DONE = "done"  # the result of a change that was not refused
CHANGES, REFUSALS = "changes", "refusals"  # chains
FIRST = "0" * 64  # the base of a chain from which nothing was pruned
BODY_CHARACTERS = 2000  # most characters of a request's body in a line
_ACTOR, _WHAT, _RESULT = 100, 300 + BODY_CHARACTERS, 500  # characters of a line
_REFUSED = 300  # characters of a refused request
_WINDOW_S = 60.0  # equal refusals are counted for this long
_KINDS, _KINDS_EACH = 1000, 100  # most kinds of refusals in a window: of all actors, of each actor
_WAITING = 2000  # most lines waiting for the database
OTHERS = "others"  # the actor when there are too many


class AuditLine(NamedTuple):
    """A line of the audit log."""

    at_s: float  # since 1970
    actor: str
    what: str
    result: str  # "done", or why it was refused
    revision: int  # revision of the ledger after it
    times: int = 1  # number of equal refusals
    hash: str = ""  # empty: not written yet
    id: int = 0  # 0: not written yet

    @property
    def chain(self) -> str:
        return CHANGES if self.result == DONE else REFUSALS

    def linked(self, previous: str) -> AuditLine:
        """Return the line with its hash, after a line with the hash `previous`."""
        content = (previous, self.at_s, self.actor, self.what, self.result, self.revision, self.times)
        return self._replace(hash=hashlib.sha256(msgspec.json.encode(content)).hexdigest())


def new_line(actor: str, what: str, result: str, revision: int) -> AuditLine:
    most = _WHAT if result == DONE else _REFUSED
    return AuditLine(time.time(), _cut(actor, _ACTOR), _cut(what, most), _cut(result, _RESULT), revision)


def _cut(words: str, most: int) -> str:
    """Return text that any database accepts: without NULs and surrogates, cut to a length."""
    plain = words[:most].encode(errors="replace").decode().replace("\0", "\\0")
    return plain if len(words) <= most else f"{plain}... ({len(words):,} characters)"


@dataclass(slots=True)
class _Window:
    line: AuditLine  # the first one, which is written at once
    since_s: float
    more: int = 0


class Refusals:
    """The refusals to be written: the first of a kind at once, then a count every minute."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # any thread adds
        self._waiting: deque[AuditLine] = deque()
        self._windows: dict[tuple[str, str], _Window] = {}
        self._each: Counter[str] = Counter()  # windows by actor

    def add(self, actor: str, what: str, result: str, revision: int, kind: str = "") -> None:
        """Add a refusal. Refusals of an actor are counted together by `kind`, or without it by their text."""
        line = new_line(actor, what, result, revision)
        key = (line.actor, kind or f"{line.what}\n{line.result}")
        with self._lock:
            if key not in self._windows and self._each[line.actor] >= _KINDS_EACH:
                line, key = line._replace(what="more requests of other kinds"), (line.actor, OTHERS)
            if key not in self._windows and len(self._windows) >= _KINDS:
                line, key = line._replace(actor=OTHERS, what="requests of more callers"), (OTHERS, OTHERS)
            window = self._windows.get(key)
            if window is not None:
                window.more += 1
                return
            self._windows[key] = _Window(line, time.monotonic())
            self._each[key[0]] += 1
            self._waiting.append(line)

    def is_due(self, *, is_last: bool = False) -> bool:
        """Return whether there is something to write now, or at the end."""
        now_s = time.monotonic()
        with self._lock:
            if self._waiting or not self._windows:
                return bool(self._waiting)
            if is_last:
                return any(window.more for window in self._windows.values())
            return now_s - next(iter(self._windows.values())).since_s >= _WINDOW_S  # the oldest

    def take(self, *, is_last: bool = False) -> list[AuditLine]:
        """Return the lines to write: new kinds of refusals, and counts of minutes that are over, or of all."""
        now_s = time.monotonic()
        with self._lock:
            lines = [*self._waiting]
            self._waiting.clear()
            over = [key for key, window_ in self._windows.items() if is_last or now_s - window_.since_s >= _WINDOW_S]
            for key in over:
                window = self._windows.pop(key)
                self._each[key[0]] -= 1
                if window.more:
                    lines.append(window.line._replace(at_s=time.time(), times=window.more))
            self._each += Counter()  # without zeros
            return lines

    def put_back(self, lines: list[AuditLine]) -> None:
        """Return lines that could not be written to the queue; if there are too many, the newest are dropped."""
        with self._lock:
            self._waiting.extendleft(reversed(lines[: max(0, _WAITING - len(self._waiting))]))
