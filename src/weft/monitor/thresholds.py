"""What others call bad, with their names: `thresholds.toml`, where the sources are."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

import msgspec


class Limit(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A number, whose it is in a word or two, and where it stands."""

    limit: float
    name: str
    source: str
    seconds: float = 0.0  # from which length of observation on
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
        """The strictest that so long an observation can hold a link to."""
        return [one for one in self.symbol_ber if one.seconds <= seconds][-1]


@cache
def thresholds() -> Thresholds:
    return msgspec.toml.decode((files("weft.monitor") / "thresholds.toml").read_bytes(), type=Thresholds)
