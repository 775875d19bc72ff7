"""Serve requests at the manager's socket: queries, and changes of partitions and lanes; `control` is the client.

    {"do": "status"}                                  its identity, and revisions that show whether anything changed
    {"do": "subnet"}                                  the discovered subnet: `inventory.Subnet`
    {"do": "allocation"}                              its run-time configuration: `allocation.Saved`
    {"do": "check", "repair": true}                   find and repair ports that something else has changed
    {"do": "allocate", "revision": "...", "set": "Red=0x0101: 0x0002c90300001231=full;", "remove": ["0x0102"]}

Queries are answered in separate threads from the state after the last sweep, without waiting. A change waits for the
manager's main thread, which executes it between two sweeps.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from weft.errors import ConfigError, SubnetError
from weft.ids import Guid
from weft.json_lines import CommandRefused, CommandServer
from weft.sm.allocation import (
    FileConfig,
    RuntimeConfig,
    Saved,
    allocation_file,
    changed,
    described,
    read_qos,
    write_runtime_config,
)
from weft.sm.conf.qos_options import QosOptions
from weft.sm.events import Event
from weft.sm.reallocation import reallocate
from weft.sm.state import State
from weft.sm.status import Manager
from weft.sm.sweep import Report
from weft.wire.bulk import Rows
from weft.wire.smp import SMState

if TYPE_CHECKING:
    from weft.sm.inventory import Subnet

_LONGEST_BYTES = 1 << 27  # definitions of all partitions of a large subnet
_NAMED = 4
T = TypeVar("T")
_ENDS = "the subnet manager ends"
OUT_OF_DATE = "out of date"  # kind of a refusal: another client changed it first


def socket_of(state_file: Path) -> Path:
    return state_file.with_suffix(".sock")


class ManagerStatus(msgspec.Struct, frozen=True, kw_only=True):
    sm_state: str  # discovering, standby, master, not-active
    guid: str
    master: str  # GUID of the master, this one's or another's
    subnet: str  # its title for users: lab mine
    sweeps: int
    partitions: int
    subnet_revision: str  # "" before the first sweep
    allocation_revision: str
    drift: tuple[str, ...]  # ports that something else has changed, and that are not repaired yet
    repairs_drift: bool


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """The ports that something else has changed, described in text."""

    differences: tuple[str, ...]  # that were found now
    repaired: tuple[str, ...]  # that the manager has repaired of its own accord, since the last client asked


class AllocationChange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A change of the allocation; fields that are not set leave it as it is."""

    revision: str | None = None  # version of the allocation to change; None: any
    set: str = ""  # definitions in the form of partitions.conf, each instead of what its P_Key had
    remove: list[str] = []  # P_Keys
    qos: dict[str, Any] | msgspec.UnsetType | None = msgspec.UNSET
    default_is_full: bool | None = None

    def applied(self, state: State, revision: str) -> RuntimeConfig:
        """Return the configuration after the change, without applying it. `revision` is the current one."""
        if self.revision not in (None, revision):
            raise CommandRefused("the allocation has changed since it was read: read it again", OUT_OF_DATE)
        runtime = state.told
        return changed(
            runtime,
            state.filed,
            define=self.set,
            remove=self._removed(runtime),
            qos=runtime.qos if self.qos is msgspec.UNSET else _qos(self.qos),
            default_is_full=runtime.default_is_full if self.default_is_full is None else self.default_is_full,
        )

    def _removed(self, runtime: RuntimeConfig) -> list[int]:
        for text in self.remove:
            try:
                is_defined = int(text, 16) in runtime.definitions
            except ValueError:
                is_defined = False
            if not is_defined:
                raise ConfigError(f"partition {text} cannot be removed: it is not in the run-time configuration")
        return [int(text, 16) for text in self.remove]


def _qos(fields: Any) -> QosOptions | None:
    return None if fields is None else read_qos(fields)


