"""Connections of clients: their number, their idleness and their slowness are bounded.

uvicorn waits for ever for a request that has begun, for a client that takes no answer, and for a TLS handshake: a few
hundred such clients would take all places. Here each has a time, and where all places are taken the oldest idle
connection makes place, of the address that has most of them.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import Counter
from functools import partial
from typing import Any, Protocol

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from weft.serve.gate import CERTIFICATE

IDLE_S = 15.0  # until a connection that asks for nothing is closed, or one whose request does not come
HANDSHAKE_S = 10.0
STALLED_S = 120.0  # until a connection whose client does not take an answer is closed
MOST = 500  # connections; half of the descriptors that a process usually has


class _Place(Protocol):
    @property
    def is_idle(self) -> bool: ...

    @property
    def address(self) -> str: ...

    def abort(self) -> None: ...


class Pool:
    """Connections that are open, the one that was used last at the end."""

    def __init__(self) -> None:
        self._open: dict[_Place, None] = {}

    def add(self, new: _Place) -> bool:
        """Take a connection in, if there is a place or one can be made."""
        if len(self._open) >= MOST and not self._make_place():
            return False
        self._open[new] = None
        return True

    def touch(self, used: _Place) -> None:
        if used in self._open:
            del self._open[used]
            self._open[used] = None

    def discard(self, gone: _Place) -> None:
        self._open.pop(gone, None)

    def _make_place(self) -> bool:
        idle = [one for one in self._open if one.is_idle]
        if not idle:
            return False
        (crowd, _), *_ = Counter(one.address for one in idle).most_common(1)
        oldest = next(one for one in idle if one.address == crowd)
        self.discard(oldest)
        oldest.abort()
        return True


class Connection(HttpToolsProtocol):
    def __init__(self, pool: Pool, **words: Any) -> None:
        super().__init__(**words)
        self._pool = pool
        self._early = b""  # what came with the end of the handshake
        self._idle: asyncio.TimerHandle | None = None
        self._stalled: asyncio.TimerHandle | None = None
        self._certificate = ""

    @property
    def is_idle(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    @property
    def address(self) -> str:
        return self.client[0] if self.client else ""

    def abort(self) -> None:
        self.transport.abort()

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._certificate = _common_name(transport.get_extra_info("peercert"))
        if not self._pool.add(self):
            self.abort()
            return
        self._wait()
        if self._early:
            super().data_received(self._early)

    def data_received(self, data: bytes) -> None:
        if self.transport is None:
            self._early += data
        else:
            super().data_received(data)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope["state"][CERTIFICATE] = self._certificate

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._pool.touch(self)
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        if self.transport is None:
            return
        super().connection_lost(exc)
        self._pool.discard(self)
        for timer in (self._idle, self._stalled):
            if timer is not None:
                timer.cancel()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stalled = self.loop.call_later(STALLED_S, self.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._stalled is not None:
            self._stalled.cancel()

    def _wait(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
        self._idle = self.loop.call_later(IDLE_S, self._give_up)

    def _give_up(self) -> None:
        if self.is_idle:
            self.transport.close()


class _Handshake(asyncio.Protocol):
    """A connection that does not speak TLS yet. asyncio's own server has no place to count it."""

    is_idle = True

    def __init__(self, pool: Pool, context: ssl.SSLContext, inner: Connection) -> None:
        self._pool, self._context, self._inner = pool, context, inner
        self.address = ""

    def abort(self) -> None:
        self._transport.abort()

    def connection_made(self, transport: Any) -> None:
        self._transport: asyncio.Transport = transport
        self.address = (transport.get_extra_info("peername") or ("",))[0]
        if not self._pool.add(self):
            self.abort()
            return
        self._task = self._inner.loop.create_task(self._start(transport))

    async def _start(self, transport: asyncio.Transport) -> None:
        try:
            encrypted = await self._inner.loop.start_tls(
                transport, self._inner, self._context, server_side=True, ssl_handshake_timeout=HANDSHAKE_S
            )
        except OSError:  # also of TLS
            return
        finally:
            self._pool.discard(self)
        if encrypted is not None and not transport.is_closing():
            self._inner.connection_made(encrypted)


def _common_name(certificate: dict[str, Any] | None) -> str:
    """Return the one common name of a certificate's subject; empty if it has none, or several."""
    subject = (certificate or {}).get("subject", ())
    names = [value for part in subject for key, value in part if key == "commonName"]
    return names[0] if len(names) == 1 else ""


def protocol(context: ssl.SSLContext | None) -> Any:
    """Return what uvicorn makes for each connection."""
    return partial(_protocol, Pool(), context)


def _protocol(pool: Pool, context: ssl.SSLContext | None, **words: Any) -> asyncio.Protocol:
    words["_loop"] = words.get("_loop") or asyncio.get_running_loop()
    inner = Connection(pool, **words)
    return inner if context is None else _Handshake(pool, context, inner)
