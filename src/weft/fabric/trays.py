"""The trays of a rack that is one NVLink domain: machines that fail one at a time."""

from __future__ import annotations

from weft.errors import ConfigError
from weft.fabric.kinds import NodeKind
from weft.fabric.views import Server


def tray_nodes(rack: Server, number: int) -> list[int]:
    """Return the nodes of a tray, without the NVSwitches, which have their own trays."""
    from weft.fabric import catalog  # a subnet manager has no use for it

    cpu = next((node for node in rack.nodes if node.kind == NodeKind.CPU), None)
    whole = catalog.server(catalog.server(cpu.model).box) if cpu else None
    if whole is None or not number < whole.trays > 1:
        has = f"tray0 to tray{whole.trays - 1}" if whole and whole.trays > 1 else "no trays"
        raise ConfigError(f"there is no {rack.name}/tray{number}: {rack.name} has {has}")
    counts = {"gpu": whole.gpus, "cpu": whole.cpus, "pcie": whole.pcie_switches}
    numbered = [tuple(f"{stem}{n}" for n in range(count)) for stem, count in counts.items()]
    inside = set[str]()
    for names in (*numbered, whole.compute, whole.storage):
        each = len(names) // whole.trays
        inside.update(f"{rack.name}/{name}" for name in names[number * each : (number + 1) * each])
    return [node.index for node in rack.nodes if node.name in inside]
