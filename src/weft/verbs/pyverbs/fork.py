"""fork() and registered memory: always safe, because no adapter writes to physical pages behind the kernel's back."""

from __future__ import annotations

from weft.verbs.enums import ibv_fork_status


def fork_init() -> None:
    """Nothing is needed."""


def is_fork_initialized() -> ibv_fork_status:
    return ibv_fork_status.IBV_FORK_UNNEEDED
