"""Who listens for a service, of all processes of this machine: one for each address.

A claim is a socket with a name of Linux's abstract kind, so it ends with its process. Elsewhere only a process knows.
"""

from __future__ import annotations

import socket
import sys

from weft.verbs.carriers.siblings import space


class Claim:
    """A service of a GID, for one process; `OSError` if another has it."""

    def __init__(self, gid: int, service: int) -> None:
        self._socket: socket.socket | None = None
        if sys.platform == "linux":
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            try:
                self._socket.bind(_name(gid, service))
            except OSError:
                self._socket.close()
                raise

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()


def is_claimed(gid: int, service: int) -> bool:
    if sys.platform != "linux":
        return False
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as question:
        try:
            question.connect(_name(gid, service))
        except OSError:
            return False
        return True


def _name(gid: int, service: int) -> str:
    return f"\0weft-service-{space()}-{gid:x}-{service:x}"
