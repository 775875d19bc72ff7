"""Claim ports and services among all processes of this user and network namespace: one process per address.

A claim is a Unix socket, so it ends with its process. On systems other than Linux there are no claims.
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
    SERVICE = "service"  # has a listener
    PORT = "port"  # bound
    PROCESS = "process"  # a process itself, for checks that it is alive


class Claim:
    """A claim of one process on a service of a GID. Creating it raises OSError if another process has it."""

    def __init__(self, gid: int, service: int, kind: Kind = Kind.SERVICE) -> None:
        self._held = runtime.Inbox(_path(gid, service, kind)) if sys.platform == "linux" else None

    def close(self) -> None:
        if self._held is not None:
            self._held.close()


def is_claimed(gid: int, service: int, kind: Kind = Kind.SERVICE) -> bool:
    return sys.platform == "linux" and runtime.is_alive(_path(gid, service, kind))


def _path(gid: int, service: int, kind: Kind) -> Path:
    """Return the path of a claim's socket: a digest, because such a path must be short."""
    network = os.stat("/proc/self/ns/net").st_ino  # addresses are per network namespace
    digest = hashlib.sha256(f"{network} {gid} {service}".encode()).hexdigest()[:16]
    return place() / f"{kind}-{digest}"
