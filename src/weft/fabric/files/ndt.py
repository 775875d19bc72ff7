"""Cable plans of UFM: NDT files, CSV with one cable per line.

    #StartDevice,StartPort,EndDevice,EndPort,LinkType                       the short form
    dgx1,dgx1 mlx5_0,leaf1,Port 1,Data
    leaf1,Port 33,spine1,Blade 16_Port 2/20,Data

The long form has more columns; weft reads `Speed` (Mbit/s, or a label like 4xHDR, which may also be in the next column,
unnamed or `_2`: `200G HDR cable`) and `Cable Length` (metres). Racks and heights are ignored, and so is the link type,
as in UFM. A cable without a speed is 4xSDR, as for other tools. `#` and `#Fields:` before the first name are UFM's. A
cable may be listed from both ends; a line without an end device is an empty port.

Ports of a switch                           Ports of a host
  Port 21, 21         port 21                 dgx1 ibp11s0f0    the device, and its adapter
  Port 1/21, IB1/21   port 21 of a 1U box     mlx5_0, HCA-1, ib0, IB Port 3
  Port 1/11/2         cage 11, port 2: 22     mlx5_0/2          with a port, else 1
  Blade 16_Port 2/20  chip 2 of line card 16  Port 1 of a device called `dgx1 mlx5_0`

A plan does not mark switches. If any line names an adapter, every device with bare port numbers is a switch. Otherwise
a device with a single cable, in port 1, is a host. Line cards of a director are separate switches (`dir1-L16-U2`); the
boards that join them inside are not cables and not in the plan. A switch has as many ports as the plan needs.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from weft.errors import ConfigError, FileError
from weft.fabric.build import MAX_PORTS, FabricBuilder
from weft.fabric.files.discovered import DEFAULT_RATE
from weft.fabric.files.naming import name_nodes
from weft.fabric.files.text import read_text
from weft.fabric.kinds import NodeKind
from weft.fabric.model import Fabric
from weft.fabric.rates import Speed, Technology, parse_label, speeds

LONG = (
    *("rack #", "U height", "#Fields:StartDevice", "StartPort", "StartDeviceLocation", "EndDevice", "EndPort"),
    *("EndDeviceLocation", "U height_1", "LinkType", "Speed", "_2", "Cable Length", "_3", "_4", "_5", "_6", "_7"),
    *("State", "Domain"),
)
_REQUIRED = ("StartDevice", "StartPort", "EndDevice", "EndPort")
_FORMS = "Port 21, Port 1/11/2, Blade 16_Port 2/20, mlx5_0, or the device and its adapter: dgx1 mlx5_0"

_NUMBER = re.compile(r"(?:Port ?)?(\d{1,3})", re.IGNORECASE)
_SLOT = re.compile(r"(?:Port )?(?:IB)?1/(\d{1,3})", re.IGNORECASE)
_CAGE = re.compile(r"(?:Port )?(?:IB)?1/(\d{1,3})/([12])", re.IGNORECASE)
_BLADE = re.compile(r"Blade (\d{1,2})_Port (\d)/(\d{1,3})", re.IGNORECASE)
_ADAPTER = re.compile(r"((?:mlx\d_|ib|HCA-?|IB Port |ibp|mlx|roce|rdma)\d\w*)(?:/P?(\d{1,3}))?", re.IGNORECASE)
_LINE_CARD = re.compile(r"(.+)-L(\d+)-U(\d+)")
_LANES = 4  # assumed for a cable with only a rate
_TOLERANCE = 0.03  # plans round: 56000 for FDR's 54545 of data, or 56250 signalled


@dataclass(frozen=True, slots=True)
class _Place:
    """A device of the plan and its part that is a node: an adapter, a line card, or the device itself."""

    device: str
    adapter: str = ""
    line_card: str = ""


@dataclass(slots=True)
class _Plan:
    """The lines of a plan, before switches and hosts are distinguished."""

    last_port: dict[_Place, int] = field(default_factory=dict)
    cables: dict[_Place, int] = field(default_factory=dict)
    taken: dict[tuple[_Place, int], tuple[int, tuple[_Place, int]]] = field(default_factory=dict)  # -> line, peer
    links: list[tuple[_Place, int, _Place, int, tuple[Speed, int], float]] = field(default_factory=list)

    def add_port(self, place: _Place, port: int) -> None:
        self.last_port[place] = max(port, self.last_port.get(place, 0))
        self.cables.setdefault(place, 0)

    def kinds(self) -> list[NodeKind]:
        """Return the kind of every place; without adapters in the plan the hosts are guessed."""
        guess = not any(place.adapter for place in self.last_port)
        return [
            NodeKind.HCA
            if place.adapter or (guess and not place.line_card and self.cables[place] == 1 and last == 1)
            else NodeKind.SWITCH
            for place, last in self.last_port.items()
        ]


def read(path: Path) -> Fabric:
    """Return the fabric of a plan; nodes are named as for ibnetdiscover's output."""
    plan = _Plan()
    for line, row in rows(path):
        _add_line(plan, path, line, row)
    if not plan.last_port:
        raise FileError(path, 1, f"no cables below the header; add lines of {','.join(_REQUIRED)}")
    return _build(str(path), plan)


