"""Slices as definitions of partitions.conf, which OpenSM and weft's subnet manager read.

    acme=0x0101,ipoib,sl=2 :
     0x0002c90300001231=full,
     0x0002c90300001232=limited ;

What a subnet manager has no place for does not come back: an MTU or a rate counts for the groups of IPoIB only, and
those that it takes anyway, 2,048 bytes and 10 Gbit/s, are as if nothing was said.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from weft.errors import ConfigError
from weft.ids import Guid
from weft.sm.pkey.partitions import DEFAULT_MTU, DEFAULT_P_KEY, DEFAULT_RATE, Membership, broadcast_mgid
from weft.sm.pkey.partitions import Partition as PartitionDefinition
from weft.sm.pkey.partitions_conf import parse_partitions
from weft.tenants.partitions import Allocation, Member, Partition
from weft.wire.port_info import Mtu
from weft.wire.sa import Rate

_LONGEST_NAME_BYTES = 31
_MTUS = {float(code.size_bytes): int(code) for code in Mtu}
_RATES = {code.gbit_s: int(code) for code in Rate if code <= Rate.GBIT_600}  # OpenSM knows no others


def write_partitions(allocation: Allocation) -> str:
    """All partitions, and Default with the membership that it shall have."""
    everybody = "ALL=full" if allocation.default_is_full else "ALL=limited, SELF=full"
    default = f"Default={DEFAULT_P_KEY:#06x},ipoib : {everybody} ;\n"
    return default + write_definitions(allocation.partitions.values())


def write_definitions(partitions: Iterable[Partition]) -> str:
    return "".join(_definitions(one) for one in partitions)


def read_definitions(text: str, path: str = "partitions.conf") -> dict[int, Partition]:
    """By P_Key; Default is none of them. FileError where it cannot be read."""
    found = parse_partitions(text, path)
    return {one.p_key: _partition(one) for one in (*found.partitions, *found.empty) if one.p_key != DEFAULT_P_KEY}


def as_read(partitions: Mapping[int, Partition]) -> dict[int, Partition]:
    """The same as they come back from a file."""
    return {p_key: _as_read(one) for p_key, one in partitions.items()}


def check_index0(partitions: Iterable[Partition]) -> None:
    """ConfigError if two want the same place in the table of a port: a subnet manager would give it to one."""
    first: dict[int, Partition] = {}
    for one in partitions:
        for guid in (guid for guid, member in one.members.items() if member.index0):
            other = first.setdefault(guid, one)
            if other is not one:
                raise ConfigError(
                    f"{other.label} and {one.label} both want index 0 of the port {Guid(guid)}: choose one"
                )


def check_name(name: str) -> None:
    """ConfigError if a partition cannot be called this."""
    good = name.isprintable() and name == name.strip() and not set(name) & set(",=:;#")
    if not good or not 0 < len(name.encode()) <= _LONGEST_NAME_BYTES:
        raise ConfigError(
            f"the partition's name {name!r} is refused: it must be 1 to {_LONGEST_NAME_BYTES} bytes, "
            "without , = : ; # and without blanks around it"
        )


def _definitions(one: Partition) -> str:
    """One, or two where some members have index 0: that flag is a definition's."""
    check_name(one.name)
    flags = _flags(one)
    members = {index0: [it for it in one.members.items() if it[1].index0 == index0] for index0 in (False, True)}
    return "".join(
        f"{one.name}={one.p_key:#06x}{flags}{',indx0' if index0 else ''} :{_ports(some)} ;\n"
        for index0, some in members.items()
        if some or (not index0 and not members[True])
    )


def _ports(members: list[tuple[int, Member]]) -> str:
    words = [f"\n {guid:#018x}={'full' if member.full else 'limited'}" for guid, member in members]
    return ",".join(words) or " NONE"


def _flags(one: Partition) -> str:
    words = ["ipoib"] if one.ipoib else []
    if one.mtu_bytes is not None:
        words.append(f"mtu={_code(one, 'MTU', one.mtu_bytes, _MTUS, 'bytes')}")
    if one.rate_gbit_s is not None:
        words.append(f"rate={_code(one, 'rate', one.rate_gbit_s, _RATES, 'Gbit/s')}")
    if one.sl:
        words.append(f"sl={one.sl}")
    return "".join(f",{word}" for word in words)


def _code(one: Partition, what: str, value: float, codes: Mapping[float, int], unit: str) -> int:
    code = codes.get(value)
    if code is None:
        known = ", ".join(f"{known:g}" for known in sorted(codes))
        raise ConfigError(f"the {what} of {one.label}, {value:g} {unit}, is refused: it must be one of {known}")
    return code


def _partition(partition: PartitionDefinition) -> Partition:
    broadcast = next((one for one in partition.groups if one.mgid == broadcast_mgid(partition.p_key)), None)
    members = {
        member.who: Member(member.membership is not Membership.LIMITED, member.index0)
        for member in partition.members
        if isinstance(member.who, int)  # rules for kinds of ports are nobody's member
    }
    made = Partition(name=partition.name, p_key=partition.p_key, members=members, sl=partition.sl)
    if broadcast is None:
        return made
    mtu_bytes, rate_gbit_s = Mtu(broadcast.mtu).size_bytes, Rate(broadcast.rate).gbit_s
    return _as_read(replace(made, ipoib=True, mtu_bytes=mtu_bytes, rate_gbit_s=rate_gbit_s))


def _as_read(one: Partition) -> Partition:
    if one.mtu_bytes is None and one.rate_gbit_s is None:
        return one
    return replace(
        one,
        mtu_bytes=one.mtu_bytes if one.ipoib and one.mtu_bytes != Mtu(DEFAULT_MTU).size_bytes else None,
        rate_gbit_s=one.rate_gbit_s if one.ipoib and one.rate_gbit_s != Rate(DEFAULT_RATE).gbit_s else None,
    )
