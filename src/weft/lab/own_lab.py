"""A lab of one's own, with weft's subnet manager, in processes beside this one that end with it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from weft.fabric.model import Fabric
from weft.lab import control, daemon, registry, subnet_manager
from weft.sm.conf.options import Options
from weft.sm.control import ManagerSocket, socket_of


@dataclass(frozen=True, slots=True)
class OwnLab:
    entry: registry.Entry
    manager: ManagerSocket


@contextmanager
def own_lab(fabric: Fabric, name: str, options: Options | None = None) -> Iterator[OwnLab]:
    """Up, with its subnet, until it is left."""
    entry = daemon.start(fabric, name, follow=True)
    try:
        subnet_manager.start(entry, control.ask(entry, "state")["sockname"], "", options)
        yield OwnLab(entry, ManagerSocket(socket_of(subnet_manager.state_file(entry, ""))))
    finally:
        control.end(entry)
