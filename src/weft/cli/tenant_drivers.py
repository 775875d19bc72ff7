"""The options that choose the fabric of tenants: a lab, a subnet manager of weft, OpenSM or UFM."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cyclopts import Parameter

from weft.cli.arguments import File
from weft.errors import ConfigError

if TYPE_CHECKING:
    from weft.mad.carrier import Carrier
    from weft.tenants.drivers.driver import Driver
    from weft.tenants.drivers.ufm_rest import UfmClient
    from weft.tenants.partitions import Inventory
    from weft.tenants.recall import KnownPorts

TOKEN, USER, PASSWORD = "WEFT_UFM_TOKEN", "WEFT_UFM_USER", "WEFT_UFM_PASSWORD"


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Where:
    """The chosen fabric; the string below a field is its help."""

    lab: str = ""
    """The lab, if several run."""
    state: File = None
    """The state file of weft's subnet manager (`weft sm --state`), instead of a lab's."""
    opensm: File = None
    """A running OpenSM: the folder of the partitions.conf (-P) and the opensm.conf (-F) that it was started with."""
    opensm_pid: str = ""
    """The process ID of OpenSM, or its PID file. [opensm.pid in the folder of --opensm, or in /run]"""
    umad: str = ""
    """An adapter of this machine, mlx5_0 or `any`, instead of a lab."""
    ufm: str = ""
    """The address of UFM, https://ufm.example. Set WEFT_UFM_TOKEN, or WEFT_UFM_USER and WEFT_UFM_PASSWORD."""
    ufm_ca: File = None
    """CA file for UFM's certificate. [this machine's CAs]"""

    def __post_init__(self) -> None:
        chosen = {"--state": self.state, "--opensm": self.opensm, "--ufm": self.ufm}
        flags = [name for name, value in chosen.items() if value]
        if len(flags) > 1:
            raise ConfigError(f"use one of {' and '.join(flags)}, not both")
        for name, value, needed in (
            ("--lab", self.lab, not (self.state or self.ufm)),
            ("--opensm-pid", self.opensm_pid, self.opensm),
            ("--umad", self.umad, flags),
            ("--ufm-ca", self.ufm_ca, self.ufm),
        ):
            if value and not needed:
                raise ConfigError(f"{name} {value} has no effect here: leave it out")


LAB = Where()


@contextmanager
def find_driver(where: Where, pool: range | None = None) -> Iterator[Driver]:
    """Yield the driver of the fabric; it remembers ports from one command to the next."""
    with reach(where, pool) as driver:
        yield _Remembering(driver, _memory(where))


@contextmanager
def reach(where: Where, pool: range | None = None) -> Iterator[Driver]:
    """Yield the driver of the fabric. `pool`: the P_Keys that weft manages, since UFM does not record owners."""
    if where.ufm:
        from weft.tenants.drivers.ufm import UfmDriver

        ufm = connect_ufm(where.ufm, where.ufm_ca)
        yield UfmDriver(ufm) if pool is None else UfmDriver(ufm, pool)
    elif where.opensm is not None:
        from weft.tenants.drivers.opensm import OpenSmDriver

        process = _process(where.opensm, where.opensm_pid)
        with attached(where) as carrier:
            yield OpenSmDriver(
                partitions=where.opensm / "partitions.conf",
                options=where.opensm / "opensm.conf",
                signal=process,
                carrier=carrier,
            )
    else:
        from weft.sm.control import ManagerSocket, socket_of
        from weft.tenants.drivers.subnet_manager import ManagerDriver

        yield ManagerDriver(ManagerSocket(socket_of(where.state or _state_of_lab(where.lab))))


@contextmanager
def attached(where: Where) -> Iterator[Carrier]:
    """Yield a port of the fabric."""
    from weft.cli.subnets import Subnet

    carrier = Subnet(lab=where.lab, umad=where.umad).attach()
    try:
        yield carrier
    finally:
        carrier.close()


