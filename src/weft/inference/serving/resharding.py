"""KV caches between replicas of different layouts: which GPU sends which part to which.

A GPU holds the cache of its stage's layers and of its tensor rank's KV heads; with more tensor ranks than KV heads, and
with latent attention, several hold the same. Each GPU of the decode replica receives all that it needs:

    prefill tp 2   [heads 0 1][heads 2 3]          decode tp 2 -> prefill tp 4: halves of a rank's cache
    decode  tp 4   [0]  [1]   [2]  [3]

Ranks of a replica are in the order tp, dp, pp, the first fastest.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import lcm

from weft.errors import ConfigError
from weft.inference.deployment import Deployment

SIZES = ("tp", "pp", "dp", "ep")


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A part of a request's KV cache on its way from a GPU of the prefill replica to one of the decode replica."""

    source: int
    target: int
    share: float  # of the bytes of the hand-off


def check_layouts(prefill: Deployment, decode: Deployment) -> None:
    """Refuse layouts between which the engines cannot move a cache: their slices of heads or layers would overlap."""
    for name in ("tp", "pp"):
        one, other = getattr(prefill, name), getattr(decode, name)
        if max(one, other) % min(one, other):
            raise ConfigError(
                f"--decode-{name} {other} and --{name} {one} cut the KV cache at different places: one must be a "
                "multiple of the other"
            )


def find_parts(prefill: Deployment, decode: Deployment) -> list[list[Part]]:
    """Return the parts of a hand-off, for each pair of attention ranks that requests take in turn."""
    check_layouts(prefill, decode)
    moves = _moves(prefill, decode)
    pairs = lcm(prefill.dp, decode.dp)
    return [
        [
            Part(
                source=_rank(prefill, stage, i % prefill.dp, tensor),
                target=_rank(decode, to_stage, i % decode.dp, to_tensor),
                share=share,
            )
            for (stage, tensor), (to_stage, to_tensor), share in moves
        ]
        for i in range(pairs)
    ]


def _rank(deployment: Deployment, stage: int, attention: int, tensor: int) -> int:
    return (stage * deployment.dp + attention) * deployment.tp + tensor


def _moves(prefill: Deployment, decode: Deployment) -> list[tuple[tuple[int, int], tuple[int, int], float]]:
    """Return (stage, tensor rank) of the sender and of the receiver, and the share of all bytes."""
    moves = []
    for to_stage in range(decode.pp):
        for to_tensor in range(decode.tp):
            need, copy = _heads(decode, to_tensor)
            for stage in range(prefill.pp):
                layers = _overlap(stage / prefill.pp, 1 / prefill.pp, to_stage / decode.pp, 1 / decode.pp)
                holders: dict[tuple[float, float], list[int]] = {}
                for tensor in range(prefill.tp):
                    holders.setdefault(_heads(prefill, tensor)[0], []).append(tensor)
                for (begin, width), ranks in holders.items():
                    heads = _overlap(begin, width, *need)
                    if layers > 0 and heads > 0:
                        share = layers * heads / (need[1] * decode.tp)  # every receiver gets as many bytes
                        moves.append(((stage, ranks[copy % len(ranks)]), (to_stage, to_tensor), share))
    return moves


def _heads(deployment: Deployment, tensor: int) -> tuple[tuple[float, float], int]:
    """Return the KV heads of a tensor rank, as begin and number, and how many ranks before it hold the same."""
    model, tp = deployment.model, deployment.tp
    heads = 1 if model.kv_lora else model.kv_heads
    if tp <= heads:
        return (tensor * heads / tp, heads / tp), 0
    head = tensor * heads // tp
    return (float(head), 1.0), tensor - -(-head * tp // heads)


def _overlap(begin: float, width: float, other: float, other_width: float) -> float:
    return max(0.0, min(begin + width, other + other_width) - max(begin, other))
