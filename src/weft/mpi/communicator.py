"""Ranks that talk to each other, in mpi4py's words, and groups of them."""
# ruff: noqa: N802 - the names are mpi4py's

from __future__ import annotations

import hashlib
import os
import socket
import sys
from collections.abc import Iterable
from typing import NoReturn

import numpy as np

from weft.errors import ConfigError
from weft.mpi.objects import Objects
from weft.mpi.process import Process
from weft.mpi.requests import UNDEFINED
from weft.verbs.hardware import HOST

COMM_TYPE_SHARED = 1


class Group:
    """Ranks of COMM_WORLD, in order; `own` is who asks."""

    def __init__(self, members: tuple[int, ...], own: int) -> None:
        self.members, self._own = members, own

    @property
    def size(self) -> int:
        return len(self.members)

    @property
    def rank(self) -> int:
        return self.members.index(self._own) if self._own in self.members else UNDEFINED

    def Get_size(self) -> int:
        return self.size

    def Get_rank(self) -> int:
        return self.rank

    def Incl(self, ranks: Iterable[int]) -> Group:
        return Group(tuple(self.members[self._checked(rank)] for rank in ranks), self._own)

    def Excl(self, ranks: Iterable[int]) -> Group:
        without = {self._checked(rank) for rank in ranks}
        return Group(tuple(one for rank, one in enumerate(self.members) if rank not in without), self._own)

    def Free(self) -> None:
        """There is nothing to free."""

    def _checked(self, rank: int) -> int:
        if not 0 <= rank < self.size:
            raise ConfigError(f"rank {rank} is none of the {self.size} of the group")
        return rank


class Communicator(Objects):
    _made = 0  # communicators out of this one, by all of its ranks
    _created: dict[str, int]  # by name, those of some of its ranks

    def __bool__(self) -> bool:
        return self._group_or_none is not None

    def Get_group(self) -> Group:
        return Group(self._members, self._members[self.rank])

    @property
    def group(self) -> Group:
        return self.Get_group()

    def Get_name(self) -> str:
        return self._group.name

    @property
    def name(self) -> str:
        return self._group.name

    # -- others out of this one ---------------------------------------------------------------------------------------

    def Dup(self) -> Communicator:
        return self.Split(0, self.rank)

    Clone = Dup

    def Split(self, color: int = 0, key: int = 0) -> Communicator:
        """One for each colour, in the order of keys, then of ranks; COMM_NULL where the colour is UNDEFINED."""
        self._made += 1
        if color < 0 and color != UNDEFINED:
            raise ConfigError(f"color={color}: give a number from 0 on, or MPI.UNDEFINED for no group")
        every = np.empty((self.size, 2), np.int64)
        self.Allgather(np.array([color, key]), every)
        ranks = [rank for rank in range(self.size) if every[rank, 0] == color]
        ranks.sort(key=lambda rank: (every[rank, 1], rank))
        return COMM_NULL if color == UNDEFINED else self._of(ranks, f"{self.name}/{self._made}.{color}")

    def Split_type(self, split_type: int = COMM_TYPE_SHARED, key: int = 0) -> Communicator:
        """Ranks of one host."""
        if split_type not in (COMM_TYPE_SHARED, UNDEFINED):
            raise ConfigError(f"split_type={split_type}: there is MPI.COMM_TYPE_SHARED, ranks of one host")
        names = self.allgather(Get_processor_name())
        return self.Split(names.index(names[self.rank]) if split_type == COMM_TYPE_SHARED else UNDEFINED, key)

    def Create(self, group: Group) -> Communicator:
        """Of the ranks of a group; all ranks of this one call it."""
        self._made += 1
        self.Barrier()
        return self._of_group(group, f"{self.name}/{self._made}")

    def Create_group(self, group: Group, tag: int = 0) -> Communicator:
        """Of the ranks of a group; only they call it."""
        digest = hashlib.sha256(repr((group.members, tag)).encode()).hexdigest()[:16]
        if "_created" not in vars(self):
            self._created = {}
        nth = self._created[digest] = self._created.get(digest, 0) + 1
        return self._of_group(group, f"{self.name}/{digest}.{nth}")

    def Free(self) -> None:
        """All ranks call it."""
        self._process.flush(self._group.mail)
        self.Barrier()
        self._process.forget(self._group)
        self._group_or_none = None

    Disconnect = Free

    def _of_group(self, group: Group, name: str) -> Communicator:
        own = self._members[self.rank]
        strange = [one for one in group.members if one not in self._members]
        if strange:
            raise ConfigError(f"rank {strange[0]} of COMM_WORLD is in the group and not in the communicator")
        if own not in group.members:
            return COMM_NULL
        return self._of([self._members.index(one) for one in group.members], name)

    def _of(self, ranks: list[int], name: str) -> Communicator:
        made = self._process.group(name, ranks.index(self.rank), len(ranks))
        return Communicator(self._process, made, tuple(self._members[rank] for rank in ranks))

    # -- the end ------------------------------------------------------------------------------------------------------

    def Abort(self, errorcode: int = 1) -> NoReturn:
        """This rank ends at once, and `weft run` ends the others."""
        sys.stdout.flush()
        print(f"weft: rank {self._members[self.rank]} calls Abort({errorcode})", file=sys.stderr, flush=True)
        os._exit(errorcode & 0xFF or 1)


COMM_NULL = Communicator(None, None, ())


def world(process: Process, rank: int, size: int) -> Communicator:
    """Of all ranks of a job."""
    return Communicator(process, process.group("mpi", rank, size), tuple(range(size)))


def alone(process: Process, rank: int) -> Communicator:
    """Of one rank of them."""
    return Communicator(process, process.group(f"mpi/self/{rank}", 0, 1), (rank,))


def Get_processor_name() -> str:
    """The host of the lab, or this machine."""
    return os.environ.get(HOST) or socket.gethostname()
