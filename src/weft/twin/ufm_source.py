"""A subnet as UFM's REST interface has it: nodes, links and LIDs from `resources/ports`.

    source = Ufm(UfmClient("https://ufm.example", token=token))
    fabric = source.refresh()

Each port names its peer, so one call has the cabling. UFM has no forwarding tables in it; names and rates are those of
its ports. A port without a number or a node GUID in its name is refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from weft.errors import SubnetError
from weft.fabric.files.discovered import Claim, Discovery, NodeRecord, PortRecord
from weft.fabric.files.naming import adapter_kind
from weft.fabric.kinds import NodeKind
from weft.fabric.model import Fabric
from weft.tenants.drivers.ufm_rest import UfmClient
from weft.twin.facts import Facts

_PORT = re.compile(r"(?:0x)?([0-9a-f]{1,16})_([0-9]{1,3})")  # node GUID and number
_SWITCH = "Switch"
Ports = Sequence[dict[str, Any]]


class Ufm:
    """A source of a follower."""

    def __init__(self, client: UfmClient) -> None:
        self._client = client
        self._ports: Ports = ()
        self._fabric: Fabric | None = None
        self.version = 0

    def refresh(self, changed: Collection[int] = ()) -> Fabric:
        """Return the fabric, built again if a port differs."""
        assert not changed  # REST has no traps
        ports = self._client.call("GET", "resources/ports")
        if self._fabric is None or ports != self._ports:
            self._fabric, self._ports = read_ports(ports, self._client.url), ports
            self.version += 1
        return self._fabric

    def read_ports(self, *, is_urgent: bool = False) -> Facts:
        """Return no counters: `resources/ports` has none."""
        return {}


def read_ports(ports: Any, url: str) -> Fabric:
    """Return the fabric of UFM's ports; raise SubnetError if they are not as documented."""
    if not isinstance(ports, list) or not all(isinstance(port, dict) for port in ports):
        raise SubnetError(f"UFM at {url}: resources/ports is no list of ports: {json.dumps(ports)[:200]}")
    places = [_place(port.get("name"), port, url) for port in ports]
    numbers: dict[int, int] = {}  # node GUID -> highest port number
    for guid, number in places:
        numbers[guid] = max(numbers.get(guid, 0), number)
    index = {guid: node for node, guid in enumerate(numbers)}
    nodes: dict[int, NodeRecord] = {}
    records: dict[tuple[int, int], PortRecord] = {}
    claims: list[Claim] = []
    for line, (port, (guid, number)) in enumerate(zip(ports, places, strict=True), 1):
        nodes.setdefault(guid, _node(port, guid, numbers[guid], line))
        is_switch = nodes[guid].kind == NodeKind.SWITCH
        own = 0 if is_switch else number
        record = PortRecord(index[guid], own, _hexadecimal(port.get("guid")), int(port.get("lid") or 0), 0, line)
        records.setdefault((guid, own), record)
        if (peer := port.get("peer")) not in (None, "", "N/A"):
            far, far_number = _place(peer, port, url)
            if far not in index:
                raise SubnetError(f"UFM at {url}: the peer of {port['name']}, {peer}, is not among its ports")
            claims.append((index[guid], number, index[far], far_number, _rate(port), line))
    lines = [json.dumps(port) for port in ports]
    return Discovery(
        path=Path(url), lines=lines, nodes=[*nodes.values()], ports=[*records.values()], claims=claims
    ).build()


def _place(name: Any, port: dict[str, Any], url: str) -> tuple[int, int]:
    """Return node GUID and number of a port's name."""
    match = _PORT.fullmatch(str(name))
    if match is None:
        excerpt = json.dumps(port)[:200]
        raise SubnetError(f"UFM at {url}: {name!r} is not the name of a port, 0002c90300001230_1: {excerpt}")
    return int(match[1], 16), int(match[2])


def _node(port: dict[str, Any], guid: int, n_ports: int, line: int) -> NodeRecord:
    text = str(port.get("node_description") or port.get("system_name") or f"{guid:016x}")
    is_switch = str(port.get("description") or "").startswith(_SWITCH)
    return NodeRecord(
        line=line,
        kind=NodeKind.SWITCH if is_switch else adapter_kind(0, text),
        n_ports=n_ports,
        guid=guid,
        description=re.sub(r":\d+$", "", text) if is_switch else text,
    )


def _hexadecimal(guid: Any) -> int:
    try:
        return int(str(guid), 16)
    except ValueError:
        return 0


def _rate(port: dict[str, Any]) -> str:
    """Return `4xHDR`; empty if UFM does not know it."""
    width, speed = port.get("active_width"), port.get("active_speed")
    return f"{width.removeprefix('IB_')}{speed}" if isinstance(width, str) and isinstance(speed, str) else ""
