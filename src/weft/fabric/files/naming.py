"""Node names from NodeDescriptions: unique, short, easy to type.

    NodeDescription                             node                 server
    "leaf1"                                     leaf1
    "MF0;LG01-02:MQM8700/U1"                    LG01-02                           a managed switch
    "MF0;dir1:MCS8500/L16/U2"                   dir1-L16-U2                       one chip of a director switch
    "luna-0123 mlx5_4"                          luna-0123/mlx5_4     luna-0123    one HCA of several
    "h1 mlx5_0"                                 h1                   h1           the only HCA of its server
    "Mellanox Technologies Aggregation Node"    LG01-02/sharp                     inside the switch LG01-02
    "MT4129 ConnectX7   Mellanox Technologies"  H-e09d730300858d88                the firmware's default

1. Letters, digits, `_` and `.` stay; a run of other characters becomes one `-`; `-` and `.` are removed at the ends.
2. A managed switch has its system name; the chips of a director add their position.
3. The first word of an adapter's description is the server, the rest the device.
4. A meaningless name (empty, the firmware's default text, localhost) or one that two nodes would share is replaced by
   the id that ibnetdiscover uses, `H-`, `S-` or `R-` and the node GUID; such an adapter belongs to no server.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from weft.fabric.kinds import NodeKind

AGGREGATION_DEVICE_ID = 0xCF09
_AGGREGATION = re.compile(r"aggregation node|/sharp$", re.IGNORECASE)
_ID_LETTER = {NodeKind.SWITCH: "S", NodeKind.HCA: "H", NodeKind.AGGREGATION: "H", NodeKind.ROUTER: "R"}
_MANAGED_SWITCH = re.compile(r"MF\d+;(?P<system>[^:]+):(?P<type>[^/]+)/(?P<chip>.*)")
_MEANINGLESS = re.compile(r"Mellanox Technologies|^localhost\b|^\(none\)")
_UNUSABLE = re.compile(r"[^\w.]+")


def node_id(kind: NodeKind, guid: int) -> str:
    """Return the node id that ibnetdiscover prints: `S-1c34da0300728866`."""
    return f"{_ID_LETTER[kind]}-{guid:016x}"


def system_type(description: str) -> str:
    """Return the system type of a managed switch's chip: `MCS8500`; empty if the description has none."""
    managed = _MANAGED_SWITCH.fullmatch(description.strip())
    return managed["type"] if managed else ""


def adapter_kind(device_id: int, description: str) -> NodeKind:
    """Return HCA, or AGGREGATION for the aggregation node that a switch shows as one more adapter."""
    inside_switch = device_id == AGGREGATION_DEVICE_ID or _AGGREGATION.search(description)
    return NodeKind.AGGREGATION if inside_switch else NodeKind.HCA


def name_nodes(
    kinds: Sequence[NodeKind], descriptions: Sequence[str], ids: Sequence[str], home: Sequence[int]
) -> tuple[list[str], list[str]]:
    """Return the names of nodes, and of their servers (empty for none).

    `ids` are the fallback names; `home` is the switch that contains each aggregation node, -1 for none.
    """
    preferred, servers = _preferred_names(kinds, descriptions)
    uses = Counter(preferred)
    for server, adapters in Counter(servers).items():
        uses[server] += adapters > 1  # a switch of that name would hide the server
    known_ids = set(ids)
    names = list(ids)
    for node, name in enumerate(preferred):
        if name and uses[name] == 1 and (name not in known_ids or name == ids[node]):
            names[node] = name
        else:
            servers[node] = ""
    _name_aggregation_nodes(names, kinds, home, known_ids)
    return names, servers


def _preferred_names(kinds: Sequence[NodeKind], descriptions: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the name that each node would have alone, empty if its description is meaningless; and its server."""
    parts = [_split(kind, text) for kind, text in zip(kinds, descriptions, strict=True)]
    boxes = Counter((kind == NodeKind.SWITCH, box) for kind, (box, _) in zip(kinds, parts, strict=True))
    preferred, servers = [], []
    for kind, (box, part) in zip(kinds, parts, strict=True):
        is_switch = kind == NodeKind.SWITCH
        is_one_of_several = box and part and boxes[is_switch, box] > 1
        preferred.append(f"{box}{'-' if is_switch else '/'}{part}" if is_one_of_several else box)
        servers.append(box if kind == NodeKind.HCA else "")
    return preferred, servers


def _split(kind: NodeKind, description: str) -> tuple[str, str]:
    """Return the system and the chip of a switch, or the server and the device of an adapter."""
    text = description.strip()
    if kind == NodeKind.AGGREGATION or _MEANINGLESS.search(text):
        return "", ""
    if kind == NodeKind.HCA:
        server, device = map(_usable, (*text.split(maxsplit=1), "", "")[:2])
        # leaf3/17 is a port, so a device cannot be a bare number
        return server, f"hca{device}" if device.isdecimal() else device
    managed = _MANAGED_SWITCH.fullmatch(text)
    return (_usable(managed["system"]), _usable(managed["chip"])) if managed else (_usable(text), "")


def _usable(text: str) -> str:
    return _UNUSABLE.sub("-", text).strip("-.")


def _name_aggregation_nodes(names: list[str], kinds: Sequence[NodeKind], home: Sequence[int], ids: set[str]) -> None:
    inside = [node for node, kind in enumerate(kinds) if kind == NodeKind.AGGREGATION and home[node] >= 0]
    preferred = {node: f"{names[home[node]]}/sharp" for node in inside}
    uses = Counter(preferred.values()) + Counter(names)
    for node, name in preferred.items():
        if uses[name] == 1 and name not in ids:
            names[node] = name
