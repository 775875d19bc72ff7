"""The API of mpi4py without MPI installed, for ranks that `weft run` started and for single processes.

    from weft import mpi as MPI                       # instead of: from mpi4py import MPI

    comm = MPI.COMM_WORLD
    comm.Allreduce(x, total, op=MPI.SUM)              # numpy arrays, with the algorithms that the simulators time
    print(comm.gather(comm.rank))                     # any objects

datatypes       buffers in mpi4py's forms, and MPI datatypes
operations      reduction operations: SUM, MAX, ...
requests        requests and statuses
process         this process: endpoint, message queues, rank and size from the environment
messages        point-to-point messages
arrays          collectives on buffers
objects         collectives on pickled objects
communicator    communicators and groups

COMM_WORLD is created on first use. At exit all ranks wait for each other, as in MPI_Finalize. If a rank ends with an
exception instead, `weft run` ends the others.
"""
# ruff: noqa: N802 - the names are mpi4py's

from __future__ import annotations

import atexit
import sys
import threading
import time

from weft.errors import WeftError
from weft.mpi.communicator import COMM_NULL as COMM_NULL
from weft.mpi.communicator import COMM_TYPE_SHARED as COMM_TYPE_SHARED
from weft.mpi.communicator import Communicator, Group, alone, world
from weft.mpi.communicator import Get_processor_name as Get_processor_name
from weft.mpi.datatypes import DATATYPES
from weft.mpi.datatypes import IN_PLACE as IN_PLACE
from weft.mpi.datatypes import Datatype as Datatype
from weft.mpi.messages import TAG_UB as TAG_UB
from weft.mpi.operations import OPERATIONS
from weft.mpi.operations import Op as Op
from weft.mpi.process import Process, from_environment
from weft.mpi.requests import ANY_SOURCE as ANY_SOURCE
from weft.mpi.requests import ANY_TAG as ANY_TAG
from weft.mpi.requests import PROC_NULL as PROC_NULL
from weft.mpi.requests import UNDEFINED as UNDEFINED
from weft.mpi.requests import Request as Request
from weft.mpi.requests import Status as Status

Comm = Intracomm = Communicator
Exception = WeftError  # noqa: A001 - mpi4py's name: programs catch MPI.Exception
MAX_PROCESSOR_NAME = 256
_NAMES = {**DATATYPES, **OPERATIONS}
_begun: tuple[Process, Communicator, Communicator] | None = None  # COMM_WORLD and COMM_SELF
_is_over = False
_lock = threading.Lock()


def __getattr__(name: str) -> object:
    if name in ("COMM_WORLD", "COMM_SELF"):
        _, world_comm, self_comm = _begin()
        return world_comm if name == "COMM_WORLD" else self_comm
    if name in _NAMES:
        return _NAMES[name]
    raise AttributeError(f"weft.mpi has no {name!r}; docs/mpi.md lists the supported part of mpi4py")


def __dir__() -> list[str]:
    return sorted({*globals(), *_NAMES, "COMM_WORLD", "COMM_SELF"})


def _begin() -> tuple[Process, Communicator, Communicator]:
    global _begun
    with _lock:
        if _begun is None:
            process, rank, size = from_environment()
            _begun = process, world(process, rank, size), alone(process, rank)
            atexit.register(_at_exit)
        return _begun


def Init() -> None:
    """Create COMM_WORLD now; its first use does the same."""
    _begin()


def Is_initialized() -> bool:
    return _begun is not None


def Is_finalized() -> bool:
    return _is_over


def Finalize() -> None:
    """Wait until all sends are complete, then for all ranks."""
    global _is_over
    if _begun is not None and not _is_over:
        _is_over = True
        process, world_comm, _ = _begun
        process.flush()
        world_comm.Barrier()
        process.close()


def _at_exit() -> None:
    if getattr(sys, "last_value", None) is not None:  # the program ends with an exception: other ranks may never arrive
        return
    try:
        Finalize()
    except WeftError as error:
        print(f"weft: {error}", file=sys.stderr)


def Wtime() -> float:
    """Return a time in seconds; only differences have a meaning."""
    return time.perf_counter()


def Wtick() -> float:
    """Return the resolution of `Wtime` in seconds."""
    return time.get_clock_info("perf_counter").resolution


__all__ = ["Comm", "Finalize", "Get_processor_name", "Group", "Init", "Intracomm", "Wtick", "Wtime"]
