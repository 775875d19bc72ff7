"""A subnet in this process with slices in it, as weft's subnet manager makes them."""

from __future__ import annotations

from pathlib import Path

import weft
from weft.scenarios.managed import ManagedSubnet
from weft.sm.conf.options import Options
from weft.tenants.drivers.partition_files import write_partitions
from weft.tenants.slices import Allocation, Seat, Slice


def guid(net_or_fabric, host: str) -> int:
    fabric = getattr(net_or_fabric, "fabric", net_or_fabric)
    return int(fabric.ports.guid[fabric[f"{host}/1"].slot])


def cut(fabric, **hosts: tuple[str, ...]) -> Allocation:
    """A slice for each, of full members; those of `storage` are, and the others limited members of it."""
    slices = {}
    for number, (name, members) in enumerate(hosts.items(), 0x101):
        seats = {guid(fabric, one): Seat() for one in members}
        if name == "storage":
            others = {one for tenant, those in hosts.items() if tenant != "storage" for one in those}
            seats = {guid(fabric, one): Seat(full=False) for one in sorted(others)} | seats
        slices[number] = Slice(name=name, p_key=number, seats=seats)
    return Allocation(slices=slices, default_is_full=False)


def sliced(spec: str, folder: Path, **hosts: tuple[str, ...]) -> tuple[ManagedSubnet, Allocation]:
    fabric = weft.load(spec)
    allocation = cut(fabric, **hosts)
    return managed(fabric, allocation, folder), allocation


def managed(fabric, allocation: Allocation, folder: Path, **options) -> ManagedSubnet:
    path = folder / "partitions.conf"
    path.write_text(write_partitions(allocation))
    return ManagedSubnet(fabric, Options(partition_config_file=path, **options))
