"""Times of a step of an inference engine, tabulated by the number of its tokens."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

__all__ = ["LOADS", "StepTable"]

LOADS = (1.0, 3.0)  # traffic beside exchanges between servers, which then get 1/(1 + load) of their rate


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTable:
    """A table of step times on one replica.

    A step takes the sum of its parts, interpolated at its number of tokens, plus `attention_s_per_pair` for each pair
    of a prefilled token and a token that it attends to, plus `kv_s_per_token` for each cached token of a decoding
    request.
    """

    tokens: NDArray[np.int64]  # ascending; prefilled tokens, and 1 (or 1 + drafts) for each decoding request
    parts: tuple[str, ...]  # products, weights, all_reduce, experts, dispatch, combine, launch ...
    parts_s: NDArray[np.float64]  # [part, tokens]
    attention_s_per_pair: float
    kv_s_per_token: float
    kv_room_tokens: int  # tokens that the KV cache of a replica holds
    kv_bytes_per_token: float  # summed over the GPUs of a replica
    gpus: int  # per replica
    slowed_s: NDArray[np.float64] | None = None  # [load of `LOADS`, tokens] added if exchanges share their links

    def step_s(self, tokens: float, pairs: float = 0.0, cached: float = 0.0) -> float:
        """Return the time of a step."""
        parts_s = float(np.interp(tokens, self.tokens, self.parts_s.sum(axis=0)))
        return parts_s + self.attention_s_per_pair * pairs + self.kv_s_per_token * cached

    def stretched(self, pace: float) -> StepTable:
        """Return the table of steps that take `pace` times as long."""
        return replace(
            self,
            parts_s=pace * self.parts_s,
            attention_s_per_pair=pace * self.attention_s_per_pair,
            kv_s_per_token=pace * self.kv_s_per_token,
            slowed_s=None if self.slowed_s is None else pace * self.slowed_s,
        )