def to_text(fabric: Fabric) -> str:
    """Return the cables between devices, with their speed, and their length if known."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["#StartDevice", "StartPort", "EndDevice", "EndPort", "LinkType", "Speed", "", "Cable Length"])
    for index in fabric.network_links.nonzero()[0].tolist():
        link = fabric.link(index)
        if NodeKind.AGGREGATION in (link.a.node.kind, link.b.node.kind):
            continue  # inside the switch
        length = f"{link.length_m:.6g}" if link.length_m else ""
        speed_mbit_s = round(link.rate_gbit_s * 1000)
        a, b = spell_ports(fabric, (link.a.slot, link.b.slot))
        writer.writerow([*a, *b, "Data", speed_mbit_s, f"{link.label} cable", length])
    return out.getvalue()


def spell_ports(fabric: Fabric, slots: Sequence[int]) -> list[tuple[str, str]]:
    """Return device and port of each slot as a plan writes them."""
    ports = fabric.ports
    node, number = ports.node[list(slots)].tolist(), ports.number[list(slots)].tolist()
    nodes, switch = fabric.nodes, int(NodeKind.SWITCH)
    kinds = nodes.kind.tolist()
    spelled = {i: _spell_node(nodes.name[i], nodes.description[i], kinds[i] == switch) for i in dict.fromkeys(node)}
    is_switch = (fabric.nodes.kind[node] == NodeKind.SWITCH).tolist()
    return [
        # Port 1 of an adapter is omitted.
        (device, f"{port}{n}" if switch else port if n == 1 else f"{port}/{n}")
        for (device, port), n, switch in zip(map(spelled.__getitem__, node), number, is_switch, strict=True)
    ]


def _spell_node(name: str, description: str, is_switch: bool) -> tuple[str, str]:
    """Return the device, and the text before its port numbers."""
    if is_switch:
        card = _LINE_CARD.fullmatch(name)
        return (card[1], f"Blade {card[2]}_Port {card[3]}/") if card else (name, "Port ")
    device, _, adapter = name.partition("/")
    if not adapter:
        words = description.split()
        adapter = words[1] if len(words) == 2 and words[0] == device else "HCA-1"
    return device, f"{device} {adapter}"


# -- reading -------------------------------------------------------------------------------------------------------


def rows(path: Path) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield line number and cells by column name; the unnamed column after Speed is called Cable."""
    reader = csv.reader(io.StringIO(read_text(path), newline=""), strict=True)
    try:
        header = [cell.strip().removeprefix("#").removeprefix("Fields:").strip() for cell in next(reader, [])]
        missing = [name for name in _REQUIRED if name not in header]
        if missing:
            raise FileError(path, 1, ",".join(header), f"a header with the columns {', '.join(_REQUIRED)}")
        for i in range(1, len(header)):
            if header[i] in ("", "_2") and header[i - 1] == "Speed":
                header[i] = "Cable"
        for cells in reader:
            row = {name: cell.strip() for name, cell in zip(header, cells, strict=False) if name}
            if any(row.values()):
                yield reader.line_num, row
    except csv.Error as error:
        raise FileError(path, reader.line_num, str(error), "comma-separated values") from None


def _add_line(plan: _Plan, path: Path, line: int, row: dict[str, str]) -> None:
    start = _parse_end(path, line, row.get("StartDevice", ""), row.get("StartPort", ""))
    plan.add_port(*start)
    if not row.get("EndDevice"):
        return
    end = _parse_end(path, line, row["EndDevice"], row.get("EndPort", ""))
    plan.add_port(*end)
    if start == end:
        raise FileError(path, line, f"{row['StartDevice']}, {row['StartPort']}", "a cable between two ports")
    if plan.taken.get(start, (0, None))[1] == end:
        return
    for port, peer, end_name in ((start, end, "Start"), (end, start, "End")):
        if port in plan.taken:
            text = f"{row[f'{end_name}Device']}, {row[f'{end_name}Port']}"
            raise FileError(path, line, text, f"a free port: line {plan.taken[port][0]} has a cable in it")
        plan.taken[port] = line, peer
        plan.cables[port[0]] += 1
    plan.links.append((*start, *end, _parse_speed(path, line, row), _parse_length_m(path, line, row)))


