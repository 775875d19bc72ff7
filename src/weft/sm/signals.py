"""Handle signals of a subnet manager: SIGHUP reads its files again and sweeps, SIGTERM and SIGINT end it."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from weft.sm.run import SubnetManager


@contextmanager
def obeying_signals(manager: SubnetManager) -> Iterator[None]:
    """Handle signals as OpenSM does; restore the previous handlers afterwards."""
    on_signal = {signal.SIGTERM: manager.stop, signal.SIGINT: manager.stop, signal.SIGHUP: manager.reload}
    with ExitStack() as stack:
        for number, act in on_signal.items():
            before = signal.signal(number, lambda *_, act=act: act())
            stack.callback(signal.signal, number, before)
        yield
