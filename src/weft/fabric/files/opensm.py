"""OpenSM's files: its dumps of the subnet and of the unicast routes, and its cache of LIDs.

    opensm-subnet.lst   every cable, from both ends: `{ CA Ports:01 ... {h1 mlx5_0} LID:0001 PN:01 } { SW ... } PHY=4x`
    opensm.fdbs         routes with their hops: `0x0001 : 025  : 04   : yes`, by switch
    opensm-lfts.dump    routes with their ends: `0x0001 025 # Channel Adapter portguid 0x...: 'h1 mlx5_0'`, by switch
    guid2lid            first and last LID of each port GUID: `0x0002c90300000101 0x0001 0x0001`

All four are read and written; `opensm_routes` has the middle two, and `opensm_vls` two more, for virtual lanes. The
subnet list has no LMC: a guid2lid beside it does. Nor does it have rates above HDR (OpenSM writes `??`): these are at
least NDR, so they are read as NDR, and `fabric.changes` notes it. Weft writes and reads SPD=100 for NDR, 200 for XDR.
It does not keep revisions: it writes 0.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from weft.errors import ConfigError, FileError
from weft.fabric.files.atomic import write_atomically
from weft.fabric.files.discovered import Claim, Discovery, NodeRecord, PortRecord
from weft.fabric.files.naming import adapter_kind
from weft.fabric.files.opensm_routes import fdbs_text as fdbs_text
from weft.fabric.files.opensm_routes import lfts_text as lfts_text
from weft.fabric.files.opensm_routes import read_fdbs as read_fdbs
from weft.fabric.files.opensm_routes import read_lfts as read_lfts
from weft.fabric.files.opensm_vls import write_vls
from weft.fabric.files.subnet import Subnet
from weft.fabric.files.text import is_stream, read_text
from weft.fabric.kinds import NodeKind
from weft.fabric.model import Fabric
from weft.ids import Guid, Lid
from weft.wire.port_info import LinkSpeed

_LANES = {str(speed.name): f"{speed.lane_tenths / 10:g}" for speed in LinkSpeed} | {"FDR10": "FDR10", "GDR": "400"}
_SPEED_OF_LANE = {lane: speed for speed, lane in _LANES.items()}
_KINDS = {"SW": NodeKind.SWITCH, "CA": NodeKind.HCA, "Rt": NodeKind.ROUTER}
_WORDS = {NodeKind.SWITCH: "SW", NodeKind.HCA: "CA", NodeKind.AGGREGATION: "CA", NodeKind.ROUTER: "Rt"}

_END = (
    r"\{ (SW|CA|Rt)(?:-SM)? Ports:([0-9A-F]{2}) SystemGUID:([0-9a-f]{16}) NodeGUID:([0-9a-f]{16})"
    r" PortGUID:([0-9a-f]{16}) VenID:([0-9A-F]{6,8}) DevID:([0-9A-F]{4,8}) Rev:[0-9A-F]{8}"
    r" \{(.*?)\} LID:([0-9A-F]{4}) PN:([0-9A-F]{2}) \}"
)
_CABLE = re.compile(rf"{_END} {_END} PHY=(\S+) LOG=(?:ACT|ARM|INI|DWN) SPD=(\S+)")
_EXPECTED_CABLE = (
    "{ SW|CA|Rt Ports: SystemGUID: NodeGUID: ... } { the other end } PHY=4x LOG=ACT SPD=50, as OpenSM writes"
)
_UNKNOWN_LANE, _TAKEN_AS = "??", "NDR"  # above HDR, the fastest rate that OpenSM 3.3.23 can write
_EXPECTED_LANE = f"SPD= one of {', '.join(_SPEED_OF_LANE)}, or {_UNKNOWN_LANE}, which OpenSM writes above HDR"
_REMEMBERED = re.compile(r"0x([0-9a-fA-F]{1,16})\s+0x([0-9a-fA-F]{1,4})\s+0x([0-9a-fA-F]{1,4})")


# -- opensm-subnet.lst ------------------------------------------------------------------------------------------------


def read(path: Path) -> Fabric:
    """Return the fabric of an opensm-subnet.lst, with the LMC of a guid2lid in the same folder."""
    reader = _SubnetList(path)
    fabric = reader.discovery().build()
    remembered = path.parent / "guid2lid"
    if not is_stream(path) and remembered.is_file():
        _set_lmc(fabric, read_guid2lid(remembered))
    if not reader.unknown_rates:
        return fabric
    return fabric.changed(
        f"{reader.unknown_rates:,} cable ends with SPD=?? (OpenSM cannot write rates above HDR) read as {_TAKEN_AS}"
    )


def _set_lmc(fabric: Fabric, mapping: Mapping[Guid, tuple[Lid, Lid]]) -> None:
    """Set the LMC of ports that have the first LID of their entry; OpenSM may have changed the LIDs of others since."""
    for guid, slot in _slots_with_lids(Subnet.of(fabric)).items():
        first, last = mapping.get(Guid(guid), (0, 0))
        if first and fabric.tables.lid[slot] == first:
            fabric.tables.set_lmc(slot, (last - first + 1).bit_length() - 1)


def read_subnet_lids(path: Path) -> dict[Guid, tuple[Lid, Lid]]:
    """Return the LID of each port GUID as first and last, like guid2lid; the subnet list has no LMC."""
    reader = _SubnetList(path)
    reader.discovery()
    return {Guid(port.guid): (Lid(port.lid), Lid(port.lid)) for port in reader.ports.values() if port.lid}


class _SubnetList:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.lines = read_text(path).split("\n")
        self.nodes: list[NodeRecord] = []
        self.known: dict[str, tuple[int, tuple[str, ...]]] = {}  # NodeGUID -> node, its fields
        self.ports: dict[tuple[int, int], PortRecord] = {}
        self.unknown_rates = 0

    def discovery(self) -> Discovery:
        claims = [self.read_line(number, text) for number, line in enumerate(self.lines, 1) if (text := line.strip())]
        if not claims:
            raise FileError(self.path, None, "no cable", "lines of an opensm-subnet.lst")
        ports = list(self.ports.values())
        return Discovery(path=self.path, lines=self.lines, nodes=self.nodes, ports=ports, claims=claims)

    def read_line(self, number: int, line: str) -> Claim:
        match = _CABLE.fullmatch(line)
        if match is None:
            raise FileError(self.path, number, line, _EXPECTED_CABLE)
        *ends, width, lane = match.groups()
        if lane not in _SPEED_OF_LANE and lane != _UNKNOWN_LANE:
            raise FileError(self.path, number, line[line.rindex("SPD=") :], _EXPECTED_LANE)
        self.unknown_rates += lane == _UNKNOWN_LANE
        node, peer = self.read_end(number, ends[:10]), self.read_end(number, ends[10:])
        return *node, *peer, f"{width}{_SPEED_OF_LANE.get(lane, _TAKEN_AS)}", number

    def read_end(self, number: int, end: list[str]) -> tuple[int, int]:
        """Return the node and the number of the port."""
        word, n_ports, system_guid, guid, port_guid, vendor_id, device_id, description, lid, port_text = end
        # the DevID of the right-hand end is shifted by two bytes
        device_id = device_id if len(device_id) == 4 else f"{int(device_id, 16) >> 16:04X}"
        fields = (word, n_ports, system_guid, vendor_id[-6:], device_id, description)
        node, before = self.known.setdefault(guid, (len(self.nodes), fields))
        if before != fields:
            expected = f"the same as on line {self.nodes[node].line}: {' '.join(before)}"
            raise FileError(self.path, number, " ".join(fields), expected)
        kind = _KINDS[word]
        if node == len(self.nodes):
            record = NodeRecord(
                line=number,
                kind=adapter_kind(int(device_id, 16), description) if kind == NodeKind.HCA else kind,
                n_ports=int(n_ports, 16),
                guid=int(guid, 16),
                description=description,
                vendor_id=int(vendor_id[-6:], 16),
                device_id=int(device_id, 16),
                system_guid=int(system_guid, 16),
            )
            self.nodes.append(record)
        port = int(port_text, 16)
        with_lid = 0 if kind == NodeKind.SWITCH else port
        if (node, with_lid) not in self.ports:
            self.ports[node, with_lid] = PortRecord(node, with_lid, int(port_guid, 16), int(lid, 16), 0, number)
        return node, port


def subnet_lst_text(fabric: Fabric, *, sm_lid: int = 0) -> str:
    """Return the opensm-subnet.lst of a fabric; the node with LID `sm_lid` is marked as the subnet manager's."""
    subnet = Subnet.of(fabric)
    return "".join(line for node in subnet.nodes for line in _cable_lines(subnet, node, sm_lid))


