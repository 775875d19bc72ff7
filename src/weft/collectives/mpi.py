"""MPI's all-reduce between servers, in closed form: the better of the two that every library has.

    recursive doubling     log2(n) rounds, all bytes in each: for few bytes
    ring                   2 (n - 1) steps, an nth of the bytes in each: for many

No kernel is launched, so small ones take less than NCCL's. Bytes are cut over all adapters of a server. The forms:
Thakur, Rabenseifner and Gropp, Optimization of Collective Communication Operations in MPICH, 2005.
"""

from __future__ import annotations

from math import ceil, log2

from weft.collectives.network import Networks, Pattern


def all_reduce_us(networks: Networks, *, nodes: int, nics: int, size_bytes: float) -> float:
    if nodes < 2:
        return 0.0
    pairs, ring = networks[Pattern.PAIRS], networks[Pattern.RING]
    doubling_us = ceil(log2(nodes)) * (pairs.step_us + size_bytes / nics / pairs.adapter_gbyte_s / 1e3)
    ring_us = 2 * (nodes - 1) * (ring.step_us + size_bytes / nodes / nics / ring.adapter_gbyte_s / 1e3)
    return min(doubling_us, ring_us)
