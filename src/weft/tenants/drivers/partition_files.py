"""Partitions as definitions for subnet managers: objects for weft's, partitions.conf for OpenSM.

    acme=0x0101,ipoib,sl=2 :
     0x0002c90300001231=full,
     0x0002c90300001232=limited ;

MTU and rate apply to the multicast groups of IPoIB only; without IPoIB they are not read back. Neither are the defaults
of 2,048 bytes and 10 Gbit/s.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from weft.errors import ConfigError
from weft.ids import Guid
from weft.sm.pkey.definitions import MemberDefinition, PartitionDefinition
from weft.sm.pkey.partitions import DEFAULT_MTU, DEFAULT_P_KEY, DEFAULT_RATE, Membership, broadcast_mgid
from weft.sm.pkey.partitions import Partition as ManagerPartition
from weft.sm.pkey.partitions_conf import parse_partitions
from weft.tenants.partitions import Allocation, Member, Partition
from weft.wire.port_info import Mtu
from weft.wire.sa import Rate

_LONGEST_NAME_BYTES = 31
_MTUS = {float(code.size_bytes): int(code) for code in Mtu}
_RATES = {code.gbit_s: int(code) for code in Rate if code <= Rate.GBIT_600}  # OpenSM supports no others


def write_partitions(allocation: Allocation) -> str:
    """Return the definitions of all partitions and of Default."""
    everyone = "ALL=full" if allocation.default_is_full else "ALL=limited, SELF=full"
    default = f"Default={DEFAULT_P_KEY:#06x},ipoib : {everyone} ;\n"
    return default + write_definitions(allocation.partitions.values())


def write_definitions(partitions: Iterable[Partition]) -> str:
    return "".join(_text(definition_of(partition)) for partition in partitions)


def read_definitions(text: str, path: str = "partitions.conf") -> dict[int, Partition]:
    """Read definitions; return the partitions by P_Key, without Default. Raise FileError if they are invalid."""
    parsed = parse_partitions(text, path)
    definitions = (*parsed.partitions, *parsed.empty)
    return {each.p_key: read_partition(each) for each in definitions if each.p_key != DEFAULT_P_KEY}


def as_read(partitions: Mapping[int, Partition]) -> dict[int, Partition]:
    """Return partitions as they are read back from a file."""
    return {p_key: _as_read(partition) for p_key, partition in partitions.items()}


def check_index0(partitions: Iterable[Partition]) -> None:
    """Raise ConfigError if two partitions request index 0 of the same port's table."""
    first: dict[int, Partition] = {}
    for partition in partitions:
        for guid in (guid for guid, member in partition.members.items() if member.index0):
            other = first.setdefault(guid, partition)
            if other is not partition:
                raise ConfigError(
                    f"{other.label} and {partition.label} both request index 0 of the port {Guid(guid)}: choose one"
                )


def check_name(name: str) -> None:
    """Raise ConfigError if a partition cannot have this name."""
    good = name.isprintable() and name == name.strip() and not set(name) & set(",=:;#")
    if not good or not 0 < len(name.encode()) <= _LONGEST_NAME_BYTES:
        raise ConfigError(
            f"the partition name {name!r} must have 1 to {_LONGEST_NAME_BYTES} bytes, without , = : ; # and without "
            "leading or trailing spaces"
        )


def definition_of(partition: Partition) -> PartitionDefinition:
    """Return a partition as a subnet manager takes it; raise ConfigError if it cannot."""
    check_name(partition.name)
    codes = {}
    if partition.mtu_bytes is not None:
        codes["mtu"] = _code(partition, "MTU", partition.mtu_bytes, _MTUS, "bytes")
    if partition.rate_gbit_s is not None:
        codes["rate"] = _code(partition, "rate", partition.rate_gbit_s, _RATES, "Gbit/s")
    members = tuple(
        MemberDefinition(guid, Membership.FULL if member.full else Membership.LIMITED, member.index0)
        for guid, member in partition.members.items()
    )
    return PartitionDefinition(
        name=partition.name, p_key=partition.p_key, members=members, ipoib=partition.ipoib, sl=partition.sl, **codes
    )


def _text(definition: PartitionDefinition) -> str:
    """Return one definition of the file, or two if some members have index 0: this flag applies to all its members."""
    flags = ",ipoib" if definition.ipoib else ""
    for name, default in (("mtu", DEFAULT_MTU), ("rate", DEFAULT_RATE), ("sl", 0)):
        if getattr(definition, name) != default:
            flags += f",{name}={getattr(definition, name)}"
    members = {index0: [member for member in definition.members if member.index0 == index0] for index0 in (False, True)}
    return "".join(
        f"{definition.name}={definition.p_key:#06x}{flags}{',indx0' if index0 else ''} :{_ports(some)} ;\n"
        for index0, some in members.items()
        if some or (not index0 and not members[True])
    )


def _ports(members: list[MemberDefinition]) -> str:
    return ",".join(f"\n {member.port:#018x}={member.membership.value}" for member in members) or " NONE"


def _code(partition: Partition, quantity: str, value: float, codes: Mapping[float, int], unit: str) -> int:
    code = codes.get(value)
    if code is None:
        allowed = ", ".join(f"{size:g}" for size in sorted(codes))
        raise ConfigError(f"the {quantity} of {partition.label}, {value:g} {unit}, must be one of {allowed}")
    return code


def read_partition(definition: ManagerPartition) -> Partition:
    """Return the partition that a subnet manager has."""
    broadcast = next((group for group in definition.groups if group.mgid == broadcast_mgid(definition.p_key)), None)
    members = {
        member.who: Member(member.membership is not Membership.LIMITED, member.index0)
        for member in definition.members
        if isinstance(member.who, int)  # rules for kinds of ports are no members
    }
    partition = Partition(name=definition.name, p_key=definition.p_key, members=members, sl=definition.sl)
    if broadcast is None:
        return partition
    mtu_bytes, rate_gbit_s = Mtu(broadcast.mtu).size_bytes, Rate(broadcast.rate).gbit_s
    return _as_read(replace(partition, ipoib=True, mtu_bytes=mtu_bytes, rate_gbit_s=rate_gbit_s))


def _as_read(partition: Partition) -> Partition:
    if partition.mtu_bytes is None and partition.rate_gbit_s is None:
        return partition
    return replace(
        partition,
        mtu_bytes=partition.mtu_bytes
        if partition.ipoib and partition.mtu_bytes != Mtu(DEFAULT_MTU).size_bytes
        else None,
        rate_gbit_s=partition.rate_gbit_s
        if partition.ipoib and partition.rate_gbit_s != Rate(DEFAULT_RATE).gbit_s
        else None,
    )
