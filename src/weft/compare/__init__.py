"""Which fabric for this cluster, and why.

    from weft.compare.comparison import compare
    from weft.compare.job import parse_job

    found = compare("superpod:su=1", parse_job("all_reduce:1G"), ["ndr", "roce-400", "eth-100-tcp"])
    print(found.finding)

The same servers are cabled with each fabric (`recable`), the patterns of a collective are run over each by an
engine, and everything else is closed form (`weft.collectives.estimate`).
"""
