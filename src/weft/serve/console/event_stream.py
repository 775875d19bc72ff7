"""A stream of server-sent events to all connected browsers.

    stream.publish("state", body)        from any thread
    async for part in stream.listen()    bytes for one browser; the latest state comes first

A browser that is too slow loses the oldest events and does not delay others.
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
        self.has_events = asyncio.Event()
        self.has_events.set()


class EventStream:
    """A stream of events with many listeners."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listeners: set[_Listener] = set()
        self._state = b""
        self._log: deque[bytes] = deque(maxlen=_REMEMBERED)
        self._is_closed = False

    @property
    def has_listeners(self) -> bool:
        return bool(self._listeners)

    def publish(self, kind: str, body: bytes) -> None:
        """Send an event to all listeners. `body`: JSON on one line."""
        event = b"event: " + kind.encode() + b"\ndata: " + body + b"\n\n"
        with self._lock:
            if kind == STATE:
                self._state = event
            else:
                self._log.append(event)
            for listener in self._listeners:
                listener.waiting.append(event)
                _wake(listener)

    async def listen(self) -> AsyncIterator[bytes]:
        """Yield events for one browser, until `close` or until it disconnects."""
        with self._lock:
            first = [*self._log, self._state] if self._state else [*self._log]
            listener = _Listener(asyncio.get_running_loop(), first)
            self._listeners.add(listener)
        try:
            while not self._is_closed:
                await listener.has_events.wait()
                listener.has_events.clear()
                while listener.waiting:
                    yield listener.waiting.popleft()
        finally:
            with self._lock:
                self._listeners.discard(listener)

    def close(self) -> None:
        """End the streams of all listeners."""
        self._is_closed = True
        with self._lock:
            for listener in self._listeners:
                _wake(listener)


def _wake(listener: _Listener) -> None:
    if not listener.loop.is_closed():
        listener.loop.call_soon_threadsafe(listener.has_events.set)
