"""Random numbers of the kernels: a linear congruential generator that fits in int64, the same compiled and
interpreted.
"""

from __future__ import annotations

from weft.jit import part

RANDOM_BITS = 31


@part
def draw_random(s):
    """Return 31 random bits, of which the upper ones are good."""
    run = s.run[0]
    run.random = (run.random * 1_103_515_245 + 12_345) & ((1 << RANDOM_BITS) - 1)
    return run.random


@part
def draw_below(s, n):
    """Return a random number from 0 to n - 1, without a division."""
    return ((draw_random(s) >> 8) * n) >> (RANDOM_BITS - 8)
