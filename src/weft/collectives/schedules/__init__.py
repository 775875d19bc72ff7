"""Send schedules: collectives as programs of messages, proved before use.

writers         all programs by collective and algorithm
nvls            NVSwitches that add and multicast
sharp           network switches that add
hierarchical    NVLink inside the nodes, a ring, tree or switch on each rail between them
folded          MPI's recursive algorithms for any number of ranks
leaders         one process of each node communicates for the others
channels        composition of programs, in parallel and in sequence
ring            rings and chains
tree            double binary trees
recursive       halving, doubling, pairwise exchange, dissemination
knomial         binomial, k-nomial and binary trees
neighbour       neighbour exchange
pat             PAT and Bruck
all_to_all      all-to-all, gather, scatter
check           the proof of a program
program         a program as data: the sends of each round
"""

__all__ = ["check", "program", "writers"]
