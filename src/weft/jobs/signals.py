"""Signals to the launcher: the first ends the job, the next ones make it hurry."""

from __future__ import annotations

import signal
from types import FrameType, TracebackType
from typing import Any, Self

_NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class StopRequested(BaseException):
    """Somebody wants the job to end; not an error of anybody's."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


class SignalHandler:
    """As long as it is open the first signal raises `StopRequested` in the main thread."""

    def __init__(self) -> None:
        self.told = 0
        self._before: dict[int, Any] = {}

    def should_hurry(self) -> bool:
        return self.told > 1

    def __enter__(self) -> Self:
        self._before[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # ignored, it takes statuses along
        for number in _NUMBERS:
            if signal.getsignal(number) != signal.SIG_IGN:  # by nohup, say
                self._before[number] = signal.signal(number, self._hear)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _hear(self, number: int, frame: FrameType | None) -> None:
        self.told += 1
        if self.told == 1:
            raise StopRequested(number)
