"""Limits of client connections: their number, idle time and slowness.

uvicorn has no timeout for incomplete requests, for clients that do not read answers, and for TLS handshakes: a few
hundred such clients would use up all connections. Here each of these has a timeout, and when all connections are in use
the oldest idle one is closed, of the address with the most idle connections.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import Counter
from functools import partial
from typing import Any, Protocol

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from weft.serve.gate import CERTIFICATE

IDLE_S = 15.0  # timeout of an idle connection, or of an incomplete request
HANDSHAKE_S = 10.0
STALLED_S = 120.0  # timeout of a client that does not read its answer
MOST = 500  # connections; half of the usual limit of file descriptors


class _PoolEntry(Protocol):
    @property
    def is_idle(self) -> bool: ...

    @property
    def address(self) -> str: ...

    def abort(self) -> None: ...


class Pool:
    """The open connections, least recently used first."""

    def __init__(self) -> None:
        self._open: dict[_PoolEntry, None] = {}

    def add(self, new: _PoolEntry) -> bool:
        """Add a connection; return False if there is no room and no idle connection to close."""
        if len(self._open) >= MOST and not self._close_idle():
            return False
        self._open[new] = None
        return True

    def touch(self, used: _PoolEntry) -> None:
        if used in self._open:
            del self._open[used]
            self._open[used] = None

    def discard(self, closed: _PoolEntry) -> None:
        self._open.pop(closed, None)

    def _close_idle(self) -> bool:
        idle = [connection for connection in self._open if connection.is_idle]
        if not idle:
            return False
        (address, _), *_ = Counter(connection.address for connection in idle).most_common(1)
        oldest = next(connection for connection in idle if connection.address == address)
        self.discard(oldest)
        oldest.abort()
        return True


class Connection(HttpToolsProtocol):
    """An HTTP connection with timeouts."""

    def __init__(self, pool: Pool, **parameters: Any) -> None:
        super().__init__(**parameters)
        self._pool = pool
        self._early = b""  # data received with the end of the handshake
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
        self._idle = self.loop.call_later(IDLE_S, self._close_if_idle)

    def _close_if_idle(self) -> None:
        if self.is_idle:
            self.transport.close()


class _Handshake(asyncio.Protocol):
    """A connection during its TLS handshake, which asyncio's own server would not count."""

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
        except OSError:  # includes TLS errors
            return
        finally:
            self._pool.discard(self)
        if encrypted is not None and not transport.is_closing():
            self._inner.connection_made(encrypted)


def _common_name(certificate: dict[str, Any] | None) -> str:
    """Return the common name of a certificate's subject; empty if it has none or several."""
    subject = (certificate or {}).get("subject", ())
    names = [value for part in subject for key, value in part if key == "commonName"]
    return names[0] if len(names) == 1 else ""


def protocol(context: ssl.SSLContext | None) -> Any:
    """Return the protocol factory for uvicorn."""
    return partial(_protocol, Pool(), context)


def _protocol(pool: Pool, context: ssl.SSLContext | None, **parameters: Any) -> asyncio.Protocol:
    parameters["_loop"] = parameters.get("_loop") or asyncio.get_running_loop()
    inner = Connection(pool, **parameters)
    return inner if context is None else _Handshake(pool, context, inner)
