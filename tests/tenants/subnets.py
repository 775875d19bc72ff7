"""A subnet in this process with partitions in it, as weft's subnet manager makes them."""

from __future__ import annotations

from pathlib import Path

from weft.scenarios.managed import ManagedSubnet
from weft.sm.conf.options import Options
from weft.tenants.drivers.partition_files import write_partitions
from weft.tenants.partitions import Allocation, Member, Partition
from weft.wire.headers import BTH, DETH, LRH, Opcode
from weft.wire.packet import Packet

SMALL = "fat-tree:hosts=8,radix=4"
RED, BLUE = ("h2", "h5"), ("h3", "h7")


def guid(fabric, host: str) -> int:
    return int(fabric.ports.guid[fabric[f"{host}/1"].slot])


def cut(fabric, **hosts: tuple[str, ...]) -> Allocation:
    """Return an allocation with a partition for each tenant; all tenants are limited members of `storage`."""
    partitions = {}
    for number, (name, members) in enumerate(hosts.items(), 0x101):
        members = {guid(fabric, item): Member() for item in members}
        if name == "storage":
            rest = {item for tenant, selection in hosts.items() if tenant != "storage" for item in selection}
            members = {guid(fabric, item): Member(full=False) for item in sorted(rest)} | members
        partitions[number] = Partition(name=name, p_key=number, members=members)
    return Allocation(partitions=partitions, default_is_full=False)


def managed(fabric, allocation: Allocation, folder: Path, **options) -> ManagedSubnet:
    path = folder / "partitions.conf"
    path.write_text(write_partitions(allocation))
    return ManagedSubnet(fabric, Options(partition_config_file=path, **options))


def packet(fabric, sender: str, receiver: str, p_key: int, *, slid: int | None = None) -> bytes:
    lids = [int(fabric.tables.lid[fabric[f"{host}/1"].slot]) for host in (sender, receiver)]
    lrh = LRH(slid=lids[0] if slid is None else slid, dlid=lids[1])
    bth = BTH(opcode=Opcode.UD_SEND_ONLY, dest_qp=7, p_key=p_key)
    return Packet((lrh, bth, DETH(q_key=0x11, src_qp=5)), b"x" * 16).pack()
