"""Choose the loop. The compiled one is imported when there is an endpoint: it needs numba."""

from __future__ import annotations

from weft.verbs.perftest.endpoint import Endpoint
from weft.verbs.perftest.kinds import Connection
from weft.verbs.perftest.loop import Loop, PythonLoop, Watch


def load(end: Endpoint) -> None:
    """Load slow parts before both ends start."""
    from weft.verbs.perftest import compiled_loop

    if end.plan.connection is Connection.RC:
        compiled_loop.load(end)


def choose(end: Endpoint, watch: Watch) -> Loop:
    """Return the fastest loop for the queue pairs of this end."""
    from weft.verbs.perftest.compiled_loop import compiled_loop

    return compiled_loop(end, watch) or PythonLoop(end, watch)
