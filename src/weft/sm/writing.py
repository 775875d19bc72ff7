"""Files that a subnet manager keeps beside its work: state and dumps.

A disk that is full is no reason to leave a subnet alone. What cannot be written is said once, and so is the end of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from weft.errors import WeftError
from weft.fabric.model import Fabric
from weft.sm.events import Event, Log


@dataclass(slots=True, eq=False)
class Writing:
    log: Log
    _failing: set[str] = field(default_factory=set)

    def attempt(self, what: str, write: Callable[[], None]) -> None:
        """Write a file; `what` names it in the log: "the state"."""
        try:
            write()
        except (OSError, WeftError) as error:
            if what not in self._failing:
                self._failing.add(what)
                self.log.say(Event.NOT_WRITTEN, f"{what}: {error}; the subnet is managed all the same")
            return
        if what in self._failing:
            self._failing.remove(what)
            self.log.say(Event.WRITTEN_AGAIN, what)


def dump_tables(fabric: Fabric, folder: Path) -> None:
    """Write the files that ibdmchk reads; lanes too, if there is more than one."""
    from weft.fabric.files.opensm import write_dumps  # few want it

    folder.mkdir(parents=True, exist_ok=True)
    write_dumps(fabric, folder)
