"""The service at its door: a socket, TLS, and uvicorn in a thread of its own.

with Server(create_app(settings, ledger), settings) as server:
    print(server.url)
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from typing import Any

import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from weft.errors import ConfigError
from weft.serve.settings import Settings

_IDLE_S = 15  # a connection that asks for nothing is closed
_MOST_CONNECTIONS = 1000
_BACKLOG = 256


class _Impatient(HttpToolsProtocol):
    """uvicorn waits for ever for a request that has begun; one that comes drop by drop would keep its place so."""

    _hurry: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._wait()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self._hurry is not None:
            self._hurry.cancel()

    def _wait(self) -> None:
        if self._hurry is not None:
            self._hurry.cancel()
        self._hurry = self.loop.call_later(_IDLE_S, self._give_up)

    def _give_up(self) -> None:
        if self.cycle is None or self.cycle.response_complete:
            self.transport.close()


class Server:
    """Listens when it is made; serves between `start` and `close`."""

    def __init__(self, app: FastAPI, settings: Settings) -> None:
        self._socket = _listen(settings)
        host, port = self._socket.getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        self.url = f"{'https' if settings.tls_cert else 'http'}://{shown}:{port}"
        try:
            self._server = uvicorn.Server(_config(app, settings))
        except BaseException:
            self._socket.close()
            raise
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [self._socket]}, name="uvicorn")

    def start(self) -> Server:
        self._thread.start()
        return self

    def __enter__(self) -> Server:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Requests that are being served are finished first."""
        self._server.should_exit = True
        self._thread.join()
        self._socket.close()


def _listen(settings: Settings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    # asyncio tells a connection not to wait for more to send only if this says that it is TCP's.
    made = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((settings.host, settings.port))
        made.listen(_BACKLOG)
    except OSError as error:
        made.close()
        where = f"{settings.host}:{settings.port}"
        raise ConfigError(f"cannot listen at {where}: {error.strerror or error}; choose another --port") from None
    return made


def _config(app: FastAPI, settings: Settings) -> uvicorn.Config:
    tls: dict[str, Any] = {}
    if settings.tls_cert is not None:
        tls = {"ssl_certfile": settings.tls_cert, "ssl_keyfile": settings.tls_key}
    if settings.tls_client_ca is not None:
        tls |= {"ssl_ca_certs": str(settings.tls_client_ca), "ssl_cert_reqs": ssl.CERT_REQUIRED}
    made = uvicorn.Config(
        app,
        http=_Impatient,
        ws="none",
        log_level="warning",
        access_log=False,  # the audit log has what matters
        server_header=False,
        proxy_headers=False,  # an address that a caller writes itself proves nothing
        limit_concurrency=_MOST_CONNECTIONS,
        timeout_keep_alive=_IDLE_S,
        timeout_graceful_shutdown=5,
        **tls,
    )
    try:
        made.load()  # reads certificates: what is wrong with them is said now
    except OSError as error:
        files = ", ".join(str(one) for one in (settings.tls_cert, settings.tls_key, settings.tls_client_ca) if one)
        raise ConfigError(f"TLS cannot be had from {files}: {error}") from None
    return made
