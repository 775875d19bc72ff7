"""Get permission of the lab to write to a peer's memory instead of sending packets.

The lab grants it for a path without faults, with a meter (see weft.lab.metered_paths). It revokes the grant by closing
the meter, before anything on the path changes.
"""

from __future__ import annotations

import mmap
import os
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from weft.errors import ConfigError, SubnetError
from weft.verbs.carriers.lab.connection import METERS, QUEUE_PAIR_BITS, Line
from weft.verbs.carriers.lab.paths import AddressVector
from weft.verbs.carriers.places import place_of
from weft.verbs.shm.layout import MeterRecord

_ASK_AGAIN_S = 0.02  # after a refusal
_TIMEOUT_S = 1.0


@dataclass(frozen=True, slots=True)
class MemoryGrant:
    """A grant. `handover` is the socket at which the peer shares its memory; a closed `meter` ends the grant."""

    handover: Path
    meter: MeterRecord
    program: int  # its number there
    end: PathEnd


@dataclass(frozen=True, slots=True)
class PathEnd:
    """The port at the other end of a path, with the SLID and the hop limit of packets that arrive there."""

    guid: int
    slid: int
    hop_limit: int


class MemoryGrants:
    """The grants of one program at one port; `meters` is a file."""

    def __init__(self, line: Line, guid: int, program: int, meters: int) -> None:
        self._line, self._place = line, place_of(line.path)
        self.handover = self._handover(guid, program)  # of this program
        self._meters = (MeterRecord * METERS).from_buffer(mmap.mmap(meters, METERS * MeterRecord.size))
        os.close(meters)
        self._known: dict[
            tuple[object, ...], int
        ] = {}  # path -> meter, which never changes, because other threads may use it
        self._ends: dict[int, PathEnd] = {}  # by meter
        self._refused: dict[int, float] = {}  # meter -> end of the refusal
        self._lock = threading.Lock()  # the lab opens a meter before the thread that asked has the GUID

    def _handover(self, guid: int, program: int) -> Path:
        return self._place / f"{guid:016x}-{program}"

    def forget(self) -> None:
        """Forget refusals: the lab may grant them now."""
        self._refused.clear()

    def close(self) -> None:
        """End all grants, when no lab is left that could count or close them."""
        with self._lock:
            for meter in self._ends:
                self._meters[meter].is_open = 0

    def to(self, av: AddressVector, p_key: int, mtu_bytes: int, dest_qp: int) -> MemoryGrant | None:
        """Return the grant for a path, or None if the lab refuses. All queue pairs with the same path share a meter."""
        key = av.lid, av.sl, av.path_bits, av.gids, av.hop_limit, p_key, mtu_bytes
        with self._lock:
            meter = self._known.setdefault(key, len(self._known))
            end = self._open(key, meter) if meter < METERS else None
        if end is None:
            return None
        program = dest_qp >> QUEUE_PAIR_BITS
        return MemoryGrant(self._handover(end.guid, program), self._meters[meter], program, end)

    def _open(self, key: tuple[object, ...], meter: int) -> PathEnd | None:
        """Return the end of the path if the meter is open, or the lab opens it now."""
        if self._meters[meter].is_open and meter in self._ends:  # an answer that came too late opens it too
            return self._ends[meter]
        if self._refused.get(meter, 0) > time.monotonic():
            return None
        end = self._ask(key, meter)
        if end is None:
            self._refused[meter] = time.monotonic() + _ASK_AGAIN_S
        else:
            self._ends[meter] = end
        return end

    def _ask(self, key: tuple[object, ...], meter: int) -> PathEnd | None:
        """Ask the lab to open the meter; return the end of the path if it did."""
        names = ("lid", "sl", "path_bits", "gids", "hop_limit", "p_key", "mtu_bytes")
        try:
            answer = self._line.ask("metered_path", _TIMEOUT_S, meter=meter, **dict(zip(names, key, strict=True)))
        except (ConfigError, SubnetError):
            return None
        return PathEnd(answer["guid"], answer["slid"], answer["hop_limit"]) if answer["guid"] else None
