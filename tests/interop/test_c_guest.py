"""Test weft's libibverbs in programs that are Python: waits in C release Python's lock, which weft's adapter needs."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest
from tests.interop.c_programs import compile_program, outside_of_labs, program
from tests.interop.conftest import do_without
from tests.interop.test_c_mpi import OPEN_MPI, OPTIONS
from tests.interop.test_c_ucx import only
from tests.patience import PATIENCE_S

from weft import compiler

pytestmark = [pytest.mark.interop, pytest.mark.skipif(compiler.find() is None, reason="no C compiler")]
# `PyDLL` calls with Python's lock held, as Cython does. Another thread runs only when the call releases the lock.
EVENTS = """
import ctypes, sys, threading
from weft.verbs.c.devices import ProgramCQ
from weft.verbs.c.objects import find
from weft.verbs.enums import IBV_EVENT_PORT_ERR
sys.setswitchinterval(1000)
c, p = ctypes.PyDLL("libibverbs.so.1"), ctypes.c_void_p
for name in ("ibv_get_device_list", "ibv_open_device", "ibv_create_comp_channel", "ibv_create_cq"):
    getattr(c, name).restype = p
devices = ctypes.cast(c.ibv_get_device_list(None), ctypes.POINTER(p))
context = p(c.ibv_open_device(p(devices[0])))
channel = p(c.ibv_create_comp_channel(context))
cq = p(c.ibv_create_cq(context, 10, None, channel, 0))
known = find(ctypes.c_uint32.from_address(cq.value + 24).value, ProgramCQ)
waits = threading.Event()

def tell():
    waits.wait()
    known.core.on_event() if what == "completion" else known.ctx.raise_event(IBV_EVENT_PORT_ERR, 1)

what = sys.argv[1]
threading.Thread(target=tell).start()
waits.set()
told, own = p(), (ctypes.c_uint64 * 2)()
if what == "completion":
    assert c.ibv_get_cq_event(channel, ctypes.byref(told), own) == 0 and told.value == cq.value
else:
    assert c.ibv_get_async_event(context, own) == 0 and own[0] == 1
print("it came")
"""
SEND = """
import ctypes, sys
library = ctypes.PyDLL(sys.argv[1])
print(library.set_up(), library.send_and_join(), ctypes.CDLL(sys.argv[1]).wait_for_both())
"""
MPI = """
import os
from mpi4py import MPI
world = MPI.COMM_WORLD
here, there = bytearray(b"%d" % world.rank) * 100_000, bytearray(100_000)
world.Sendrecv(here, 1 - world.rank, recvbuf=there, source=1 - world.rank)
assert there == bytearray(b"%d" % (1 - world.rank)) * 100_000
assert world.allgather({"rank": world.rank}) == [{"rank": 0}, {"rank": 1}]
world.Barrier()
os.write(1, b"rank %d is right\\n" % world.rank)  # in one write: mpirun passes on partial lines
"""


@pytest.mark.parametrize("what", ["completion", "port"])
def test_waiting_for_an_event_releases_pythons_lock(what):
    done = subprocess.run(
        [sys.executable, "-c", EVENTS, what],
        env=outside_of_labs(),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "it came\n"), done.stderr


def test_a_thread_sends_while_its_joiner_holds_the_lock_of_python(tmp_path):
    """NIXL joins its progress thread in this way. The datagram is sent once the lock is free."""
    library = compile_program("send_in_thread", tmp_path, "-shared", "-fPIC")
    command = [sys.executable, "-c", SEND, library]
    done = subprocess.run(
        command, env=outside_of_labs(), capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert (done.returncode, done.stdout) == (0, "0 0 0\n"), done.stderr


def test_mpi4py_begins_sends_and_ends(tmp_path):
    """It holds Python's lock during MPI_Init, and Python ends before MPI does."""
    if importlib.util.find_spec("mpi4py") is None:
        do_without("mpi4py")
    Path(tmp_path / "ranks.py").write_text(MPI)
    words = [program(f"mpirun.{OPEN_MPI}"), *OPTIONS[OPEN_MPI], "-n", "2", sys.executable, str(tmp_path / "ranks.py")]
    variables = outside_of_labs() | only("rc_v")
    done = subprocess.run(words, env=variables, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert sorted(done.stdout.split("\n")) == ["", "rank 0 is right", "rank 1 is right"]