def _parse_end(path: Path, line: int, device: str, port: str) -> tuple[_Place, int]:
    if not device:
        raise FileError(path, line, "the name of a device is empty")
    parsed = _parse_port(" ".join(device.split()), " ".join(port.split()))
    if parsed is None:
        raise FileError(path, line, port, f"a port: {_FORMS}")
    place, number = parsed
    if not 1 <= number <= MAX_PORTS:
        raise FileError(path, line, port, f"a port from 1 to {MAX_PORTS}")
    return place, number


def _parse_port(device: str, port: str) -> tuple[_Place, int] | None:
    if match := _BLADE.fullmatch(port):
        return _Place(device, line_card=f"L{int(match[1])}/U{match[2]}"), int(match[3])
    if match := _CAGE.fullmatch(port):
        return _Place(device), 2 * (int(match[1]) - 1) + int(match[2])
    if match := _NUMBER.fullmatch(port) or _SLOT.fullmatch(port):
        host, _, adapter = device.partition(" ")
        is_adapter = _ADAPTER.fullmatch(adapter)
        return _Place(host, adapter=adapter) if is_adapter else _Place(device), int(match[1])
    if port.startswith(f"{device} "):
        adapter, _, number = port.removeprefix(f"{device} ").partition("/")
        number = number.removeprefix("P") or "1"
        if adapter and number.isascii() and number.isdecimal() and len(number) < 4:
            return _Place(device, adapter=adapter), int(number)
    if match := _ADAPTER.fullmatch(port):
        return _Place(device, adapter=match[1]), int(match[2] or 1)
    return None


def _parse_speed(path: Path, line: int, row: dict[str, str]) -> tuple[Speed, int]:
    speed_text, cable = row.get("Speed", ""), row.get("Cable", "")
    for word in [*speed_text.split(), *cable.split()]:
        if (label := _parse_word(word)) is not None:
            return label
    if not speed_text:
        return parse_label(DEFAULT_RATE)
    infiniband = [s for s in speeds() if s.technology == Technology.INFINIBAND]
    if speed_text.isascii() and speed_text.isdecimal() and len(speed_text) < 12:
        gbit_s = int(speed_text) / 1000
        for speed in infiniband:
            rates = speed.lane_gbit_s, speed.lane_signal_gbit_s
            if any(abs(gbit_s - _LANES * rate) <= _TOLERANCE * gbit_s for rate in rates):
                return speed, _LANES
    rates_mbit_s = ", ".join(f"{round(s.rate_gbit_s() * 1000)} ({s.name})" for s in infiniband)
    raise FileError(path, line, speed_text, f"a speed in Mbit/s: {rates_mbit_s}")


@lru_cache  # plans repeat the same few words
def _parse_word(word: str) -> tuple[Speed, int] | None:
    try:
        return parse_label(word)
    except ConfigError:
        return None  # `200G`, `cable`


def _parse_length_m(path: Path, line: int, row: dict[str, str]) -> float:
    text = row.get("Cable Length", "")
    match = re.fullmatch(r"(\d{1,6}(?:\.\d{1,6})?)? ?m?", text)
    if match is None:
        raise FileError(path, line, text, "a cable length in metres")
    return float(match[1] or 0)


def _build(spec: str, plan: _Plan) -> Fabric:
    places = list(plan.last_port)
    kinds = plan.kinds()
    descriptions = [_describe(place, kind) for place, kind in zip(places, kinds, strict=True)]
    names, servers = name_nodes(kinds, descriptions, [f"device{i + 1}" for i in range(len(places))], [-1] * len(places))
    builder = FabricBuilder(spec)
    node: dict[_Place, int] = {}
    for kind in (NodeKind.SWITCH, NodeKind.HCA):
        rows = [i for i, each in enumerate(kinds) if each == kind]
        boxes = [int(builder.add_servers([servers[i]])[0]) if servers[i] else -1 for i in rows]
        added = builder.add_nodes(
            kind,
            [names[i] for i in rows],
            descriptions=[descriptions[i] for i in rows],
            n_ports=[plan.last_port[places[i]] for i in rows],
            server=boxes,
        )
        node.update(zip([places[i] for i in rows], added.tolist(), strict=True))
    for line in dict.fromkeys(link[4] for link in plan.links):
        same = [link for link in plan.links if link[4] == line]
        a, a_port, b, b_port, _, length_m = zip(*same, strict=True)
        builder.add_links([node[p] for p in a], a_port, [node[p] for p in b], b_port, line, length_m=length_m)
    return builder.build()


def _describe(place: _Place, kind: NodeKind) -> str:
    """Return the NodeDescription that such a device would have."""
    device = place.device.replace(" ", "-")
    if place.line_card:
        return f"MF0;{device}:director/{place.line_card}"
    if place.adapter:
        return f"{device} {place.adapter}"
    return f"{device} HCA-1" if kind == NodeKind.HCA else place.device
