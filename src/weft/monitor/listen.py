"""An HTTP server with the `/metrics` of a monitor, for Prometheus.

with Listener("127.0.0.1:9315", lambda: render(watch.latest, now_s=time.monotonic())) as listener:
    print(listener.url)
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self

from weft.errors import ConfigError
from weft.monitor.exporter import CONTENT_TYPE

_IDLE_S = 15  # after which an idle connection is closed


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = _IDLE_S
    metrics: Callable[[], bytes]

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path == "/metrics":
            self._answer(200, CONTENT_TYPE, self.metrics())
        elif path == "/":
            self._answer(200, "text/plain; charset=utf-8", b"weft monitor: the counters are at /metrics\n")
        else:
            self._answer(404, "text/plain; charset=utf-8", b"not found; the metrics are at /metrics\n")

    do_HEAD = do_GET  # noqa: N815

    def _answer(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *words: object) -> None:  # noqa: A002
        """Suppress per-request logging."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore clients that disconnect early."""


class Listener:
    """An HTTP listener: it binds when created, and serves while used as a context manager."""

    def __init__(self, where: str, metrics: Callable[[], bytes]) -> None:
        host, port = parse_address(where)
        handler = type("Handler", (_Handler,), {"metrics": staticmethod(metrics)})
        kind = type("Server", (_Server,), {"address_family": socket.AF_INET6 if ":" in host else socket.AF_INET})
        try:
            self._server = kind((host, port), handler)
        except OSError as error:
            raise ConfigError(
                f"cannot listen at {where}: {error.strerror}; give another address with --listen"
            ) from None
        address = f"[{host}]" if ":" in host else host
        self.url = f"http://{address}:{self._server.server_address[1]}/metrics"
        self._thread = threading.Thread(target=self._server.serve_forever, name="weft metrics", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()


def parse_address(text: str) -> tuple[str, int]:
    """Parse `127.0.0.1:9315` or `[::1]:9315`; port 0 selects a free port."""
    host, colon, port = text.rpartition(":")
    if not (colon and host and port.isascii() and port.isdecimal() and int(port) < 1 << 16):
        raise ConfigError(
            f"{text!r} is not an address; give --listen an address and a port, 127.0.0.1:9315 or [::1]:9315"
        )
    return host.removeprefix("[").removesuffix("]"), int(port)
