"""Provide the devices of a lab host: `weft exec h1 python app.py` has h1's adapters, on InfiniBand or Ethernet."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

from weft.errors import ConfigError, SubnetError
from weft.ids import Lid
from weft.verbs.carriers.lab.carrier import LabCarrier
from weft.verbs.carriers.lab.connection import Line
from weft.verbs.carriers.lab.ethernet_device import EthernetDevice
from weft.verbs.carriers.lab.host_device import HostDevice
from weft.verbs.carriers.lab.paths import AddressVector
from weft.verbs.carriers.lab.port_facts import Facts
from weft.verbs.enums import IBV_GID_TYPE_IB
from weft.verbs.errors import PyverbsRDMAError

if TYPE_CHECKING:
    from weft.verbs.attributes.address import AHAttr


def devices_of(lab: str, host: str) -> tuple[LabDevice | EthernetDevice, ...]:
    """Return the devices of a host; `lab` is the path of the lab's socket."""
    try:
        line = Line(lab)
        try:
            devices = line.ask("devices", host=host)["devices"]
        finally:
            line.close()
    except (ConfigError, SubnetError) as error:
        raise PyverbsRDMAError("Failed to get devices list", errno.ENODEV, str(error)) from error
    return tuple(
        (EthernetDevice if device["is_ethernet"] else LabDevice)(
            lab, host, str(device["name"]), int(device["node_guid"]), int(device["system_guid"])
        )
        for device in devices
    )


class LabDevice(HostDevice[LabCarrier]):
    """A device with one InfiniBand port of a lab host's adapter."""

    def _attach(self) -> LabCarrier:
        return LabCarrier(*self._take_port(Facts.unpack))

    def gid_type(self, index: int) -> int:
        return IBV_GID_TYPE_IB

    # -- addresses -----------------------------------------------------------------------------------------------------

    def wrong_address(self, address: AHAttr) -> str:
        gids = self._carrier.facts.gids
        if address.is_global:
            index = address.route.sgid_index
            if index >= len(gids) or not any(gids[index]):
                return f"sgid_index {index}: the port has no such GID"
            if not address.dlid and self._path(address) is None:
                return f"the subnet administrator knows no path to {address.dgid}"
        elif not address.dlid:
            return "dlid 0 is no LID"
        return "dlid 65535 is the permissive LID, for management only" if address.dlid == Lid.PERMISSIVE else ""

    def address_vector(self, address: AHAttr) -> AddressVector:
        """Return the address vector; with a GID only, as with RoCE, query the subnet administrator for the LID."""
        path = self._path(address) if address.is_global and not address.dlid else None
        if path is not None:
            return path
        route = address.route
        return AddressVector(
            address.dlid,
            self._gids(address) if address.is_global else None,
            sl=address.sl & 0xF,
            path_bits=address.src_path_bits,
            flow_label=route.flow_label,
            hop_limit=route.hop_limit,
            traffic_class=route.traffic_class,
        )

    def _own_gid(self) -> int:
        facts = self._carrier.facts
        return int(facts.info.gid_prefix) << 64 | facts.guids[0]

    def _path(self, address: AHAttr) -> AddressVector | None:
        return self._carrier.paths.to(self._gids(address))
