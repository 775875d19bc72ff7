"""One story for all who listen: events, as server-sent events, to browsers that come and go.

    live.publish("state", body)        from any thread
    async for part in live.listen()    bytes for one browser; the last state comes first

A browser that does not take them loses the oldest; it never keeps others waiting.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import AsyncIterator

STATE, LOG = "state", "log"
_WAITING, _REMEMBERED = 64, 200  # events


class _Listener:
    def __init__(self, loop: asyncio.AbstractEventLoop, first: list[bytes]) -> None:
        self.loop = loop
        self.waiting: deque[bytes] = deque(first, _REMEMBERED + _WAITING)
        self.something = asyncio.Event()
        self.something.set()


class EventStream:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listeners: set[_Listener] = set()
        self._state = b""
        self._log: deque[bytes] = deque(maxlen=_REMEMBERED)
        self._is_closed = False

    @property
    def is_heard(self) -> bool:
        return bool(self._listeners)

    def publish(self, kind: str, body: bytes) -> None:
        """`body` is JSON on one line."""
        event = b"event: " + kind.encode() + b"\ndata: " + body + b"\n\n"
        with self._lock:
            if kind == STATE:
                self._state = event
            else:
                self._log.append(event)
            for one in self._listeners:
                one.waiting.append(event)
                _wake(one)

    async def listen(self) -> AsyncIterator[bytes]:
        """Until `close`, or until nobody takes them any more."""
        with self._lock:
            first = [*self._log, self._state] if self._state else [*self._log]
            mine = _Listener(asyncio.get_running_loop(), first)
            self._listeners.add(mine)
        try:
            while not self._is_closed:
                await mine.something.wait()
                mine.something.clear()
                while mine.waiting:
                    yield mine.waiting.popleft()
        finally:
            with self._lock:
                self._listeners.discard(mine)

    def close(self) -> None:
        """All who listen are told that it is over."""
        self._is_closed = True
        with self._lock:
            for one in self._listeners:
                _wake(one)


def _wake(one: _Listener) -> None:
    if not one.loop.is_closed():
        one.loop.call_soon_threadsafe(one.something.set)
