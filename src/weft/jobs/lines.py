"""Output of ranks, written in whole lines with the rank as prefix, so that lines of ranks do not mix."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import BinaryIO

_LONGEST_BYTES = 1 << 16  # longer lines are written in parts
_REMEMBERED = 20
Mark = Callable[[bytes], bytes]  # adds the prefix to a line


def prefixed(prefix: str) -> Mark:
    head = prefix.encode()
    return lambda line: head + line


class Lines:
    """The output lines of one stream of a rank; `last` has the newest ones."""

    def __init__(self, out: BinaryIO, mark: Mark) -> None:
        self._out, self._mark = out, mark
        self._rest = b""
        self.last: deque[str] = deque(maxlen=_REMEMBERED)

    def take(self, data: bytes) -> None:
        *whole, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > _LONGEST_BYTES:
            whole, self._rest = [*whole, self._rest], b""
        self._put(whole)

    def close(self) -> None:
        """Write the last line, which may lack its newline."""
        if self._rest:
            self._put([self._rest])
        self._rest = b""

    def _put(self, lines: list[bytes]) -> None:
        if lines:
            self.last.extend(line.decode(errors="replace").rstrip("\r") for line in lines)
            self._out.write(b"".join(self._mark(line) + b"\n" for line in lines))
            self._out.flush()
