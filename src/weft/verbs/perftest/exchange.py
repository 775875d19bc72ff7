"""What two ends of a test tell each other: one JSON object a line, over TCP.

A name that is no address of IP means, inside a lab, one of its hosts: all of them are on this machine. The other end
says which one it is, so that who calls h2 does not measure h3.
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

LOOPBACK = "127.0.0.1"
_LINE_BYTES = 16 << 20
_OTHER_VERSION = "the other end is not this tool of weft, or of another version"
_Made = TypeVar("_Made")


def free_port() -> int:
    """Of TCP, on this machine."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])


def own_host() -> str:
    """The host of the lab that this process runs as; empty outside."""
    return os.environ.get(HOST, "")


@contextlib.contextmanager
def _gone_if_it_fails() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise SubnetError(f"the other end is gone: {error.strerror}") from error


class Peer:
    """The other end."""

    def __init__(self, connected: socket.socket) -> None:
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = connected
        self._received = b""

    def send(self, **facts: Any) -> None:
        self.write(json.dumps(facts).encode() + b"\n")

    def receive(self) -> dict[str, Any]:
        """What it says next. Its refusals are raised here as its own."""
        while b"\n" not in self._received:
            with _gone_if_it_fails():
                chunk = self._socket.recv(1 << 16)
            if not chunk:
                raise SubnetError("the other end is gone: it closed the connection")
            self._received += chunk
            if len(self._received) > _LINE_BYTES:
                raise SubnetError("what is at the other end is not a tool of weft: its first line does not end")
        line, _, self._received = self._received.partition(b"\n")
        try:
            facts = json.loads(line)
        except ValueError:
            facts = None
        if not isinstance(facts, dict):
            raise SubnetError(f"what is at the other end is not a tool of weft: it says {line[:60]!r}")
        if "refused" in facts:
            raise ConfigError(str(facts["refused"]))
        return facts

    def is_of_weft(self) -> bool:
        """Whether it begins as tools of weft do; waits until it says something."""
        with _gone_if_it_fails():
            return self._socket.recv(1, socket.MSG_PEEK) in (b"{", b"")

    def read(self, size_bytes: int) -> bytes:
        """Of one that is not of weft: so many bytes."""
        with _gone_if_it_fails():
            data = self._socket.recv(size_bytes, socket.MSG_WAITALL)
        if len(data) < size_bytes:
            raise SubnetError("the other end is gone: it closed the connection")
        return data

    def write(self, data: bytes) -> None:
        with _gone_if_it_fails():
            self._socket.sendall(data)

    def told(self, what: str, *names: str) -> Any:
        """What it says next, which must be that, with those names in it."""
        facts = self.receive()
        said = facts.get(what)
        if said is None or (names and not (isinstance(said, dict) and all(name in said for name in names))):
            raise SubnetError(f"{_OTHER_VERSION}: it says {', '.join(facts) or 'nothing'}, not {what}")
        return said

    def refuse(self, why: str) -> None:
        """Say so, to who may be gone."""
        with contextlib.suppress(SubnetError):
            self.send(refused=why)

    def says_something(self) -> bool:
        """Or has gone, which `receive` tells."""
        return b"\n" in self._received or runtime.wait_ready([self._socket])

    def is_gone(self) -> bool:
        """Whether the connection is closed and nothing is left to read."""
        if not runtime.wait_ready([self._socket]):
            return False
        try:
            return not self._socket.recv(1, socket.MSG_PEEK)
        except OSError:
            return True

    def close(self) -> None:
        self._socket.close()


def build(kind: Callable[..., _Made], facts: Any) -> _Made:
    """An object from its fields, as the other end sent them."""
    try:
        return kind(**facts)
    except TypeError as error:
        raise SubnetError(f"{_OTHER_VERSION}: {error}") from error


class Listener:
    """A server's place; `accept` takes one client and closes it."""

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
                why = f"port {port} of {address} is in use, by another server perhaps: give both ends another with -p"
            raise ConfigError(why) from error

    def accept(self) -> Peer:
        with contextlib.closing(self._socket):
            return Peer(self._socket.accept()[0])


def call(host: str, port: int) -> Peer:
    """Reach the server at a host."""
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


def check_host(wanted: str, found: str) -> None:
    """Refuse a server that is another host of the lab than the one that was called."""
    if not found or _is_address(wanted) or wanted == found:
        return
    if wanted.startswith(f"{found}/") or found.startswith(f"{wanted}/"):
        return
    raise ConfigError(f"the server at this port runs as {found}, not as {wanted}: give {wanted}'s another with -p")
