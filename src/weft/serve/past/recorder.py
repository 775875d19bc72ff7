"""Record the history of a served fabric: facts by a follower, and the states that the console shows.

    with Recorder(monitor, "sqlite:///fabric.history.db") as recorder:
        recorder.history                  `weft.twin.History`
        recorder.moments                  states and drawings

A poll takes at most a fifth of the time, so a large fabric is polled less often than every second.
"""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack
from typing import Self

from sqlalchemy.exc import SQLAlchemyError

from weft.errors import WeftError
from weft.lab.subnets import new_poller
from weft.monitor.poll import Poller
from weft.serve.console.events import FabricState, log_lines
from weft.serve.console.monitor import FabricMonitor
from weft.serve.past.moments import Moments
from weft.twin.follow import Follower
from weft.twin.history import History
from weft.twin.source import RunningSubnet

_EVERY_S = 1.0
_REST = 4.0  # pause after a poll, in durations of a poll
KEEP_S = 90 * 86_400.0
_FORGET_EVERY = 1000  # polls


class Recorder:
    """A thread that records. Use it as a context manager."""

    def __init__(self, monitor: FabricMonitor, database: str) -> None:
        self._monitor = monitor
        self.history = History(database)
        self.moments = Moments(self.history.engine)
        self._open = ExitStack()  # the follower's carrier
        self._follower: Follower | None = None
        self._before: FabricState | None = None
        self._polls = 0
        self._at_s = 0.0  # time of the facts, since 1970
        self.trouble = ""  # why the last poll was not recorded
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="recorder", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()
        self.close()

    def close(self) -> None:
        """Close the carrier and the database, where no thread records."""
        self._open.close()
        self.history.close()

    def record(self) -> None:
        """Poll and record once."""
        state, drawing = self._monitor.state(), self._monitor.fabric()
        self._at_s = time.time() if state.trouble else state.t  # facts read after a state include what it shows
        if self._follower is None:
            self._follower = self._new_follower()
        self._follower.poll()
        if state.revision == drawing.revision:  # else the cabling changed in between
            state.runs = []
            events = list(log_lines(self._before, state, drawing)) if self._before else [("record", "recording begins")]
            self.moments.add(state, drawing, events)
            self._before = state
        if self._polls % _FORGET_EVERY == 0:
            self.history.forget(time.time() - KEEP_S)
            self.moments.forget(time.time() - KEEP_S)
        self._polls += 1

    def _new_follower(self) -> Follower:
        self._open.close()
        backend = self._monitor.backend
        carrier = self._open.enter_context(backend.attach())
        poller = Poller(carrier) if backend.lab is None else new_poller(backend.lab, carrier)
        return Follower(RunningSubnet(poller), self.history, clock=lambda: self._at_s)

    def _run(self) -> None:
        while not self._end.is_set():
            begin_s, trouble = time.monotonic(), ""
            try:
                self.record()
            except (WeftError, OSError) as error:  # of the fabric; the monitor reports it too
                self._follower, trouble = None, str(error)
            except SQLAlchemyError as error:
                trouble = f"the history is not recorded: {getattr(error, 'orig', None) or error}"
            if trouble not in ("", self.trouble):
                self._monitor.log("trouble", trouble)
            self.trouble = trouble
            took_s = time.monotonic() - begin_s
            self._end.wait(max(_EVERY_S - took_s, _REST * took_s))
