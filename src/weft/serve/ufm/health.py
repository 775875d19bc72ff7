"""Ports that are marked as unhealthy; one that is isolated is switched off, at the switch's end of its cable.

A switch that is isolated is told of its ports to hosts first, and is then cut off at its neighbours: it could not be
told of its last port itself, and would not hear that it is healthy again.

What UFM says of such a port is kept in the ledger, as it was when it was marked: a host that is switched off is not
seen any more.
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

_KIND = "ufm.unhealthy"  # of documents, by the name of the port
_SWITCH = "Switch"
_PATIENCE_S, _PAUSE_S = 20.0, 0.2  # until a switch that was cut off is routed to again


class Policy(msgspec.Struct, kw_only=True):
    ports: list[str] = []
    devices: list[str] = []  # all their ports
    ports_policy: Literal["HEALTHY", "UNHEALTHY"]
    action: Literal["isolate", "no_discover"] | None = None


class _End(msgspec.Struct, kw_only=True, frozen=True):
    """A port of a switch, by the switch's LID."""

    lid: int
    number: int
    is_outside: bool  # of what is isolated


class _Marked(msgspec.Struct, kw_only=True):
    """A document."""

    said: dict[str, Any]  # what UFM says of it
    peer: str
    end: _End | None = None  # that is switched off


def marked(desired: Desired) -> dict[str, dict[str, Any]]:
    """What UFM says of each, by name."""
    return {name: _read(body).said for name, body in desired.named(_KIND).items()}


def isolated(desired: Desired) -> list[str]:
    """Return the names of the ports that are switched off."""
    return [name for name, body in desired.named(_KIND).items() if _read(body).end is not None]


def ports_of(picture: Picture, policy: Policy) -> list[str]:
    """The names that are meant. A device means its ports that have a cable."""
    found = dict.fromkeys(policy.ports)
    for device in policy.devices:
        ports = picture.of_system(device)
        if not ports:
            raise UnknownName("device", device, ())
        found |= dict.fromkeys(port.name for port in ports if port.peer != NONE)
    return list(found)


def mark(
    picture: Picture,
    actions: FabricActions | None,
    names: Sequence[str],
    devices: Collection[str] = (),
    *,
    isolate: bool,
) -> dict[str, str]:
    """Switch off what is isolated, all of it or nothing. Returns the documents."""
    found = {name: _there(picture, name) for name in names}
    ends = {name: _end(picture, port, devices) for name, port in found.items()} if isolate else {}
    done: list[_End] = []
    try:
        for end in sorted(ends.values(), key=_is_outside):
            hold(actions).disable(end.lid, end.number)
            done.append(end)
    except WeftError:
        _enable(actions, done)
        raise
    marked = {name: _Marked(said=_said(port), peer=port.peer, end=ends.get(name)) for name, port in found.items()}
    return {name: msgspec.json.encode(one).decode() for name, one in marked.items()}


def _end(picture: Picture, port: Port, devices: Collection[str]) -> _End:
    """The end of a cable to switch off: at a switch, and at one that stays, if there is such a one."""
    at_switches = [end for end in (port, picture.named(port.peer)) if end is not None and _is_switch(end)]
    if not at_switches:
        raise ConfigError(f"port {port.name} cannot be switched: no switch is at either end of it")
    end = next((end for end in at_switches if end.system_id not in devices), at_switches[0])
    return _End(lid=end.lid, number=end.number, is_outside=end.system_id not in devices)


def _is_outside(end: _End) -> bool:
    """A switch is told of its own ports before it is cut off, and after it is back."""
    return end.is_outside


def _enable(actions: FabricActions | None, ends: Iterable[_End]) -> None:
    for end in sorted(ends, key=_is_outside, reverse=True):
        until_s = time.monotonic() + (0.0 if end.is_outside else _PATIENCE_S)
        while True:
            try:
                hold(actions).enable(end.lid, end.number)
                break
            except SubnetError:  # the manager has no route to the switch yet
                if time.monotonic() >= until_s:
                    raise
                time.sleep(_PAUSE_S)


def _is_switch(port: Port) -> bool:
    return port.description.startswith(_SWITCH) and port.lid > 0


def heal(desired: Desired, actions: FabricActions | None, names: Sequence[str]) -> list[str]:
    """Switch on what was isolated. Returns the documents that go. Either end of a cable means it."""
    documents = {name: _read(body) for name, body in desired.named(_KIND).items()}
    healed = [name for name, one in documents.items() if {name, one.peer} & set(names)]
    _enable(actions, [end for name in healed if (end := documents[name].end) is not None])
    return healed


def note(draft: Draft, documents: dict[str, str], healed: Sequence[str] = ()) -> None:
    for name in healed:
        draft.documents.pop((_KIND, name), None)
    draft.documents.update({(_KIND, name): body for name, body in documents.items()})


def reset(picture: Picture, actions: FabricActions | None, name: str) -> None:
    """Down and up again."""
    end = _end(picture, _there(picture, name), ())
    hold(actions).disable(end.lid, end.number)
    hold(actions).enable(end.lid, end.number)


def _there(picture: Picture, name: str) -> Port:
    found = picture.named(name)
    if found is None:
        raise UnknownName("port", name, ())
    return found


def hold(actions: FabricActions | None) -> FabricActions:
    if actions is None:
        raise ConfigError("this service has no actions on its fabric: ports are switched and cables pulled in a lab")
    return actions


def _said(port: Port) -> dict[str, Any]:
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