class _Remembering:
    """A driver that remembers the names of hosts that are down."""

    def __init__(self, driver: Driver, file: Path) -> None:
        self._driver, self._file = driver, file
        self.read, self.write, self.check = driver.read, driver.write, driver.check

    @property
    def title(self) -> str:
        return self._driver.title

    def inventory(self) -> Inventory:
        import msgspec

        from weft.fabric.files.atomic import write_atomically
        from weft.tenants.recall import recall, remember

        before = self._read_ports()
        inventory = recall(self._driver.inventory(), before)
        after = remember(inventory)
        if after != before:
            write_atomically(self._file, msgspec.json.encode([*after.values()]))
        return inventory

    def _read_ports(self) -> KnownPorts:
        import msgspec

        from weft.tenants.partitions import EndPort

        try:
            data = self._file.read_bytes() if self._file.exists() else b"[]"
            return {port.guid: port for port in msgspec.json.decode(data, type=list[EndPort])}
        except (OSError, msgspec.MsgspecError) as error:
            raise ConfigError(
                f"{self._file}: cannot read the remembered ports of {self.title}: {error}; delete the file (weft then "
                "forgets the ports of hosts that are down)"
            ) from None


def _memory(where: Where) -> Path:
    """Return the file of remembered ports, beside the subnet manager's state; so a new lab of that name has none."""
    if where.state is not None:
        return where.state.with_suffix(".ports")
    if where.ufm or where.umad:
        return state_file(where, ".ports")
    from weft.lab import registry

    return registry.find(where.lab).cache / "tenants.ports"


def state_file(where: Where, suffix: str) -> Path:
    """Return the path of a state file of this fabric in XDG_STATE_HOME."""
    from weft import runtime

    home = runtime.state_folder()
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"{home}: cannot create weft's state folder: {error.strerror}; set XDG_STATE_HOME to a writable folder"
        ) from None
    return home / f"{fabric_name(where)}{suffix}"


def fabric_name(where: Where) -> str:
    """Return the name of a fabric's files. A lab of --lab need not run; the default is the only running lab."""
    from weft.lab import registry

    file = where.opensm or where.state
    fabric = where.ufm or (file and file.absolute()) or f"lab-{where.lab or registry.find().name}"
    return re.sub(r"[^A-Za-z0-9.]+", "-", str(fabric)).strip("-")


def _process(folder: Path, pid: str) -> int | Path:
    if pid.isdecimal():
        return int(pid)
    places = [Path(pid)] if pid else [folder / "opensm.pid", Path("/run/opensm.pid")]
    for place in places:
        if place.is_file():
            return place
    raise ConfigError(
        f"no PID file of OpenSM at {' or '.join(map(str, places))}: give its process ID with --opensm-pid"
    )


def _state_of_lab(lab: str) -> Path:
    """Return the state file of weft's subnet manager in a lab; of several, that of the master."""
    from weft.lab import registry
    from weft.sm.status import read_status

    entry = registry.find(lab)
    statuses = [(path, status) for path in sorted(entry.cache.glob("sm-*.json")) if (status := read_status(path))]
    running = [(path, status) for path, status in statuses if status.is_running]
    if not running:
        raise ConfigError(
            f"lab {entry.name} has no subnet manager of weft: start one with `weft sm --lab {entry.name}`; for OpenSM "
            "use --opensm FOLDER"
        )
    masters = [path for path, status in running if status.master == status.guid]
    return masters[0] if masters else running[0][0]


def connect_ufm(url: str, ca: Path | None) -> UfmClient:
    from weft.tenants.drivers.ufm_rest import UfmClient

    token, user, password = (os.environ.get(name) for name in (TOKEN, USER, PASSWORD))
    if not token and not (user and password):
        raise ConfigError(f"--ufm {url} needs credentials: set {TOKEN}, or {USER} and {PASSWORD}")
    ca_file = str(ca) if ca else None
    if token:
        return UfmClient(url, token=token, ca_file=ca_file)
    return UfmClient(url, user=user, password=password, ca_file=ca_file)
