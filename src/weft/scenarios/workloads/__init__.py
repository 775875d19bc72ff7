"""Five small real programs, and what runs them: `weft scenario real-workloads`.

programs        the five, in mpi4py's words
sockets         those words on plain TCP sockets: the same collectives, another carrier
rank            what each rank of the job does: all programs on both, timed, then once recorded
"""
