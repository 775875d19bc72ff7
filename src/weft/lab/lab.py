"""A fabric that runs: switches and adapters that answer MADs, for unmodified programs.

    with Lab(weft.load("fat-tree:hosts=16,radix=8")) as lab:
        lab.run("h1", "opensm", "-o")               OpenSM brings it up
        print(lab.run("h2", "ibstat").stdout)
        lab.break_cable("leaf1/5")
    lab.fabric.tables.lft                           what OpenSM wrote; the engines of `sim` run on it

The cabling of `fabric` never changes; `fabric_now` is without the cables that are broken.
"""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from weft import runtime
from weft.errors import ConfigError
from weft.fabric.model import Fabric
from weft.lab import programs
from weft.lab.attach import Attachments
from weft.lab.ibsim import Server
from weft.lab.link_faults import LinkFault, faulty_cables
from weft.lab.metered_paths import MeteredPaths, MeteredSubnet
from weft.lab.places import cables, far_end
from weft.lab.planes import is_planarized, planarize
from weft.lab.rank_hosts import port_counts, rank_hosts
from weft.lab.streams import ErrorCounts
from weft.lab.sysfs_tree import tree_of
from weft.lab.verbs_ports import VerbsPorts
from weft.lab.verbs_server import VerbsServer
from weft.mad import faults, modules
from weft.mad.devices import Devices
from weft.mad.packets import DeliveryResult
from weft.verbs.carriers.lab.connection import SUFFIX
from weft.verbs.carriers.places import place_of

if TYPE_CHECKING:
    from weft.lab.capture import Captures
    from weft.lab.join.server import JoinServer
    from weft.lab.load import JobSpec, LabLoad
    from weft.lab.traffic import LabTraffic


