"""The state of a subnet manager as a file: for people, for scripts, and for itself when it starts again.

write_status(path, status)      whole or not at all, after every sweep and every change of state
read_status(path)               LIDs too, so that a subnet that was dark for a night gets its own back

A full disk does not stop the manager: a file that cannot be written is logged once, and once when it is written again.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import msgspec

from weft.errors import FileError, WeftError
from weft.fabric.files.atomic import write_atomically
from weft.fabric.model import Fabric
from weft.ids import Guid, PKey
from weft.sm.discovery.adjacent import adjacent_prefixes
from weft.sm.events import Event, Log
from weft.sm.sminfo.election import Election
from weft.sm.sminfo.replication import Replication
from weft.sm.state import State
from weft.sm.sweep import Report
from weft.version import __version__


class Sweep(msgspec.Struct, frozen=True, kw_only=True):
    """The last one that came to its end."""

    at_s: float  # seconds since 1970
    seconds: float
    mads: int
    switches: int
    adapters: int
    links: int
    engine: str
    routes_changed: int
    blocks_written: int
    waves: int
    dropped_entries: int  # routes that led nowhere for a moment, so that no packet ran in a circle
    port_sets: int
    refused: tuple[str, ...]
    oddities: tuple[str, ...]


class Status(msgspec.Struct, frozen=True, kw_only=True):
    version: str
    pid: int
    started: int = 0  # when that process did, as the kernel counts: its number may be another's by now
    subnet: str = ""  # lab mine, ibsim sim
    at_s: float  # when it was written
    sm_state: str  # discovering, standby, master, not-active; stopped after an orderly end
    guid: str
    port: str
    lid: int
    priority: int
    master: str  # GUID of the master, ours or another's
    sweeps: int
    mads: int
    events: dict[str, int]
    recent: tuple[str, ...]
    sweep: Sweep | None = None
    partitions: dict[str, str] = {}  # P_Key -> name
    drift: tuple[str, ...] = ()  # ports that something else has changed, and that are not repaired yet
    groups: int = 0  # multicast groups; in a standby those copied from its master
    services: int = 0
    subscriptions: int = 0
    lids: dict[str, int] = {}  # port GUID -> its first LID
    held_until_s: dict[str, float] = {}  # port that flaps, NODE_GUID/PORT -> when it is used again, since 1970
    adjacent: tuple[int, ...] = ()  # prefixes of subnets behind routers
    sweeps_since: int = 0  # that the manager made after it could write its state for the last time

    @property
    def is_running(self) -> bool:
        """The property that the process that wrote it is alive."""
        return self.sm_state != "stopped" and _started(self.pid) == self.started

    @property
    def title(self) -> str:
        """The subnet and the state; if the process is gone, the state that it wrote last."""
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self.at_s))
        state = f"crashed; {self.sm_state}, {when}"
        if self.sm_state == "stopped":
            state = f"stopped, {when}"
        elif self.is_running:
            state = f"{self.sm_state}, process {self.pid}"
        where = f" of {self.subnet}" if self.subnet else ""
        return f"Subnet manager at {self.port or self.guid}{where}: {state}"


class Manager(Protocol):
    """The part of a subnet manager that its status describes."""

    state: State
    election: Election
    replication: Replication
    report: Report | None
    subnet: str
    sweeps: int
    seconds: float
    mads: int


def write_status(path: Path, status: Status) -> None:
    write_atomically(path, msgspec.json.format(msgspec.json.encode(status), indent=1) + b"\n")


def read_status(path: Path) -> Status | None:
    """Read a state file; return None if it does not exist."""
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return None
    try:
        return msgspec.json.decode(text, type=Status)
    except msgspec.MsgspecError as error:
        raise FileError(
            path, None, str(error), "the state file of weft's subnet manager; remove it to start without it"
        ) from None


def is_own(path: Path) -> bool:
    """Return whether the file still belongs to this process: another lab may have taken its name."""
    status = read_status(path)
    return path.parent.exists() and (status is None or status.pid == os.getpid() or not status.is_running)


def _started(pid: int) -> int:
    """Return the start time of a process in clock ticks since boot (proc(5), stat); -1 if there is none."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return -1
    return int(text.rpartition(")")[2].split()[19])  # a program's name may hold anything, so behind it


def describe(manager: Manager, sm_state: str = "") -> Status:
    """Return the status of a subnet manager."""
    state, election, report = manager.state, manager.election, manager.report
    view, master = state.view, election.master
    counts = len(state.groups.by_mgid), len(state.services.by_key), len(state.subscriptions.all)
    groups, services, subscriptions = counts if master is None else manager.replication.replica.counts
    return Status(
        version=__version__,
        pid=os.getpid(),
        started=_started(os.getpid()),
        subnet=manager.subnet,
        at_s=time.time(),
        sm_state=sm_state or election.state_word,
        guid=str(Guid(election.guid)),
        port="" if view is None else view.name(view.own_slot),
        lid=state.sm_lid,
        priority=election.priority,
        master=str(Guid(election.guid if master is None else master.guid)),
        sweeps=manager.sweeps,
        mads=state.sender.mads,
        events={str(name): count for name, count in state.log.counts.items()},
        recent=tuple(state.log.recent),
        sweep=None if report is None else _sweep(manager, report),
        partitions={str(PKey(partition.p_key)): partition.name for partition in state.partitions.partitions},
        drift=state.drift,
        groups=groups,
        services=services,
        subscriptions=subscriptions,
        lids={str(Guid(guid)): lid for guid, lid in state.remembered.items()},
        adjacent=() if view is None else tuple(adjacent_prefixes(view)),
        held_until_s={
            f"{Guid(guid)}/{port}": until_s - state.clock() + time.time()
            for (guid, port), until_s in state.flaps.held_until_s().items()
        },
    )


def _sweep(manager: Manager, report: Report) -> Sweep:
    return Sweep(
        at_s=time.time(),
        seconds=manager.seconds,
        mads=manager.mads,
        switches=report.switches,
        adapters=report.adapters,
        links=report.links,
        engine=report.engine,
        routes_changed=report.forwarding.entries,
        blocks_written=report.forwarding.blocks,
        waves=report.forwarding.waves,
        dropped_entries=report.forwarding.dropped_entries,
        port_sets=report.sets,
        refused=report.refused,
        oddities=report.oddities,
    )


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
