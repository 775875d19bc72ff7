"""Names of nodes, from what the hardware says of itself: unique, short, easy to type.

    NodeDescription                             node                 server
    "leaf1"                                     leaf1
    "MF0;LG01-02:MQM8700/U1"                    LG01-02                           a managed switch
    "MF0;dir1:MCS8500/L16/U2"                   dir1-L16-U2                       one chip of a director switch
    "luna-0123 mlx5_4"                          luna-0123/mlx5_4     luna-0123    one HCA of several
    "h1 mlx5_0"                                 h1                   h1           the only HCA of its server
    "Mellanox Technologies Aggregation Node"    LG01-02/sharp                     inside the switch LG01-02
    "MT4129 ConnectX7   Mellanox Technologies"  H-e09d730300858d88                nobody named it

1. Letters, digits, `_` and `.` stay; a run of anything else becomes one `-`; `-` and `.` do not stand at the ends.
2. A managed switch goes by its system name; the chips of a director add where they sit.
3. Of an adapter's description the first word is the server, the rest the device.
4. A name that says nothing (empty, the firmware's default text, localhost) or that two nodes would share gives way to
   the id that ibnetdiscover uses, `H-`, `S-` or `R-` and the node GUID; such an adapter is in no known server.
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
_SAYS_NOTHING = re.compile(r"Mellanox Technologies|^localhost\b|^\(none\)")
_UNUSABLE = re.compile(r"[^\w.]+")


def node_id(kind: NodeKind, guid: int) -> str:
    """As ibnetdiscover identifies a node: `S-1c34da0300728866`."""
    return f"{_ID_LETTER[kind]}-{guid:016x}"


def system_type(description: str) -> str:
    """What a managed switch is a chip of, by its maker: `MCS8500`. Empty where the description does not say."""
    managed = _MANAGED_SWITCH.fullmatch(description.strip())
    return managed["type"] if managed else ""


def adapter_kind(device_id: int, description: str) -> NodeKind:
    """HCA, or the aggregation node that a switch shows as one more adapter."""
    inside_switch = device_id == AGGREGATION_DEVICE_ID or _AGGREGATION.search(description)
    return NodeKind.AGGREGATION if inside_switch else NodeKind.HCA


def name_nodes(
    kinds: Sequence[NodeKind], descriptions: Sequence[str], ids: Sequence[str], home: Sequence[int]
) -> tuple[list[str], list[str]]:
    """Names of nodes, and of the servers they sit in (empty for none).

    `ids` are the names to fall back on; `home` is the switch that each aggregation node sits in, -1 for none.
    """
    wanted, servers = _wished_names(kinds, descriptions)
    taken = Counter(wanted)
    for server, adapters in Counter(servers).items():
        taken[server] += adapters > 1  # a switch of that name would hide the server
    known_ids = set(ids)
    names = list(ids)
    for node, name in enumerate(wanted):
        if name and taken[name] == 1 and (name not in known_ids or name == ids[node]):
            names[node] = name
        else:
            servers[node] = ""
    _name_aggregation_nodes(names, kinds, home, known_ids)
    return names, servers


def _wished_names(kinds: Sequence[NodeKind], descriptions: Sequence[str]) -> tuple[list[str], list[str]]:
    """The name that each node would have if it were alone, empty where the description says nothing; its server."""
    parts = [_split(kind, text) for kind, text in zip(kinds, descriptions, strict=True)]
    boxes = Counter((kind == NodeKind.SWITCH, box) for kind, (box, _) in zip(kinds, parts, strict=True))
    wanted, servers = [], []
    for kind, (box, part) in zip(kinds, parts, strict=True):
        is_switch = kind == NodeKind.SWITCH
        is_one_of_several = box and part and boxes[is_switch, box] > 1
        wanted.append(f"{box}{'-' if is_switch else '/'}{part}" if is_one_of_several else box)
        servers.append(box if kind == NodeKind.HCA else "")
    return wanted, servers


def _split(kind: NodeKind, description: str) -> tuple[str, str]:
    """Of a switch the system and the chip, of an adapter the server and the device."""
    text = description.strip()
    if kind == NodeKind.AGGREGATION or _SAYS_NOTHING.search(text):
        return "", ""
    if kind == NodeKind.HCA:
        server, device = map(_usable, (*text.split(maxsplit=1), "", "")[:2])
        # leaf3/17 is a port, so that a device cannot be a bare number
        return server, f"hca{device}" if device.isdecimal() else device
    managed = _MANAGED_SWITCH.fullmatch(text)
    return (_usable(managed["system"]), _usable(managed["chip"])) if managed else (_usable(text), "")


def _usable(text: str) -> str:
    return _UNUSABLE.sub("-", text).strip("-.")


def _name_aggregation_nodes(names: list[str], kinds: Sequence[NodeKind], home: Sequence[int], ids: set[str]) -> None:
    inside = [node for node, kind in enumerate(kinds) if kind == NodeKind.AGGREGATION and home[node] >= 0]
    wanted = {node: f"{names[home[node]]}/sharp" for node in inside}
    taken = Counter(wanted.values()) + Counter(names)
    for node, name in wanted.items():
        if taken[name] == 1 and name not in ids:
            names[node] = name
