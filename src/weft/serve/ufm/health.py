"""Ports marked as unhealthy. An isolated port is disabled at the switch end of its cable.

For an isolated switch, first its ports to hosts are disabled, then the ports of its neighbours: it could not be reached
any more to disable its last port, or to enable it again.

UFM's description of such a port is stored when it is marked: a disabled host is not discovered any more.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Sequence
from typing import Any, Literal

import msgspec

from weft.errors import ConfigError, SubnetError, UnknownName, WeftError
from weft.serve.desired import Desired, Draft
from weft.serve.fabric_actions import FabricActions
from weft.serve.ufm.jobs import stamp
from weft.serve.ufm.shapes import NONE, Picture, Port

_KIND = "ufm.unhealthy"  # kind of documents; their names are those of ports
_SWITCH = "Switch"
_TIMEOUT_S, _PAUSE_S = 20.0, 0.2  # until an isolated switch has routes again


class Policy(msgspec.Struct, kw_only=True):
    """A request to mark ports."""

    ports: list[str] = []
    devices: list[str] = []  # all their ports
    ports_policy: Literal["HEALTHY", "UNHEALTHY"]
    action: Literal["isolate", "no_discover"] | None = None


class _End(msgspec.Struct, kw_only=True, frozen=True):
    """A port of a switch, by the switch's LID."""

    lid: int
    number: int
    is_outside: bool  # not a port of the isolated device


class _Marked(msgspec.Struct, kw_only=True):
    """The stored document of a marked port."""

    details: dict[str, Any] = msgspec.field(name="said")  # UFM's description of the port
    peer: str
    end: _End | None = None  # the disabled end of its cable


def marked(desired: Desired) -> dict[str, dict[str, Any]]:
    """Return UFM's descriptions of marked ports, by name."""
    return {name: _read(body).details for name, body in desired.named(_KIND).items()}


def isolated(desired: Desired) -> list[str]:
    """Return the names of disabled ports."""
    return [name for name, body in desired.named(_KIND).items() if _read(body).end is not None]


def ports_of(picture: Picture, policy: Policy) -> list[str]:
    """Return the names of the ports of a request; a device stands for its connected ports."""
    names = dict.fromkeys(policy.ports)
    for device in policy.devices:
        ports = picture.of_system(device)
        if not ports:
            raise UnknownName("device", device, ())
        names |= dict.fromkeys(port.name for port in ports if port.peer != NONE)
    return list(names)


def mark(
    picture: Picture,
    actions: FabricActions | None,
    names: Sequence[str],
    devices: Collection[str] = (),
    *,
    isolate: bool,
) -> dict[str, str]:
    """Mark ports, and disable isolated ones (all or none). Return the documents to store."""
    ports = {name: _find(picture, name) for name in names}
    ends = {name: _end(picture, port, devices) for name, port in ports.items()} if isolate else {}
    done: list[_End] = []
    try:
        for end in sorted(ends.values(), key=_is_outside):
            require_actions(actions).disable(end.lid, end.number)
            done.append(end)
    except WeftError:
        _enable(actions, done)
        raise
    marked = {name: _Marked(details=_details(port), peer=port.peer, end=ends.get(name)) for name, port in ports.items()}
    return {name: msgspec.json.encode(document).decode() for name, document in marked.items()}


def _end(picture: Picture, port: Port, devices: Collection[str]) -> _End:
    """Return the end of a cable to disable: at a switch, preferably one that is not isolated itself."""
    at_switches = [end for end in (port, picture.named(port.peer)) if end is not None and _is_switch(end)]
    if not at_switches:
        raise ConfigError(f"port {port.name} cannot be disabled: neither end of its cable is a switch")
    end = next((end for end in at_switches if end.system_id not in devices), at_switches[0])
    return _End(lid=end.lid, number=end.number, is_outside=end.system_id not in devices)


def _is_outside(end: _End) -> bool:
    """Return the sort key: ports of an isolated switch are disabled first and enabled last."""
    return end.is_outside


def _enable(actions: FabricActions | None, ends: Iterable[_End]) -> None:
    for end in sorted(ends, key=_is_outside, reverse=True):
        until_s = time.monotonic() + (0.0 if end.is_outside else _TIMEOUT_S)
        while True:
            try:
                require_actions(actions).enable(end.lid, end.number)
                break
            except SubnetError:  # there is no route to the switch yet
                if time.monotonic() >= until_s:
                    raise
                time.sleep(_PAUSE_S)


def _is_switch(port: Port) -> bool:
    return port.description.startswith(_SWITCH) and port.lid > 0


def heal(desired: Desired, actions: FabricActions | None, names: Sequence[str]) -> list[str]:
    """Enable isolated ports, named by either end of their cables. Return the documents to remove."""
    documents = {name: _read(body) for name, body in desired.named(_KIND).items()}
    healed = [name for name, document in documents.items() if {name, document.peer} & set(names)]
    _enable(actions, [end for name in healed if (end := documents[name].end) is not None])
    return healed


def note(draft: Draft, documents: dict[str, str], healed: Sequence[str] = ()) -> None:
    for name in healed:
        draft.documents.pop((_KIND, name), None)
    draft.documents.update({(_KIND, name): body for name, body in documents.items()})


def reset(picture: Picture, actions: FabricActions | None, name: str) -> None:
    """Disable a port and enable it again."""
    end = _end(picture, _find(picture, name), ())
    require_actions(actions).disable(end.lid, end.number)
    require_actions(actions).enable(end.lid, end.number)


def _find(picture: Picture, name: str) -> Port:
    port = picture.named(name)
    if port is None:
        raise UnknownName("port", name, ())
    return port


def require_actions(actions: FabricActions | None) -> FabricActions:
    if actions is None:
        raise ConfigError("read-only backend: ports and cables can be changed in labs only")
    return actions


def _details(port: Port) -> dict[str, Any]:
    peer_number = port.peer.rpartition("_")[2]
    return {
        "UnhealthyGUID": port.name.rpartition("_")[0],
        "UnhealthyNode": port.system_name,
        "UnhealthyPort": f"{port.system_name}/{port.dname}",
        "UnhealthyPortNumber": port.number,
        "UnhealthyPortDname": port.dname,
        "PeerGUID": port.peer.rpartition("_")[0] or NONE,
        "PeerNode": port.peer_node_name,
        "PeerPort": f"{port.peer_node_name}/{port.peer_port_dname}",
        "PeerPortNumber": int(peer_number) if peer_number.isdecimal() else 0,
        "PeerPortDname": port.peer_port_dname,
        "PeerLID": str(port.peer_lid or 0),
        "Condition": "MANUAL",
        "State": "Info",
        "StatusTime": stamp(),
    }


def _read(body: str) -> _Marked:
    return msgspec.json.decode(body, type=_Marked)
