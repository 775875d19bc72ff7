"""Keep Ctrl-C working while kernels are compiled.

LLVM runs for seconds without handling signals, and then calls Python through ctypes. There the KeyboardInterrupt is
raised, printed and dropped, and the program would continue.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType


@contextlib.contextmanager
def heard() -> Iterator[None]:
    """Raise KeyboardInterrupt at the end if Ctrl-C was pressed meanwhile."""
    is_usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if not is_usual or threading.current_thread() is not threading.main_thread():
        yield  # the program has its own handler, or another thread gets the signal
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
