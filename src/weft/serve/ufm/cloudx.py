"""Neutron's networks and ports, as networking-mlnx sends them: a network is a partition, its ports are the members.

    POST cloudx/Network  {"id": ..., "provider:segmentation_id": 257}        P_Key 0x0101
    POST cloudx/Port     {"id": ..., "network_id": ..., "extra_dhcp_opts": [{"opt_name": "client-id", ...}]}

A call may be repeated after a lost answer: it changes nothing then. A port without an InfiniBand adapter (of a DHCP
agent, for example) is recorded, and is not a member.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import msgspec

from weft.serve.desired import ConflictError, Draft, NotFoundError
from weft.serve.ufm import partitions
from weft.tenants.guids import guid_of_client_id, guid_of_mac
from weft.tenants.partitions import Member, Partition

_NETWORK, _PORT = "cloudx.network", "cloudx.port"  # kinds of documents
_CLIENT_ID = ("client-id", "61")
_WITH_ADAPTER = ("direct", "baremetal", "direct-physical", "macvtap")  # kinds of vNIC with an InfiniBand adapter


_Id = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_.-]{1,64}$")]  # a UUID, in Neutron


class NeutronNetwork(msgspec.Struct, kw_only=True):
    """The fields of Neutron's network that weft uses."""

    id: _Id
    segment: int | None = msgspec.field(name="provider:segmentation_id", default=None)


class DhcpOption(msgspec.Struct, kw_only=True):
    """A DHCP option of a port."""

    opt_name: str = ""
    opt_value: str | None = None


class NeutronPort(msgspec.Struct, kw_only=True):
    """The fields of Neutron's port that weft uses."""

    id: _Id
    network_id: _Id
    mac_address: str = ""
    vnic_type: str = msgspec.field(name="binding:vnic_type", default="normal")
    extra_dhcp_opts: list[DhcpOption] | None = None

    def guid(self, draft: Draft) -> int | None:
        ids = [
            option.opt_value
            for option in self.extra_dhcp_opts or ()
            if option.opt_name in _CLIENT_ID and option.opt_value
        ]
        if ids:
            return int(guid_of_client_id(ids[0]))
        if self.vnic_type in _WITH_ADAPTER and self.mac_address:
            return guid_of_mac(self.mac_address, (port.guid for port in draft.inventory.ports))
        return None


class StoredObject(msgspec.Struct, kw_only=True):
    """A stored network (its P_Key) or port (its network and GUID), for calls that delete it."""

    p_key: int | None = None
    network: str = ""
    guid: int | None = None


def put_network(draft: Draft, network: NeutronNetwork) -> None:
    before = _find(draft, _NETWORK, network.id)
    if before is not None and before.p_key not in (None, network.segment):
        delete_network(draft, network.id)
    if network.segment is not None:
        partition = Partition(name=_name(network.id), p_key=network.segment, ipoib=True)
        partition = draft.partitions.get(network.segment, partition)
        if partition.name != _name(network.id):  # else another owner's partition would be changed
            raise ConflictError(
                f"the P_Key {network.segment:#06x} of network {network.id} is used by {partition.name}: use another"
            )
        draft.put(partition)
    _store(draft, _NETWORK, network.id, StoredObject(p_key=network.segment))
    for name in _ports(draft, network.id):
        _add_member(draft, name)


def delete_network(draft: Draft, name: str) -> None:
    """Delete a network. Raise NotFoundError if it does not exist, which clients accept."""
    p_key = _get(draft, _NETWORK, name).p_key
    if p_key in draft.partitions:
        draft.remove(p_key)
    del draft.documents[_NETWORK, name]


def put_port(draft: Draft, port: NeutronPort) -> None:
    _get(draft, _NETWORK, port.network_id)
    if _find(draft, _PORT, port.id) is not None:
        delete_port(draft, port.id)
    _store(draft, _PORT, port.id, StoredObject(network=port.network_id, guid=port.guid(draft)))
    _add_member(draft, port.id)


def delete_port(draft: Draft, name: str) -> None:
    """Delete a port. Its GUID stays a member if another port has it: a migrating machine has two for a while."""
    port = _get(draft, _PORT, name)
    del draft.documents[_PORT, name]
    p_key = _p_key(draft, port)
    used_guids = {_get(draft, _PORT, other).guid for other in _ports(draft, port.network)}
    if port.guid is not None and port.guid not in used_guids and p_key in draft.partitions:
        partitions.remove(draft, p_key, [port.guid])


def _add_member(draft: Draft, name: str) -> None:
    port = _get(draft, _PORT, name)
    p_key = _p_key(draft, port)
    if port.guid is not None and p_key is not None:
        partition = partitions.get(draft, p_key)
        draft.put(replace(partition, members={**partition.members, port.guid: Member()}))


def _p_key(draft: Draft, port: StoredObject) -> int | None:
    network = _find(draft, _NETWORK, port.network)
    return None if network is None else network.p_key


def _ports(draft: Draft, network: str) -> list[str]:
    names = [name for kind, name in draft.documents if kind == _PORT]
    return [name for name in names if _get(draft, _PORT, name).network == network]


def _name(network: str) -> str:
    """Return the name of a network's partition, which may have 31 characters."""
    return f"net-{network[:27]}"


# -- documents --------------------------------------------------------------------------------------------------------


def _find(draft: Draft, kind: str, name: str) -> StoredObject | None:
    body = draft.documents.get((kind, name))
    return None if body is None else msgspec.json.decode(body, type=StoredObject)


def _get(draft: Draft, kind: str, name: str) -> StoredObject:
    stored = _find(draft, kind, name)
    if stored is None:
        raise NotFoundError(f"cloudx has no {kind.removeprefix('cloudx.')} {name!r}")
    return stored


def _store(draft: Draft, kind: str, name: str, stored: StoredObject) -> None:
    draft.documents[kind, name] = msgspec.json.encode(stored).decode()
