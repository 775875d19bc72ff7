"""Engines that serve models, with the constants of `engines.toml`, which explains the fields."""

from __future__ import annotations

from functools import cache
from typing import Any

import msgspec

from weft.errors import find_named
from weft.fabric.rates import Sourced, read_data

DEFAULT = "vllm"
WITHOUT = " without "


class Engine(Sourced, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The software that runs steps."""

    name: str
    label: str
    one_shot_us: float
    two_shot_us: float
    shot_share: float
    eager_us: float
    kernels: int
    step_us: float
    sequence_us: float
    request_ms: float
    token_us: float
    attention_us: float
    kv_share: float
    shares_kv: bool
    grouped: float
    exponent: float
    narrow_kv: bool
    memory: float
    free_only: bool
    reserve_gbyte: float
    reserves_all: bool
    max_batch: int
    max_tokens: int
    without: dict[str, dict[str, Any]] = msgspec.field(default_factory=dict)

    def front_end_s(self, prompt: float, *, split: bool) -> float:
        """Return the time of a request outside of steps, for a prompt of so many tokens.

        split: a proxy sends the request to a server that prefills, and then to one that decodes; both tokenize it.
        """
        requests, tokenizers = (3, 2) if split else (1, 1)
        return requests * 1e-3 * self.request_ms + tokenizers * 1e-6 * self.token_us * prompt


@cache
def _tables() -> dict[str, dict[str, Any]]:
    return read_data("weft.inference", "engines.toml")


@cache
def find_engine(name: str) -> Engine:
    """Find an engine; `vllm without infx` has the constants that would be assumed if that source were unknown."""
    known, _, left_out = name.partition(WITHOUT)
    table = dict(find_named("framework", known, _tables()))
    if "like" in table:
        table = {**_tables()[table.pop("like")], **table}
    changes = table.get("without", {}).get(left_out, {})
    return msgspec.convert({**table, **changes, "name": name}, Engine)
