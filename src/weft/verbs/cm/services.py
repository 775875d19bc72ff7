"""Who has a port and who listens for a service, of all processes of this user and this network: one for each address.

A claim is a socket, so it ends with its process. Elsewhere than on Linux only a process knows.
"""

from __future__ import annotations

import hashlib
import os
import sys
from enum import StrEnum
from pathlib import Path

from weft import runtime
from weft.verbs.carriers.places import place


class Kind(StrEnum):
    SERVICE = "service"  # somebody listens
    PORT = "port"  # somebody is bound to it, and may listen later
    PROCESS = "process"  # no service: a process itself, by which others see that it lives


class Claim:
    """A service of a GID, for one process; `OSError` if another has it."""

    def __init__(self, gid: int, service: int, kind: Kind = Kind.SERVICE) -> None:
        self._held = runtime.Inbox(_path(gid, service, kind)) if sys.platform == "linux" else None

    def close(self) -> None:
        if self._held is not None:
            self._held.close()


def is_claimed(gid: int, service: int, kind: Kind = Kind.SERVICE) -> bool:
    return sys.platform == "linux" and runtime.is_alive(_path(gid, service, kind))


def _path(gid: int, service: int, kind: Kind) -> Path:
    """A digest, as the path of a socket must be short."""
    network = os.stat("/proc/self/ns/net").st_ino  # in another the same address is another's
    digest = hashlib.sha256(f"{network} {gid} {service}".encode()).hexdigest()[:16]
    return place() / f"{kind}-{digest}"
