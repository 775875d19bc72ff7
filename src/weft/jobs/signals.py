"""Handle signals sent to the job launcher: the first one stops the job, later ones skip the grace period."""

from __future__ import annotations

import signal
from types import FrameType, TracebackType
from typing import Any, Self

_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class StopRequested(BaseException):
    """An exception raised in the main thread when the launcher is asked to stop. It is not an error."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


class SignalHandler:
    """A context manager that turns the first SIGINT, SIGTERM or SIGHUP into `StopRequested`."""

    def __init__(self) -> None:
        self.n_received = 0
        self._previous: dict[int, Any] = {}

    def should_hurry(self) -> bool:
        """Return whether a second signal has arrived."""
        return self.n_received > 1

    def __enter__(self) -> Self:
        # If SIGCHLD is ignored (inherited from the parent), wait() cannot collect exit statuses.
        self._previous[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for number in _STOP_SIGNALS:
            if signal.getsignal(number) != signal.SIG_IGN:  # nohup ignores SIGHUP
                self._previous[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self.n_received += 1
        if self.n_received == 1:
            raise StopRequested(number)
