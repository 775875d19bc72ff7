"""Serve requests at the manager's socket: queries, and changes of partitions and lanes; `control` is the client.

    {"do": "status"}                                  its identity, and revisions that show whether anything changed
    {"do": "subnet"}                                  the discovered subnet: `inventory.Subnet`
    {"do": "allocation"}                              its run-time configuration: `allocation.Saved`
    {"do": "check", "repair": true}                   find and repair ports that something else has changed
    {"do": "allocate", "revision": "...", "set": [`definitions.PartitionDefinition`], "remove": [258]}

Queries are answered in separate threads from the state after the last sweep, without waiting. A change waits for the
manager's main thread, which executes it between two sweeps: without discovery and routes, it writes only P_Key tables,
checks at switches, groups and lanes that differ from those in the devices.

`reallocate` is all or nothing. A port that does not take its part, or does not answer, is checked by a sweep: an absent
port is configured when it comes back; a port that is present and refuses ends the change, and all is reverted.
"""

from __future__ import annotations

import copy
import os
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import numpy as np

from weft.errors import ConfigError, SubnetError, WeftError
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
from weft.sm.conf.qos_options import Qos, QosOptions
from weft.sm.discovery.view import View
from weft.sm.events import Event
from weft.sm.mcast.trees import reprogram
from weft.sm.pkey.definitions import PartitionDefinition
from weft.sm.pkey.table_upload import upload_pkeys
from weft.sm.port_info import arm, enforced, wanted_settings
from weft.sm.qos.table_upload import choose_vl_tables, upload_vl_tables
from weft.sm.state import State
from weft.sm.status import Manager
from weft.sm.sweep import Interrupted, Report, choose_key, give_pkeys, settle_groups
from weft.sm.ucast.lids import Lids
from weft.units import format_items
from weft.wire.bulk import Rows
from weft.wire.smp import SMState

if TYPE_CHECKING:
    from weft.sm.inventory import Subnet


_ONE_LANE = Qos.of(QosOptions(sl2vl=(0,) * 16))  # ports whose lanes are removed
_NONE = np.zeros(0, np.intp)


def reallocate(
    state: State, runtime: RuntimeConfig, keep: Callable[[], None], sweep: Callable[[], Report | None]
) -> None:
    """Write the new configuration to the devices and `keep` it; on an error everything is as before.

    `sweep` looks at the whole subnet; None if it failed.
    """
    before, filed = state.told, state.filed
    state.merge(filed, runtime)
    try:
        refused = _program_or_sweep(state, sweep, lanes=runtime.qos != before.qos)
        if refused:
            more = f" and {len(refused) - _NAMED:,} more" if len(refused) > _NAMED else ""
            raise SubnetError(
                f"{', '.join(refused[:_NAMED])}{more} did not take the change: all is as before; see the manager's log"
            )
        keep()
    except Interrupted:  # the devices are another's
        state.merge(filed, before)
        raise
    except WeftError:
        state.merge(filed, before)
        _program_or_sweep(state, sweep, lanes=runtime.qos != before.qos)
        raise


def _program_or_sweep(state: State, sweep: Callable[[], Report | None], *, lanes: bool) -> list[str]:
    """Program the devices, or sweep if that fails; return the present ports that refused."""
    if not program(state, lanes=lanes):
        return []
    report = sweep()
    if report is None:
        raise SubnetError("the subnet cannot be swept: see the manager's log")
    return list(report.refused)


def program(state: State, *, lanes: bool) -> list[str]:
    """Write the current partitions to the devices of the last sweep; return those that refused or did not answer.

    `lanes`: they may have changed too.
    """
    sender, contents, options = state.sender, state.known, state.options
    assert state.view is not None, "the manager has not swept"
    assert contents is not None, "the manager is not master"
    view = _with_fresh_tables(state, state.view, lanes=lanes)
    pkeys = give_pkeys(state, view, contents)
    lacking = [note for note in pkeys.lacking if note not in state.lacking]
    if lacking:
        raise ConfigError(f"{lacking[0]}: all is as before")
    if lanes:
        _choose_lanes(state, view)
    settle_groups(state, view)
    refused = upload_pkeys(sender, view, contents, pkeys)
    if lanes:
        refused += upload_vl_tables(sender, view, contents)
    before = state.port_key
    choose_key(state)
    if lanes or (enforced(view) != pkeys.enforcement).any() or state.port_key != before:
        tables = view.fabric.tables
        lids = Lids(lid=tables.lid.astype(np.int32), lmc=tables.lmc, changed=_NONE, without=_NONE)
        expected = wanted_settings(view, lids, options, key=state.port_key, enforced=pkeys.enforcement)
        refused += [view.name(slot) for slot in arm(sender, view, contents, expected).refused.tolist()]
    state.view, state.lacking = view, pkeys.lacking
    return refused + reprogram(sender, view, contents, state.groups)


def _choose_lanes(state: State, view: View) -> None:
    assert state.view is not None, "it has swept"
    had_lanes = "sl2vl" in vars(state.view.fabric.tables)
    qos = _ONE_LANE if state.qos is None and had_lanes else state.qos
    for note in state.sender.aside(partial(choose_vl_tables, qos, view, state.options.max_op_vls)):
        state.log.say_once(Event.QOS, note)


def _with_fresh_tables(state: State, view: View, *, lanes: bool) -> View:
    """Return the view with its routes and fresh tables for P_Keys and lanes; readers keep the old ones."""
    tables = copy.copy(view.fabric.tables)
    if lanes:
        tables.port_info = tables.port_info.copy()
        engine = {} if state.routing is None else vars(state.routing.tables)
        for name in ("sl2vl", "vl_arbitration"):  # the engine's, if it needs lanes against deadlock
            vars(tables).pop(name, None)
            if name in engine:
                setattr(tables, name, engine[name])
    return replace(view, fabric=view.fabric.configured(tables))


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
    set: tuple[PartitionDefinition, ...] = ()  # each replaces the definition of its P_Key
    remove: tuple[int, ...] = ()  # P_Keys
    qos: dict[str, Any] | msgspec.UnsetType | None = msgspec.UNSET
    default_is_full: bool | None = None

    def applied(self, state: State, revision: str) -> RuntimeConfig:
        """Return the configuration after the change, without applying it. `revision` is the current one."""
        if self.revision not in (None, revision):
            raise CommandRefused("the allocation has changed since it was read: read it again", OUT_OF_DATE)
        runtime = state.told
        for p_key in self.remove:
            if p_key not in runtime.definitions:
                raise ConfigError(f"partition {p_key:#06x} cannot be removed: it is not in the run-time configuration")
        return changed(
            runtime,
            state.filed,
            define=self.set,
            remove=self.remove,
            qos=runtime.qos if self.qos is msgspec.UNSET else _qos(self.qos),
            default_is_full=runtime.default_is_full if self.default_is_full is None else self.default_is_full,
        )


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
            state.log.say(
                Event.PARTITIONS, f"run-time configuration: {format_items(len(runtime.definitions), 'partition')}"
            )
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
