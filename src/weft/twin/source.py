"""Sources of a follower: a running subnet, and files that other tools write.

source = RunningSubnet(poller)
fabric = source.refresh()                   `source.version` grows if it differs from the last one
source.read_ports()                        counters of errors and serial numbers of cables, as facts
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from weft.errors import SubnetError
from weft.fabric.files import ibdiagnet
from weft.fabric.files.opensm_tables import read_tables
from weft.fabric.model import Fabric
from weft.fabric.spec import load
from weft.monitor.cables import Serials
from weft.monitor.poll import Poller, Reading
from weft.twin.facts import Facts, error_facts
from weft.twin.model import Model

_REST = 4  # pause between two readings of counters, in durations of a reading
_PUT_OFF_S = 5.0  # counters wait so long while traps come


class Source(Protocol):
    """A subnet that can be read again and again."""

    @property
    def version(self) -> int:
        """Return a number that grows with each difference of the fabric."""
        ...

    def refresh(self, changed: Collection[int] = ()) -> Fabric:
        """Return the fabric of the present with its tables. `changed` are LIDs that traps named."""
        ...

    def read_ports(self, *, is_urgent: bool = False) -> Facts:
        """Return counters of errors that are not zero, and ports by the serial number of their cable.

        If it is urgent, return those of the last time.
        """
        ...


class RunningSubnet:
    """A subnet that is read by MADs. Counters take longer than changes, so they are read a fifth of the time."""

    def __init__(self, poller: Poller) -> None:
        self._poller, self._model, self._serials = poller, Model(poller.carrier), Serials(poller.carrier)
        self._reading: Reading | None = None
        self._cables: Facts = {}
        self._due_s = 0.0

    @property
    def version(self) -> int:
        return self._model.version

    @property
    def whole_walks(self) -> int:
        """Return how often the whole cabling was read: at the start, and after contradictions."""
        return self._model.whole_walks

    def refresh(self, changed: Collection[int] = ()) -> Fabric:
        """Read what changed."""
        return self._model.refresh(changed)

    def read_ports(self, *, is_urgent: bool = False) -> Facts:
        """Read counters and serial numbers if they are due."""
        begin_s = time.monotonic()
        if begin_s >= self._due_s + _PUT_OFF_S * is_urgent:
            with suppress(SubnetError):  # counters cannot be read, for example without LIDs: the last ones stay
                self._reading = self._poller.poll(self._model.view)
                serials = self._serials.read(self._reading)
                self._cables = {("cable", serial): ports for serial, ports in serials.items()}
            now_s = time.monotonic()
            self._due_s = now_s + _REST * (now_s - begin_s)
        return {} if self._reading is None else error_facts(self._reading) | self._cables


class Files:
    """A fabric in a file of any format that weft reads, and dumps of its tables: read again if one of them changed."""

    def __init__(self, spec: str, tables: Path | None = None) -> None:
        self._spec, self._tables = spec, tables
        self._stamps: tuple[tuple[str, int, int], ...] = ()
        self._fabric: Fabric | None = None
        self._errors: Facts = {}
        self.version = 0

    def refresh(self, changed: Collection[int] = ()) -> Fabric:
        """Return the fabric, read again if a file has another time or size."""
        assert not changed  # files send no traps
        stamps = tuple(_stamps(Path(self._spec), self._tables))
        if self._fabric is None or stamps != self._stamps:
            fabric, errors = load(self._spec), {}
            if self._tables is not None:
                fabric = fabric.configured(fabric.tables.unrouted())
                read_tables(self._tables, fabric)
            if self._spec.lower().endswith(".db_csv"):
                errors = _errors(ibdiagnet.read_errors(Path(self._spec), fabric))
            self._fabric, self._errors, self._stamps = fabric, errors, stamps
            self.version += 1
        return self._fabric

    def read_ports(self, *, is_urgent: bool = False) -> Facts:
        """Return the counters of the file, if it has some."""
        return self._errors


def _errors(counts: dict[str, dict[str, int]]) -> Facts:
    return {
        ("errors", port): ", ".join(f"{name} {count}" for name, count in errors.items())
        for port, errors in counts.items()
    }


def _stamps(*paths: Path | None) -> Iterator[tuple[str, int, int]]:
    """Yield name, time and size of files, and of those in folders."""
    for path in paths:
        if path is None or not path.exists():
            continue
        for each in sorted(path.iterdir()) if path.is_dir() else (path,):
            status = each.stat()
            yield str(each), status.st_mtime_ns, status.st_size