class ControlServer:
    """The server of the manager's socket. `sweep` returns None if it failed; `check` returns how ports differ."""

    def __init__(
        self, manager: Manager, sweep: Callable[[], Report | None], check: Callable[[], tuple[str, ...]]
    ) -> None:
        self._manager, self._sweep, self._check = manager, sweep, check
        self._waiting: deque[tuple[Callable[[], Any], Future[Any]]] = deque()
        self.bell = -1  # a file that is readable when a client waits
        self._door = threading.Lock()  # the socket is open
        self._said: tuple[FileConfig | None, RuntimeConfig | None, Saved] = (None, None, Saved())
        self._seen: tuple[Rows | None, Subnet | None, bytes] = (None, None, b"")
        self._commands: CommandServer | None = None

    def open(self, path: Path) -> None:
        """Open the socket; raise OSError or ConfigError if it cannot be opened."""
        questions = {"status": self._status, "subnet": self._subnet, "allocation": self._allocation}
        with self._door:
            orders = {"allocate": self._allocate, "check": self._check_ports}
            self._commands = CommandServer(path, {**questions, **orders}, longest_bytes=_LONGEST_BYTES)
            self.bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def carry_out(self) -> None:
        """Execute all queued commands, in the manager's thread."""
        while self._waiting:
            order, future = self._waiting.popleft()
            try:
                future.set_result(order())
            except Exception as error:  # whatever it is, it belongs to who asked
                future.set_exception(error)

    def _obey(self, change: AllocationChange) -> str:
        """Apply a change and return the new revision."""
        self._check_master()
        state = self._manager.state
        # A large subnet takes seconds to read; meanwhile a standby would take this manager for dead.
        runtime = state.sender.aside(partial(change.applied, state, self._describe().revision))
        if runtime != state.told:
            assert state.options.state_file is not None, "there is no socket without it"
            keep = partial(write_runtime_config, allocation_file(state.options.state_file), runtime)
            reallocate(state, runtime, keep, self._sweep)
            state.log.say(Event.PARTITIONS, f"run-time configuration: {len(runtime.definitions):,} partitions")
        return self._describe().revision

    def _find_drift(self, repair: bool) -> Checked:
        self._check_master()
        differences = self._check()
        if differences and repair:
            report = self._sweep()
            if report is None:
                raise SubnetError("the subnet cannot be swept: see the manager's log")
            if report.refused:
                raise SubnetError(f"{', '.join(report.refused[:_NAMED])} cannot be repaired: see the manager's log")
        state = self._manager.state
        past = tuple(state.repaired.popleft() for _ in range(len(state.repaired)))
        return Checked(differences=differences, repaired=past)

    def _check_master(self) -> None:
        """Raise SubnetError if this manager is not master."""
        if self._commands is None:
            raise SubnetError(_ENDS)
        election = self._manager.election
        if election.state != SMState.MASTER:
            where = "" if election.master is None else f": ask the master, GUID {Guid(election.master.guid)}"
            raise SubnetError(f"this subnet manager is {election.state_word}{where}")

    def is_called(self) -> bool:
        """Return whether commands are queued, and reset the event."""
        if self._commands is not None:
            with suppress(BlockingIOError):
                os.eventfd_read(self.bell)
        return bool(self._waiting)

    def close(self) -> None:
        with self._door:
            commands, self._commands = self._commands, None
        if commands is not None:
            commands.server_close()
            os.close(self.bell)
            self.carry_out()

    # -- in threads of their own --------------------------------------------------------------------------------------

    def _allocate(self, **words: Any) -> dict[str, str]:
        try:
            order = msgspec.convert(words, AllocationChange)
        except msgspec.ValidationError as error:
            raise ConfigError(f"allocate: {error}") from None
        return {"revision": self._wait(partial(self._obey, order))}

    def _check_ports(self, *, repair: bool = False) -> bytes:
        return msgspec.json.encode(self._wait(partial(self._find_drift, repair)))

    def _wait(self, order: Callable[[], T]) -> T:
        """Queue a command for the manager's thread and return its result."""
        future: Future[T] = Future()
        with self._door:
            if self._commands is None:
                raise SubnetError(_ENDS)
            self._waiting.append((order, future))
            os.eventfd_write(self.bell, 1)
        return future.result()

    def _allocation(self) -> bytes:
        return msgspec.json.encode(self._describe())

    def _describe(self) -> Saved:
        """Return the description of the allocation, cached until it changes."""
        state = self._manager.state
        files, runtime, saved = self._said
        if files is not state.filed or runtime is not state.told:
            files, runtime = state.filed, state.told
            saved = described(files, runtime)
            self._said = files, runtime, saved
        return saved

    def _subnet(self) -> bytes:
        return self._look()[1]

    def _status(self) -> bytes:
        manager, election = self._manager, self._manager.election
        master = election.guid if election.master is None else election.master.guid
        status = ManagerStatus(
            sm_state=election.state_word,
            guid=str(Guid(election.guid)),
            master=str(Guid(master)),
            subnet=manager.subnet,
            sweeps=manager.sweeps,
            partitions=len(manager.state.partitions.partitions),
            subnet_revision="" if manager.state.view is None else self._look()[0].revision,
            allocation_revision=self._describe().revision,
            drift=manager.state.drift,
            repairs_drift=manager.state.options.repair_drift,
        )
        return msgspec.json.encode(status)

    def _look(self) -> tuple[Subnet, bytes]:
        """Return the inventory of the last sweep, cached until the next."""
        view = self._manager.state.view
        if view is None:
            raise SubnetError("the subnet manager has not swept yet: ask again when it has")
        cached_rows, subnet, raw = self._seen
        if cached_rows is not view.port_info or subnet is None:
            from weft.sm.inventory import take_inventory  # the catalog: imported late, to keep the start fast

            subnet = take_inventory(view)
            raw = msgspec.json.encode(subnet)
            self._seen = view.port_info, subnet, raw
        return subnet, raw
