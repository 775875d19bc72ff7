"""A subnet in this process, run by weft's subnet manager, whose parts can fail and be repaired.

    net = ManagedSubnet(weft.load("fat-tree:hosts=16,radix=8"))
    faults.pull_cable(net.devices, slot)
    net.settle()                        handles traps, sweeps and routes again; returns the work done
    net.connected()                     the part connected with the manager, with the tables in the devices

Time is the subnet's own clock: waiting costs nothing.
"""

from __future__ import annotations

import io
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from weft.errors import ConfigError, SimulationBug
from weft.fabric.levels import islands
from weft.fabric.model import Fabric
from weft.mad import faults
from weft.mad.administrator import path_request, path_rows
from weft.mad.carrier import Address
from weft.mad.local import LocalCarrier, ManualClock
from weft.mad.subnet import Subnet
from weft.routing.lids import ports_with_lids
from weft.sm.conf.options import Options
from weft.sm.events import Log
from weft.sm.run import SubnetManager
from weft.wire.bulk import column
from weft.wire.port_info import PortInfo
from weft.wire.sa import PathRecord

_TIMEOUT_S = 60.0  # by the subnet's clock; an unanswered trap is repeated about every second
_QUIET_S = 5.0  # no other sweep may follow a sweep for this long


@dataclass(slots=True, kw_only=True)
class Work:
    """The work of the subnet manager until it was idle."""

    sweeps: int = 0
    entries: int = 0
    blocks: int = 0
    waves: int = 0
    dropped: int = 0
    mads: int = 0


class ManagedSubnet:
    """A fabric whose devices answer MADs, and weft's subnet manager at one of its hosts."""

    def __init__(self, fabric: Fabric, options: Options) -> None:
        self.fabric, self.options, self.clock = fabric, options, ManualClock()
        self.subnet = Subnet(fabric, clock=self.clock)
        self.devices = self.subnet.devices
        self.moves = 0  # number of moves of the subnet manager between hosts
        self.hosts, _ = ports_with_lids(fabric)
        if not len(self.hosts):
            raise ConfigError(f"{fabric.spec} has no host for the subnet manager")
        self._start(int(self.hosts[0]))
        self.lids = fabric.tables.lid.copy()  # [port] -> LID of the first sweep

    def _start(self, slot: int) -> None:
        self.carrier = LocalCarrier(self.subnet, slot, sleep=self.clock.sleep)
        self.log = Log(io.StringIO(), clock=self.clock)
        self.manager = SubnetManager(self.carrier, self.options, log=self.log, clock=self.clock)
        self.manager.open()
        self.settle()

    def stay_clear_of(self, node: int) -> None:
        """Move the subnet manager to another host if its leaf is about to fail, which would isolate it."""
        ports = self.fabric.ports
        if ports.node[ports.peer[self.carrier.slot]] != node:
            return
        away = self.hosts[ports.node[ports.peer[self.hosts]] != node]
        if not len(away):
            raise ConfigError(f"{self.fabric.spec} has hosts at one switch only; give a fabric with several leaves")
        self.manager.close()
        self.carrier.close()
        self.moves += 1
        self._start(int(away[0]))

    @property
    def engine(self) -> str:
        """The engine that made the tables of the last sweep."""
        return self.manager.report.engine if self.manager.report is not None else ""

    def settle(self) -> Work:
        """Run the manager until a sweep is done and no other follows."""
        work, manager, until_s = Work(), self.manager, self.clock() + _TIMEOUT_S
        while self.clock() < until_s:
            sweeps = manager.sweeps
            manager.step()
            if manager.sweeps > sweeps and manager.report is not None:
                forwarding = manager.report.forwarding
                work.sweeps += 1
                work.entries += forwarding.entries
                work.blocks += forwarding.blocks
                work.waves += forwarding.waves
                work.dropped += forwarding.dropped_entries
                work.mads += manager.mads
                until_s = self.clock() + _QUIET_S
        if not work.sweeps:
            raise SimulationBug(f"no sweep finished within {_TIMEOUT_S:g} s:\n" + "\n".join(self.log.recent))
        return work

    def connected(self) -> tuple[Fabric, NDArray[np.bool_]]:
        """Return the part connected with the subnet manager, with the tables in the devices, and its nodes."""
        now = faults.fabric_now(self.devices)
        own = self.devices.node_of[self.carrier.slot]
        connected = np.zeros(len(now.nodes), bool)
        connected[next(part for part in islands(now) if own in part)] = True
        left = now.subset(keep_nodes=connected)
        self._query_service_levels(left)
        return left, connected

    def _query_service_levels(self, left: Fabric) -> None:
        """Set the service levels of paths, which no device holds, as answered by the subnet administrator."""
        tables, ports = left.tables, left.ports
        hosts, switches = ports_with_lids(left)
        leaf = np.where(np.isin(np.arange(len(ports)), switches), ports.node, ports.node[ports.peer])
        info = self.devices.info(self.carrier.slot)
        address, prefix = Address(PortInfo.lid.get(info)), PortInfo.gid_prefix.get(info) << 64
        tables.path_sl = np.zeros_like(tables.lft)
        for slot in (*hosts.tolist(), *switches.tolist()):
            guid = int(ports.guid[slot] or left.nodes.guid[ports.node[slot]])
            answer = self.manager.administrator.answer(path_request(prefix | guid), address)
            rows = path_rows(answer or b"")
            tables.path_sl[tables.switch_row[leaf[slot]], column(rows, PathRecord.dlid)] = column(rows, PathRecord.sl)
