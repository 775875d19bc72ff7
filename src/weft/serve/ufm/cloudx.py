"""Neutron's networks and ports, as networking-mlnx sends them: a network is a partition, its ports are the members.

    POST cloudx/Network  {"id": ..., "provider:segmentation_id": 257}        P_Key 0x0101
    POST cloudx/Port     {"id": ..., "network_id": ..., "extra_dhcp_opts": [{"opt_name": "client-id", ...}]}

Each call may come again, after an answer that was lost: it changes nothing then. A port that has no adapter of
InfiniBand (of a DHCP agent, say) is remembered, and is a member of nothing.
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
_WITH_ADAPTER = ("direct", "baremetal", "direct-physical", "macvtap")  # kinds of vNIC that are a port of an adapter


_Id = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_.-]{1,64}$")]  # a UUID, in Neutron


class NeutronNetwork(msgspec.Struct, kw_only=True):
    """What is taken of Neutron's dictionary; the rest is Neutron's."""

    id: _Id
    segment: int | None = msgspec.field(name="provider:segmentation_id", default=None)


class Option(msgspec.Struct, kw_only=True):
    opt_name: str = ""
    opt_value: str | None = None


class NeutronPort(msgspec.Struct, kw_only=True):
    id: _Id
    network_id: _Id
    mac_address: str = ""
    vnic_type: str = msgspec.field(name="binding:vnic_type", default="normal")
    extra_dhcp_opts: list[Option] | None = None

    def guid(self, draft: Draft) -> int | None:
        ids = [one.opt_value for one in self.extra_dhcp_opts or () if one.opt_name in _CLIENT_ID and one.opt_value]
        if ids:
            return int(guid_of_client_id(ids[0]))
        if self.vnic_type in _WITH_ADAPTER and self.mac_address:
            return guid_of_mac(self.mac_address, (port.guid for port in draft.inventory.ports))
        return None


class Kept(msgspec.Struct, kw_only=True):
    """Of a network its P_Key, of a port its network and GUID: what a call that takes it away does not say again."""

    p_key: int | None = None
    network: str = ""
    guid: int | None = None


def put_network(draft: Draft, network: NeutronNetwork) -> None:
    before = _kept(draft, _NETWORK, network.id)
    if before is not None and before.p_key not in (None, network.segment):
        delete_network(draft, network.id)
    if network.segment is not None:
        partition = Partition(name=_name(network.id), p_key=network.segment, ipoib=True)
        partition = draft.partitions.get(network.segment, partition)
        if partition.name != _name(network.id):  # its ports would come in, and it would go with the network
            raise ConflictError(
                f"the P_Key {network.segment:#06x} of network {network.id} is {partition.name}'s: give it another"
            )
        draft.put(partition)
    _keep(draft, _NETWORK, network.id, Kept(p_key=network.segment))
    for name in _ports(draft, network.id):
        _seat(draft, name)


def delete_network(draft: Draft, name: str) -> None:
    """NotFoundError if it is not there, which the client takes for done."""
    p_key = _there(draft, _NETWORK, name).p_key
    if p_key in draft.partitions:
        draft.remove(p_key)
    del draft.documents[_NETWORK, name]


def put_port(draft: Draft, port: NeutronPort) -> None:
    _there(draft, _NETWORK, port.network_id)
    if _kept(draft, _PORT, port.id) is not None:
        delete_port(draft, port.id)
    _keep(draft, _PORT, port.id, Kept(network=port.network_id, guid=port.guid(draft)))
    _seat(draft, port.id)


def delete_port(draft: Draft, name: str) -> None:
    """Its GUID stays where another port of the network has it: a machine that moves has two for a while."""
    port = _there(draft, _PORT, name)
    del draft.documents[_PORT, name]
    p_key = _p_key(draft, port)
    others = {_there(draft, _PORT, other).guid for other in _ports(draft, port.network)}
    if port.guid is not None and port.guid not in others and p_key in draft.partitions:
        partitions.remove(draft, p_key, [port.guid])


def _seat(draft: Draft, name: str) -> None:
    port = _there(draft, _PORT, name)
    p_key = _p_key(draft, port)
    if port.guid is not None and p_key is not None:
        partition = partitions.there(draft, p_key)
        draft.put(replace(partition, members={**partition.members, port.guid: Member()}))


def _p_key(draft: Draft, port: Kept) -> int | None:
    network = _kept(draft, _NETWORK, port.network)
    return None if network is None else network.p_key


def _ports(draft: Draft, network: str) -> list[str]:
    names = [name for kind, name in draft.documents if kind == _PORT]
    return [name for name in names if _there(draft, _PORT, name).network == network]


def _name(network: str) -> str:
    """Of a partition: it may have 31 characters."""
    return f"net-{network[:27]}"


# -- documents --------------------------------------------------------------------------------------------------------


def _kept(draft: Draft, kind: str, name: str) -> Kept | None:
    found = draft.documents.get((kind, name))
    return None if found is None else msgspec.json.decode(found, type=Kept)


def _there(draft: Draft, kind: str, name: str) -> Kept:
    found = _kept(draft, kind, name)
    if found is None:
        raise NotFoundError(f"there is no {kind.removeprefix('cloudx.')} {name!r} of cloudx")
    return found


def _keep(draft: Draft, kind: str, name: str, kept: Kept) -> None:
    draft.documents[kind, name] = msgspec.json.encode(kept).decode()
