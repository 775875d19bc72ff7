"""Ctrl-C while kernels are compiled.

LLVM works for seconds without a look at signals, and then calls Python back through ctypes: there the KeyboardInterrupt
is raised, printed, and forgotten, and the program goes on as if nobody had asked it to end.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType


@contextlib.contextmanager
def heard() -> Iterator[None]:
    """Whoever pressed Ctrl-C meanwhile is heard at the end, if not before."""
    is_usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if not is_usual or threading.current_thread() is not threading.main_thread():
        yield  # the program deals with it in its own way, or it is raised in another thread
        return
    pressed = False

    def on_signal(number: int, frame: FrameType | None) -> None:
        nonlocal pressed
        pressed = True
        signal.default_int_handler(number, frame)

    signal.signal(signal.SIGINT, on_signal)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if pressed:
        raise KeyboardInterrupt
