"""What this process is in its job: one rank of those that `weft run` started, or one alone."""

from __future__ import annotations

import os
from collections.abc import Mapping

from weft.collectives.live.group import Group
from weft.collectives.live.link import Endpoint
from weft.collectives.live.mail import Mail, Sending
from weft.collectives.live.meeting import Store
from weft.collectives.live.store import VARIABLE, JobStore
from weft.errors import ConfigError

RANK, WORLD_SIZE = "RANK", "WORLD_SIZE"
# MPI knows no limit: who waits may wait for what another one computes. Links that break are noticed by themselves.
_PATIENCE_S = 7 * 24 * 3600


class Process:
    """Its endpoint, and the mail of all its groups, which goes on whichever of them it waits in."""

    def __init__(self, end: Endpoint, store: Store, patience_s: float = _PATIENCE_S) -> None:
        self._end, self._store, self._patience_s = end, store, patience_s
        self._mails: list[Mail] = []
        self._left: list[tuple[Mail, Sending]] = []  # copies that nobody waits for
        self.is_closed = False

    def group(self, name: str, rank: int, size: int) -> Group:
        made = Group(self._end, self._store, name, rank, size, self._patience_s)
        self._mails.append(made.mail)
        made.mail.meeting.on_idle = self._go_on
        return made

    def leave(self, mail: Mail, sending: Sending) -> None:
        """To go when it can."""
        self._left = [one for one in self._left if not one[1].is_done]
        if not sending.is_done:
            self._left.append((mail, sending))

    def flush(self, mail: Mail | None = None) -> None:
        """Wait until what was left has gone: of one group, or of all."""
        for one, sending in self._left:
            if mail is None or one is mail:
                one.wait(sending)

    def forget(self, group: Group) -> None:
        self._mails.remove(group.mail)
        group.close()

    def close(self) -> None:
        self.is_closed = True
        self._mails.clear()
        self._end.close()

    def _go_on(self) -> bool:
        return sum(mail.go_on() for mail in self._mails) > 0  # all of them


class _Nobody:
    """The store of one who is alone."""

    def set(self, key: str, value: bytes) -> None:
        """Nobody will ask."""

    def get(self, key: str, timeout_s: float) -> bytes:
        raise TimeoutError(key)


def from_environment(variables: Mapping[str, str] = os.environ) -> tuple[Process, int, int]:
    """The process, its rank, and of how many."""
    rank, size = (_whole(variables, name, default) for name, default in ((RANK, 0), (WORLD_SIZE, 1)))
    if size < 1 or not 0 <= rank < size:
        raise ConfigError(f"{RANK}={rank} and {WORLD_SIZE}={size}: a rank is from 0 to the size of the world less one")
    if size == 1:
        return Process(Endpoint(), _Nobody()), 0, 1
    if VARIABLE not in variables:
        raise ConfigError(
            f"{WORLD_SIZE}={size} and no {VARIABLE}: ranks find each other by `weft run -n {size} program.py`; without "
            f"{RANK} and {WORLD_SIZE} a program is one rank, alone"
        )
    return Process(Endpoint(), JobStore(variables[VARIABLE])), rank, size


def _whole(variables: Mapping[str, str], name: str, default: int) -> int:
    text = variables.get(name, str(default))
    if not text.isascii() or not text.isdecimal():
        raise ConfigError(f"{name}={text}: it must be a whole number, as `weft run` sets it")
    return int(text)
