"""Five small real programs and their runner: `weft scenario real-workloads`.

programs        the five programs
rank            the work of each rank: all programs on both carriers, timed, then once recorded
"""

__all__: list[str] = []
