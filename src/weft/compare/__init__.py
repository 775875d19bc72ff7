"""Compare fabrics for a cluster: which one to choose, and why.

    from weft.compare.comparison import compare
    from weft.compare.job import parse_job

    comparison = compare("superpod:su=1", parse_job("all_reduce:1G"), ["ndr", "roce-400", "eth-100-tcp"])
    print(comparison.finding)

The same servers are cabled with each fabric (`comparison`), the patterns of a collective are run over each by an
engine, and everything else is closed form (`weft.collectives.nccl.estimate`).
"""

__all__ = ["comparison", "job", "outcome"]
