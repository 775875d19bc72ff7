"""The network between servers, as a collective sees it: the latency of a step, and the rate of each adapter."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass


class Pattern(enum.StrEnum):
    """A communication pattern between servers; every adapter sends on its own rail."""

    RING = "ring"  # each server to the next
    TREE = "tree"  # a double binary tree, up and down
    PAIRS = "pairs"  # each server to every other


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """A network under one pattern, with all adapters busy."""

    step_us: float  # a small message between the memories of two servers, the worst pair of the pattern
    adapter_gbyte_s: float  # payload that the slowest adapter sends, all flows of the pattern running
    fabric: str = "InfiniBand"  # in words
    transport: str = ""  # as in fabrics.toml: what carries the messages, where it is not the card's RDMA or sockets
    eager_bytes: int | None = None  # of a message, up to which it is not fetched; None: as the transport has it


Networks = Mapping[Pattern, Network]
