"""Ports that are marked as unhealthy; one that is isolated is switched off, at the switch's end of its cable.

What UFM says of such a port is kept in the ledger, as it was when it was marked: a host that is switched off is not
seen any more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from weft.errors import ConfigError, UnknownName
from weft.serve.desired import Desired, Draft
from weft.serve.hands import Hands
from weft.serve.ufm.jobs import stamp
from weft.serve.ufm.shapes import NONE, Picture, Port

_KIND = "ufm.unhealthy"  # of documents, by the name of the port
_SWITCH = "Switch"


class Policy(msgspec.Struct, kw_only=True):
    ports: list[str] = []
    devices: list[str] = []  # all their ports
    ports_policy: Literal["HEALTHY", "UNHEALTHY"]
    action: Literal["isolate", "no_discover"] | None = None


class _Marked(msgspec.Struct, kw_only=True):
    """A document: what UFM says, and the end that was switched off."""

    said: dict[str, Any]
    peer: str
    lid: int = 0  # 0: it goes on
    number: int = 0


def marked(desired: Desired) -> dict[str, dict[str, Any]]:
    """What UFM says of each, by name."""
    return {name: _read(body).said for name, body in desired.named(_KIND).items()}


def ports_of(picture: Picture, policy: Policy) -> list[str]:
    """The names that are meant. A device means its ports that have a cable."""
    found = dict.fromkeys(policy.ports)
    for device in policy.devices:
        ports = picture.of_system(device)
        if not ports:
            raise UnknownName("device", device, ())
        found |= dict.fromkeys(port.name for port in ports if port.peer != NONE)
    return list(found)


def mark(picture: Picture, hands: Hands | None, names: Sequence[str], isolate: bool) -> dict[str, str]:
    """Switch off what is isolated. Returns the documents."""
    found = {name: _there(picture, name) for name in names}
    ends = {name: _switch_end(picture, port) if isolate else (0, 0) for name, port in found.items()}
    for lid, number in ends.values():
        if isolate:
            hold(hands).disable(lid, number)
    return {
        name: msgspec.json.encode(
            _Marked(said=_said(port), peer=port.peer, lid=ends[name][0], number=ends[name][1])
        ).decode()
        for name, port in found.items()
    }


def heal(desired: Desired, hands: Hands | None, names: Sequence[str]) -> list[str]:
    """Switch on what was isolated. Returns the documents that go. Either end of a cable means it."""
    documents = {name: _read(body) for name, body in desired.named(_KIND).items()}
    healed = [name for name, one in documents.items() if {name, one.peer} & set(names)]
    for name in healed:
        if documents[name].lid:
            hold(hands).enable(documents[name].lid, documents[name].number)
    return healed


def note(draft: Draft, documents: dict[str, str], healed: Sequence[str] = ()) -> None:
    for name in healed:
        draft.documents.pop((_KIND, name), None)
    draft.documents.update({(_KIND, name): body for name, body in documents.items()})


def reset(picture: Picture, hands: Hands | None, name: str) -> None:
    """Down and up again."""
    lid, number = _switch_end(picture, _there(picture, name))
    hold(hands).disable(lid, number)
    hold(hands).enable(lid, number)


def _there(picture: Picture, name: str) -> Port:
    found = picture.named(name)
    if found is None:
        raise UnknownName("port", name, ())
    return found


def hold(hands: Hands | None) -> Hands:
    if hands is None:
        raise ConfigError("this service has no hands on its fabric: ports are switched and cables pulled in a lab")
    return hands


def _switch_end(picture: Picture, port: Port) -> tuple[int, int]:
    """LID and port number of the end of a cable at a switch: an adapter that is switched off cannot be asked again."""
    for end in (port, picture.named(port.peer)):
        if end is not None and end.description.startswith(_SWITCH) and end.lid:
            return end.lid, end.number
    raise ConfigError(f"port {port.name} cannot be switched: no switch is at either end of it")


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