class Lab:
    """A running fabric with a name; as a context manager it serves in a thread of its own.

    `timed`: metered paths of RDMA programs take as long as their links do.
    """

    def __init__(self, fabric: Fabric, name: str = "", *, seed: int = 1, timed: bool = False) -> None:
        self.name = name or f"lab-{os.getpid()}"
        self.sockname = f"weft-{self.name}-{secrets.token_hex(4)}"  # reserved for this lab
        self.subnet = MeteredSubnet(planarize(fabric), seed=seed)
        self.metered_paths = self.subnet.metered_paths = MeteredPaths(self.subnet.devices, is_timed=timed)
        self.errors = ErrorCounts()
        self.server = Server(self.subnet, self.sockname, self.errors)
        self.socket = runtime.folder() / f"{self.name}.umad"
        try:
            self._attachments = Attachments(self.subnet, self.socket, self.errors, self.server.fast_path)
        except OSError as error:
            self.server.close()
            raise ConfigError(f"cannot bind {self.socket}: {error.strerror}; give the lab another name") from None
        self.server.add_service(self._attachments)
        self.verbs_socket = self.socket.with_name(f"{self.name}{SUFFIX}")
        self.verbs = VerbsPorts(self.subnet, self._attachments.agents, self.metered_paths)
        self._verbs_server = VerbsServer(self.verbs, self.verbs_socket)
        self.server.add_service(self._verbs_server)
        self.join_server: JoinServer | None = None
        self._thread: threading.Thread | None = None

    @property
    def fabric(self) -> Fabric:
        return self.subnet.devices.fabric

    # -- running --------------------------------------------------------------------------------------------------

    def serve(self) -> None:
        """Serve in this thread until `stop`."""
        try:
            self.server.serve()
        finally:
            self.server.close()
            shutil.rmtree(place_of(str(self.verbs_socket)), ignore_errors=True)

    def stop(self) -> None:
        if "_load" in vars(self):
            self._load.stop()
        self.server.stop()
        if self._thread is not None:
            self._thread.join(timeout=30)
            self._thread = None

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self.serve, name=f"weft lab {self.name}", daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def run(
        self,
        host: str,
        *command: str,
        sysfs: bool = False,
        folder: Path | None = None,
        timeout_s: float = 300,
        **environment: str,
    ) -> subprocess.CompletedProcess[str]:
        """Run a program as if on that host; return its result when it ends.

        With `sysfs` it finds the host's adapters in /sys.
        """
        variables = programs.environment(self.host(host)) | environment
        return programs.run(command, variables, self.sysfs(host) if sysfs else None, folder=folder, timeout_s=timeout_s)

    def start(
        self, host: str, *command: str, folder: Path, sysfs: bool = False, **environment: str
    ) -> subprocess.Popen[str]:
        """Start a program as if on that host, and return at once. Its output is in `folder`/output."""
        variables = programs.environment(self.host(host)) | environment
        return programs.start(command, variables, folder, self.sysfs(host) if sysfs else None)

    def host(self, name: str) -> dict[str, str]:
        """Return the variables by which either library runs as that host."""
        places = self.server.places
        slot = places.find(name)
        node = self.subnet.devices.node_of[slot]
        owner = name if name in self.fabric.server_index else self.fabric.nodes.name[node]
        is_plane = is_planarized(self.subnet.devices, node) and not places.is_node(name)
        return {
            "sockname": self.sockname,
            "sim_host": places.sim_host(slot),
            "socket": str(self.socket),
            "verbs": str(self.verbs_socket),
            "host": owner,
            "umad_host": self.fabric.port(slot).name if is_plane else owner,
        }

    def rank_hosts(self) -> list[dict[str, Any]]:
        """Return where ranks of a job may run: `rank_hosts.RankHost`."""
        return self.server.call(lambda: [asdict(host) for host in rank_hosts(self.subnet.devices)])

    def port_counts(self) -> dict[str, list[dict[str, Any]]]:
        """Return the counters of each host's ports: `rank_hosts.PortCounts`."""
        return self.server.call(self._port_counts)

    def sysfs(self, name: str) -> dict[str, Any]:
        """Return the current /sys tree of a host: `sysfs_tree.Tree`."""
        owner = self.host(name)["host"]
        return asdict(self.server.call(lambda: tree_of(self.subnet.devices, owner)))

    def ip_ports(self, name: str) -> list[dict[str, Any]]:
        """Return the ports of a host with their IPv4 addresses: `ip.addresses.IpPort`."""
        from weft.lab.ip.addresses import ip_ports  # most labs have no IP

        owner = self.host(name)["host"]
        return [asdict(port) for port in self.server.call(lambda: ip_ports(self.subnet.devices, owner))]

    def accept_joins(self, address: str, token: str = "") -> JoinServer:
        """Accept other machines as hosts, by `weft join`, at this `address:port`, if they know the token."""
        from weft.lab.join.handshake import checked_token, new_token
        from weft.lab.join.hosts import LabHosts
        from weft.lab.join.server import JoinServer  # only needed for labs that others can join

        if self.join_server is not None:
            raise ConfigError(f"hosts join {self.name} at {self.join_server.address} already")
        hosts = LabHosts(
            self._attachments, self._verbs_server, self.metered_paths, self.socket.with_name(f"{self.name}.cache")
        )
        self.join_server = join_server = JoinServer(
            address, checked_token(token) if token else new_token(), self.name, hosts, self.errors
        )
        self.server.call(lambda: self.server.add_service(join_server))
        return join_server

    # -- faults ---------------------------------------------------------------------------------------------------

    def break_cable(self, name: str) -> list[str]:
        """Pull the cable of a port, or all cables of a node or server. Returns the ports, one of each cable."""
        return self.server.call(lambda: self._break(name))

    def degrade(
        self,
        name: str,
        bit_error_rate: float | None = None,
        *,
        one_way: bool = False,
        to: str | None = None,
        flaps: float | None = None,
        drain: float | None = None,
    ) -> list[str]:
        """Make the cable of a port ill, until it is fixed; of a node or server, all its cables.

        `bit_error_rate`: this part of its bits errs, after error correction; `one_way`: of what the port `name`
        receives. `to`: it comes up with less, `1xNDR`. `flaps`: so often an hour it goes down and up again. `drain`: a
        host takes only this share of its line rate. Returns the ports, one of each cable.
        """
        ill = LinkFault(bit_error_rate=bit_error_rate, one_way=one_way, to=to, flaps=flaps, drain=drain)
        changed = self.server.call(lambda: self._degrade(name, ill))
        if flaps is not None:
            self._load.keep_time()
        return changed

    def swap(self, name: str, other: str) -> list[str]:
        """Exchange the cables of two ports, with their serial numbers and faults. Returns the ports."""
        return self.server.call(lambda: self._swap(name, other))

    def fix(self, name: str = "") -> list[str]:
        """Put back what was pulled and replace what is ill: at a port, a node or a server, or everywhere."""
        return self.server.call(lambda: self._fix(name))

    def state(self) -> dict[str, Any]:
        return self.server.call(self._state)

    def fabric_now(self) -> Fabric:
        """Return the fabric in its current state, on the same tables and counters: for the engines of `sim`."""
        return self.server.call(self._fabric_now)

    def traffic(
        self,
        pattern: str = "permutation",
        size_bytes: int = 1 << 20,
        *,
        paths: str = "table",
        senders: int | None = None,
        seed: int = 1,
        progress: Callable[[int, int], None] | None = None,
    ) -> dict[str, Any]:
        """Run a pattern of `weft sim` by the packet engine, on the tables as they are now, and count it at every port.

        MADs are answered meanwhile. `progress` gets the messages delivered and in all, and ends it by raising. Return
        the engine's report.
        """
        return self._traffic.run(pattern, size_bytes, paths=paths, senders=senders, seed=seed, progress=progress)

    @cached_property
    def _traffic(self) -> LabTraffic:
        from weft.lab.traffic import LabTraffic  # most labs carry none, and start sooner without

        return LabTraffic(self.server, self._fabric_now)

    def capture(
        self,
        port: str,
        path: str,
        *,
        seconds: float | None = None,
        packets: int | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> dict[str, Any]:
        """Write the packets on the cable of a port to a pcapng file, both ways, up to a time or a number of packets.

        `progress` gets the number of packets, and ends it by raising. Return packets and bytes.
        """
        return self._captures.run(port, Path(path), seconds=seconds, packets=packets, progress=progress)

    @cached_property
    def _captures(self) -> Captures:
        from weft.lab.capture import Captures  # most labs have none

        return Captures(self.server, self.metered_paths)

    # -- a steady load ------------------------------------------------------------------------------------------------

    def load(self, *jobs: JobSpec, seed: int = 1, speed: float = 1.0) -> dict[str, Any]:
        """Replace the background jobs, such as `train=ring:h[1-64]@80%`, and start a clock: ports count.

        `speed`: simulated seconds for each real one; 0: time passes only by `advance`. Returns `load_state`.
        """
        return self._load.start(jobs, seed=seed, speed=speed)

    def seed_history(self, seed: int = 1) -> None:
        """Give some ports counts of past cable moves, as in a fabric that has run for a while."""
        self._load.seed_history(seed)

    def unload(self, *names: str) -> dict[str, Any]:
        """End these jobs; without a name all, and the clock."""
        return self._load.unload(names) if "_load" in vars(self) or names else self.load_state()

    def advance(self, seconds: float) -> dict[str, Any]:
        """Let so much simulated time pass at once. Returns `load_state`."""
        return self._load.advance(seconds)

    def load_state(self) -> dict[str, Any]:
        """Return the jobs, their demand and their rate on the current tables; speed and time of the clock."""
        return self._load.state() if "_load" in vars(self) else {"jobs": [], "speed": 0.0, "seconds": 0.0, "seed": 1}

    def now_s(self) -> float:
        """Return the time of the load's clock, which runs in step with the counters."""
        return self._load.now_s() if "_load" in vars(self) else time.monotonic()

    @cached_property
    def _load(self) -> LabLoad:
        from weft.lab.load import LabLoad  # Numba: most labs carry none

        return LabLoad(self.server, self._fabric_now)

    def send_packet(self, host: str, packet: bytes) -> DeliveryResult:
        """Send a data packet from a host's port; the lab's thread delivers it to `subnet.attach_packets`."""
        slot = self.server.places.find(host)
        return self.server.call(lambda: self.subnet.send_packet(slot, packet))

    def _fabric_now(self) -> Fabric:
        self.metered_paths.collect()
        return faults.fabric_now(self.subnet.devices)

    def _port_counts(self) -> dict[str, list[dict[str, Any]]]:
        self.metered_paths.collect()
        counts = port_counts(self.subnet.devices)
        return {host: [asdict(port) for port in ports] for host, ports in counts.items()}

    def _break(self, name: str) -> list[str]:
        self.metered_paths.close_all()
        devices = self.subnet.devices
        pulled = [slot for slot in _one_end(devices, name) if not {slot, far_end(devices, slot)} & devices.broken]
        if not pulled:
            raise ConfigError(f"{name} is broken already: weft fix {name}")
        for slot in pulled:
            faults.pull_cable(devices, slot)
        return [devices.name(slot) for slot in pulled]

    def _degrade(self, name: str, ill: LinkFault) -> list[str]:
        devices = self.subnet.devices
        slots = _one_end(devices, name)
        ill.check(devices, slots)
        self.metered_paths.close_all()
        for slot in slots:
            ill.apply(devices, slot)
        return [devices.name(slot) for slot in slots]

    def _swap(self, name: str, other: str) -> list[str]:
        devices = self.subnet.devices
        slots = [self.fabric.find_port(port).slot for port in (name, other)]
        self.metered_paths.close_all()
        modules.swap(devices, *slots)
        return [devices.name(slot) for slot in slots]

    def _fix(self, name: str) -> list[str]:
        self.metered_paths.close_all()
        devices = self.subnet.devices
        wrong = [*sorted(devices.broken), *faulty_cables(devices)]
        chosen = set(cables(devices, name)) if name else set(wrong)
        fixed = [slot for slot in wrong if {slot, far_end(devices, slot)} & chosen]
        for slot in fixed:
            faults.mend(devices, slot)
            faults.plug_cable(devices, slot)
        return list(dict.fromkeys(devices.name(slot) for slot in fixed))

    def _state(self) -> dict[str, Any]:
        devices = self.subnet.devices
        return {
            "name": self.name,
            "pid": os.getpid(),
            "spec": self.fabric.spec,
            "sockname": self.sockname,
            "nodes": len(devices.nodes),
            "broken": [devices.name(slot) for slot in sorted(devices.broken)],
            "degraded": [devices.name(slot) for slot in faulty_cables(devices)],
            "traffic": self._traffic.now if "_traffic" in vars(self) else "",
            "join": self.join_server.state() if self.join_server is not None else None,
        } | self.server.state()


def _one_end(devices: Devices, name: str) -> list[int]:
    """Return one slot for each cable of a name."""
    slots: list[int] = []
    for slot in cables(devices, name):
        if far_end(devices, slot) not in slots:
            slots.append(slot)
    return slots
