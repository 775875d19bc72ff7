"""Programs on real memory: those that the simulators time, executed over queue pairs of `weft.verbs`.

store           key-value store through which ranks connect
link            a queue pair to one other rank, with slots for what comes from it and credits for its slots
reading         memory of other processes of this machine, without slots; kernels and job are of it
plan            a program as one rank sees it: fragments to send and to take, in an order that cannot block
execution       one call: a plan carried out on memory
record          the calls of a rank, for `weft run --record`
beside          groups of the same ranks on several kinds of memory
group           ranks that do collectives together, and send to each other
world           all ranks of a job, with collectives and messages on numpy arrays
"""

__all__ = ["group", "job", "pytorch", "store", "world"]
