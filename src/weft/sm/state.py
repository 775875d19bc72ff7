"""All that a subnet manager keeps from one sweep to the next."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from weft.routing.route import Routing
from weft.sm.allocation import NOTHING, FileConfig, RuntimeConfig
from weft.sm.conf.options import Options
from weft.sm.conf.qos_options import Qos
from weft.sm.discovery.flaps import Flaps
from weft.sm.discovery.known import Known
from weft.sm.discovery.view import View
from weft.sm.events import Log
from weft.sm.inform.subscriptions import Subscriptions
from weft.sm.mcast.groups import Groups
from weft.sm.pkey.partitions import NO_FILE, Partitions
from weft.sm.protection import PortKey
from weft.sm.sender import Sender
from weft.sm.services import Services
from weft.sm.ucast.adaptive import AdaptiveState

if TYPE_CHECKING:
    from weft.sm.qos.policy import Policy


@dataclass(slots=True, eq=False, kw_only=True)
class State:
    """The state of a manager. `view` is that of the last complete sweep; None before the first."""

    options: Options
    sender: Sender
    log: Log
    clock: Callable[[], float] = time.monotonic
    filed: FileConfig = field(default_factory=lambda: FileConfig(partitions=NO_FILE))
    told: RuntimeConfig = NOTHING  # over its socket
    partitions: Partitions = NO_FILE  # both together
    lacking: tuple[str, ...] = ()  # P_Keys that do not fit into tables
    port_key: PortKey = field(default_factory=PortKey)  # settings of ports
    drift: tuple[str, ...] = ()  # ports that something else has changed, and that were not repaired yet
    repaired: deque[str] = field(default_factory=lambda: deque(maxlen=1000))  # drift, since a client last asked
    adopts_partitions: bool = False  # at the next sweep: those that the ports are in
    qos: Qos | None = None  # QoS of ports; None: QoS is off
    policy: Policy | None = None  # which service level a path gets
    roots: tuple[int, ...] = ()  # GUIDs of switches that up/down may call the top
    remembered: dict[int, int] = field(default_factory=dict)  # first LID by port GUID
    view: View | None = None
    known: Known | None = None  # tables in the devices
    routing: Routing | None = None
    adaptive: AdaptiveState | None = None
    groups: Groups = field(default_factory=Groups)  # multicast
    services: Services = field(default_factory=Services)
    subscriptions: Subscriptions = field(default_factory=Subscriptions)
    flaps: Flaps = field(default_factory=Flaps)

    def merge(self, files: FileConfig, runtime: RuntimeConfig) -> None:
        """Combine files and runtime configuration; raise ConfigError, and change nothing, if they contradict."""
        self.partitions, self.qos = files.with_runtime_config(runtime)
        self.filed, self.told = files, runtime

    @property
    def sm_lid(self) -> int:
        """The LID of our own port; 0 before the first sweep."""
        return int(self.view.fabric.tables.lid[self.view.own_slot]) if self.view is not None else 0
