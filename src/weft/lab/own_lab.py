"""A lab of one's own, with weft's subnet manager, in processes beside this one that end with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from weft.fabric.model import Fabric
from weft.lab import control, daemon, registry, subnet_manager
from weft.lab.managers import adjacent_prefixes, managers_of
from weft.sm.conf.options import Options
from weft.sm.control import ManagerSocket, socket_of


@dataclass(frozen=True, slots=True)
class OwnLab:
    entry: registry.Entry
    manager: ManagerSocket


@contextmanager
def own_lab(fabric: Fabric, name: str, options: Options | None = None) -> Iterator[OwnLab]:
    """Run a lab with its subnet manager within a context."""
    with launched_lab(fabric, name, options) as (lab, wait_until_up):
        wait_until_up()
        yield lab


@contextmanager
def launched_lab(
    fabric: Fabric, name: str, options: Options | None = None
) -> Iterator[tuple[OwnLab, Callable[[], object]]]:
    """Start a lab and its subnet manager; yield them, and a function that returns when the subnet is up.

    Each subnet and plane of a lab has a manager of its own; that of the first is yielded.
    """
    entry = daemon.start(fabric, name, follow=True)
    try:
        sockname = control.ask(entry, "state")["sockname"]
        managers, adjacent = managers_of(fabric, options or Options()), adjacent_prefixes(fabric)
        launched = [
            subnet_manager.launch(entry, sockname, host, own, log=subnet_manager.new_log(entry, host))
            for host, own in managers
        ]

        def wait() -> None:
            for (_, own), manager in zip(managers, launched, strict=True):
                manager.wait(adjacent.get(own.subnet_prefix, ()))

        yield OwnLab(entry, ManagerSocket(socket_of(launched[0].state_file))), wait
    finally:
        control.end(entry)
