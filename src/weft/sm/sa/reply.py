"""Define the results and arguments of request handlers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from weft.sm.sa.context import Context
from weft.wire.sa import SaMad


@dataclass(frozen=True, slots=True, eq=False)
class Reply:
    """A status and the records that go with it: uint8[n, size], or the bytes of one.

    Of a Get that found none or several the administrator makes the status that the standard wants.
    """

    status: int = 0
    records: NDArray[np.uint8] | bytes = b""


# Called with the request and the slot of the port that sent it, -1 if no port has its LID. None: no answer is due.
Handler = Callable[[Context, SaMad, int], Reply | None]
