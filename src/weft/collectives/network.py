"""What the network between the servers gives to a collective: a step's time, and what each adapter carries."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass


class Pattern(enum.StrEnum):
    """Who talks to whom between servers; every adapter talks to those of its own rail."""

    RING = "ring"  # each server to the next
    TREE = "tree"  # a double binary tree, up and down
    PAIRS = "pairs"  # each server to every other


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """One network under one pattern, all adapters busy at once."""

    step_us: float  # a small message between the memories of two servers, the worst pair of the pattern
    adapter_gbyte_s: float  # payload that the slowest adapter sends, all flows of the pattern running
    fabric: str = "InfiniBand"  # in words
    transport: str = ""  # as in fabrics.toml: what carries the messages, where it is not the card's RDMA or sockets


Networks = Mapping[Pattern, Network]
