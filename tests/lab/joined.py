"""Hosts that joined a lab over TCP, through a cable that a test can cut."""

from __future__ import annotations

import select
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from tests.patience import PATIENCE_S

from weft.lab.join.client import Invitation, JoinClient
from weft.lab.join.handshake import JoinRequest
from weft.lab.join.server import parse_address
from weft.lab.lab import Lab


class Cable:
    """A forwarder of connections to an address that can be cut: it then closes all and refuses new ones."""

    def __init__(self, address: str) -> None:
        self._to = parse_address(address)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._ends: dict[socket.socket, socket.socket] = {}
        self._is_whole = True
        self._wake, self._woken = socket.socketpair()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def cut(self) -> None:
        with self._lock:
            self._is_whole = False
            for end in self._ends:
                with suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)

    def mend(self) -> None:
        with self._lock:
            self._is_whole = True

    def close(self) -> None:
        self._wake.close()
        self._thread.join(PATIENCE_S)
        for item in (*self._ends, self._listener, self._woken):
            item.close()

    def _work(self) -> None:
        while True:
            ready, _, _ = select.select([self._listener, self._woken, *self._ends], [], [])
            if self._woken in ready:
                return
            for item in ready:
                if item is self._listener:
                    self._connect()
                elif item in self._ends:
                    self._forward(item)

    def _connect(self) -> None:
        result, _ = self._listener.accept()
        with self._lock:
            if not self._is_whole:
                result.close()
                return
            far = socket.create_connection(self._to, PATIENCE_S)
            self._ends |= {result: far, far: result}

    def _forward(self, one: socket.socket) -> None:
        far = self._ends[one]
        try:
            data = one.recv(1 << 16)
            far.sendall(data)
        except OSError:
            data = b""
        if not data:
            with self._lock:
                for end in (one, far):
                    del self._ends[end]
                    end.close()


def invitation(lab: Lab, host: str, address: str = "", timeout_s: float = 600.0) -> Invitation:
    assert lab.join_server is not None
    request = JoinRequest(host=host, timeout_s=timeout_s)
    return Invitation(address=address or lab.join_server.address, token=lab.join_server.token, request=request)


@contextmanager
def joined(invited: Invitation) -> Iterator[JoinClient]:
    """Join as `weft join` does, but in this process: RDMA objects here use the join by its environment."""
    client, is_over = JoinClient(invited), threading.Event()
    thread = threading.Thread(target=client.serve, args=(is_over.is_set,), daemon=True)
    thread.start()
    try:
        yield client
    finally:
        is_over.set()
        thread.join(PATIENCE_S)
        client.close()
