"""Server templates in the user's own files: the keys are those of the catalog's `servers.toml`.

    like: dgx-h100                    defaults for all keys that are missing here; without it every key is required
    gpu: H100                         gpu0 to gpu7
    gpus: 8
    gpu_changes:                      a GPU that differs from the catalog's: another memory, clocks under a power limit
      sustained: 0.6                  share of the peak that matrix products have; memory_gbyte, memory_gbyte_s,
                                      peak_tflop_s: {bf16: 800, fp8: 1600}; or power_limit_w: 600 without `sustained`
    nvlink_spread: [4, 5, 5, 4]       links from each GPU to each NVSwitch; none: [], GPUs use PCIe
    nvlink_pairs: [[gpu0, gpu1, 4]]   or links between GPUs directly: two GPUs and the number of links
    cpus: 2                           cpu0, cpu1
    pcie_switches: 4                  pcie0 to pcie3; pcie: 16xPCIe5 is their link to the processors
    compute_adapter: ConnectX-7
    compute: [mlx5_0, mlx5_3, ...]    one for each rail, in the order of the GPUs that they serve
    storage_adapter, storage          adapters of other networks
    pcie_tree:                        parent: children; the roots are processors
      cpu0: [pcie0, pcie1]
      pcie0: [gpu0, gpu1, mlx5_0, mlx5_3]
    bus_id: {gpu0: "0000:1b:00.0"}    PCI addresses, if known
    height_u: 8                       in rack units
    trays: 18                         machines of a rack that is one NVLink domain; list the devices of all trays

A template is named by its path, in specs, lab files and `--as`: server=my-server.yaml. `weft server import` writes one
from a machine's own tools. Templates are fully checked here; other modules rely on that.
"""

from __future__ import annotations

import datetime
import os
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec

from weft.errors import ConfigError
from weft.fabric import catalog
from weft.fabric.catalog.power import power_law
from weft.fabric.files.lab.document import Document
from weft.fabric.rates import Technology, parse_label
from weft.schemas import Place

_DEVICE = re.compile(r"[A-Za-z_][\w.-]*", re.ASCII)
_BUS_ID = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f]", re.IGNORECASE)
_MOST = {
    "gpus": 576,
    "cpus": 576,
    "pcie_switches": 576,
    "height_u": 60,
    "ports_per_cage": 8,
    "trays": 64,
    "c2c_links": 64,
}
_FROM_ONE = ("height_u", "ports_per_cage", "trays")
_PARTS = ("gpu", "cpu", "pcie", "nvswitch")


def read(path: str) -> catalog.Server:
    """Return the template in a file; it is read again when the file changes."""
    if "+" in path:
        raise ConfigError(f"template {path}: a + begins a variant; rename the file without +")
    try:
        status = os.stat(path)
        return _read(path, status.st_mtime_ns, status.st_size)
    except OSError:
        return _read(path, 0, 0)  # raises the right error


@lru_cache(maxsize=32)
def _read(path: str, changed_ns: int, size_bytes: int) -> catalog.Server:
    day = datetime.datetime.fromtimestamp(changed_ns / 1e9, datetime.UTC).date()
    return template_of(Document.load(Path(path)), path, day)


def template_of(doc: Document, name: str, day: datetime.date) -> catalog.Server:
    """Return the checked template of a document."""
    if not isinstance(doc.data, dict):
        doc.refuse((), "a mapping: gpu, gpus, compute_adapter, compute, pcie_tree, height_u and others")
    keys = dict(doc.data)
    allowed = [key for key in ("like", *catalog.Server.__struct_fields__) if key != "name"]  # which is its path
    unknown = next((key for key in keys if key not in allowed), None)
    if unknown is not None:
        doc.refuse_key((unknown,), allowed)
    changes = keys.get("gpu_changes")
    for key in changes if isinstance(changes, dict) else ():
        if key not in catalog.GpuChanges.__struct_fields__:
            doc.refuse_key(("gpu_changes", key), catalog.GpuChanges.__struct_fields__)
    like = _like(doc, keys.pop("like", None))
    whole = {"source": f"{name}, a user's file", "date": day, **like, **keys, "name": name}
    fields = msgspec.structs.fields(catalog.Server)
    missing = [field.name for field in fields if field.required and field.name not in whole]
    if missing:
        doc.refuse((), f"{' and '.join(missing)} as well; or like: dgx-h100, and only the differences")
    template = replace(doc, data=whole).convert((), catalog.Server)
    if "bus_id" not in keys:  # the template of `like` may have more devices
        present = {key: address for key, address in template.bus_id.items() if key in _devices(template)}
        template = msgspec.structs.replace(template, bus_id=present)
    _Check(doc, template).everything()
    return template


