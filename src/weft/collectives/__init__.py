"""Collectives as programs of messages, and their times by NCCL's and MPI's rules.

experts         dispatch and combine of mixture-of-experts layers by fused kernels
live            programs on real memory, over queue pairs
mpi             times of MPI libraries, as the OSU micro-benchmarks print them
nccl            NCCL's choices and times, as nccl-tests prints them
rails           hierarchical programs on very many GPUs, one rail at a time
run             the time of a program over a fabric, by any engine
traffic         a program as messages with dependencies
schedules       programs: rings, trees and others, with a proof of each
ranks           the placement of ranks on servers, GPUs and adapters
interconnect    fabrics of the catalog between the servers of a job
kinds           names of collectives, algorithms and protocols

Print the algorithm that NCCL would choose, and why:

    from weft.collectives.nccl.choose import choose
    from weft.collectives.nccl.cluster import from_server
    from weft.collectives.kinds import Collective
    print(choose(from_server("dgx-h100", nodes=4), Collective.ALL_REDUCE, 64 << 20).explain())
"""

__all__ = ["experts", "interconnect", "kinds", "live", "mpi", "nccl", "rails", "ranks", "run", "schedules", "traffic"]
