"""Collectives as programs of messages, and their times by NCCL's rules.

Print the algorithm that NCCL would choose, and why:

    from weft.collectives.choose import choose
    from weft.collectives.cluster import from_server
    from weft.collectives.kinds import Collective
    print(choose(from_server("dgx-h100", nodes=4), Collective.ALL_REDUCE, 64 << 20).explain())
"""
