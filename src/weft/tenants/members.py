"""Resolve hosts, port names and GUIDs of an intent to port GUIDs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from weft.errors import ConfigError, UnknownName, find_named
from weft.fabric.files.hostlist import expand
from weft.ids import Guid
from weft.schemas import Place
from weft.tenants.intent import IntentError, Members
from weft.tenants.partitions import Allocation, Inventory


class PortResolver:
    """A resolver of port names, over the inventory and the current members."""

    def __init__(self, inventory: Inventory, before: Allocation) -> None:
        self.by_guid, self.by_host = inventory.by_guid(), inventory.by_host()
        self.by_name = {port.name: port for port in inventory.ports}
        self.members = {guid for partition in before.partitions.values() for guid in partition.members}

    def resolve(self, place: Place, members: Members) -> list[int]:
        """Return the distinct GUIDs of an entry of the intent, in its order. `place` is for error messages."""
        parsers = {"hosts": self._of_hosts, "ports": self._of_port, "guids": self._of_guid, "absent": self._of_absent}
        guids: dict[int, None] = {}
        for key, parse in parsers.items():
            for text in getattr(members, key):
                try:
                    guids |= dict.fromkeys(parse(text))
                except ConfigError as error:
                    raise IntentError((*place, key), str(error)) from error
        return [*guids]

    def label(self, guid: int) -> str:
        port = self.by_guid.get(guid)
        return str(Guid(guid)) if port is None else port.label

    def missing(self, guids: Iterable[int]) -> list[str]:
        """Return the names of ports that are down now."""
        ports = ((guid, self.by_guid.get(guid)) for guid in guids)
        return [port.name if port else str(Guid(guid)) for guid, port in ports if port is None or not port.is_there]

    def _of_hosts(self, text: str) -> Iterator[int]:
        hint = "Add hosts that were never seen by the GUIDs of their ports, in absent."
        for name in expand(text):
            yield from (port.guid for port in find_named("host", name, self.by_host, hint))

    def _of_port(self, text: str) -> Iterator[int]:
        yield find_named("port", text, self.by_name).guid

    def _of_guid(self, text: str) -> Iterator[int]:
        guid = Guid.parse(text)
        if guid in self.by_guid or guid in self.members:
            yield int(guid)
            return
        ports = [port for port in self.by_guid.values() if port.node_guid == guid]
        if ports:
            port_guids = ", ".join(str(Guid(port.guid)) for port in ports)
            raise ConfigError(f"{guid} is the node GUID of {ports[0].host}; give port GUIDs: {port_guids}")
        names = (str(Guid(port)) for port in self.by_guid)
        raise UnknownName("port with the GUID", str(guid), names, "List ports that are not connected yet in absent.")

    def _of_absent(self, text: str) -> Iterator[int]:
        yield int(Guid.parse(text))
