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
from weft.sm.pkey.partitions import DEFAULT_MTU, DEFAULT_P_KEY, DEFAULT_RATE, Membership, Partition, broadcast_mgid
from weft.sm.pkey.partitions_conf import parse_partitions
from weft.tenants.slices import Allocation, Seat, Slice
from weft.wire.port_info import Mtu
from weft.wire.sa import Rate

_LONGEST_NAME_BYTES = 31
_MTUS = {float(code.size_bytes): int(code) for code in Mtu}
_RATES = {code.gbit_s: int(code) for code in Rate if code <= Rate.GBIT_600}  # OpenSM knows no others


def write_partitions(allocation: Allocation) -> str:
    """All slices, and Default with the membership that it shall have."""
    everybody = "ALL=full" if allocation.default_is_full else "ALL=limited, SELF=full"
    default = f"Default={DEFAULT_P_KEY:#06x},ipoib : {everybody} ;\n"
    return default + write_slices(allocation.slices.values())


def write_slices(slices: Iterable[Slice]) -> str:
    return "".join(_definitions(one) for one in slices)


def read_slices(text: str, path: str = "partitions.conf") -> dict[int, Slice]:
    """By P_Key; Default is none of them. FileError where it cannot be read."""
    found = parse_partitions(text, path)
    return {one.p_key: _slice(one) for one in (*found.partitions, *found.empty) if one.p_key != DEFAULT_P_KEY}


def as_read(slices: Mapping[int, Slice]) -> dict[int, Slice]:
    """The same as they come back from a file."""
    return {p_key: _as_read(one) for p_key, one in slices.items()}


def check_index0(slices: Iterable[Slice]) -> None:
    """ConfigError if two want the same place in the table of a port: a subnet manager would give it to one."""
    first: dict[int, Slice] = {}
    for one in slices:
        for guid in (guid for guid, seat in one.seats.items() if seat.index0):
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


def _definitions(one: Slice) -> str:
    """One, or two where some members have index 0: that flag is a definition's."""
    check_name(one.name)
    flags = _flags(one)
    seats = {index0: [it for it in one.seats.items() if it[1].index0 == index0] for index0 in (False, True)}
    return "".join(
        f"{one.name}={one.p_key:#06x}{flags}{',indx0' if index0 else ''} :{_ports(some)} ;\n"
        for index0, some in seats.items()
        if some or (not index0 and not seats[True])
    )


def _ports(seats: list[tuple[int, Seat]]) -> str:
    words = [f"\n {guid:#018x}={'full' if seat.full else 'limited'}" for guid, seat in seats]
    return ",".join(words) or " NONE"


def _flags(one: Slice) -> str:
    words = ["ipoib"] if one.ipoib else []
    if one.mtu_bytes is not None:
        words.append(f"mtu={_code(one, 'MTU', one.mtu_bytes, _MTUS, 'bytes')}")
    if one.rate_gbit_s is not None:
        words.append(f"rate={_code(one, 'rate', one.rate_gbit_s, _RATES, 'Gbit/s')}")
    if one.sl:
        words.append(f"sl={one.sl}")
    return "".join(f",{word}" for word in words)


def _code(one: Slice, what: str, value: float, codes: Mapping[float, int], unit: str) -> int:
    code = codes.get(value)
    if code is None:
        known = ", ".join(f"{known:g}" for known in sorted(codes))
        raise ConfigError(f"the {what} of {one.label}, {value:g} {unit}, is refused: it must be one of {known}")
    return code


def _slice(partition: Partition) -> Slice:
    broadcast = next((one for one in partition.groups if one.mgid == broadcast_mgid(partition.p_key)), None)
    seats = {
        member.who: Seat(member.membership is not Membership.LIMITED, member.index0)
        for member in partition.members
        if isinstance(member.who, int)  # rules for kinds of ports are nobody's seat
    }
    made = Slice(name=partition.name, p_key=partition.p_key, seats=seats, sl=partition.sl)
    if broadcast is None:
        return made
    mtu_bytes, rate_gbit_s = Mtu(broadcast.mtu).size_bytes, Rate(broadcast.rate).gbit_s
    return _as_read(replace(made, ipoib=True, mtu_bytes=mtu_bytes, rate_gbit_s=rate_gbit_s))


def _as_read(one: Slice) -> Slice:
    if one.mtu_bytes is None and one.rate_gbit_s is None:
        return one
    return replace(
        one,
        mtu_bytes=one.mtu_bytes if one.ipoib and one.mtu_bytes != Mtu(DEFAULT_MTU).size_bytes else None,
        rate_gbit_s=one.rate_gbit_s if one.ipoib and one.rate_gbit_s != Rate(DEFAULT_RATE).gbit_s else None,
    )
