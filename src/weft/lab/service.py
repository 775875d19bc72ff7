"""What a lab serves beside ibsim's protocol."""

from __future__ import annotations

from typing import Protocol


class Service(Protocol):
    """Programs that come by another way than ibsim's protocol. `fileno` is ready when `on_ready` has work."""

    def fileno(self) -> int: ...

    def on_ready(self) -> None: ...

    def after_round(self) -> None:
        """Something was done: a MAD, a command, a packet."""
        ...

    def next_deadline_s(self) -> float | None:
        """When `on_time` has something to do, on time.monotonic; None if never."""
        ...

    def on_time(self) -> None: ...

    def slots(self) -> list[int]:
        """Of every port that a program has open."""
        ...

    def close(self) -> None: ...
