"""Omni-Path's Virtual Fabrics, read from opafm.xml, as partitions and shares of the links.

A Virtual Fabric is more than a P_Key: devices, applications and policies under one name, from which its fabric manager
makes keys, service levels and bandwidth. On InfiniBand it becomes a partition, and a share for the QoS step.

- `Security` off: limited members are full members, of the Virtual Fabric's own key. Those without security and without
  a `PKey` share one key: nothing keeps them apart. With security each has a key of its own.
- A device that is a member and a limited member is a member, in whatever order that is written. (In partitions.conf
  the last rule counts.) Virtual Fabrics may share a key; a device is a full member of it if it is so in any of them.
- Key 0x7fff is the Admin fabric's, which must contain All. The manager's own port is always a full member.
- `Bandwidth` is a minimum among what is not `HighPriority`; who gives none shares what is left. Virtual Fabrics without
  QoS are one share together, of at least 5 %.

Not carried over, and noted: applications (a P_Key says who, not what for), MaxMTU and MaxRate of paths, preemption.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from weft.errors import FileError
from weft.ids import Gid
from weft.sm.opafm.xml import Element, mgid_of, parse, pattern_of
from weft.sm.pkey.partitions import (
    DEFAULT_MTU,
    DEFAULT_P_KEY,
    IPOIB_Q_KEY,
    Devices,
    Everyone,
    Group,
    Member,
    Membership,
    Partition,
    Partitions,
    with_p_key,
)
from weft.sm.qos.tables import Share

_LEAST_WITHOUT_QOS = 5  # percent
_SERVICE_LEVELS = 16
_NODE_TYPES = {"fi": Everyone.ALL_CAS, "sw": Everyone.ALL_SWITCHES}
_SELECTS = {"all": Everyone.ALL, "self": Everyone.SELF, "swe0": Everyone.ALL_SWITCHES}
_NO_SUCH = ("hfidirectconnect", "tfis", "allmgmtallowed")  # properties that an InfiniBand subnet does not report
_QOS_TAGS = ("QOS", "Bandwidth", "HighPriority", "BaseSL")
_NOT_CARRIED = ("MulticastSL", "PreemptRank", "FlowControlDisable", "PktLifeTimeMult", "HoqLife")
_MTU = {"2048": 4, "4096": 5, "8192": 5, "10240": 5}  # the standard's codes; it has none above 4,096
_RATE = {"25g": 15, "50g": 20, "75g": 20, "100g": 16}
# Groups of IPoIB (RFC 4391): IPv4 broadcast, nodes, routers, mDNS; IPv6 nodes, routers, MLDv2 routers, mDNS.
_IPOIB = tuple(
    [Gid.parse(f"ff12:401b::{group}") for group in ("ffff:ffff", "1", "2", "fb")]
    + [Gid.parse(f"ff12:601b::{group}") for group in ("1", "2", "16", "fb")]
)
Who = Everyone | Devices | int


@dataclass(frozen=True, slots=True, kw_only=True)
class VirtualFabrics:
    """The virtual fabrics of an opafm.xml. Notes are in the partitions."""

    partitions: Partitions
    shares: tuple[Share, ...]


@dataclass(slots=True)
class _Qos:
    """A share as it is found out."""

    name: str
    line: int
    high_priority: bool
    percent: int | None
    sl: int | None


@dataclass(slots=True)
class _Fabric:
    """An enabled Virtual Fabric."""

    name: str
    element: Element
    security: bool
    p_key: int | None
    qos: _Qos
    full: list[Who] = field(default_factory=list)
    limited: list[Who] = field(default_factory=list)


def parse_virtual_fabrics(text: str, path: Path | str = "opafm.xml", instance: int = 0) -> VirtualFabrics:
    """Read the virtual fabrics of one fabric manager instance: the common ones, and its own."""
    return _Reader(parse(text, path), path, instance).read()


class _Reader:
    def __init__(self, root: Element, path: Path | str, instance: int) -> None:
        self.path = path
        self.root = root
        # A part of a file, as tools include it, has neither.
        self.sections = root.all("Common") + root.all("Fm")[instance : instance + 1] or [root]
        self.notes: list[str] = []
        self.groups = self.named("DeviceGroups", "DeviceGroup")
        self.qos = {
            name: self.read_qos(element, name)
            for name, element in self.named("QOSGroups", "QOSGroup").items()
            if element.flag("Enable")
        }
        self.without_qos = _Qos("no QoS", 0, False, None, None)

    def read(self) -> VirtualFabrics:
        fabrics = [
            self.fabric(element, name) for name, element in self.named("VirtualFabrics", "VirtualFabric").items()
        ]
        active = [fabric for fabric in fabrics if fabric is not None]
        self.check_admin(active)
        self.assign_keys(active)
        shares = self.shares(active)
        partitions = self.partitions(active, self.multicast_groups(active))
        return VirtualFabrics(partitions=Partitions(partitions=partitions, notes=tuple(self.notes)), shares=shares)

    def note(self, element: Element, text: str) -> None:
        self.notes.append(f"{self.path}:{element.line}: {text}")

    def named(self, *tags: str) -> dict[str, Element]:
        """Return elements by their <Name>, from all sections."""
        elements: dict[str, Element] = {}
        for section in self.sections:
            for element in section.below(*tags):
                name = element.string("Name")
                if not name or name in elements:
                    raise element.refuse(f"a <Name> that no other {element.tag} has, not {name!r}")
                elements[name] = element
        return elements

    # -- one Virtual Fabric -----------------------------------------------------------------------------------------

    def fabric(self, element: Element, name: str) -> _Fabric | None:
        if not element.flag("Enable"):
            return None
        if element.flag("Standby"):
            self.note(element, f"Virtual Fabric {name} is in standby: left out")
            return None
        fabric = _Fabric(
            name, element, element.flag("Security"), element.number("PKey", 1, 0x7FFF), self.qos_of(element, name)
        )
        for member in element.all("Member"):
            fabric.full += self.devices(member, ())
        for member in element.all("LimitedMember"):
            (fabric.limited if fabric.security else fabric.full).extend(self.devices(member, ()))
        if not element.all("Member") and not element.all("LimitedMember"):
            raise element.refuse(f"a <Member> or <LimitedMember> in Virtual Fabric {name}")
        applications = {application.text for application in element.all("Application")} - {
            "All",
            "AllOthers",
            "SA",
            "PA",
            "PM",
        }
        if applications:
            self.note(
                element, f"Virtual Fabric {name} is for all traffic of its members, not only {sorted(applications)}"
            )
        for tag in ("MaxMTU", "MaxRate"):
            if element.string(tag) not in ("", "Unlimited"):
                self.note(element, f"{tag} of Virtual Fabric {name} does not limit paths: ignored")
        return fabric

    def devices(self, reference: Element, parents: tuple[str, ...]) -> list[Who]:
        """Return the contents of a device group, given by its name."""
        name = reference.text
        if name not in self.groups:
            raise reference.refuse(f"the name of a DeviceGroup, of {', '.join(self.groups) or 'which there are none'}")
        if name in parents:
            raise reference.refuse(f"DeviceGroups that do not include each other: {' -> '.join((*parents, name))}")
        members: list[Who] = []
        for element in self.groups[name].children:
            if element.tag == "IncludeGroup":
                members += self.devices(element, (*parents, name))
            elif element.tag != "Name":
                members += self.device(element)
        return members

    def device(self, element: Element) -> list[Who]:
        if element.tag == "PortGUID":
            return [element.guid()]
        if element.tag == "NodeGUID":
            return [Devices(by="node GUID", value=element.guid())]
        if element.tag == "SystemImageGUID":
            return [Devices(by="system GUID", value=element.guid())]
        if element.tag == "NodeDesc":
            value, ports = pattern_of(element)
            return [Devices(by="description", value=value, ports=ports)]
        names = {"NodeType": _NODE_TYPES, "Select": _SELECTS}.get(element.tag, {})
        word = element.text.lower()
        if word in names:
            return [names[word]]
        if element.tag == "Select" and word in _NO_SUCH:
            note = f"<Select>{element.text}</Select> selects nothing: InfiniBand does not tell which devices these are"
            if note not in "\n".join(self.notes):
                self.note(element, note)
            return []
        raise element.refuse(
            "PortGUID, NodeGUID, SystemImageGUID, NodeDesc, NodeType FI or SW, or Select All, Self, SWE0"
        )

    def check_admin(self, fabrics: list[_Fabric]) -> None:
        admin = [fabric for fabric in fabrics if fabric.p_key == DEFAULT_P_KEY]
        if not any(Everyone.ALL in (*fabric.full, *fabric.limited) for fabric in admin):
            element = admin[0].element if admin else self.root
            raise element.refuse(f"an enabled Virtual Fabric with PKey {DEFAULT_P_KEY:#06x} that All are members of")

    # -- keys -------------------------------------------------------------------------------------------------------

    def assign_keys(self, fabrics: list[_Fabric]) -> None:
        """Assign the lowest free keys from 2; 1 is used by the file that comes with the fabric manager."""
        used_keys = {fabric.p_key for fabric in fabrics}
        free = (p_key for p_key in range(2, DEFAULT_P_KEY) if p_key not in used_keys)
        common = None
        for fabric in fabrics:
            if fabric.p_key is None and fabric.security:
                fabric.p_key = next(free)
            elif fabric.p_key is None:
                common = common or next(free)
                fabric.p_key = common

    def partitions(self, fabrics: list[_Fabric], groups: dict[int, list[Group]]) -> tuple[Partition, ...]:
        by_key: dict[int, list[_Fabric]] = {}
        for fabric in fabrics:
            by_key.setdefault(fabric.p_key or 0, []).append(fabric)
        return tuple(self.partition(p_key, sharing, groups.get(p_key, [])) for p_key, sharing in by_key.items())

    def partition(self, p_key: int, sharing: list[_Fabric], groups: list[Group]) -> Partition:
        first = sharing[0]
        for fabric in sharing[1:]:
            difference = "" if fabric.security == first.security else ", one with security and one without"
            count = "" if fabric.qos is first.qos else f"; SL {first.qos.sl} counts"
            self.note(
                fabric.element,
                f"Virtual Fabrics {fabric.name} and {first.name} share P_Key {p_key:#06x}{difference}{count}",
            )
        limited = [(member, Membership.LIMITED) for fabric in sharing for member in fabric.limited]
        full = [(member, Membership.FULL) for fabric in sharing for member in fabric.full]
        if p_key == DEFAULT_P_KEY:
            full.append((Everyone.SELF, Membership.FULL))
        members = tuple(
            Member(who=member, membership=membership) for member, membership in dict.fromkeys(limited + full)
        )
        return Partition(name=first.name, p_key=p_key, members=members, sl=first.qos.sl or 0, groups=tuple(groups))

    # -- shares -----------------------------------------------------------------------------------------------------

    def read_qos(self, element: Element, name: str) -> _Qos:
        for tag in _NOT_CARRIED:
            if element.number(tag, 0, 1 << 32) if tag != "HoqLife" else element.string(tag):
                self.note(element, f"{tag} of {name} has no counterpart here: ignored")
        high = element.flag("HighPriority")
        percent = element.number("Bandwidth", 1, 100, "%")
        if high and percent is not None:
            self.note(element, f"{name} has high priority: its bandwidth of {percent} % is ignored")
        sl = element.number("BaseSL", 0, _SERVICE_LEVELS - 1)
        return _Qos(name, element.line, high, None if high else percent, sl)

    def qos_of(self, element: Element, name: str) -> _Qos:
        group = element.find("QOSGroup")
        if group is not None:
            if any(element.find(tag) for tag in _QOS_TAGS):
                self.note(element, f"Virtual Fabric {name} names a QOSGroup: its own QoS settings are ignored")
            if group.text not in self.qos:
                raise group.refuse(f"an enabled QOSGroup, of {', '.join(self.qos) or 'which there are none'}")
            return self.qos[group.text]
        return self.read_qos(element, name) if element.flag("QOS") else self.without_qos

    def shares(self, fabrics: list[_Fabric]) -> tuple[Share, ...]:
        used = list({id(fabric.qos): fabric.qos for fabric in fabrics}.values())
        self.assign_levels(used)
        self.divide(used)
        return tuple(
            Share(name=qos.name, sl=qos.sl or 0, bandwidth_percent=qos.percent or 0, high_priority=qos.high_priority)
            for qos in used
        )

    def assign_levels(self, used: list[_Qos]) -> None:
        """Assign the lowest unused SL to each class that names none."""
        owners: dict[int, _Qos] = {}
        for qos in used:
            if qos.sl is not None and owners.setdefault(qos.sl, qos) is not qos:
                owner = owners[qos.sl].name
                raise FileError(
                    self.path, qos.line, f"BaseSL {qos.sl}", f"an SL for {qos.name} that {owner} does not use"
                )
        free = [sl for sl in range(_SERVICE_LEVELS) if sl not in owners]
        wanting = [qos for qos in used if qos.sl is None]
        if len(wanting) > len(free):
            raise self.root.refuse(f"at most {_SERVICE_LEVELS} QOSGroups and Virtual Fabrics with QoS, not {len(used)}")
        for qos, sl in zip(wanting, free, strict=False):
            qos.sl = sl

    def divide(self, used: list[_Qos]) -> None:
        """Divide the rest of 100 % equally among classes without a share; the remainder goes to traffic without QoS."""
        total = sum(qos.percent or 0 for qos in used)
        with_qos = [qos for qos in used if qos is not self.without_qos]
        open_ones = [qos for qos in with_qos if qos.percent is None and not qos.high_priority]
        without = len(with_qos) < len(used)
        left = 100 - total
        if left < len(open_ones) + _LEAST_WITHOUT_QOS * without:
            raise self.root.refuse(
                f"bandwidths of at most 100 % with 1 % for each that names none and {_LEAST_WITHOUT_QOS} % for those "
                f"without QoS, not {total} %"
            )
        slices = len(open_ones) + without
        if without:
            self.without_qos.percent = max(left - left // slices * (slices - 1), _LEAST_WITHOUT_QOS)
            left -= self.without_qos.percent
        for number, qos in enumerate(open_ones):
            qos.percent = left // (len(open_ones) - number)
            left -= qos.percent

    # -- multicast --------------------------------------------------------------------------------------------------

    def multicast_groups(self, fabrics: list[_Fabric]) -> dict[int, list[Group]]:
        """Return P_Key -> groups that exist before any port joins."""
        groups: dict[int, list[Group]] = {}
        for section in self.sections:
            for element in section.below("Sm", "Multicast", "MulticastGroup"):
                if element.flag("Create"):
                    for fabric in self.owners(element, fabrics):
                        self.add_groups(groups.setdefault(fabric.p_key or 0, []), element, fabric)
        return groups

    def owners(self, element: Element, fabrics: list[_Fabric]) -> list[_Fabric]:
        name, p_key = element.string("VirtualFabric"), element.number("PKey", 1, 0x7FFF)
        owners = [fabric for fabric in fabrics if name in ("", fabric.name) and p_key in (None, fabric.p_key)]
        if not owners:
            self.note(
                element, f"no enabled Virtual Fabric is meant by {name or p_key}: its multicast groups are left out"
            )
        return owners

    def add_groups(self, groups: list[Group], element: Element, fabric: _Fabric) -> None:
        mgids = [mgid_of(entry) for entry in element.all("MGID")]
        ip = not mgids
        flags = {
            "mtu": self.code(element, "MTU", _MTU, DEFAULT_MTU),
            "rate": self.code(element, "Rate", _RATE, _RATE["25g"]),
            "sl": fabric.qos.sl or 0,
            "q_key": element.number("QKey", 0, 0xFFFFFFFF) or (IPOIB_Q_KEY if ip else 0),
            "t_class": element.number("TClass", 0, 0xFF) or 0,
            "flow_label": element.number("FlowLabel", 0, 0xFFFFF) or 0,
        }
        existing = {group.mgid for group in groups}
        new = mgids or [with_p_key(mgid, fabric.p_key or 0) for mgid in _IPOIB]
        groups += [Group(mgid=entry, scope=int(entry) >> 112 & 0xF, **flags) for entry in new if entry not in existing]

    def code(self, element: Element, tag: str, codes: dict[str, int], default: int) -> int:
        word = element.string(tag).lower()
        if not word:
            return default
        if word not in codes:
            raise element.refuse(f"<{tag}> to be one of {', '.join(codes)}")
        if word in ("75g", "8192", "10240"):
            self.note(element, f"InfiniBand has no {tag} {word}: the next lower is used")
        return codes[word]
