"""Multicast groups of partitions.conf: the flags that describe them, and which there can be.

As OpenSM does it, in osm_prtn_config.c and osm_sa_mcmember_record.c.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container
from dataclasses import dataclass

from weft.ids import Gid
from weft.sm.pkey.partitions import DEFAULT_MTU, DEFAULT_RATE, LINK_LOCAL, Group, with_scope

IP_SIGNATURES = (0x401B, 0x601B)  # IPv4 and IPv6
_SA_MADE = 0xA01B
_FLAGS = ("mtu", "rate", "scope", "Q_Key", "TClass", "sl", "FlowLabel")  # in the order in which OpenSM compares them
_FIELD = {"mtu": "mtu", "rate": "rate", "Q_Key": "q_key", "TClass": "t_class", "sl": "sl", "FlowLabel": "flow_label"}
_SKIPPED = {"scope": (1, 15), "sl": (0, 15), "FlowLabel": (0, 0xFFFFF)}  # beyond these the flag is as if not there
_BITS = {"TClass": 8}  # else 32
_CODES = {"mtu": range(1, 6), "rate": range(2, 23)}


@dataclass(slots=True)
class Flags:
    """The group flags of a definition. Rate and MTU are the standard's codes."""

    mtu: int = DEFAULT_MTU
    rate: int = DEFAULT_RATE
    sl: int = 0
    scopes: tuple[int, ...] = ()
    q_key: int = 0
    t_class: int = 0
    flow_label: int = 0

    def groups(self, mgid: Gid) -> list[Group]:
        """Return a group for each scope; the scope is written into the MGID."""
        same = {name: getattr(self, name) for name in _FIELD.values()}
        return [Group(mgid=with_scope(mgid, scope), scope=scope, **same) for scope in self.scopes or (LINK_LOCAL,)]

    def take(self, name: str, value: str | None, note: Callable[[str], None]) -> bool:
        """Take a flag of a group; False where it is none."""
        flag = abbreviated(name, _FLAGS)
        if flag is None:
            return False
        number, left = strtoul(value or "")
        number %= 1 << _BITS.get(flag, 32)
        low, high = _SKIPPED.get(flag, (0, ULONG))
        exact = flag in ("sl", "FlowLabel")
        if value is None or not low <= number <= high or (exact and (not value or (left and not left[0].isspace()))):
            between = f"a number from {low} to {high}" if flag in _SKIPPED else "a number"
            note(f"{flag}={value or ''} is not {between}: ignored")
        elif flag == "scope":
            self.scopes = tuple(sorted({*self.scopes, number}))
        else:
            if left:
                note(f"{flag}={value} is read as {number}")
            if number not in _CODES.get(flag, (number,)):
                note(f"{flag}={value} is no code of the standard: its groups are left out")
            setattr(self, _FIELD[flag], number)
        return True


def refusal(group: Group, there_are: Container[int]) -> str:
    """Return why a group is invalid; empty if it is valid."""
    if group.mtu not in _CODES["mtu"] or group.rate not in _CODES["rate"]:
        return f"mtu={group.mtu},rate={group.rate} are no codes of the standard"
    return mgid_refusal(group.mgid, there_are)


def mgid_refusal(mgid: int, there_are: Container[int]) -> str:
    """Return why an MGID is invalid: o15-0.1.5, and IP groups need their broadcast group."""
    signature = mgid >> 96 & 0xFFFF
    if signature in IP_SIGNATURES:
        broadcast = broadcast_of(mgid)
        has_broadcast = mgid == broadcast or broadcast in there_are
        return "" if has_broadcast else f"there is no broadcast group {Gid(broadcast)}"
    if mgid >> 112 & 0xE0:
        return "three flags of a multicast GID are reserved"
    if signature == _SA_MADE and mgid >> 112 & 0xF == LINK_LOCAL:
        return "link-local MGIDs with a01b are made by the subnet administrator only"
    return ""


def broadcast_of(mgid: int) -> int:
    """Return the IPv4 broadcast group in the scope and the partition of an IP group."""
    return 0xFF10_401B << 96 | (mgid >> 112 & 0xF) << 112 | (mgid >> 80 & 0xFFFF) << 80 | 0xFFFF_FFFF


BLANKS = " \t\n"
ULONG = 1 << 64
_NUMBER = re.compile(r"[ \t\n\v\f\r]*([+-]?)(0[xX][0-9a-fA-F]+|0[0-7]*|[1-9][0-9]*)")


def split(word: str) -> tuple[str, str | None]:
    """Split `name=value` and strip blanks; the value is None without `=`."""
    name, equals, value = word.partition("=")
    return name.strip(BLANKS), value.strip(BLANKS) if equals else None


def abbreviated(word: str, keywords: tuple[str, ...]) -> str | None:
    """Return the first keyword that starts with the word."""
    return next((keyword for keyword in keywords if keyword.startswith(word)), None)


def strtoul(text: str) -> tuple[int, str]:
    """Read a number as C does with base 0, and return it with the rest; 0 and the whole text if there is none."""
    match = _NUMBER.match(text)
    if match is None:
        return 0, text
    digits = match[2]
    base = 16 if digits[:2] in ("0x", "0X") else 8 if digits[0] == "0" else 10
    number = min(int(digits, base), ULONG - 1)
    return (-number % ULONG if match[1] == "-" else number), text[match.end() :]
