"""The history of a served fabric: facts of every change, and the states that the console showed.

moments     states and drawings in a database, fewer of the older ones
recorder    polls the fabric and records both
routes      REST under /api/v1: facts, changes and differences; the states
"""

__all__: list[str] = []
