"""A client of the job's store, which ranks use to exchange addresses before they connect.

    store = JobStore(os.environ["WEFT_JOB"])
    store.set("qp/3", address)
    store.get("qp/4", timeout_s=60)      waits until rank 4 has said it

The launcher serves it (`weft.jobs.store`), for as long as the job runs; a value set again is another one.
"""

from __future__ import annotations

import base64
import threading
from pathlib import Path
from typing import Any

from weft.errors import ConfigError, NoResponseError
from weft.json_lines import CommandRefused, Connection

VARIABLE = "WEFT_JOB"  # environment variable of every rank: the address
LATE = "late"  # the kind of a refusal: no rank has set it in time
LONGEST_BYTES = 16 << 20  # largest value
_LONGEST_S = 366 * 24 * 3600
_TIMEOUT_S = 60.0  # for the launcher, beyond what it was asked to wait


class JobStore:
    """A key-value store of one job, for any rank and thread."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._of_thread = threading.local()  # a connection each, so that a waiting thread delays no other

    def set(self, key: str, value: bytes) -> None:
        if len(value) > LONGEST_BYTES:
            raise ConfigError(f"{key!r} has {len(value):,} bytes: the job's store takes values up to {LONGEST_BYTES:,}")
        self._ask("set", 0.0, key=key, value=base64.b64encode(value).decode())

    def get(self, key: str, timeout_s: float) -> bytes:
        """Wait for a value. Raise TimeoutError if it is not set in time."""
        if not 0 <= timeout_s <= _LONGEST_S:
            raise ConfigError(f"timeout_s={timeout_s:g}: the job's store waits for {key!r} from 0 to {_LONGEST_S:,} s")
        return base64.b64decode(self._ask("get", timeout_s, key=key, timeout_s=timeout_s))

    @property
    def _line(self) -> Connection:
        connection: Connection | None = getattr(self._of_thread, "line", None)
        if connection is None:
            connection = self._of_thread.line = Connection(Path(self.address))
        return connection

    def _ask(self, do: str, wait_s: float, **words: Any) -> Any:
        try:
            return self._line.request(do, wait_s + _TIMEOUT_S, **words)
        except CommandRefused as late:
            raise TimeoutError(str(late)) from None
        except (OSError, ValueError) as error:
            reason = str(error) or type(error).__name__
            raise NoResponseError(
                f"the store of the job at {self.address} does not answer: {reason}; it ends with `weft run`"
            ) from None
