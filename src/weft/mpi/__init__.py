"""mpi4py's words, without MPI installed: programs that are ranks of `weft run`, or one rank alone.

    from weft import mpi as MPI                       # where a program says: from mpi4py import MPI

    comm = MPI.COMM_WORLD
    comm.Allreduce(x, total, op=MPI.SUM)              # numpy arrays, by the programs that the simulators time
    print(comm.gather(comm.rank))                     # any objects

datatypes       memory as mpi4py takes it
operations      SUM and the others
requests        what is waited for later, and what is known of a message
process         what this process is in its job
messages        from rank to rank
arrays          collectives on memory
objects         collectives on objects
communicator    all of it, and groups of ranks

COMM_WORLD is made on first use. At the end of the program all ranks wait for each other, as in MPI_Finalize, unless one
ends by an exception: then `weft run` ends the others.
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
Exception = WeftError  # noqa: A001 - what is caught as MPI.Exception
MAX_PROCESSOR_NAME = 256
_NAMES = {**DATATYPES, **OPERATIONS}
_begun: tuple[Process, Communicator, Communicator] | None = None  # COMM_WORLD and COMM_SELF
_is_over = False
_lock = threading.Lock()


def __getattr__(name: str) -> object:
    if name in ("COMM_WORLD", "COMM_SELF"):
        _, everybody, own = _begin()
        return everybody if name == "COMM_WORLD" else own
    if name in _NAMES:
        return _NAMES[name]
    raise AttributeError(f"weft.mpi has no {name!r}: docs/mpi.md says what of mpi4py there is")


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
    """What the first use of COMM_WORLD does."""
    _begin()


def Is_initialized() -> bool:
    return _begun is not None


def Is_finalized() -> bool:
    return _is_over


def Finalize() -> None:
    """Wait until all that was sent has gone, and for all ranks."""
    global _is_over
    if _begun is not None and not _is_over:
        _is_over = True
        process, everybody, _ = _begun
        process.flush()
        everybody.Barrier()
        process.close()


def _at_exit() -> None:
    if getattr(sys, "last_value", None) is not None:  # it ends by an exception: the others may wait for ever
        return
    try:
        Finalize()
    except WeftError as error:
        print(f"weft: {error}", file=sys.stderr)


def Wtime() -> float:
    """Seconds, from some moment."""
    return time.perf_counter()


def Wtick() -> float:
    return time.get_clock_info("perf_counter").resolution


__all__ = ["Comm", "Finalize", "Get_processor_name", "Group", "Init", "Intracomm", "Wtick", "Wtime"]
