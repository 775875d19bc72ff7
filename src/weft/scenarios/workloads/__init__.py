"""Five small real programs and their runner: `weft scenario real-workloads`.

programs        the five programs, with mpi4py's methods
sockets         those methods on plain TCP sockets: the same collectives, another carrier
rank            the work of each rank: all programs on both carriers, timed, then once recorded
"""

__all__: list[str] = []
