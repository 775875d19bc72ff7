"""Identifiers of InfiniBand: checked integers that print as operators write them."""

from __future__ import annotations

from typing import Any, ClassVar, Self

from weft.errors import ConfigError


class _Id(int):
    """An integer that must be within the range of its kind."""

    bits: ClassVar[int]
    example: ClassVar[str]

    def __new__(cls, value: int = 0) -> Self:
        if not 0 <= value < 1 << cls.bits:
            raise ConfigError(f"{cls.__name__} {value:#x} does not fit in {cls.bits} bits: write {cls.example}")
        return super().__new__(cls, value)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse an operator's text: hexadecimal, with or without 0x."""
        try:
            return cls(int(text.strip().replace(":", ""), 16))
        except ValueError:
            raise ConfigError(f"{cls.__name__} {text!r} is not a hexadecimal number: write {cls.example}") from None

    def __str__(self) -> str:
        return f"0x{int(self):0{self.bits // 4}x}"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self})"


class Guid(_Id):
    """A 64-bit globally unique identifier of a node, a port or a system: `0x0002c90300001230`."""

    bits = 64
    example = "0x0002c90300001230"


class Lid(_Id):
    """A 16-bit local identifier: 0 unassigned, 1..0xBFFF unicast, 0xC000..0xFFFE multicast, 0xFFFF permissive.

    Written in decimal, as ibstat and ibnetdiscover do.
    """

    bits = 16
    example = "a decimal number from 0 to 65535"
    FIRST_MULTICAST: ClassVar[int] = 0xC000
    PERMISSIVE: ClassVar[int] = 0xFFFF

    @classmethod
    def parse(cls, text: str) -> Self:
        try:
            return cls(int(text.strip(), 0))
        except ValueError:
            raise ConfigError(f"Lid {text!r} is not a number: write {cls.example}, or 0x0001") from None

    @property
    def is_multicast(self) -> bool:
        return self.FIRST_MULTICAST <= self < self.PERMISSIVE

    def __str__(self) -> str:
        return str(int(self))


class PKey(_Id):
    """A partition key: 15 bits of partition and the top bit for full membership. `0x8001` is full, `0x0001` limited."""

    bits = 16
    example = "0x8001"
    FULL_MEMBER: ClassVar[int] = 0x8000
    DEFAULT: ClassVar[int] = 0xFFFF

    @property
    def partition(self) -> int:
        return int(self) & ~self.FULL_MEMBER

    @property
    def is_full(self) -> bool:
        return bool(self & self.FULL_MEMBER)

    def matches(self, other: PKey) -> bool:
        """Return whether a packet with this key may enter a port that holds `other`."""
        return bool(p_keys_match(self, other))


def p_keys_match(first: Any, second: Any) -> Any:
    """Return whether two keys have the same partition, other than 0, and at least one is a full member.

    Works on integers, on arrays, and in kernels.
    """
    return ((first ^ second) & 0x7FFF == 0) & (first & 0x7FFF != 0) & ((first | second) & 0x8000 != 0)


_FLID_SHIFT = 16


def _is_site_local(prefix: int) -> bool:
    return prefix >> 32 == Gid.SITE_LOCAL_PREFIX >> 32


class Gid(_Id):
    """A 128-bit global identifier: subnet prefix and port GUID, as sysfs prints it, in eight groups."""

    bits = 128
    example = "fe80:0000:0000:0000:0002:c903:0000:1230"
    LINK_LOCAL_PREFIX: ClassVar[int] = 0xFE80_0000_0000_0000
    SITE_LOCAL_PREFIX: ClassVar[int] = 0xFEC0_0000_0000_0000  # the last 16 bits are the subnet's

    @classmethod
    def of(cls, guid: int, prefix: int = LINK_LOCAL_PREFIX) -> Self:
        return cls(prefix << 64 | guid)

    @classmethod
    def parse(cls, text: str) -> Self:
        from ipaddress import AddressValueError, IPv6Address

        try:
            return cls(int(IPv6Address(text.strip())))
        except AddressValueError:
            raise ConfigError(f"Gid {text!r} is not eight groups of four digits: write {cls.example}") from None

    @property
    def prefix(self) -> int:
        return int(self) >> 64

    @property
    def guid(self) -> Guid:
        return Guid(int(self) & (1 << 64) - 1)

    @property
    def flid(self) -> int:
        """The floating LID in a site-local prefix: FEC0, zeros, 16 bits of FLID, 16 of the subnet. 0 for none."""
        return self.prefix >> _FLID_SHIFT & 0xFFFF if _is_site_local(self.prefix) else 0

    @property
    def subnet_prefix(self) -> int:
        """The prefix without a floating LID: equal for all ports of a subnet."""
        return self.prefix & ~(0xFFFF << _FLID_SHIFT) if _is_site_local(self.prefix) else self.prefix

    def __str__(self) -> str:
        digits = f"{int(self):032x}"
        return ":".join(digits[i : i + 4] for i in range(0, 32, 4))
