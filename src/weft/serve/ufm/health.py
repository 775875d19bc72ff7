"""Ports that are marked as unhealthy; one that is isolated is switched off, at the switch's end of its cable.

What UFM says of such a port is kept in the ledger, as it was when it was marked: a host that is switched off is not
seen any more.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Literal

import msgspec

from weft.errors import ConfigError, UnknownName, WeftError
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


def mark(
    picture: Picture, hands: Hands | None, names: Sequence[str], devices: Collection[str] = (), *, isolate: bool
) -> dict[str, str]:
    """Switch off what is isolated, all of it or nothing. Returns the documents."""
    found = {name: _there(picture, name) for name in names}
    ends = _ends(picture, found, set(devices)) if isolate else {}
    done: list[tuple[int, int]] = []
    try:
        for lid, number in ends.values():
            hold(hands).disable(lid, number)
            done.append((lid, number))
    except WeftError:
        for lid, number in done:
            hold(hands).enable(lid, number)
        raise
    return {name: _document(port, *ends.get(name, (0, 0))) for name, port in found.items()}


def _document(port: Port, lid: int, number: int) -> str:
    return msgspec.json.encode(_Marked(said=_said(port), peer=port.peer, lid=lid, number=number)).decode()


def _ends(picture: Picture, ports: dict[str, Port], devices: set[str]) -> dict[str, tuple[int, int]]:
    """Of each port the end to switch off, by LID and number.

    A switch that is isolated is cut off at its neighbours: at itself it could not be told of its last port, and would
    not hear that it is healthy again. Its ports to hosts stay as they are then.
    """
    found: dict[str, Port] = {}
    inside: dict[str, Port] = {}
    for name, port in ports.items():
        at_switches = [end for end in (port, picture.named(port.peer)) if end is not None and _is_switch(end)]
        if not at_switches:
            raise ConfigError(f"port {name} cannot be switched: no switch is at either end of it")
        outside = [end for end in at_switches if end.system_id not in devices]
        (found if outside else inside)[name] = (outside or at_switches)[0]
    cut_off = {port.system_id for name, port in ports.items() if name in found}
    found |= {name: end for name, end in inside.items() if end.system_id not in cut_off}
    return {name: (end.lid, end.number) for name, end in found.items()}


def _is_switch(port: Port) -> bool:
    return port.description.startswith(_SWITCH) and port.lid > 0


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
    for lid, number in _ends(picture, {name: _there(picture, name)}, set()).values():
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