def _devices(template: catalog.Server) -> list[str]:
    """Return the names of all devices that have a PCI address."""
    gpus = [f"gpu{number}" for number in range(min(template.gpus, _MOST["gpus"]))]
    switches = [f"nvswitch{number}" for number in range(len(template.nvlink_spread))]
    return [*gpus, *template.compute, *template.storage, *template.spare, *switches]


def _like(doc: Document, name: Any) -> dict[str, Any]:
    if name is None:
        return {}
    try:
        template = catalog.server(str(name)) if not catalog.is_template_file(str(name)) else None
    except ConfigError as error:
        doc.refuse_because(("like",), error)
    if template is None:
        doc.refuse(("like",), "a template of the catalog, not another file")
    return {key: value for key, value in msgspec.to_builtins(template).items() if key not in ("source", "date", "note")}


class _Check:
    """A check of a template by the rules that the catalog's own templates meet."""

    def __init__(self, doc: Document, template: catalog.Server) -> None:
        self.doc, self.template = doc, template
        self.adapters = (*template.compute, *template.storage, *template.spare)
        self.gpus = [f"gpu{number}" for number in range(min(template.gpus, _MOST["gpus"]))]

    def everything(self) -> None:
        self._numbers()
        self._products()
        self._pairs_of_gpus()
        self._gpu_changes()
        self._devices()
        if self.template.cpus:
            self._tree()
        elif self.template.gpus or len(self.adapters) > 1 or self.template.pcie_tree:
            self.doc.refuse(("cpus",), "cpus, 1 or more: GPUs and adapters are below processors (pcie_tree)")
        self._bus_ids()

    def _numbers(self) -> None:
        for key, most in _MOST.items():
            least = 1 if key in _FROM_ONE else 0
            if not least <= getattr(self.template, key) <= most:
                self.doc.refuse((key,), f"a number from {least} to {most}")
        if self.template.gpus % self.template.trays or len(self.template.compute) % self.template.trays:
            self.doc.refuse(("trays",), "the same number of GPUs and rails in each tray: list the devices of all trays")
        for place, links in enumerate(self.template.nvlink_spread):
            if not 1 <= links <= 64:
                self.doc.refuse(("nvlink_spread", place), "links of a GPU to an NVSwitch, from 1 to 64")
        if len(self.template.nvlink_spread) > 64 or (self.template.nvlink_spread and not self.template.gpus):
            self.doc.refuse(("nvlink_spread",), "one number for each NVSwitch, and gpus")

    def _products(self) -> None:
        template = self.template
        if bool(template.gpu) != bool(template.gpus):
            self.doc.refuse(("gpu" if template.gpu else "gpus",), "both gpu and gpus: the model and the number")
        if bool(template.storage) != bool(template.storage_adapter):
            self.doc.refuse(("storage",), "storage and storage_adapter, both or neither")
        for key, name, find in (
            ("gpu", template.gpu, catalog.gpu),
            ("compute_adapter", template.compute_adapter, catalog.adapter),
            ("storage_adapter", template.storage_adapter, catalog.adapter),
        ):
            if name:
                self._find((key,), name, find)
        if template.pcie or template.pcie_switches:
            line = self._find(("pcie",), template.pcie, parse_label)
            if line[0].technology is not Technology.PCIE:
                self.doc.refuse(("pcie",), "PCIe lanes and generation, such as 16xPCIe5")
        if template.nvlink_spread and sum(template.nvlink_spread) > catalog.gpu(template.gpu).nvlinks:
            most = catalog.gpu(template.gpu).nvlinks
            self.doc.refuse(("nvlink_spread",), f"at most {most} links, as a {template.gpu} has")

    def _gpu_changes(self) -> None:
        template, key = self.template, "gpu_changes"
        given = template.gpu_changes.given
        if given and not template.gpu:
            self.doc.refuse((key,), "gpu as well: the model that differs")
        for name, value in given.items():
            peaks = value if isinstance(value, dict) else {"": value}
            for precision, number in peaks.items():
                place = (key, name, precision) if precision else (key, name)
                if not 0 < number <= (1 if name == "sustained" else 1e6):
                    self.doc.refuse(place, "a share above 0, at most 1" if name == "sustained" else "a number above 0")
        if template.gpu and "power_limit_w" in given:
            self._power_limit(given["power_limit_w"], catalog.gpu(template.gpu), sustained="sustained" in given)
        formats = catalog.gpu(template.gpu).peak_tflop_s if template.gpu else {}
        if "peak_tflop_s" in given and set(given["peak_tflop_s"]) != set(formats):
            self.doc.refuse((key, "peak_tflop_s"), f"a dense peak for each of {', '.join(formats)}")

    def _power_limit(self, limit_w: float, gpu: catalog.Gpu, *, sustained: bool) -> None:
        place = ("gpu_changes", "power_limit_w")
        if sustained:
            self.doc.refuse(place, "power_limit_w or sustained, which a limit determines, not both")
        least_w = power_law().least * gpu.power_w
        if not least_w <= limit_w < gpu.power_w:
            self.doc.refuse(
                place,
                f"a limit below the {gpu.power_w:g} W of a {gpu.name}, from {least_w:g} W on: nothing is published "
                "about products under a lower one. Measure large products under it, and give their share of the peak "
                "as sustained",
            )

    def _pairs_of_gpus(self) -> None:
        """Check GPUs that NVLinks join directly: full meshes with equal numbers of links, not joined to each other."""
        template, key = self.template, "nvlink_pairs"
        if not template.nvlink_pairs:
            return
        if template.nvlink_spread or template.trays > 1:
            self.doc.refuse((key,), "nvlink_spread (over NVSwitches, as in racks) or nvlink_pairs (direct), not both")
        peers: dict[str, dict[str, int]] = {gpu: {} for gpu in self.gpus}
        for place, (a, b, links) in enumerate(template.nvlink_pairs):
            if a not in peers or b not in peers or a == b or b in peers[a] or not 1 <= links <= 64:
                self.doc.refuse((key, place), "two GPUs of this server, once, and from 1 to 64 links: [gpu0, gpu1, 4]")
            peers[a][b] = peers[b][a] = links
        most = catalog.gpu(template.gpu).nvlinks
        for gpu, links_to in peers.items():
            if sum(links_to.values()) > most:
                self.doc.refuse((key,), f"at most {most} links of {gpu}, as a {template.gpu} has")
            mesh = {gpu, *links_to}
            uneven = len(set(links_to.values())) > 1 or any({peer, *peers[peer]} != mesh for peer in links_to)
            if uneven and not catalog.gpu(template.gpu).gcn:  # RCCL has rings for AMD's uneven boards
                self.doc.refuse(
                    (key,),
                    f"full meshes with equal numbers of links: {gpu} is joined with {', '.join(links_to)}. Pairs and "
                    f"all-to-all boards are supported; rings of pairs and cube meshes (DGX-1) are not",
                )

    def _find(self, place: Place, name: str, find: Any) -> Any:
        try:
            return find(name)
        except ConfigError as error:
            self.doc.refuse_because(place, error)

    def _devices(self) -> None:
        if not self.template.compute:
            self.doc.refuse(("compute",), "adapters, one for each rail: [mlx5_0, mlx5_1]")
        for key in ("compute", "storage", "spare"):
            for place, name in enumerate(getattr(self.template, key)):
                own = re.fullmatch(rf"({'|'.join(_PARTS)})\d+", name)
                if own or not _DEVICE.fullmatch(name):
                    self.doc.refuse((key, place), "the name of an adapter as its driver has it, such as mlx5_0")
        repeated = [name for name, count in Counter(self.adapters).items() if count > 1]
        if repeated:
            self.doc.refuse(("compute",), f"each adapter once: {repeated[0]} is in compute, storage and spare twice")

    def _tree(self) -> None:
        cpus = [f"cpu{number}" for number in range(self.template.cpus)]
        switches = [f"pcie{number}" for number in range(self.template.pcie_switches)]
        below = {*switches, *self.gpus, *self.adapters}
        above: dict[str, str] = {}
        for parent, place, child in self._pairs():
            at: Place = ("pcie_tree", parent)
            if parent not in (*cpus, *switches):
                self.doc.refuse(at, f"{parent} to be one of {', '.join((*cpus, *switches))}: cpus and pcie_switches")
            if child not in below:
                self.doc.refuse((*at, place), "a PCIe switch, a GPU or an adapter of this server")
            if child in above:
                self.doc.refuse((*at, place), f"{child} once: it is already below {above[child]}")
            above[child] = parent
        for name in (*switches, *self.gpus, *self.adapters):
            self._rooted(name, above, cpus)

    def _pairs(self) -> Iterator[tuple[str, int, str]]:
        for parent, children in self.template.pcie_tree.items():
            for place, child in enumerate(children):
                yield parent, place, child

    def _rooted(self, name: str, above: dict[str, str], cpus: list[str]) -> None:
        """Check that a device is below a processor, directly or through switches."""
        at, visited = name, {name}
        while at in above:
            at = above[at]
            if at in visited:
                self.doc.refuse(("pcie_tree", at), f"a tree: {at} is below itself")
            visited.add(at)
        if at not in cpus:
            where = "it" if at == name else f"its root {at}"
            self.doc.refuse(("pcie_tree",), f"{name} below a cpu or a PCIe switch: {where} has no parent")

    def _bus_ids(self) -> None:
        devices = _devices(self.template)
        for name, address in self.template.bus_id.items():
            if name not in devices:
                self.doc.refuse_key(("bus_id", name), devices)
            if not _BUS_ID.fullmatch(address):
                self.doc.refuse(("bus_id", name), "a PCI address such as 0000:1b:00.0")
