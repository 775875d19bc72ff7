"""NCCL topology XML of one server, for NCCL_TOPO_FILE and for simulators that read it.

    <system version="1" name="dgx1">
      <cpu numaid="0" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="143">
        <pci busid="ffff:ff:19.0" class="0x060400" link_speed="32.0 GT/s PCIe" link_width="16">
          <pci busid="0000:1b:00.0" class="0x030200" link_speed="32.0 GT/s PCIe" link_width="16">
            <gpu dev="0" sm="90" rank="0" gdr="1">
              <nvlink target="0000:05:00.0" count="4" tclass="0x068000"/>
          <pci busid="0000:18:00.0" class="0x020700" link_speed="32.0 GT/s PCIe" link_width="16">
            <nic>
              <net name="mlx5_0" dev="0" speed="400000" port="1" ... gdr="1" rail="0"/>

It describes the fabric: removed GPUs and links are absent, and so are adapters without a cable, which NCCL would find
down. For a rack it is the first tray, since NCCL reads a file on each machine and joins the trays itself: their
NVSwitches, which no machine has, are one with an address that NCCL makes up. PCI addresses are those of the real
machine if the catalog has them, else `ffff:ff:NN.0`, as cloud providers write them. NCCL (src/graph/xml.cc) reads only
a part of XML: no declaration, no blank before `/>`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from xml.sax.saxutils import quoteattr

from weft.errors import ConfigError
from weft.fabric import catalog
from weft.fabric.kinds import NodeKind
from weft.fabric.model import Fabric
from weft.fabric.rates import Technology
from weft.fabric.views import Link, Node, Server

# PCI classes in NCCL
_CLASS = {NodeKind.PCIE_SWITCH: "0x060400", NodeKind.GPU: "0x030200", NodeKind.NVSWITCH: "0x068000"}
_NIC_CLASS = {
    Technology.INFINIBAND: "0x020700",
    Technology.ETHERNET: "0x020000",
    Technology.OMNI_PATH: "0x020800",
}
_MAX_CONNECTIONS = 131_072  # as NCCL reports for mlx5
_C2C_MBYTE_S = 44_712  # as NCCL reports for a link of NVLink-C2C
_RACK_SWITCH = "fffffff:ff:ff.0"


def to_text(fabric: Fabric, server: str) -> str:
    """Return the topology of a server: its CPUs, PCIe, GPUs, NVLink and cabled adapters."""
    return "\n".join(_Box(fabric.find_server(server)).system().lines()) + "\n"


@dataclass(frozen=True, slots=True)
class _Element:
    tag: str
    attributes: dict[str, object]
    children: list[_Element] = field(default_factory=list)

    def lines(self, indent: str = "") -> Iterator[str]:
        start = indent + "<" + self.tag + "".join(f" {k}={quoteattr(str(v))}" for k, v in self.attributes.items())
        if not self.children:
            yield f"{start}/>"
            return
        yield f"{start}>"
        for child in self.children:
            yield from child.lines(indent + "  ")
        yield f"{indent}</{self.tag}>"


class _Box:
    """A server, and the numbers by which NCCL identifies its devices."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.cpus = server.of_kind(NodeKind.CPU)
        if not self.cpus:
            inside = [template.name for template in catalog.servers() if template.cpus]
            raise ConfigError(
                f"{server} is a plain host: NCCL's topology file describes GPUs and adapters below CPUs; "
                f"build the fabric with server={' or '.join(inside)}"
            )
        self.template = catalog.server(self.cpus[0].model)
        trays = catalog.server(self.template.box).trays
        self.in_rack = trays > 1
        self.cpus = self.cpus[: self.template.cpus // trays]
        self.bus_id = {
            node.index: self.template.bus_id.get(_device(node), f"ffff:{0xFF - number // 256:02x}:{number % 256:02x}.0")
            for number, node in enumerate(server.nodes, start=1)
        }
        self.gpu_number = {gpu.index: number for number, gpu in enumerate(server.gpus)}
        cables = ((adapter.index, _cable(adapter)) for adapter in sorted(server.hcas, key=_natural))
        self.cable = {index: cable for index, cable in cables if cable is not None}
        self.net_number = {index: number for number, index in enumerate(self.cable)}

    def system(self) -> _Element:
        cpus = [self._cpu(number, node) for number, node in enumerate(self.cpus)]
        return _Element("system", {"version": 1, "name": self.server.name}, cpus)

    def _cpu(self, number: int, node: Node) -> _Element:
        attributes: dict[str, object] = {"numaid": number}
        if self.template.cpu is not None:
            chip = self.template.cpu
            attributes |= {
                "arch": chip.arch,
                "vendor": chip.vendor,
                "familyid": chip.family_id,
                "modelid": chip.model_id,
            }
        return _Element("cpu", attributes, self._below(node, above=-1))

    def _below(self, node: Node, above: int) -> list[_Element]:
        """Return the elements below a CPU or a PCIe switch; the ports of one card, which share a slot, are one."""
        elements: list[_Element] = []
        cards: dict[str, list[tuple[Node, Link]]] = {}
        for child, link in _links(node, Technology.PCIE):
            if child.index == above:
                continue
            if child.kind == NodeKind.HCA:
                cards.setdefault(self.bus_id[child.index].rpartition(".")[0], []).append((child, link))
            else:
                inside = [self._gpu(child)] if child.kind == NodeKind.GPU else self._below(child, above=node.index)
                elements.append(self._pci(child, _CLASS[child.kind], link, link.width, inside))
        return elements + [card for ports in cards.values() for card in self._card(ports)]

    def _card(self, ports: list[tuple[Node, Link]]) -> Iterator[_Element]:
        """Yield an adapter, unless none of its ports is cabled."""
        plugged = [adapter for adapter, _ in ports if adapter.index in self.cable]
        if plugged:
            (first, link), lanes = ports[0], sum(link.width for _, link in ports)
            nic = _Element("nic", {}, [self._net(adapter) for adapter in plugged])
            yield self._pci(first, _NIC_CLASS[self.cable[plugged[0].index].technology], link, lanes, [nic])

    def _pci(self, node: Node, pci_class: str, link: Link, width: int, inside: list[_Element]) -> _Element:
        attributes: dict[str, object] = {
            "busid": self.bus_id[node.index],
            "class": pci_class,
            "link_speed": f"{link.speed.lane_signal_gbit_s:.1f} GT/s PCIe",
            "link_width": width,
        }
        return _Element("pci", attributes, inside)

    def _gpu(self, node: Node) -> _Element:
        number = self.gpu_number[node.index]
        attributes: dict[str, object] = {"dev": number, "sm": catalog.gpu(node.model).sm, "rank": number, "gdr": 1}
        peers = Counter(peer for peer, _ in _links(node, Technology.NVLINK))
        ways: Counter[tuple[str, str]] = Counter()
        for peer, count in peers.items():
            ways[_RACK_SWITCH if self.in_rack else self.bus_id[peer.index], _CLASS[peer.kind]] += count
        links = [_Element("nvlink", {"target": to, "count": n, "tclass": of}) for (to, of), n in ways.items()]
        if self.template.c2c_links:
            links.append(_Element("c2c", {"bw": _C2C_MBYTE_S, "count": self.template.c2c_links}))
        return _Element("gpu", attributes, links)

    def _net(self, node: Node) -> _Element:
        cable = self.cable[node.index]
        port = cable.a if cable.a.node == node else cable.b
        attributes: dict[str, object] = {
            "name": _device(node),
            "dev": self.net_number[node.index],
            "speed": round(cable.rate_gbit_s * 1000),  # Mbit/s
            "port": port.number,
            "latency": "0.000000",
            "guid": node.guid,
            "maxconn": _MAX_CONNECTIONS,
            "gdr": 1,
        }
        if _device(node) in self.template.compute:
            attributes["rail"] = self.template.compute.index(_device(node))
        return _Element("net", attributes)


def _links(node: Node, *technologies: Technology) -> list[tuple[Node, Link]]:
    """Return the nodes at the other ends of the links of these technologies, with the links."""
    return [
        (port.peer.node, port.link)
        for port in node.ports
        if port.peer is not None and port.link is not None and port.link.technology in technologies
    ]


def _cable(adapter: Node) -> Link | None:
    return next((link for _, link in _links(adapter, *_NIC_CLASS)), None)


def _device(node: Node) -> str:
    """Return the device of a node: `mlx5_0` of `dgx1/mlx5_0`."""
    return node.name.rpartition("/")[2]


def _natural(node: Node) -> tuple[int, str]:
    """Return a sort key: mlx5_9 before mlx5_10."""
    return len(node.name), node.name
