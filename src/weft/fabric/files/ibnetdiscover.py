"""Output of `ibnetdiscover`, input of `ibsim`: a record for each node, with a line for each cable.

    vendid=0x2c9
    devid=0xd2f0
    sysimgguid=0x1c34da0300728866
    switchguid=0x1c34da0300728866(1c34da0300728866)
    Switch  41 "S-1c34da0300728866"         # "MF0;leaf1:MQM8700/U1" enhanced port 0 lid 12 lmc 0
    [1]     "H-0c42a10300303dbe"[1](c42a10300303dbe)                # "h1 mlx5_0" lid 5 4xHDR

    caguid=0xc42a10300303dbe
    Ca      1 "H-0c42a10300303dbe"          # "h1 mlx5_0"
    [1](c42a10300303dbe)    "S-1c34da0300728866"[1]         # lid 5 lmc 0 "MF0;leaf1:MQM8700/U1" lid 12 4xHDR

Reading accepts the output of any options of the tool, terminal logs that lost the tabs and gained a prompt, and
hand-written net files for ibsim: other ids, no comments, cables named from one end. Nodes without a GUID get those that
ibsim would assign. A cable without a rate is 4xSDR, as in ibsim; a LID of 65535 means none.

Writing produces what the tool would print after sweeping the fabric, in the order of the fabric's nodes, plus nodes
without a cable, which the tool could not reach. A switch has an enhanced port 0 unless the source file says base.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

from weft.errors import FileError
from weft.fabric.files.discovered import Claim, Discovery, NodeRecord, PortRecord
from weft.fabric.files.naming import adapter_kind, node_id
from weft.fabric.files.subnet import Subnet, printable
from weft.fabric.files.text import read_text
from weft.fabric.kinds import NodeKind
from weft.fabric.model import Fabric

_KINDS = {"Switch": NodeKind.SWITCH, "Ca": NodeKind.HCA, "Hca": NodeKind.HCA, "Rt": NodeKind.ROUTER}
_GUID_KEYS = {NodeKind.SWITCH: "switchguid", NodeKind.HCA: "caguid", NodeKind.ROUTER: "rtguid"}
_FIRST_GUIDS = {NodeKind.SWITCH: 0x20_0000, NodeKind.HCA: 0x10_0000, NodeKind.ROUTER: 0x30_0000}
_LARGEST = {"vendid": 0xFF_FFFF, "devid": 0xFFFF}

_HEX = "[0-9a-fA-F]{1,16}"
_KEY = re.compile(rf"(vendid|devid|sysimgguid|switchguid|caguid|rtguid)=0x({_HEX})(?:\(({_HEX})\))?\s*(?:#.*)?")
_NODE = re.compile(
    r'(?P<kind>Switch|Ca|Hca|Rt)\s*(?P<ports>[0-9]{1,3})\s*"(?P<id>[^"]+)"\s*'
    r'(?:#\s*(?:"(?P<description>.*)"(?: (?P<port_0>enhanced|base) port 0)?'
    r"(?: lid (?P<lid>[0-9]{1,5}))?(?: lmc (?P<lmc>[0-9]{1,3}))?)?.*)?"
)
_PORT = re.compile(
    rf"\[([0-9]{{1,3}})\](?:\[ext [0-9]+\])?\s*(?:\(({_HEX})\))?\s*"
    rf'"([^"]+)"\s*(?:\[([0-9]{{1,3}})\])?(?:\[ext [0-9]+\])?\s*(?:\(({_HEX})\))?\s*'
    r"(?:#\s*(?:lid ([0-9]{1,5}) lmc ([0-9]{1,3}))?(?:.*\blid ([0-9]{1,5}) ([0-9]+x\S+))?.*)?"
)
_ID_GUID = re.compile("[SHR]-([0-9a-f]{16})")
_GROUPING = re.compile(r"Chassis [0-9]+.*|Non-Chassis Nodes|Hostname: .*")
_PROMPT = re.compile(r'[^#"][^"]*[#$>%]')

_EXPECTED_KEY = (
    "a line of ibnetdiscover: vendid=0x2c9, devid=, sysimgguid=, switchguid=, caguid=, rtguid=, a node or a [port]"
)
_EXPECTED_NODE = 'Switch, Ca or Rt, the number of ports, and an id: Switch 8 "S-0002c90300000100"'
_EXPECTED_PORT = 'a port and its peer: [1] "S-0002c90300000100"[2] # "name" lid 0 4xHDR'


def read(path: Path) -> Fabric:
    """Return the fabric of an ibnetdiscover dump or an ibsim net file."""
    reader = _Reader(path)
    node = -1
    for number, line in reader.records():
        if line[0] == "[":
            reader.read_port(node, number, line)
        elif line[0] in "SCHRN":
            if not _GROUPING.fullmatch(line):
                node = reader.read_node(number, line)
        elif line[0] != "#":
            reader.read_key(number, line)
    return reader.discovery().build()


class _Reader:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.lines = read_text(path).split("\n")
        self.keys: dict[str, int] = {}  # keys of the next node
        self.port_guid = 0
        self.next_guid = dict(_FIRST_GUIDS)
        self.nodes: list[NodeRecord] = []
        self.ports: dict[tuple[int, int], PortRecord] = {}
        self.index: dict[str, int] = {}  # id -> node
        self.cables: list[tuple[int, int, tuple[str | None, ...]]] = []  # node, line, groups of _PORT

    def refuse(self, line: int, expected: str) -> NoReturn:
        raise FileError(self.path, line, self.lines[line - 1].strip(), expected)

    def records(self) -> list[tuple[int, str]]:
        """Return the numbered lines that are not blank, without those that a terminal log adds before and after."""
        numbered = [(number, line) for number, text in enumerate(self.lines, 1) if (line := text.strip())]
        if numbered and _PROMPT.fullmatch(numbered[-1][1]):
            numbered.pop()
        start = next((i for i, (_, line) in enumerate(numbered) if line.startswith("# Topology file")), 0)
        return numbered[start:]

    def read_key(self, number: int, line: str) -> None:
        match = _KEY.fullmatch(line)
        if match is None:
            self.refuse(number, _EXPECTED_KEY)
        key, value = match[1], int(match[2], 16)
        if value > _LARGEST.get(key, value):
            self.refuse(number, f"a number of at most {_LARGEST[key]:#x}")
        self.keys[key] = value
        if match[3]:
            self.port_guid = int(match[3], 16)

    def read_node(self, number: int, line: str) -> int:
        match = _NODE.fullmatch(line)
        if match is None:
            self.refuse(number, _EXPECTED_NODE)
        kind, n_ports = _KINDS[match["kind"]], int(match["ports"])
        guid = self.take_guid(number, kind, n_ports, match["id"])
        description = match["id"] if match["description"] is None else match["description"]
        device_id = self.keys.get("devid", 0)
        record = NodeRecord(
            line=number,
            kind=adapter_kind(device_id, description) if kind == NodeKind.HCA else kind,
            n_ports=n_ports,
            guid=guid,
            description=description,
            vendor_id=self.keys.get("vendid", 0),
            device_id=device_id,
            system_guid=self.keys.get("sysimgguid", 0),
            enhanced_port_0=match["port_0"] != "base",
        )
        node = self.index.setdefault(match["id"], len(self.nodes))
        if node == len(self.nodes):
            self.nodes.append(record)
        elif replace(record, line=self.nodes[node].line) != self.nodes[node]:  # ibnetdiscover -g repeats records
            self.refuse(number, f"another id: line {self.nodes[node].line} has a node with this one")
        if kind == NodeKind.SWITCH:
            lid, lmc = int(match["lid"] or 0), int(match["lmc"] or 0)
            self.ports[node, 0] = PortRecord(node, 0, self.port_guid, lid, lmc, number)
        self.keys, self.port_guid = {}, 0
        return node

    def take_guid(self, number: int, kind: NodeKind, n_ports: int, name: str) -> int:
        """Return the GUID of the record, of the id, or the next one, as ibsim counts them."""
        key = _GUID_KEYS[kind]
        for other in _GUID_KEYS.values():
            if other != key and other in self.keys:
                self.refuse(number, f"another kind of node after {other}=")
        in_id = _ID_GUID.fullmatch(name)
        guid = self.keys.get(key) or (int(in_id[1], 16) if in_id else 0) or self.next_guid[kind]
        self.next_guid[kind] = guid + (1 if kind == NodeKind.SWITCH else n_ports + 1)
        return guid

    def read_port(self, node: int, number: int, line: str) -> None:
        match = _PORT.fullmatch(line)
        if match is None:
            self.refuse(number, _EXPECTED_PORT)
        if node < 0:
            self.refuse(number, "a node before its ports")
        self.cables.append((node, number, match.groups()))

    def discovery(self) -> Discovery:
        if not self.nodes:
            raise FileError(self.path, None, "no node", "records of ibnetdiscover: Switch, Ca or Rt")
        claims = list(map(self.claim, self.cables))
        ports = list(self.ports.values())
        return Discovery(path=self.path, lines=self.lines, nodes=self.nodes, ports=ports, claims=claims)

    def claim(self, cable: tuple[int, int, tuple[str | None, ...]]) -> Claim:
        """Return a cable as a claim; record GUID and LID of adapter ports, whose own line takes precedence."""
        node, line, (port_text, guid, peer_id, peer_port_text, peer_guid, lid, lmc, peer_lid, rate) = cable
        peer = self.index.get(str(peer_id), -1)
        if peer < 0:
            self.refuse(line, f'a node that has a record in this file; "{peer_id}" has no record')
        port, peer_port = int(port_text or 0), int(peer_port_text or 1)
        if (guid or lid) and self.nodes[node].kind != NodeKind.SWITCH:
            record = PortRecord(node, port, int(guid or "0", 16), int(lid or 0), int(lmc or 0), line)
            self.ports[node, port] = record
        if peer_guid and self.nodes[peer].kind != NodeKind.SWITCH:
            record = PortRecord(peer, peer_port, int(peer_guid, 16), int(peer_lid or 0), 0, line)
            self.ports.setdefault((peer, peer_port), record)
        return node, port, peer, peer_port, rate or "", line


def to_text(fabric: Fabric) -> str:
    """Return the text that ibnetdiscover would print for the InfiniBand part of a fabric."""
    subnet = Subnet.of(fabric)
    parts = [f"#\n# Topology file: generated by weft from {printable(fabric.spec)}\n#\n"]
    if subnet.nodes:
        start = next((node for node in subnet.nodes if subnet.kind[node] == NodeKind.HCA), subnet.nodes[0])
        parts.append(f"# Initiated from node {subnet.guid[start]:016x} port {subnet.own_port_guid(start):016x}\n")
    for node in subnet.nodes:
        parts.append(_node_text(subnet, node))
        parts += _port_lines(subnet, node)
    return "".join(parts)


def _node_text(subnet: Subnet, node: int) -> str:
    kind, guid, description = subnet.kind[node], subnet.guid[node], subnet.description[node]
    ids = f"\nvendid={subnet.vendor_id[node]:#x}\ndevid={subnet.device_id[node]:#x}\n"
    ids += f"sysimgguid={subnet.system_guid[node]:#x}\n"
    head = f'{subnet.n_ports[node]} "{node_id(kind, guid)}"\t\t# "{description}"'
    if kind == NodeKind.SWITCH:
        slot = subnet.first_port[node]
        ids += f"switchguid={guid:#x}({subnet.port_guid[slot]:x})\n"
        port_0 = "enhanced" if subnet.enhanced_port_0[node] else "base"
        return f"{ids}Switch\t{head} {port_0} port 0 lid {subnet.lid[slot]} lmc {subnet.lmc[slot]}\n"
    key, word = ("rtguid", "Rt") if kind == NodeKind.ROUTER else ("caguid", "Ca")
    return f"{ids}{key}={guid:#x}\n{word}\t{head}\n"


def _port_lines(subnet: Subnet, node: int) -> Iterator[str]:
    is_switch = subnet.kind[node] == NodeKind.SWITCH
    gap = "" if is_switch else " "  # as the tool prints it: a blank before the GUID of an adapter's peer adapter
    for slot, peer_slot in subnet.cables(node):
        peer = subnet.node[peer_slot]
        end = f'"{node_id(subnet.kind[peer], subnet.guid[peer])}"[{subnet.number[peer_slot]}]'
        if subnet.kind[peer] != NodeKind.SWITCH:
            end += f"{gap}({subnet.port_guid[peer_slot]:x}) "
        far = f'"{subnet.description[peer]}" lid {subnet.lid[subnet.lid_slot(peer_slot)]} {subnet.rate[slot]}'
        if is_switch:
            yield f"[{subnet.number[slot]}]\t{end}\t\t# {far}\n"
        else:
            own = f"lid {subnet.lid[slot]} lmc {subnet.lmc[slot]}"
            yield f"[{subnet.number[slot]}]({subnet.port_guid[slot]:x}) \t{end}\t\t# {own} {far}\n"
