"""The HTTP server: a socket, TLS, and uvicorn in its own thread.

with Server(create_app(settings, ledger), settings) as server:
    print(server.url)
"""

from __future__ import annotations

import socket
import ssl
import threading

import uvicorn
from starlette.types import ASGIApp

from weft.errors import ConfigError
from weft.serve.connections import IDLE_S, protocol
from weft.serve.settings import Settings

_BACKLOG = 64  # asyncio accepts this many at once, before the pool can close an idle connection for a new one


class Server:
    """An HTTP server. It listens from its creation, and serves between `start` and `close`."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._socket = _listen(settings)
        host, port = self._socket.getsockname()[:2]
        url_host = f"[{host}]" if ":" in host else host
        self.url = f"{'https' if settings.tls_cert else 'http'}://{url_host}:{port}"
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
        """Finish running requests, then stop."""
        self._server.should_exit = True
        self._thread.join()
        self._socket.close()


def _listen(settings: Settings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    # asyncio sets TCP_NODELAY only if the protocol is given explicitly.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((settings.host, settings.port))
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        where = f"{settings.host}:{settings.port}"
        raise ConfigError(f"cannot listen at {where}: {error.strerror or error}; choose another --port") from None
    return listener


def _config(app: ASGIApp, settings: Settings) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=protocol(_tls(settings)),
        ws="none",
        lifespan="off",
        log_level="warning",
        access_log=False,  # the audit log has changes and refusals
        server_header=False,
        backlog=_BACKLOG,
        proxy_headers=False,  # the gate knows which proxies are trusted
        timeout_keep_alive=int(IDLE_S),
        timeout_graceful_shutdown=5,
    )


def _tls(settings: Settings) -> ssl.SSLContext | None:
    if settings.tls_cert is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(settings.tls_cert, settings.tls_key)
        if settings.tls_client_ca is not None:
            context.load_verify_locations(settings.tls_client_ca)
            context.verify_mode = ssl.CERT_REQUIRED
    except OSError as error:
        files = ", ".join(str(path) for path in (settings.tls_cert, settings.tls_key, settings.tls_client_ca) if path)
        raise ConfigError(f"cannot read the certificates in {files}: {error}") from None
    return context