to_text = subnet_lst_text


def _cable_lines(subnet: Subnet, node: int, sm_lid: int) -> Iterator[str]:
    for slot, peer in subnet.cables(node):
        width, _, speed = subnet.rate[slot].partition("x")
        has_lids = subnet.lid[subnet.lid_slot(slot)] and subnet.lid[subnet.lid_slot(peer)]
        state = f"PHY={width}x LOG={'ACT' if has_lids else 'INI'} SPD={_LANES[speed]}"
        # OpenSM prints the right-hand vendor with 8 digits, and its device as if it had 32 bits
        left = _end_text(subnet, slot, sm_lid, "VenID:{:06X} DevID:{:04X}", 0)
        right = _end_text(subnet, peer, sm_lid, "VenID:{:08X} DevID:{:04X}", 16)
        yield f"{left} {right} {state}\n"


def _end_text(subnet: Subnet, slot: int, sm_lid: int, ids: str, shift: int) -> str:
    node = subnet.node[slot]
    lid = subnet.lid[subnet.lid_slot(slot)]
    mark = "-SM" if lid and lid == sm_lid else ""
    return (
        f"{{ {_WORDS[subnet.kind[node]]}{mark} Ports:{subnet.n_ports[node]:02X}"
        f" SystemGUID:{subnet.system_guid[node]:016x} NodeGUID:{subnet.guid[node]:016x}"
        f" PortGUID:{subnet.port_guid[slot]:016x}"
        f" {ids.format(subnet.vendor_id[node], subnet.device_id[node] << shift)} Rev:00000000"
        f" {{{subnet.description[node]}}} LID:{lid:04X} PN:{subnet.number[slot]:02X} }}"
    )


