"""Hold the state for request handlers: the subnet of the last sweep, and values computed from it once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from weft.mad.carrier import HERE
from weft.sm.discovery.view import View
from weft.sm.protection import DEFAULT_SA_KEY, own_sa_key
from weft.sm.sa.path_tables import Directory, PathTables
from weft.sm.state import State
from weft.wire.sa import SaMad, SMInfoRecord

T = TypeVar("T")


class Context:
    """The state of the manager, and the request that is being answered."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.is_master = False
        self.other_managers: tuple[SMInfoRecord, ...] = ()
        self.source = HERE  # source of the current request
        self._view: View | None = None
        self._made: dict[Callable[[Context], Any], Any] = {}

    def is_trusted(self, request: SaMad) -> bool:
        """Return whether the key of a request is trusted.

        Where an M_Key protects tenants, the default sa_key is trusted from the manager's own port alone.
        """
        state, key = self.state, request.sm_key
        is_protected = state.partitions.has_tenants and state.port_key.m_key and state.view is not None
        if key == DEFAULT_SA_KEY and is_protected and self.directory.slot_at(self.source.lid) != self.view.own_slot:
            return False
        return bool(key) and key in (state.options.sa_key, own_sa_key(state.options, state.sender.m_key))

    def once(self, make: Callable[[Context], T]) -> T:
        """Return the result of `make`, cached until the next sweep."""
        if self._view is not self.state.view:
            self._view, self._made = self.state.view, {}
        if make not in self._made:
            self._made[make] = make(self)
        result: T = self._made[make]
        return result

    @property
    def view(self) -> View:
        assert self.state.view is not None, "requests before the first sweep are answered BUSY"
        return self.state.view

    @property
    def directory(self) -> Directory:
        return self.once(_make_directory)

    @property
    def path_tables(self) -> PathTables:
        return self.once(_make_path_tables)


def _make_directory(context: Context) -> Directory:
    return Directory(context.view)


def _make_path_tables(context: Context) -> PathTables:
    return PathTables.of(context.state, context.directory)


@dataclass(frozen=True, slots=True, eq=False)
class Reply:
    """A status and the records that go with it: uint8[n, size], or the bytes of one.

    Of a Get that found none or several the administrator makes the status that the standard wants.
    """

    status: int = 0
    records: NDArray[np.uint8] | bytes = b""


# Called with the request and the slot of the port that sent it, -1 if no port has its LID. None: no answer is due.
Handler = Callable[[Context, SaMad, int], Reply | None]
