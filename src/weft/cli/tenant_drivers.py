"""Which fabric has the tenants: of a lab, of a subnet manager of weft's, of OpenSM's, of a UFM's."""

from __future__ import annotations

import os
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
    """A string below a field is its help."""

    lab: str = ""
    """The lab, if several run."""
    state: File = None
    """The state file of weft's subnet manager (`weft sm --state`), instead of a lab's."""
    opensm: File = None
    """A running OpenSM: the folder of the partitions.conf (-P) and the opensm.conf (-F) that it was started with."""
    opensm_pid: str = ""
    """Its process, or the file that has it; else opensm.pid in its folder, or in /run, where it is with -B."""
    umad: str = ""
    """An adapter of this machine, mlx5_0 or `any`, instead of a lab."""
    ufm: str = ""
    """The address of a UFM, https://ufm.example. WEFT_UFM_TOKEN has its token; or WEFT_UFM_USER and _PASSWORD."""
    ufm_ca: File = None
    """The certificates to trust of it; else this machine's."""

    def __post_init__(self) -> None:
        chosen = {"--state": self.state, "--opensm": self.opensm, "--ufm": self.ufm}
        given = [name for name, value in chosen.items() if value]
        if len(given) > 1:
            raise ConfigError(f"{' and '.join(given)} each name a fabric: give one of them")
        for name, value, needed in (
            ("--lab", self.lab, not (self.state or self.ufm)),
            ("--opensm-pid", self.opensm_pid, self.opensm),
            ("--umad", self.umad, given),
            ("--ufm-ca", self.ufm_ca, self.ufm),
        ):
            if value and not needed:
                raise ConfigError(f"{name} {value} is of no use here: leave it out")


LAB = Where()


@contextmanager
def find_driver(where: Where, pool: range | None = None) -> Iterator[Driver]:
    """One that remembers which ports it has seen, from one command to the next."""
    with reach(where, pool) as driver:
        yield _Remembering(driver, _memory(where))


@contextmanager
def reach(where: Where, pool: range | None = None) -> Iterator[Driver]:
    """`pool`: P_Keys that weft gives; a UFM does not know whose a partition is."""
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
    """A port of that fabric."""
    from weft.cli.subnets import Subnet

    carrier = Subnet(lab=where.lab, umad=where.umad).attach()
    try:
        yield carrier
    finally:
        carrier.close()


class _Remembering:
    """A driver for whom hosts that are down have names."""

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

        before = self._known()
        found = recall(self._driver.inventory(), before)
        after = remember(found)
        if after != before:
            write_atomically(self._file, msgspec.json.encode([*after.values()]))
        return found

    def _known(self) -> KnownPorts:
        import msgspec

        from weft.tenants.partitions import EndPort

        try:
            said = self._file.read_bytes() if self._file.exists() else b"[]"
            return {port.guid: port for port in msgspec.json.decode(said, type=list[EndPort])}
        except (OSError, msgspec.MsgspecError) as error:
            raise ConfigError(
                f"{self._file}, where weft remembers the ports of {self.title}, cannot be read: {error}; remove it, "
                "and weft learns them again, all but those of hosts that are down now"
            ) from None


def _memory(where: Where) -> Path:
    """What lies beside what a subnet manager keeps is of the same subnet: the next lab of a name begins anew."""
    if where.state is not None:
        return where.state.with_suffix(".ports")
    if where.ufm or where.umad:
        return state_file(where, ".ports")
    from weft.lab import registry

    return registry.find(where.lab).cache / "tenants.ports"


def state_file(where: Where, suffix: str) -> Path:
    """In XDG_STATE_HOME, one for each fabric."""
    from weft import runtime

    home = runtime.state_folder()
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"cannot make {home}, where weft keeps what it knows of a fabric: {error.strerror}; set XDG_STATE_HOME to "
            "a folder that is yours"
        ) from None
    return home / f"{fabric_name(where)}{suffix}"


def fabric_name(where: Where) -> str:
    """Return a name for files of a fabric. A lab that is named need not run; else it is the only one that does."""
    import re

    from weft.lab import registry

    file = where.opensm or where.state
    fabric = where.ufm or (file and file.absolute()) or f"lab-{where.lab or registry.find().name}"
    return re.sub(r"[^A-Za-z0-9.]+", "-", str(fabric)).strip("-")


def _process(folder: Path, told: str) -> int | Path:
    if told.isdecimal():
        return int(told)
    places = [Path(told)] if told else [folder / "opensm.pid", Path("/run/opensm.pid")]
    for place in places:
        if place.is_file():
            return place
    raise ConfigError(
        f"there is no {' and no '.join(map(str, places))} that tells OpenSM's process: say --opensm-pid with its number"
    )


def _state_of_lab(lab: str) -> Path:
    """Of the subnet manager of weft's that runs there; of several, the master."""
    from weft.lab import registry
    from weft.sm.status import read_status

    entry = registry.find(lab)
    found = [(path, status) for path in sorted(entry.cache.glob("sm-*.json")) if (status := read_status(path))]
    running = [(path, status) for path, status in found if status.is_running]
    if not running:
        raise ConfigError(
            f"lab {entry.name} has no subnet manager of weft's: start one with `weft sm --lab {entry.name}`; for an "
            "OpenSM say --opensm FOLDER"
        )
    masters = [path for path, status in running if status.master == status.guid]
    return masters[0] if masters else running[0][0]


def connect_ufm(url: str, ca: Path | None) -> UfmClient:
    from weft.tenants.drivers.ufm_rest import UfmClient

    token, user, password = (os.environ.get(name) for name in (TOKEN, USER, PASSWORD))
    if not token and not (user and password):
        raise ConfigError(f"--ufm {url} wants to know who asks: set {TOKEN}, or {USER} and {PASSWORD}")
    ca_file = str(ca) if ca else None
    if token:
        return UfmClient(url, token=token, ca_file=ca_file)
    return UfmClient(url, user=user, password=password, ca_file=ca_file)