# -- guid2lid ---------------------------------------------------------------------------------------------------------


def read_guid2lid(path: Path) -> dict[Guid, tuple[Lid, Lid]]:
    """Return the first and the last LID of each port GUID in a guid2lid."""
    lids: dict[Guid, tuple[Lid, Lid]] = {}
    line_of_lid: dict[int, int] = {}
    for number, text in enumerate(read_text(path).split("\n"), 1):
        line = text.strip()
        if not line:
            continue
        match = _REMEMBERED.fullmatch(line)
        if match is None:
            raise FileError(
                path, number, line, "a port GUID, its first and its last LID: 0x0002c90300000101 0x0001 0x0001"
            )
        guid, first, last = (int(group, 16) for group in match.groups())
        size = last - first + 1
        if not 0 < first <= last < Lid.FIRST_MULTICAST or size not in (1, 2, 4, 8, 16, 32, 64, 128) or first % size:
            raise FileError(path, number, line, "1, 2, 4, ... or 128 unicast LIDs, the first a multiple of the count")
        for lid in range(first, last + 1):
            if line_of_lid.setdefault(lid, number) != number:
                raise FileError(
                    path, number, line, f"LIDs that no other line has; line {line_of_lid[lid]} has {lid:#06x}"
                )
        if Guid(guid) in lids:
            raise FileError(path, number, line, "each port GUID once")
        lids[Guid(guid)] = Lid(first), Lid(last)
    return lids


def apply_guid2lid(fabric: Fabric, mapping: Mapping[Guid, tuple[Lid, Lid]]) -> None:
    """Set the LIDs of a fabric's ports; ports that are not in the mapping get none. Routes by older LIDs are dropped.

    OpenSM never removes a port from guid2lid: GUIDs that the fabric does not have are ignored, unless none matches.
    """
    slots = _slots_with_lids(Subnet.of(fabric))
    if mapping and not mapping.keys() & slots.keys():
        raise ConfigError(f"none of the {len(mapping):,} port GUIDs is in {fabric.spec}: they belong to another fabric")
    tables = fabric.tables
    tables.lid[:] = 0
    tables.set_lmc(slice(None), 0)
    for guid, (first, last) in mapping.items():
        if guid in slots:
            tables.lid[slots[guid]] = first
            tables.set_lmc(slots[guid], (last - first + 1).bit_length() - 1)
    vars(tables).pop("lft", None)


def guid2lid_text(fabric: Fabric) -> str:
    """Return the guid2lid that OpenSM would write for a fabric's LIDs."""
    subnet = Subnet.of(fabric)
    lines = []
    for guid, slot in _slots_with_lids(subnet).items():
        first = subnet.lid[slot]
        if first:
            lines.append(f"0x{guid:016x} {first:#06x} {first + (1 << subnet.lmc[slot]) - 1:#06x}\n\n")
    return "".join(lines)


def _slots_with_lids(subnet: Subnet) -> dict[int, int]:
    """Return the slot of each port GUID: port 0 of switches, and all ports of adapters."""
    slots: dict[int, int] = {}
    for node in subnet.nodes:
        first = subnet.first_port[node]
        own = (first,) if subnet.kind[node] == NodeKind.SWITCH else range(first + 1, first + subnet.n_ports[node] + 1)
        slots.update((subnet.port_guid[slot], slot) for slot in own)
    return slots


def write_dumps(fabric: Fabric, directory: Path) -> None:
    """Write all files atomically into an existing directory; those of virtual lanes only if SL to VL is set."""
    if "addresses" in vars(fabric.tables):
        raise ConfigError(
            f"OpenSM's files have LIDs of a subnet, at most {Lid.FIRST_MULTICAST - 1:,}; {fabric.spec} has more ports"
        )
    write_atomically(directory / "opensm-subnet.lst", subnet_lst_text(fabric))
    write_atomically(directory / "opensm.fdbs", fdbs_text(fabric))
    write_atomically(directory / "opensm-lfts.dump", lfts_text(fabric))
    write_atomically(directory / "guid2lid", guid2lid_text(fabric))
    write_vls(fabric, directory)
