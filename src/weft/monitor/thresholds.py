"""Published limits, from `thresholds.toml`, which names their sources."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

import msgspec


class Limit(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A published limit with a short name and its source."""

    limit: float
    name: str
    source: str
    seconds: float = 0.0  # shortest observation that it applies to
    least: int = 0


class Thresholds(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    symbol_ber: tuple[Limit, ...]
    flaps_of_cable: Limit  # in a day
    flaps_of_host: Limit
    wait_share: Limit
    remote_physical: Limit
    relay: Limit
    at_once: Limit

    def ber_of(self, seconds: float) -> Limit:
        """Return the strictest limit on the bit error rate that applies to an observation of this length."""
        return [limit for limit in self.symbol_ber if limit.seconds <= seconds][-1]


@cache
def thresholds() -> Thresholds:
    return msgspec.toml.decode((files("weft.monitor") / "thresholds.toml").read_bytes(), type=Thresholds)
