"""Exchange messages between the two ends of a test: one JSON object per line, over TCP.

In a lab a name that is not an IP address is a host of the lab; all its hosts are on this machine. The server sends its
host name, so that a client that calls h2 does not measure h3.
"""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import json
import os
import socket
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from weft import runtime
from weft.errors import ConfigError, SubnetError
from weft.verbs.hardware import HOST
from weft.verbs.perftest.kinds import Connection
from weft.verbs.perftest.plan import Plan

LOOPBACK = "127.0.0.1"
_LINE_BYTES = 16 << 20
_OTHER_VERSION = "the peer is another program, or another version of weft"
_T = TypeVar("_T")


def free_port() -> int:
    """Return a free TCP port of this machine."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])


def own_host() -> str:
    """Return the lab host of this process; empty outside of labs."""
    return os.environ.get(HOST, "")


@contextlib.contextmanager
def _raise_if_closed() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise SubnetError(f"connection to the peer lost: {error.strerror}") from error


class Peer:
    """A connection to the other end."""

    def __init__(self, connected: socket.socket) -> None:
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = connected
        self._received = b""

    def send(self, **facts: Any) -> None:
        self.write(json.dumps(facts).encode() + b"\n")

    def receive(self) -> dict[str, Any]:
        """Return the next message. Raise ConfigError if the peer has refused."""
        while b"\n" not in self._received:
            with _raise_if_closed():
                chunk = self._socket.recv(1 << 16)
            if not chunk:
                raise SubnetError("the peer closed the connection")
            self._received += chunk
            if len(self._received) > _LINE_BYTES:
                raise SubnetError("the peer is not a tool of weft: its first line does not end")
        line, _, self._received = self._received.partition(b"\n")
        try:
            facts = json.loads(line)
        except ValueError:
            facts = None
        if not isinstance(facts, dict):
            raise SubnetError(f"the peer is not a tool of weft: it sent {line[:60]!r}")
        if "refused" in facts:
            raise ConfigError(str(facts["refused"]))
        return facts

    def is_of_weft(self) -> bool:
        """Wait for the first byte and return whether it is that of a tool of weft."""
        with _raise_if_closed():
            return self._socket.recv(1, socket.MSG_PEEK) in (b"{", b"")

    def read(self, size_bytes: int) -> bytes:
        """Read bytes from a peer that is not a tool of weft."""
        with _raise_if_closed():
            data = self._socket.recv(size_bytes, socket.MSG_WAITALL)
        if len(data) < size_bytes:
            raise SubnetError("the peer closed the connection")
        return data

    def write(self, data: bytes) -> None:
        with _raise_if_closed():
            self._socket.sendall(data)

    def expect(self, name: str, *fields: str) -> Any:
        """Return the value `name` of the next message, which must have these fields. Raise SubnetError if not."""
        facts = self.receive()
        value = facts.get(name)
        if value is None or (fields and not (isinstance(value, dict) and all(field in value for field in fields))):
            raise SubnetError(f"{_OTHER_VERSION}: it sent {', '.join(facts) or 'nothing'}, not {name}")
        return value

    def refuse(self, why: str) -> None:
        """Send a refusal; the connection may be closed already."""
        with contextlib.suppress(SubnetError):
            self.send(refused=why)

    def has_message(self) -> bool:
        """Return whether `receive` has something to read, or the connection is closed."""
        return b"\n" in self._received or runtime.wait_ready([self._socket])

    def is_gone(self) -> bool:
        """Return whether the connection is closed and nothing is left to read."""
        if not runtime.wait_ready([self._socket]):
            return False
        try:
            return not self._socket.recv(1, socket.MSG_PEEK)
        except OSError:
            return True

    def close(self) -> None:
        self._socket.close()


def build(kind: Callable[..., _T], facts: Any) -> _T:
    """Create an object from the fields that the peer sent."""
    try:
        return kind(**facts)
    except TypeError as error:
        raise SubnetError(f"{_OTHER_VERSION}: {error}") from error


class Listener:
    """A listening socket; `accept` takes one client and closes it."""

    def __init__(self, address: str, port: int) -> None:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self._socket = socket.socket(family, socket.SOCK_STREAM)
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._socket.bind((address, port))
            self._socket.listen(1)
        except OSError as error:
            self._socket.close()
            why = f"cannot listen on port {port} of {address}: {error.strerror or error}"
            if error.errno == errno.EADDRINUSE:
                why = f"port {port} of {address} is in use: give both ends another one with -p"
            raise ConfigError(why) from error

    def accept(self) -> Peer:
        with contextlib.closing(self._socket):
            return Peer(self._socket.accept()[0])


def call(host: str, port: int) -> Peer:
    """Connect to the server at a host."""
    address = host if _is_address(host) or not own_host() else LOOPBACK
    try:
        return Peer(socket.create_connection((address, port), timeout=None))
    except OSError as error:
        raise ConfigError(
            f"cannot reach {host} at port {port}: {error.strerror or error}; start the server first, without a host. "
            "A server on another machine (weft join) needs --bind_source_ip ADDRESS, its client that address as host"
        ) from error


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return host == "localhost"
    return True


def check_host(called: str, actual: str) -> None:
    """Raise ConfigError if the server runs on another host of the lab than the one that was called."""
    if not actual or _is_address(called) or called == actual:
        return
    if called.startswith(f"{actual}/") or actual.startswith(f"{called}/"):
        return
    raise ConfigError(
        f"the server at this port runs on {actual}, not on {called}: give the server on {called} another port with -p"
    )


_LOST_AFTER_S = 5.0
_QUIET_S = 0.2  # after the peer has reported that it sent all


def is_over(peer: Peer, plan: Plan, quiet_s: float) -> bool:
    """Return whether missing messages are lost. Reliable connections report that themselves."""
    if peer.is_gone():
        raise SubnetError("the peer closed the connection")
    if plan.connection is Connection.RC:
        return False
    return quiet_s > _LOST_AFTER_S or (quiet_s > _QUIET_S and peer.has_message())
