"""MADs that belong together: the next batch goes out when this one is answered."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Batch:
    """`lids` are where LID-routed MADs go; directed SMPs have None."""

    mads: NDArray[np.uint8]  # [n, 256]
    node: NDArray[np.int32]  # [n] -> the node that each is for
    lids: NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return len(self.mads)
