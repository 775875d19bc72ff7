"""Records that processes share have the same layout in Python, in kernels and in C."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys

import pytest

from weft.jit import quick_kernel
from weft.verbs.shm import layout
from weft.verbs.shm.atomic import acquire, exchange, numbers, release, view
from weft.verbs.shm.queue_memory import QueueMemory
from weft.verbs.shm.record import Record, write_header

SHARED = [
    one for one in vars(layout).values() if isinstance(one, type) and issubclass(one, Record) and one is not Record
]
_send_request = view(layout.SendRequest)


@quick_kernel
def in_a_kernel(address):
    request = _send_request(address)
    request.va = request.wr_id + 1
    release(request, "swap", acquire(request, "compare"))
    used, not_taken = exchange(request, "number", 9, 10), exchange(request, "number", 9, 11)
    return numbers(request), used and not not_taken


def test_a_kernel_reads_and_writes_what_python_does_by_the_same_names():
    request = layout.SendRequest(opcode=1, flags=2, wr_id=3, compare=(1 << 64) - 1, number=9)
    result, right = in_a_kernel(ctypes.addressof(request))
    assert right
    assert result == tuple(getattr(request, name) for name in layout.SendRequest.names)
    assert (request.va, request.swap, request.number) == (4, (1 << 64) - 1, 10)
    assert layout.SendRequest.form.unpack(bytes(request)) == result


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no compiler of C here")
def test_c_has_them_at_the_same_places(tmp_path):
    (tmp_path / "weft.h").write_text(write_header(*SHARED))
    lines = []
    for record in SHARED:
        name = f"struct weft_{record.__name__}"
        lines.append(f'_Static_assert(sizeof({name}) == {record.size}, "size of {name}");')
        lines += [
            f'_Static_assert(offsetof({name}, {at}) == {record.offset(at)}, "{name} {at}");' for at in record.names
        ]
    (tmp_path / "check.c").write_text("\n".join(('#include "weft.h"', "#include <stddef.h>", *lines)))
    done = subprocess.run(["cc", "-std=c11", "-fsyntax-only", tmp_path / "check.c"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_no_two_records_of_the_tables_overlap():
    assert layout.Header.size <= layout.REGIONS
    assert layout.region_at(1 << 8) - layout.region_at(0) >= layout.RegionRecord.size
    assert layout.queue_pair_at(1) - layout.queue_pair_at(0) >= layout.QueuePairRecord.size
    assert layout.region_at((layout.REGIONS_MAX - 1) << 8) + layout.RegionRecord.size <= layout.queue_pair_at(0)
    assert layout.queue_pair_at(layout.QUEUE_PAIRS_MAX - 1) + layout.QueuePairRecord.size <= layout.BLOCKS
    assert max(layout.ReceiveQueueRecord.size, layout.CompletionQueueRecord.size) <= layout.RING


@pytest.mark.skipif(sys.platform != "linux", reason="processes share memory on Linux only")
def test_records_of_a_forked_process_are_its_own():
    memory = QueueMemory(can_be_shared=True)
    record = layout.QueuePairRecord.from_buffer(memory.bytes, layout.queue_pair_at(7))
    record.number = 7
    child = os.fork()
    if not child:
        memory.leave()
        before, record.number = record.number, 8
        os._exit(0 if (before, record.number) == (7, 8) else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert record.number == 7
