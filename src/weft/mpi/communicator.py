"""Communicators and groups."""
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
    """A list of ranks of COMM_WORLD; `own` is the rank of this process there."""

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
        return Group(tuple(member for rank, member in enumerate(self.members) if rank not in without), self._own)

    def Free(self) -> None:
        """Do nothing: a group holds no resources."""

    def _checked(self, rank: int) -> int:
        if not 0 <= rank < self.size:
            raise ConfigError(f"rank {rank} is not in the group; give a rank from 0 to {self.size - 1}")
        return rank


class Communicator(Objects):
    """A communicator of mpi4py: collectives and messages among a group of ranks."""

    _n_derived = 0  # communicators that all ranks of this one created from it
    _n_created: dict[str, int]  # by digest of group and tag: those that only some ranks created

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

    # -- derived communicators ----------------------------------------------------------------------------------------

    def Dup(self) -> Communicator:
        return self.Split(0, self.rank)

    Clone = Dup

    def Split(self, color: int = 0, key: int = 0) -> Communicator:
        """Create one communicator for each colour, ordered by key, then rank; COMM_NULL for the colour UNDEFINED."""
        self._n_derived += 1
        if color < 0 and color != UNDEFINED:
            raise ConfigError(f"color={color} is negative; give 0 or more, or MPI.UNDEFINED to be in no communicator")
        every = np.empty((self.size, 2), np.int64)
        self.Allgather(np.array([color, key]), every)
        ranks = [rank for rank in range(self.size) if every[rank, 0] == color]
        ranks.sort(key=lambda rank: (every[rank, 1], rank))
        return COMM_NULL if color == UNDEFINED else self._derive(ranks, f"{self.name}/{self._n_derived}.{color}")

    def Split_type(self, split_type: int = COMM_TYPE_SHARED, key: int = 0) -> Communicator:
        """Create a communicator for the ranks of each host."""
        if split_type not in (COMM_TYPE_SHARED, UNDEFINED):
            raise ConfigError(
                f"split_type={split_type} is not supported; give MPI.COMM_TYPE_SHARED (ranks of one host)"
            )
        names = self.allgather(Get_processor_name())
        return self.Split(names.index(names[self.rank]) if split_type == COMM_TYPE_SHARED else UNDEFINED, key)

    def Create(self, group: Group) -> Communicator:
        """Create a communicator for a group; all ranks of this communicator call it."""
        self._n_derived += 1
        self.Barrier()
        return self._create_from_group(group, f"{self.name}/{self._n_derived}")

    def Create_group(self, group: Group, tag: int = 0) -> Communicator:
        """Create a communicator for a group; only the ranks of the group call it."""
        digest = hashlib.sha256(repr((group.members, tag)).encode()).hexdigest()[:16]
        if "_n_created" not in vars(self):
            self._n_created = {}
        nth = self._n_created[digest] = self._n_created.get(digest, 0) + 1
        return self._create_from_group(group, f"{self.name}/{digest}.{nth}")

    def Free(self) -> None:
        """Complete pending sends, wait for all ranks, and release the communicator; all ranks call it."""
        self._process.flush(self._group.message_queue)
        self.Barrier()
        self._process.forget(self._group)
        self._group_or_none = None

    Disconnect = Free

    def _create_from_group(self, group: Group, name: str) -> Communicator:
        own = self._members[self.rank]
        foreign = [member for member in group.members if member not in self._members]
        if foreign:
            raise ConfigError(f"COMM_WORLD rank {foreign[0]} is in the group but not in the communicator")
        if own not in group.members:
            return COMM_NULL
        return self._derive([self._members.index(member) for member in group.members], name)

    def _derive(self, ranks: list[int], name: str) -> Communicator:
        group = self._process.group(name, ranks.index(self.rank), len(ranks))
        return Communicator(self._process, group, tuple(self._members[rank] for rank in ranks))

    # -- abort --------------------------------------------------------------------------------------------------------

    def Abort(self, errorcode: int = 1) -> NoReturn:
        """End this rank at once; `weft run` then ends the others."""
        sys.stdout.flush()
        print(f"weft: rank {self._members[self.rank]} calls Abort({errorcode})", file=sys.stderr, flush=True)
        os._exit(errorcode & 0xFF or 1)


COMM_NULL = Communicator(None, None, ())


def world(process: Process, rank: int, size: int) -> Communicator:
    """Create COMM_WORLD, the communicator of all ranks of a job."""
    return Communicator(process, process.group("mpi", rank, size), tuple(range(size)))


def alone(process: Process, rank: int) -> Communicator:
    """Create COMM_SELF, the communicator of one rank."""
    return Communicator(process, process.group(f"mpi/self/{rank}", 0, 1), (rank,))


def Get_processor_name() -> str:
    """Return the name of the lab host, or of this machine outside a lab."""
    return os.environ.get(HOST) or socket.gethostname()
