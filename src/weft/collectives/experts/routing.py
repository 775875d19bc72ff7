"""The copies of a token that a mixture-of-experts layer sends.

    token --> 8 experts of 256 --> 6.5 of 16 GPUs --> 2.0 of 2 servers

A router picks `topk` experts for each token. Kernels send one copy for each expert, for each GPU that has one of them,
or for each server, whose GPUs forward it. Counts are expected values for a uniform router: with n candidate experts, a
place that has e of them gets no copy with probability C(n - e, k)/C(n, k). A router with a limit of `groups` servers
picks the servers first. A balanced router gives each GPU as few experts of a token as it can.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from math import comb, sqrt
from statistics import NormalDist

from weft.errors import ConfigError

_SCALE_ELEMENTS = 128  # elements of FP8 that share a scale
_SCALE_BYTES = 4
_FP8_BYTES, _BF16_BYTES = 1, 2
_MEDIAN = 0.5264  # NormalDist().inv_cdf(_MEDIAN ** (1 / n)) is close to the expected maximum of n values


class CopyPer(enum.StrEnum):
    """The destination that gets one copy of a token."""

    SERVER = "server"  # whose GPUs forward it over NVLink
    GPU = "gpu"
    EXPERT = "expert"


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """A mixture-of-experts layer, and the tokens that each GPU has for it."""

    tokens: int
    topk: int = 8
    hidden: int = 7168
    experts: int = 256
    groups: int | None = None  # most servers of a token (DeepSeek: 4); None: no limit
    dispatch_bytes: int = _FP8_BYTES  # of an element; FP8 adds its scales
    combine_bytes: int = _BF16_BYTES
    balanced: bool = False  # the router spreads tokens evenly, as in benchmarks; else uniformly at random

    def __post_init__(self) -> None:
        for name, value in (
            ("num-tokens", self.tokens),
            ("topk", self.topk),
            ("hidden", self.hidden),
            ("experts", self.experts),
            ("topk-groups", 1 if self.groups is None else self.groups),
        ):
            if value < 1:
                raise ConfigError(f"--{name} must be at least 1, got {value}")
        if self.topk > self.experts:
            raise ConfigError(f"--topk {self.topk} is more than --experts {self.experts}")
        for name, value in (("dispatch", self.dispatch_bytes), ("combine", self.combine_bytes)):
            if value not in (_FP8_BYTES, _BF16_BYTES):
                raise ConfigError(f"elements of {name} have {value} bytes: give 1 (FP8) or 2 (BF16)")

    def token_bytes(self, element_bytes: int) -> int:
        """Return the bytes of a token: FP8 has a scale for every 128 elements."""
        scales = self.hidden // _SCALE_ELEMENTS * _SCALE_BYTES if element_bytes == _FP8_BYTES else 0
        return self.hidden * element_bytes + scales

    def check(self, servers: int, gpus: int) -> None:
        """Raise ConfigError if the experts cannot be spread over so many servers with so many GPUs each."""
        ranks = servers * gpus
        if self.experts % ranks:
            raise ConfigError(f"--experts {self.experts} is not a multiple of {ranks} GPUs")
        most = self._servers(servers) * (self.experts // servers)
        if self.topk > most:
            raise ConfigError(f"--topk {self.topk} is more than the {most} experts of --topk-groups {self.groups}")

    def copies(self, per: CopyPer, servers: int, gpus: int) -> float:
        """Return the expected copies of a token, those to its own GPU and server included."""
        if per is CopyPer.EXPERT:
            return float(self.topk)
        places = self._servers(servers) * (1 if per is CopyPer.SERVER else gpus)
        if self.balanced:
            return float(min(places, self.topk))
        candidates = self._servers(servers) * self.experts // servers
        missed = comb(candidates - candidates // places, self.topk) / comb(candidates, self.topk)
        return places * (1 - missed)

    def excess(self, copies: float, ranks: int) -> float:
        """Return the load of the busiest GPU over the mean: receivers of a random router get unequal numbers."""
        if self.balanced or ranks < 2:
            return 1.0
        share = min(copies / ranks, 1.0)
        spread = sqrt((1 - share) / (self.tokens * copies))
        return 1 + NormalDist().inv_cdf(_MEDIAN ** (1 / ranks)) * spread

    def _servers(self, servers: int) -> int:
        """Return the servers from which a token's experts are picked."""
        return servers if self.groups is None else min(servers, self.groups)
