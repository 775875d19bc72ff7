"""Facts that no engine can compute (vendors, cloud offers, published advice), from facts.toml."""

from __future__ import annotations

from functools import cache
from typing import Any

from weft.fabric.rates import read_data


@cache
def facts() -> dict[str, Any]:
    return read_data("weft.advise", "facts.toml")
