"""Read NCCL's topology XML: the output of NCCL_TOPO_DUMP_FILE, and of `weft export` for NCCL_TOPO_FILE.

    <system version="1">
      <cpu numaid="0" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="143">
        <pci busid="0000:18:00.0" class="0x060400" link_speed="32.0 GT/s PCIe" link_width="16">
          <pci busid="0000:1b:00.0" class="0x030200" vendor="0x10de" device="0x2330" ...>
            <gpu dev="0" sm="90" rank="0" gdr="1">
              <nvlink target="0000:05:00.0" count="4" tclass="0x068000"/>
          <pci busid="0000:1a:00.0" class="0x020700" vendor="0x15b3" device="0x1021" ...>
            <nic>
              <net name="mlx5_0" dev="0" speed="400000" port="1" guid="0x..." .../>

The bridge next to a processor is a PCIe switch, with all devices below it, over any number of further bridges. GPUs and
cards are identified by their PCI ids if the file has them, GPUs otherwise by `sm`.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

from weft.errors import FileError
from weft.fabric import catalog
from weft.fabric.files.parts import Machine
from weft.fabric.rates import Technology, speeds

_TAGS = {"cpu", "pci", "gpu", "nic", "net", "nvlink", "c2c", "pcilink"}  # the last is ignored
_NVSWITCH, _DISPLAY = "0x0680", "0x03"  # PCI classes; GPUs have the second
_NODE_INFO = {0x15B3: 0x02C9}  # Mellanox: PCI vendor -> vendor in NodeInfo and in the catalog
_PLACEHOLDER = "ffff:f"  # addresses that no machine has


def read(path: Path, text: str) -> Machine:
    if "<!" in re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL):
        raise FileError(path, None, "<!", "NCCL's XML, which has no declarations")
    try:
        root = ET.fromstring(text)
    except ET.ParseError as error:
        raise FileError(path, error.position[0], str(error), "complete NCCL XML: <system> ... </system>") from None
    return _Reader(path, root).machine()


class _Reader:
    def __init__(self, path: Path, root: ET.Element) -> None:
        self.path, self.root = path, root
        if root.tag != "system":
            self._refuse(f"<{root.tag}>", "<system>, NCCL's topology")
        tags = (element.tag for element in root.iter() if element is not root)
        unknown = next((tag for tag in tags if tag not in _TAGS), None)
        if unknown is not None:
            self._refuse(f"<{unknown}>", f"elements {', '.join(sorted(_TAGS))}")
        self.bus_id: dict[str, str] = {}
        self.cards: dict[str, str] = {}
        self.models: set[tuple[int, int, int]] = set()  # vendor, device, sm
        self.spread: dict[str, Counter[str]] = {}  # GPU -> NVSwitch -> links
        self.direct: dict[str, Counter[str]] = {}  # GPU -> address of another -> links
        self.at: dict[str, str] = {}  # address -> GPU
        self.c2c_links = 0
        hosts = {cpu.get("host_hash") for cpu in root.findall("cpu")}
        if len(hosts) > 1:
            self._refuse(
                f"processors of {len(hosts)} machines (host_hash)",
                "those of one machine: keep the <cpu> elements of one tray, or use a server such as gb200-nvl72",
            )
        numbers = [self._number(gpu, "dev") for gpu in root.iter("gpu")]
        if not numbers:
            self._refuse(
                "no <gpu>",
                "the output of NCCL_TOPO_DUMP_FILE, with GPUs and adapters; a cloud's NCCL_TOPO_FILE has none",
            )
        if len(set(numbers)) < len(numbers):
            self._refuse(f"GPUs {numbers}", "the GPUs of one server, each with a different dev")
        self.gpus = {number: f"gpu{place}" for place, number in enumerate(sorted(numbers))}

    def _refuse(self, read: str, expected: str) -> NoReturn:
        raise FileError(self.path, None, read, expected)

    def _number(self, element: ET.Element, key: str, base: int = 10) -> int:
        text = element.get(key, "")
        try:
            return int(text, base)
        except ValueError:
            self._refuse(f'<{element.tag} {key}="{text}">', f"{key}, a number")

    def machine(self) -> Machine:
        cpus = self.root.findall("cpu")
        sockets = [[group for below in cpu if (group := list(self._devices(below)))] for cpu in cpus]
        devices = [name for groups in sockets for group in groups for name in group]
        repeated = next((name for name, count in Counter(devices).items() if count > 1), None)
        if repeated is not None:
            self._refuse(f"two devices {repeated}", "the devices of one server, with different names")
        gpus = self.gpus.values()
        order = {name: place for place, name in enumerate(gpus)}
        sockets = [groups for groups in sockets if groups]
        sockets.sort(key=lambda groups: min(order.get(name, len(order)) for group in groups for name in group))
        switches = self._switches()
        return Machine(
            gpus=list(gpus),
            adapters=[name for name in devices if name not in order],
            sockets=sockets,
            nvlink_spread=list(switches.values()),
            nvlink_pairs=self._pairs(),
            c2c_links=self.c2c_links,
            gpu_models=self._models(),
            cards=self.cards,
            pcie=self._pcie(cpus),
            cpu=self._chip(cpus[0]) if cpus else None,
            bus_id=self.bus_id | {f"nvswitch{n}": bus for n, bus in enumerate(switches) if _is_address(bus)},
        )

    def _devices(self, top: ET.Element) -> Iterator[str]:
        """Yield the names of the devices at or below an element."""
        left: list[tuple[ET.Element, ET.Element | None]] = [(top, None)]  # with the <pci> around it
        while left:
            element, pci = left.pop()
            if element.tag == "gpu":
                yield self._gpu(element, pci)
            elif element.tag == "nic":
                yield from self._nic(element, pci)
            elif element.tag == "pci":
                left += [(below, element) for below in reversed(list(element))]

    def _gpu(self, element: ET.Element, pci: ET.Element | None) -> str:
        name = self.gpus[self._number(element, "dev")]
        ids = (0, 0) if pci is None or pci.get("device") is None else self._ids(pci)
        self.models.add((*ids, self._number(element, "sm")))
        self._address(name, pci, 0)
        self.at["" if pci is None else pci.get("busid", "").lower()] = name
        self.spread[name], self.direct[name] = Counter(), Counter()
        self.c2c_links = max(self.c2c_links, *(self._number(link, "count") for link in element.findall("c2c")), 0)
        for link in element.findall("nvlink"):
            target, kind = link.get("target", "").lower(), link.get("tclass", "")
            if not kind.startswith((_NVSWITCH, _DISPLAY)):
                self._refuse(
                    f'<nvlink target="{target}" tclass="{kind}">', f"NVSwitches, tclass {_NVSWITCH}00, or GPUs"
                )
            among = self.spread if kind.startswith(_NVSWITCH) else self.direct
            among[name][target] += self._number(link, "count")
        return name

    def _pairs(self) -> list[tuple[str, str, int]]:
        """Return the NVLinks between GPUs, which both ends list."""
        pairs: dict[tuple[str, str], int] = {}
        for name, links in self.direct.items():
            for target, count in links.items():
                peer = self.at.get(target, "")
                if not peer or self.direct[peer].total() == 0:
                    self._refuse(f'{name} with <nvlink target="{target}">', "another GPU of the file, with its NVLinks")
                low, high = sorted((name, peer), key=lambda gpu: int(gpu.removeprefix("gpu")))
                if pairs.setdefault((low, high), count) != count:
                    self._refuse(f"{count} NVLinks from {name} to {peer}", f"{pairs[low, high]}, as {peer} has")
        return [(low, high, count) for (low, high), count in sorted(pairs.items())]

    def _nic(self, element: ET.Element, pci: ET.Element | None) -> Iterator[str]:
        nets = element.findall("net")
        for place, net in enumerate(nets):
            name = net.get("name", "")
            if not name:
                self._refuse("<net> without a name", 'a name: <net name="mlx5_0"')
            self._address(name, pci, place)
            if pci is not None and pci.get("device") is not None:
                vendor, device = self._ids(pci)
                ids = _NODE_INFO.get(vendor, vendor), device
                cards = [card for card in catalog.adapters() if (card.vendor_id, card.device_id) == ids]
                is_ib = pci.get("class", "").startswith("0x0207")
                fits = [a for a in cards if (a.technology is Technology.INFINIBAND) == is_ib]
                of_ports = [a for a in fits or cards if a.ports == len(nets)] or fits or cards
                if of_ports:
                    self.cards[name] = of_ports[0].name
            yield name

    def _ids(self, pci: ET.Element) -> tuple[int, int]:
        return self._number(pci, "vendor", 16), self._number(pci, "device", 16)

    def _address(self, name: str, pci: ET.Element | None, port: int) -> None:
        """Record a PCI address; two ports of a card are two functions of its slot."""
        bus = "" if pci is None else pci.get("busid", "").lower()
        if _is_address(bus):
            slot, _, function = bus.rpartition(".")
            self.bus_id[name] = f"{slot}.{min(int(function, 16) + port, 15):x}"

    def _switches(self) -> dict[str, int]:
        """Return the links from each GPU to each NVSwitch."""
        first = next(iter(self.spread.values()), Counter())
        for name, spread in self.spread.items():
            if spread != first:
                self._refuse(f"{name} with NVLinks {dict(spread)}", f"the same as other GPUs: {dict(first)}")
        return dict(sorted(first.items()))

    def _models(self) -> list[str]:
        if len(self.models) > 1:
            self._refuse(f"{len(self.models)} kinds of GPUs", "one kind of GPUs in a server")
        vendor, device, sm = next(iter(self.models), (0, 0, 0))
        exact = [gpu.name for gpu in catalog.gpus() if device and (gpu.vendor_id, gpu.device_id) == (vendor, device)]
        return exact or ([] if device else [gpu.name for gpu in catalog.gpus() if gpu.sm == sm])

    def _pcie(self, cpus: list[ET.Element]) -> str:
        """Return the label of the slowest bridge next to a processor; empty if unknown."""
        labels = []
        bridges = (bridge for cpu in cpus for bridge in cpu.findall("pci") if bridge.find("pci") is not None)
        for bridge in bridges:
            signal = re.match(r"([0-9]+(?:\.[0-9]+)?) GT/s", bridge.get("link_speed", ""))
            lanes = bridge.get("link_width", "")
            for speed in speeds():
                if signal is None or speed.technology is not Technology.PCIE:
                    continue
                if speed.lane_signal_gbit_s == float(signal[1]) and lanes.isdecimal() and int(lanes) in speed.widths:
                    labels.append((speed.rate_gbit_s(int(lanes)), speed.label(int(lanes))))
        return min(labels)[1] if labels else ""

    def _chip(self, cpu: ET.Element) -> dict[str, Any] | None:
        attributes = {"arch": cpu.get("arch"), "vendor": cpu.get("vendor")}
        if None in attributes.values() or cpu.get("familyid") is None or cpu.get("modelid") is None:
            return None
        family, model = self._number(cpu, "familyid"), self._number(cpu, "modelid")
        named = {"model": f"{attributes['vendor']} family {family} model {model}"}
        return named | attributes | {"family_id": family, "model_id": model}


def _is_address(bus: str) -> bool:
    return re.fullmatch(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f]", bus) is not None and not bus.startswith(
        _PLACEHOLDER
    )
