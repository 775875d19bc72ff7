"""The software of a training job: which kernels run, how fast they are, and what overlaps.

find_framework("fsdp-eager").kernel.share(80, backward=False)      the share of the peak that its attention has

`frameworks.toml` has the profiles with their sources. The same model on the same GPUs takes up to twice as long in a
framework that fuses nothing, or in a stack that is young for its GPU.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import msgspec

from weft.errors import find_named
from weft.fabric.rates import Sourced, read_data

DEFAULT = "megatron"
WITHOUT = " without "
HOPPER_SM, BLACKWELL_SM = 90, 100
_FORMATS = {"fp16": "bf16"}  # with the same kernels


class Attention(Sourced, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A fused attention kernel: its shares of the 16-bit peak by compute capability."""

    narrow: int  # head_dim below which softmax limits the rate, not the products
    forward: dict[str, float]
    backward: dict[str, float]

    def share(self, sm: int, *, backward: bool) -> float:
        """Return the share of the peak on a GPU of compute capability `sm`."""
        return float(_by_generation(self.backward if backward else self.forward, sm))


class Framework(Sourced, frozen=True, eq=False, forbid_unknown_fields=True, kw_only=True):
    """A framework at a time; `frameworks.toml` explains the fields."""

    name: str
    label: str
    attention: str
    products: dict[str, dict[str, float]] = msgspec.field(default_factory=dict)
    grouped: float
    passes: float
    host_ms: float  # 0: launches are never waited for
    contention: float
    deduplicates: bool = False
    all_reduces: bool = False
    reserve_gbyte: float
    layout: dict[str, Any] = msgspec.field(default_factory=dict)
    without: dict[str, dict[str, Any]] = msgspec.field(default_factory=dict)

    @property
    def kernel(self) -> Attention:
        return _kernels()[self.attention]

    def product_share(self, sm: int, precision: str) -> float:
        """Return the rate of matrix products relative to the sustained rate of the GPU."""
        shares = _by_generation(self.products, sm) if self.products else {}
        return float(shares.get(_FORMATS.get(precision, precision), 1.0))


def _by_generation(values: Mapping[str, Any], sm: int) -> Any:
    """Return the value of the latest generation of GPUs up to `sm`; without one, that of the first."""
    known = sorted(map(int, values))
    return values[str(max((each for each in known if each <= sm), default=known[0]))]


@cache
def _kernels() -> dict[str, Attention]:
    return msgspec.convert(read_data("weft.training", "frameworks.toml")["kernels"], dict[str, Attention])


@cache
def frameworks() -> Mapping[str, Framework]:
    """Return all profiles by name."""
    tables = read_data("weft.training", "frameworks.toml")
    del tables["kernels"]
    return {name: msgspec.convert({**table, "name": name}, Framework) for name, table in tables.items()}


@cache
def find_framework(name: str) -> Framework:
    """Find a profile; `deepspeed without bloom` is the profile as it would be if that source were unknown."""
    known, _, left_out = name.partition(WITHOUT)
    framework = find_named("framework", known, frameworks())
    return msgspec.structs.replace(framework, name=name, **framework.without.get(left_out, {}))


def choose_framework(fields: Mapping[str, Any], sm: int) -> str:
    """Return the framework of a layout that names none, by the most likely one on GPUs of compute capability `sm`."""
    if "framework" in fields:
        return str(fields["framework"])
    if fields.get("zero") == 3 and sm < BLACKWELL_SM and not {"tp", "pp", "ep"} & fields.keys():
        return "fsdp-eager"
    return "deepspeed" if fields.get("precision") == "fp16" and sm < HOPPER_SM else DEFAULT


def with_defaults(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a layout with those that its framework sets unless they are given."""
    return {**find_framework(fields.get("framework", DEFAULT)).layout, **fields}
