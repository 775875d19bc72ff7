"""A subnet in this process that weft's subnet manager runs, and that can be broken and mended.

    net = ManagedSubnet(weft.load("fat-tree:hosts=16,radix=8"))
    faults.pull_cable(net.devices, slot)
    net.settle()                        traps, a sweep, new routes; what it did
    net.connected()                     what hangs together with it, with the tables that are in the devices

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
from weft.mad.carrier import Address
from weft.mad.host_paths import path_request, path_rows
from weft.mad.local import LocalCarrier, ManualClock
from weft.mad.subnet import Subnet
from weft.routing.lids import ports_with_lids
from weft.sm.conf.options import Options
from weft.sm.events import Log
from weft.sm.run import SubnetManager
from weft.wire.bulk import column
from weft.wire.port_info import PortInfo
from weft.wire.sa import PathRecord

_PATIENCE_S = 60.0  # of the subnet's clock: a trap that nobody answers is sent again every second or so
_QUIET_S = 5.0  # so long after a sweep no other must follow


@dataclass(slots=True, kw_only=True)
class Work:
    """What the subnet manager did until it was quiet."""

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
        self.moves = 0  # of the subnet manager, from host to host
        self.hosts, _ = ports_with_lids(fabric)
        if not len(self.hosts):
            raise ConfigError(f"{fabric.spec} has no host: the subnet manager has nowhere to run")
        self._start(int(self.hosts[0]))
        self.lids = fabric.tables.lid.copy()  # [port] -> those that the first sweep gave

    def _start(self, slot: int) -> None:
        self.carrier = LocalCarrier(self.subnet, slot, sleep=self.clock.sleep)
        self.log = Log(io.StringIO(), clock=self.clock)
        self.manager = SubnetManager(self.carrier, self.options, log=self.log, clock=self.clock)
        self.manager.open()
        self.settle()

    def stay_clear_of(self, node: int) -> None:
        """Move the subnet manager to another host if it is at the leaf that is to fail: with it, it would be alone."""
        ports = self.fabric.ports
        if ports.node[ports.peer[self.carrier.slot]] != node:
            return
        away = self.hosts[ports.node[ports.peer[self.hosts]] != node]
        if not len(away):
            raise ConfigError(f"{self.fabric.spec} has hosts at one switch only: nothing is left when it fails")
        self.manager.close()
        self.carrier.close()
        self.moves += 1
        self._start(int(away[0]))

    @property
    def engine(self) -> str:
        """That made the tables of the last sweep."""
        return self.manager.report.engine if self.manager.report is not None else ""

    def settle(self) -> Work:
        """Let it work until a sweep is done, and no other follows."""
        work, manager, until_s = Work(), self.manager, self.clock() + _PATIENCE_S
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
            raise SimulationBug(f"no sweep came to its end within {_PATIENCE_S:g} s:\n" + "\n".join(self.log.recent))
        return work

    def connected(self) -> tuple[Fabric, NDArray[np.bool_]]:
        """What hangs together with the subnet manager, with the tables in the devices; and which nodes that is."""
        now = faults.fabric_now(self.devices)
        own = self.devices.node_of[self.carrier.slot]
        kept = np.zeros(len(now.nodes), bool)
        kept[next(part for part in islands(now) if own in part)] = True
        left = now.subset(keep_nodes=kept)
        self._ask_service_levels(left)
        return left, kept

    def _ask_service_levels(self, left: Fabric) -> None:
        """Those of paths, which no device has: as the subnet administrator tells whoever asks."""
        tables, ports = left.tables, left.ports
        hosts, switches = ports_with_lids(left)
        leaf = np.where(np.isin(np.arange(len(ports)), switches), ports.node, ports.node[ports.peer])
        info = self.devices.info(self.carrier.slot)
        here, prefix = Address(PortInfo.lid.get(info)), PortInfo.gid_prefix.get(info) << 64
        tables.path_sl = np.zeros_like(tables.lft)
        for slot in (*hosts.tolist(), *switches.tolist()):
            guid = int(ports.guid[slot] or left.nodes.guid[ports.node[slot]])
            answer = self.manager.administrator.answer(path_request(prefix | guid), here)
            rows = path_rows(answer or b"")
            tables.path_sl[tables.switch_row[leaf[slot]], column(rows, PathRecord.dlid)] = column(rows, PathRecord.sl)
