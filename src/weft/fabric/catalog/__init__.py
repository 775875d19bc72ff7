"""The catalog of switches, adapters, GPUs, servers and cables. The figures are data: the TOML files beside this one.

    catalog.switch("QM9700").ports        catalog.find("h100")               any kind, any case
    catalog.server("dgx-h100").rails      catalog.cable_for("NDR", 30)       the cheapest medium that reaches
    catalog.interconnect("roce-400")      catalog.server("dgx-h100+ConnectX-8+4rails")   other cards, half cabled

Every entry names its source and its date. Prices are in `weft.fabric.prices`.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from functools import cache, partial
from importlib import import_module
from typing import Any, ClassVar, TypeVar

import msgspec

from weft.errors import ConfigError, find_named
from weft.fabric.catalog.entries import Adapter as Adapter
from weft.fabric.catalog.entries import Cable as Cable
from weft.fabric.catalog.entries import Chassis as Chassis
from weft.fabric.catalog.entries import Cpu as Cpu
from weft.fabric.catalog.entries import Ends as Ends
from weft.fabric.catalog.entries import Entry as Entry
from weft.fabric.catalog.entries import Gpu as Gpu
from weft.fabric.catalog.entries import GpuChanges as GpuChanges
from weft.fabric.catalog.entries import Interconnect as Interconnect
from weft.fabric.catalog.entries import Joins as Joins
from weft.fabric.catalog.entries import Switch as Switch
from weft.fabric.catalog.power import limited
from weft.fabric.kinds import Medium
from weft.fabric.rates import Speed, parse_label, read_catalog

__all__ = [
    "Adapter",
    "Cable",
    "Chassis",
    "Cpu",
    "Ends",
    "Entry",
    "Gpu",
    "GpuChanges",
    "Interconnect",
    "Joins",
    "Server",
    "Switch",
    "adapter",
    "adapters",
    "by_device_id",
    "cable_for",
    "cables",
    "cables_for",
    "entries",
    "find",
    "gpu",
    "gpus",
    "interconnect",
    "interconnects",
    "is_server",
    "is_template_file",
    "plug_power_w",
    "server",
    "servers",
    "switch",
    "switches",
]


class Server(Entry, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A server template: its devices and their PCIe tree."""

    kind: ClassVar[str] = "server"

    compute_adapter: str
    compute: tuple[str, ...]  # device names, one for each rail
    spare: tuple[str, ...] = ()  # further compute adapters, not cabled
    ports_per_cage: int = 1  # compute adapters, in their order: two of a DGX H100 share a connector
    height_u: int  # in rack units
    storage_adapter: str = ""
    storage: tuple[str, ...] = ()
    gpu: str = ""
    gpus: int = 0
    gpu_changes: GpuChanges = GpuChanges()  # fields of that GPU that differ here
    nvlink_spread: tuple[int, ...] = ()  # links from each GPU to each NVSwitch
    nvlink_pairs: tuple[tuple[str, str, int], ...] = ()  # GPUs that NVLinks join directly, and how many of them
    cpus: int = 0
    cpu: Cpu | None = None
    pcie_switches: int = 0
    pcie: str = ""  # link of the PCIe switches to the CPU
    pcie_tree: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)  # parent -> children; roots are CPUs
    bus_id: dict[str, str] = msgspec.field(default_factory=dict)  # PCI addresses on the real machine
    power_w: float | None = None
    trays: int = 1  # machines of a rack that is one NVLink domain, and so one server here; 1 for a single machine
    c2c_links: int = 0  # NVLink-C2C links of a GPU to its processor: adapters below that processor are next to the GPU

    @property
    def rails(self) -> int:
        """The number of networks of the server: one compute adapter for each."""
        return len(self.compute)

    @property
    def gpu_entry(self) -> Gpu:
        """Return the GPU with the changes of this template."""
        given = self.gpu_changes.given
        limit_w = given.pop("power_limit_w", None)
        changed = msgspec.structs.replace(gpu(self.gpu), **given)
        return changed if limit_w is None else limited(changed, limit_w)

    @property
    def adapter(self) -> Adapter:
        """The compute adapter."""
        return adapter(self.compute_adapter)

    def slot(self, card: Adapter) -> str:
        """Return the PCIe label of a port of this card: the slower of the card's and the server's."""
        labels = filter(None, (card.pcie_per_port, self.pcie))
        return min(labels, key=lambda label: Speed.rate_gbit_s(*parse_label(label)))

    @property
    def box(self) -> str:
        """The template that this is a variant of."""
        return self.name.partition("+")[0]

    @property
    def sold_with(self) -> dict[str, int]:
        """The adapters included in the price, by name: of a server with GPUs. Plain servers are configured."""
        if not self.gpus:
            return {}
        own = server(self.box)
        devices = Counter([own.compute_adapter] * len(own.compute) + [own.storage_adapter] * len(own.storage))
        return {name: -(-count // adapter(name).ports) for name, count in devices.items()}

    def equipped(self, card: Adapter) -> Server:
        """Return the same box with this card in every rail."""
        return self._variant(card.name, self.rails // self._split(self.compute_adapter))

    def cabled(self, rails: int) -> Server:
        """Return the same box with this number of compute adapters cabled, spread evenly over its GPUs."""
        own, split = server(self.box), self._split(self.compute_adapter)
        most = own.rails * split
        if not 1 <= rails <= most or rails % split:
            even = f", {split} for each card" if split > 1 else ""
            raise ConfigError(f"{own.name} has {most} compute adapters: rails are 1 to {most}{even}, not {rails}")
        return self._variant(self.compute_adapter, rails // split)

    def card_for(self, interconnect: Interconnect) -> Adapter:
        """Return the adapter for a fabric: the server's own card if it has the fabric's speed.

        A transport runs on the adapter of its fabric: a cloud's own, or a SuperNIC.
        """
        if interconnect.transport:
            return adapter(interconnect.adapter)
        own = server(self.box).adapter.card
        return next(
            (card for card in adapters() if card.card == own and card.speed == interconnect.speed),
            adapter(interconnect.adapter),
        )

    def _split(self, card: str) -> int:
        """Return the number of ports of `card` for each port in the template: of the box's own card in another mode."""
        own, other = server(self.box).adapter, adapter(card)
        return other.ports // own.ports if own.card == other.card or other.all_ports else 1

    def _variant(self, card: str, cards: int) -> Server:
        own, split = server(self.box), self._split(card)
        if (card, cards) == (own.compute_adapter, own.rails):
            return own
        chosen = [own.compute[rail * own.rails // cards] for rail in range(cards)]
        even = cards % own.trays == 0  # else the trays differ, and the rack is modelled as one server
        other_card = f"+{card}" if card != own.compute_adapter else ""
        same_ports = adapter(card).rate_gbit_s == own.adapter.rate_gbit_s  # InfiniBand or Ethernet
        fewer = f"+{cards * split}rails" if cards != own.rails else ""
        return msgspec.structs.replace(
            own,
            name=f"{own.name}{other_card}{fewer}",
            compute_adapter=card,
            ports_per_cage=own.ports_per_cage if same_ports else split,
            compute=_split_ports(chosen, split),
            trays=own.trays if even else 1,
            spare=_split_ports([device for device in own.compute if device not in chosen], split),
            pcie_tree={
                above: tuple(
                    port for device in below for port in _split_ports([device], split if device in own.compute else 1)
                )
                for above, below in own.pcie_tree.items()
            },
        )

    @property
    def cages(self) -> dict[str, str]:
        """The first device in the cage of each compute device, cabled or not."""
        own, split = server(self.box), self._split(self.compute_adapter)
        devices = _split_ports(own.compute, split)
        return {device: devices[i - i % self.ports_per_cage] for i, device in enumerate(devices)}

    @property
    def is_rack(self) -> bool:
        """Return whether it is sold as a whole rack."""
        return server(self.box).trays > 1

    @property
    def summary(self) -> str:
        rails = f"{self.rails} × {self.compute_adapter}"
        return f"{self.gpus} × {self.gpu}, {rails}" if self.gpus else rails


_Kind = TypeVar("_Kind", bound=Entry)


def _split_ports(devices: Sequence[str], split: int) -> tuple[str, ...]:
    """Return a device for each port: `mlx5_4`, and `mlx5_4_p2` for the second port of the same card."""
    return tuple(f"{device}_p{port}" if port > 1 else device for device in devices for port in range(1, split + 1))


@cache
def _read(file: str, kind: type[Entry]) -> Any:
    """Return all entries of a kind. An entry with `like` takes its missing keys from that one."""
    whole: dict[str, dict[str, Any]] = {}
    for name, table in read_catalog(file).items():
        whole[name] = {**whole.get(table.pop("like", ""), {}), **table, "name": name}
    tables = list(whole.values())
    if kind is Server:
        tables = [_whole_rack(table) for table in tables]
    for table in tables:
        if kind is Cable:
            table["medium"] = Medium[table["medium"]]
    return msgspec.convert(tables, tuple[kind, ...])  # type: ignore[valid-type]


def _whole_rack(tray: dict[str, Any]) -> dict[str, Any]:
    """Expand a template of identical `trays`: number their devices through, tray after tray."""
    n = tray.get("trays", 1)
    if n == 1:
        return tray
    counts = {"gpu": tray["gpus"], "cpu": tray["cpus"], "pcie": tray.get("pcie_switches", 0)}
    adapters = len(tray["compute"]) + len(tray.get("storage", ()))

    def renumber(name: str, number: int) -> str:
        stem, own = re.fullmatch(r"(.*?)([0-9]+)", name).groups()  # type: ignore[union-attr]
        return f"{stem}{int(own) + number * counts.get(stem, adapters)}"

    def all_of(names: Sequence[str]) -> list[str]:
        return [renumber(name, number) for number in range(n) for name in names]

    below = tray["pcie_tree"]
    return {
        **tray,
        **{key: n * tray.get(key, 0) for key in ("gpus", "cpus", "pcie_switches")},
        **{key: all_of(tray.get(key, ())) for key in ("compute", "storage")},
        "pcie_tree": {
            renumber(above, number): [renumber(name, number) for name in names]
            for number in range(n)
            for above, names in below.items()
        },
    }


switches: Callable[[], tuple[Switch, ...]] = partial(_read, "switches.toml", Switch)
adapters: Callable[[], tuple[Adapter, ...]] = partial(_read, "adapters.toml", Adapter)
gpus: Callable[[], tuple[Gpu, ...]] = partial(_read, "gpus.toml", Gpu)
servers: Callable[[], tuple[Server, ...]] = partial(_read, "servers.toml", Server)
cables: Callable[[], tuple[Cable, ...]] = partial(_read, "cables.toml", Cable)
interconnects: Callable[[], tuple[Interconnect, ...]] = partial(_read, "fabrics.toml", Interconnect)


def entries() -> list[Entry]:
    """Return all entries, kind by kind."""
    return [*switches(), *adapters(), *gpus(), *servers(), *cables(), *interconnects()]


def switch(name: str) -> Switch:
    """Return the switch with this name, ignoring case."""
    return _pick(switches(), "switch", name)


def adapter(name: str) -> Adapter:
    """Return the adapter with this name, ignoring case."""
    return _pick(adapters(), "adapter", name)


def gpu(name: str) -> Gpu:
    """Return the GPU with this name, ignoring case."""
    return _pick(gpus(), "GPU", name)


def server(name: str) -> Server:
    """Return the server template with this name, ignoring case.

    A suffix after + is another card in every rail, or the number of cabled rails: `dgx-h100+ConnectX-8+4rails`.
    A name that ends in .yaml or .toml is the path of a user's template: `weft.fabric.server_file`.
    """
    box, *parts = name.split("+")
    template = _read_template(box) if is_template_file(box) else _pick(servers(), "server template", box)
    for part in parts:
        rails = re.fullmatch(r"([0-9]{1,3})rails", part)
        template = template.cabled(int(rails[1])) if rails else template.equipped(adapter(part))
    return template


def is_template_file(model: str) -> bool:
    """Return whether a model names a server template in a user's file."""
    return model.partition("+")[0].endswith((".yaml", ".yml", ".toml"))


def is_server(model: str) -> bool:
    """Return whether a model names a server template, of the catalog or a user's, with any cards and rails."""
    box = model.partition("+")[0]
    return is_template_file(box) or any(template.name == box for template in servers())


def _read_template(path: str) -> Server:
    """Read a user's template; imported late, since reading files depends on the catalog."""
    read: Callable[[str], Server] = import_module("weft.fabric.server_file").read
    return read(path)


def interconnect(name: str) -> Interconnect:
    """Return the fabric with this name, ignoring case."""
    return _pick(interconnects(), "fabric", name)


def find(name: str) -> Entry:
    """Return the entry with this name, of any kind, ignoring case; or a server template by its path."""
    if is_template_file(name):
        return _read_template(name)
    entry = _by_name().get(name, _by_name().get(name.lower()))
    return _pick(entries(), "entry", name, _mentions(name)) if entry is None else entry


@cache
def _by_name() -> dict[str, Entry]:
    return {entry.name.lower(): entry for entry in entries()} | {entry.name: entry for entry in entries()}


def _mentions(name: str) -> str:
    """Return a hint with the entries that mention a name, such as those for a cloud's machine type."""
    if not re.search(r"\w", name):
        return ""
    words = re.compile(rf"\b{re.escape(name.replace('-', ' '))}\b", re.IGNORECASE)
    matches = [entry.name for entry in entries() if words.search(repr(entry))][:8]
    return f" {name} is mentioned by {', '.join(matches)}." if matches else ""


def _pick(choices: Sequence[_Kind], kind: str, name: str, more: str = "") -> _Kind:
    by_name = {entry.name: entry for entry in choices}
    return find_named(f"{kind} in the catalog", name, by_name, f"`weft catalog` lists them all.{more}")


def by_device_id(vendor_id: int, device_id: int, system: str = "") -> Switch | Adapter | None:
    """Return the model for the vendor and device of a NodeInfo; None if unknown.

    Among several models on one chip, the one that the system type (`MCS8500`) names, or the first.
    """
    models: list[Switch | Adapter] = [*switches(), *adapters()]
    on_chip = [entry for entry in models if device_id and (entry.vendor_id, entry.device_id) == (vendor_id, device_id)]
    return next((entry for entry in on_chip if entry.name in system), on_chip[0] if on_chip else None)


def cables_for(speed: str, ends: Ends = "any", cages: Collection[str] = ()) -> list[Cable]:
    """Return all cables for this speed between such ends: the cheapest medium first, then the shortest reach.

    `cages` are the connectors of the switches at its ends; cables made for these replace those for any.
    """
    name = parse_label(speed)[0].name
    fitting = [cable for cable in cables() if name in cable.speeds and cable.fits(ends, cages)]
    if cages and any(cable.cages for cable in fitting):
        fitting = [cable for cable in fitting if cable.cages]
    if not fitting and any(name in cable.speeds for cable in cables()):
        raise ConfigError(f"the catalog has no {name} cable with plugs for {' and '.join(sorted(set(cages)))} cages")
    if not fitting:
        speeds = dict.fromkeys(speed for cable in cables() for speed in cable.speeds)
        raise ConfigError(f"the catalog has no cable for {name}, only for {', '.join(speeds)}")
    return sorted(fitting, key=lambda cable: (cable.medium, cable.reach_m))


def plug_power_w(speed: str, cages: Collection[str] = ()) -> float | None:
    """Return the highest power that optics of this speed draw in a switch per port; None if unknown."""
    name = parse_label(speed)[0].name
    optics = [cable for cable in cables() if name in cable.speeds and cable.optical and cable.fits("any", cages)]
    return max((cable.power_w for cable in optics if cable.power_w is not None), default=None)


def cable_for(speed: str, length_m: float, ends: Ends = "any", cages: Collection[str] = ()) -> Cable:
    """Return the cheapest medium that reaches: passive copper, active copper, active optical, transceivers."""
    name = parse_label(speed)[0].name
    if not (math.isfinite(length_m) and length_m >= 0):
        raise ConfigError(f"cable length must be 0 m or more, got {length_m}")
    candidates = cables_for(speed, ends, cages)
    for cable in candidates:
        if length_m <= cable.reach_m:
            return cable
    longest = max(candidates, key=lambda cable: cable.reach_m)
    raise ConfigError(
        f"no {name} cable is {length_m:g} m long: the longest, {longest.name}, reaches {longest.reach_m:g} m"
    )
