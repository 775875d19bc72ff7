"""Programs on real memory: what the simulators time, carried out by queue pairs of `weft.verbs`.

store           where ranks find each other
link            a queue pair to one other rank, with slots for what comes from it and credits for its slots
reading         memory of other processes of this machine, without slots; kernels and job are of it
plan            a program as one rank sees it: fragments to send and to take, in an order that cannot block
execution       one call: a plan carried out on memory
record          what a rank did, for `weft run --record`
beside          groups of the same ranks on several kinds of memory: who is in which
group           ranks that do collectives together, and send to each other
"""
