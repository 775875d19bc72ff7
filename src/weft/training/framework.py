"""The software of a training job: which kernels run, how fast they are, and what overlaps.

find_kernel(find_framework("fsdp-eager").attention).share(80, backward=False)      of the peak: its attention

`frameworks.toml` has the profiles with their sources. The same model on the same GPUs takes up to twice as long in a
framework that fuses nothing, or in a stack that is young for its GPU.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import msgspec

from weft.errors import ConfigError, find_named
from weft.fabric.rates import Sourced, read_data

DEFAULT = "megatron"
WITHOUT = " without "
HOPPER_SM, BLACKWELL_SM = 90, 100
_FORMATS = {"fp16": "bf16"}  # with the same kernels


class Attention(Sourced, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A fused attention kernel: its shares of the 16-bit peak by compute capability."""

    narrow: int  # head_dim below which softmax limits the rate, not the products
    generation: int = 0  # compute capability of the only GPUs that it runs on; 0: all from the first in the tables on
    forward: dict[str, float]
    backward: dict[str, float]

    def share(self, sm: int, *, backward: bool) -> float:
        """Return the share of the peak on a GPU of compute capability `sm`. Raise ConfigError where it does not run."""
        if self.generation and sm // 10 != self.generation // 10:
            raise ConfigError(
                f"this attention kernel runs on GPUs of compute capability {self.generation / 10:g} alone, and these "
                f"have {sm / 10:g}: take fa2 or cudnn"
            )
        return float(_by_generation(self.backward if backward else self.forward, sm))


class Passes(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Bytes that elementwise kernels move, relative to kernels that are fused where they can be."""

    plain: float = 1.0  # LayerNorm, learned positions or ALiBi, GELU
    gated: float = 1.0  # RMSNorm, rotary positions, a gate beside the activation function
    optimizer: float = 1.0


class Host(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The time of the host for a layer and micro-batch, forward and backward; 0: nothing waits for it."""

    sync_ms: float = 0.0  # of any layer: the GPU waits for it, however long its kernels take
    layer_ms: float = 0.0
    expert_ms: float = 0.0  # for each expert of a GPU, whose products are launched one by one
    small: float = 0.125  # the GPU's time for the small kernels among these, relative to the host's
    overlapped: float = 1.0  # factor with exchanges behind the compute of another micro-batch, on several streams
    graphs: dict[str, float] = msgspec.field(default_factory=dict)  # shares of launches in CUDA graphs of a scope


class Framework(Sourced, frozen=True, eq=False, forbid_unknown_fields=True, kw_only=True):
    """A framework at a time; `frameworks.toml` explains the fields."""

    name: str
    label: str
    attention: str
    products: dict[str, dict[str, float]] = msgspec.field(default_factory=dict)
    passes: Passes
    host: Host
    contention: float
    all_reduces: bool = False
    reserve_gbyte: float
    layout: dict[str, Any] = msgspec.field(default_factory=dict)
    without: dict[str, dict[str, Any]] = msgspec.field(default_factory=dict)

    def product_share(self, sm: int, precision: str) -> float:
        """Return the rate of matrix products relative to the sustained rate of the GPU."""
        shares = _by_generation(self.products, sm) if self.products else {}
        return float(shares.get(_FORMATS.get(precision, precision), 1.0))


def _by_generation(values: Mapping[str, Any], sm: int) -> Any:
    """Return the value of the latest generation of GPUs up to `sm`; without one, that of the first."""
    known = sorted(map(int, values))
    return values[str(max((each for each in known if each <= sm), default=known[0]))]


def find_kernel(name: str) -> Attention:
    """Return the attention kernel of that name in frameworks.toml."""
    return kernels()[name]


@cache
def kernels() -> Mapping[str, Attention]:
    """Return the attention kernels by name."""
    return msgspec.convert(read_data("weft.training", "frameworks.toml")["kernels"], dict[str, Attention])


@cache
def frameworks() -> Mapping[str, Framework]:
    """Return all profiles by name."""
    return {name: msgspec.convert({**table, "name": name}, Framework) for name, table in _tables().items()}


@cache
def _tables() -> dict[str, dict[str, Any]]:
    tables = read_data("weft.training", "frameworks.toml")
    del tables["kernels"]
    return tables


@cache
def find_framework(name: str) -> Framework:
    """Find a profile; `deepspeed without bloom` is the profile as it would be if that source were unknown."""
    known, _, left_out = name.partition(WITHOUT)
    framework = find_named("framework", known, frameworks())
    changes = framework.without.get(left_out, {})
    return msgspec.convert({**_tables()[known], **changes, "name": name}, Framework)


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
