"""A recorder of the functions that each test calls, for `tests.mutate`.

`tests.mutate` puts a copy of this file on the path as `sitecustomize.py`, so that Python imports it in every process
that a test starts. Each process appends lines to one file: a phase, a test, and the place of a function that it called.
"""

from __future__ import annotations

import os
import sys
import threading
from types import CodeType, FrameType

RECORD, SOURCES = "WEFT_MUTATE_RECORD", "WEFT_MUTATE_SOURCES"  # the file to append to, and the folder to record
_TEST = "PYTEST_CURRENT_TEST"  # set by pytest, inherited by the processes that a test starts: "file.py::test (call)"


def append(*fields: str) -> None:
    """Append a line to the record."""
    record = os.open(os.environ[RECORD], os.O_WRONLY | os.O_APPEND)
    os.write(record, ("\t".join(fields) + "\n").encode())
    os.close(record)


def start() -> None:
    """Record the functions that are called from now on in this process."""
    prefix, observed = os.environ[SOURCES] + os.sep, set[tuple[CodeType, str]]()

    def record_call(frame: FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        if code.co_filename.startswith(prefix) and (test := os.environ.get(_TEST)) and (code, test) not in observed:
            observed.add((code, test))
            name, _, phase = test.rpartition(" (")
            append(phase.rstrip(")"), name, f"{code.co_filename}:{code.co_firstlineno}")

    sys.settrace(record_call)
    threading.settrace(record_call)


if RECORD in os.environ:
    start()
