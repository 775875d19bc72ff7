"""All-to-all, gather and scatter.

    pairwise        n - 1 messages from each rank, one part in each; in `recursive`
    Bruck           log2(n) messages, about half of the buffer in each: for small ones
    hierarchical    as NCCL's PXN: what GPUs of a node send to rail r goes over NVLink to their own GPU r, and from
                    there in one message to each node: 1/g of the messages, and none from one rail to another

                    node 0                     node 1
                    GPU 0 ─┐
                    GPU 1 ─┼─> GPU 2 ────────> GPU 2      parts of all GPUs of node 0 for GPU 2 of node 1
                    GPU 3 ─┘

A buffer of an all-to-all is what a rank sends, by receiver; after it what it receives, by sender; and then room for
what it passes on.
"""

from __future__ import annotations

import numpy as np

from weft.collectives.kinds import Collective
from weft.collectives.schedules.program import Program, Sends
from weft.errors import ConfigError


def bruck_all_to_all(n_ranks: int) -> Program:
    """Return Bruck's program: a part for the rank s places on goes 2^k places in round k if bit k of s is set (1997).

    What is passed on waits in a row of its own for each round, so that nothing is overwritten before it was sent.
    """
    n, bits = n_ranks, (n_ranks - 1).bit_length()

    def make_round(number: int) -> Sends:
        bit = 1 << number
        far = np.arange(n)
        far = far[far & bit > 0]
        rank, far = np.repeat(np.arange(n), len(far)), np.tile(far, n)
        done = far & (bit - 1)  # so far it has come already, and in the round of the highest bit of that
        last = np.frexp(done)[1] - 1
        begin = np.where(done == 0, (rank + far) % n, (2 + last) * n + far)
        end = np.where(far < 2 * bit, n + (rank - done) % n, (2 + number) * n + far)
        return Sends.make(rank, (rank + bit) % n, begin, to=end, add=False)

    room = {"n_chunks": (2 + bits) * n, "n_beside": (1 + bits) * n}
    return Program.of("Bruck all-to-all", Collective.ALL_TO_ALL, n, (1,) * bits, make_round, **room, aggregated=True)


def hierarchical_all_to_all(n_nodes: int, gpus: int) -> Program:
    """Return a program that exchanges inside nodes, then along each rail: in round k with the node k places on."""
    if n_nodes < 1 or gpus < 1:
        raise ConfigError(f"hierarchical all-to-all on {n_nodes} nodes of {gpus} GPUs: there is one or more of each")
    n_inside = 1 if gpus > 1 else 0

    def make_round(number: int) -> Sends:
        if number < n_inside:
            return _onto_rails(n_nodes, gpus)
        return _along_rails(n_nodes, gpus, number - n_inside + 1)

    n, runs = n_nodes * gpus, (1,) * (n_inside + n_nodes - 1)
    room = {"n_chunks": 3 * n, "n_beside": 2 * n}
    return Program.of(
        "hierarchical all-to-all", Collective.ALL_TO_ALL, n, runs, make_round, **room, gpus=gpus, aggregated=True
    )


def _onto_rails(n_nodes: int, gpus: int) -> Sends:
    """Return the sends inside nodes: parts for each GPU, and parts that it forwards along its rail."""
    n = n_nodes * gpus
    rank = np.repeat(np.arange(n), gpus - 1)
    node, own = np.divmod(rank, gpus)
    rail = (own + np.tile(np.arange(1, gpus), n)) % gpus
    peer = node * gpus + rail
    return _join(
        Sends.make(rank, peer, peer, to=n + rank, add=False),
        Sends.make(rank, peer, rail, to=2 * n + own, n=node, stride=gpus, add=False),
        Sends.make(rank, peer, peer + gpus, to=2 * n + rank + gpus, n=n_nodes - 1 - node, stride=gpus, add=False),
    )


def _along_rails(n_nodes: int, gpus: int, shift: int) -> Sends:
    """Return one message from each GPU, with the parts of all GPUs of its node."""
    n = n_nodes * gpus
    rank = np.arange(n)
    node, own = np.divmod(rank, gpus)
    peer = (rank + shift * gpus) % n
    held, to = 2 * n + peer - own, n + node * gpus  # chunks of GPU 0's parts, and their targets
    return _join(
        Sends.make(rank, peer, peer, to=n + rank, add=False),
        Sends.make(rank, peer, held, to=to, n=own, add=False),
        Sends.make(rank, peer, held + own + 1, to=n + rank + 1, n=gpus - 1 - own, add=False),
    )


def _join(*parts: Sends) -> Sends:
    """Join sends; some may be empty."""
    whole = Sends.join(list(parts))
    some = whole.n_chunks > 0
    return Sends(**{name: getattr(whole, name)[some] for name in Sends.__slots__})


def linear_gather(n_ranks: int, root: int = 0) -> Program:
    """Return a program in which all ranks send their parts to the root at once."""
    rank = np.delete(np.arange(n_ranks), root) if 0 <= root < n_ranks else np.arange(n_ranks)
    sends = Sends.make(rank, root, rank, add=False)
    return Program.of("linear gather", Collective.GATHER, n_ranks, (1,), lambda _number: sends, root=root)


def linear_scatter(n_ranks: int, root: int = 0) -> Program:
    """Return a program in which the root sends each rank its part."""
    rank = np.delete(np.arange(n_ranks), root) if 0 <= root < n_ranks else np.arange(n_ranks)
    sends = Sends.make(np.full(len(rank), root), rank, rank, add=False)
    return Program.of("linear scatter", Collective.SCATTER, n_ranks, (1,), lambda _number: sends, root=root)


def shift_send_recv(n_ranks: int) -> Program:
    """Return a program in which each rank sends its buffer to the next, as sendrecv_perf of nccl-tests does."""
    rank = np.arange(n_ranks)
    sends = Sends.make(rank, (rank + 1) % n_ranks, 0, to=1, add=False)
    return Program.of("shift", Collective.SEND_RECV, n_ranks, (1,), lambda _number: sends, n_chunks=2, n_beside=1)
