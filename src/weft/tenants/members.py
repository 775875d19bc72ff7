"""Ports by what people call them: hosts, ports, GUIDs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from weft.errors import ConfigError, UnknownName, find_named
from weft.fabric.files.hostlist import expand
from weft.fabric.files.lab.document import Place
from weft.ids import Guid
from weft.tenants.intent import IntentError, Members
from weft.tenants.partitions import Allocation, Inventory


class Ports:
    """Those that are there or were, and those that have a member while they are away."""

    def __init__(self, inventory: Inventory, before: Allocation) -> None:
        self.by_guid, self.by_host = inventory.by_guid(), inventory.by_host()
        self.by_name = {port.name: port for port in inventory.ports}
        self.seated = {guid for one in before.partitions.values() for guid in one.members}

    def of(self, who: Place, one: Members) -> list[int]:
        """GUIDs, each once, in the order of the intent."""
        ways = {"hosts": self._of_hosts, "ports": self._of_port, "guids": self._of_guid, "absent": self._of_absent}
        found: dict[int, None] = {}
        for key, way in ways.items():
            for text in getattr(one, key):
                try:
                    found |= dict.fromkeys(way(text))
                except ConfigError as error:
                    raise IntentError((*who, key), str(error)) from error
        return [*found]

    def label(self, guid: int) -> str:
        port = self.by_guid.get(guid)
        return str(Guid(guid)) if port is None else port.label

    def missing(self, guids: Iterable[int]) -> list[str]:
        """Those that are not there now, as people know them."""
        ports = ((guid, self.by_guid.get(guid)) for guid in guids)
        return [port.name if port else str(Guid(guid)) for guid, port in ports if port is None or not port.is_there]

    def _of_hosts(self, text: str) -> Iterator[int]:
        hint = "One that was never seen here can be named by the GUIDs of its ports, in absent."
        for name in expand(text):
            yield from (port.guid for port in find_named("host", name, self.by_host, hint))

    def _of_port(self, text: str) -> Iterator[int]:
        yield find_named("port", text, self.by_name).guid

    def _of_guid(self, text: str) -> Iterator[int]:
        guid = Guid.parse(text)
        if guid in self.by_guid or guid in self.seated:
            yield int(guid)
            return
        ports = [port for port in self.by_guid.values() if port.node_guid == guid]
        if ports:
            those = ", ".join(str(Guid(port.guid)) for port in ports)
            raise ConfigError(f"{guid} is the node GUID of {ports[0].host}, and members are ports: {those}")
        known = (str(Guid(port)) for port in self.by_guid)
        raise UnknownName("port with the GUID", str(guid), known, "One that is not there yet goes to absent.")

    def _of_absent(self, text: str) -> Iterator[int]:
        yield int(Guid.parse(text))
