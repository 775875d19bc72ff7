"""qos-policy.conf: which service level, and which limits, a path record gets.

    qos-levels                              qos-match-rules                        qos-ulps
      qos-level                               qos-match-rule                         default      : 0
        name: storage                           destination: targets                 ipoib        : 3
        sl: 2                                   qos-level-name: storage              sdp, port-num 10000-20000 : 1
      end-qos-level                           end-qos-match-rule                   end-qos-ulps
    end-qos-levels                          end-qos-match-rules

The first rule that matches wins: those of qos-match-rules, then those of qos-ulps, then the level DEFAULT. A rule that
asks for something that the query does not say does not match. Names are compared without regard to case and blanks.

`source-target-port-guid` is as OpenSM does it and not as its document says: both ends must be among the GUIDs.
`port-name` is as the document says: OpenSM loses the blanks of a node description that is not in quotes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn, TypeVar

from weft.errors import FileError
from weft.fabric.kinds import NodeKind
from weft.sm.conf.option_values import read_number

_T = TypeVar("_T")
Ranges = tuple[tuple[int, int], ...]  # (first, last)

_IPOIB_P_KEY = 0x7FFF
_P_KEY, _PORT, _CLASS, _LONG = 0xFFFF, 0xFFFF, 0xFFF, (1 << 64) - 1

_SECTIONS = ("port-groups", "qos-setup", "qos-levels", "qos-match-rules", "qos-ulps")
_NODE_TYPES = {
    "CA": {NodeKind.HCA, NodeKind.AGGREGATION},
    "SWITCH": {NodeKind.SWITCH},
    "ROUTER": {NodeKind.ROUTER},
    "ALL": set(NodeKind),
    "SELF": set[NodeKind](),
}
_KEYS = {
    "port-group": ("name", "use", "port-guid", "port-name", "pkey", "partition", "node-type"),
    "qos-level": ("name", "use", "sl", "mtu-limit", "rate-limit", "pkey", "packet-life", "path-bits"),
    "qos-match-rule": ("use", "qos-class", "source", "destination", "service-id", "pkey", "qos-level-name"),
}
_ONCE = {"name", "use", "sl", "mtu-limit", "rate-limit", "packet-life", "qos-level-name"}


@dataclass(frozen=True, slots=True, kw_only=True)
class PortIdentity:
    """The properties of a port that a policy can match."""

    guid: int
    node_description: str = ""
    number: int = 1
    kind: NodeKind = NodeKind.HCA
    is_self: bool = False  # the subnet manager's own
    p_keys: frozenset[int] = frozenset()  # its partitions, as full or limited member
    partitions: frozenset[str] = frozenset()  # their names


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """A QoS level of paths; None and empty: no limit."""

    name: str
    sl: int
    mtu_limit: int | None = None  # code: 1 is 256 bytes, 5 is 4096
    rate_limit: int | None = None  # code, as in a path record
    packet_life: int | None = None  # code: 4.096 us x 2^code
    p_key: Ranges = ()  # partitions that a path may be in, without the bit of membership

    def allows(self, p_key: int) -> bool:
        return not self.p_key or _within(self.p_key, p_key & 0x7FFF)


@dataclass(frozen=True, slots=True, kw_only=True)
class PortGroup:
    name: str
    guids: Ranges = ()
    ports: frozenset[tuple[str, int]] = frozenset()  # node description, port number
    p_keys: Ranges = ()
    partitions: frozenset[str] = frozenset()
    kinds: frozenset[NodeKind] = frozenset()
    has_self: bool = False

    def holds(self, port: PortIdentity) -> bool:
        return (
            port.kind in self.kinds
            or (self.has_self and port.is_self)
            or (port.node_description, port.number) in self.ports
            or not self.partitions.isdisjoint(port.partitions)
            or _within(self.guids, port.guid)
            or any(_within(self.p_keys, p_key & 0x7FFF) for p_key in port.p_keys)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A rule of a policy; all fields that are not empty must match."""

    level: Level
    sources: tuple[PortGroup, ...] = ()
    destinations: tuple[PortGroup, ...] = ()
    p_keys: Ranges = ()
    qos_classes: Ranges = ()
    service_ids: Ranges = ()

    def matches(
        self,
        source: PortIdentity,
        destination: PortIdentity,
        p_key: int | None,
        qos_class: int | None,
        service_id: int | None,
    ) -> bool:
        return (
            (not self.sources or any(group.holds(source) for group in self.sources))
            and (not self.destinations or any(group.holds(destination) for group in self.destinations))
            and (not self.qos_classes or _within(self.qos_classes, qos_class))
            and (not self.service_ids or _within(self.service_ids, service_id))
            and (not self.p_keys or _within(self.p_keys, None if p_key is None else p_key & 0x7FFF))
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    default: Level
    rules: tuple[Rule, ...] = ()
    notes: tuple[str, ...] = ()  # lines of the file without effect

    def level_for(
        self,
        *,
        source: PortIdentity,
        destination: PortIdentity,
        p_key: int | None = None,
        qos_class: int | None = None,
        service_id: int | None = None,
    ) -> Level:
        """Return the level for a path query; None matches any value."""
        query = (source, destination, p_key, qos_class, service_id)
        return next((rule.level for rule in self.rules if rule.matches(*query)), self.default)


def _within(ranges: Ranges, number: int | None) -> bool:
    return number is not None and any(first <= number <= last for first, last in ranges)


# -- the file ----------------------------------------------------------------------------------------------------------


def parse_policy(text: str, path: Path | str) -> Policy:
    """Read a policy; raise FileError for what OpenSM refuses, and for numbers out of range that it accepts."""
    return _Parser(text, path).parse()


@dataclass(slots=True)
class _Block:
    """A port group, a level or a rule: what its lines say, and where."""

    kind: str
    line: int
    said: dict[str, list[tuple[int, str]]] = field(default_factory=dict)


class _Parser:
    def __init__(self, text: str, path: Path | str) -> None:
        self.path = path
        stripped = enumerate(map(_without_comment, text.split("\n")), 1)
        self.lines = iter([(number, line) for number, line in stripped if line])
        self.groups: dict[str, PortGroup] = {}
        self.levels: dict[str, Level] = {}
        self.rules: list[_Block] = []
        self.ulps: list[Rule] = []
        self.default: Level | None = None
        self.notes: list[str] = []

    def refuse(self, line: int | None, read: str, expected: str) -> NoReturn:
        raise FileError(self.path, line, read, expected)

    def parse(self) -> Policy:
        for line, section in self.lines:
            if section not in _SECTIONS:
                self.refuse(line, section, f"a section: {', '.join(_SECTIONS)}")
            elif section == "qos-setup":
                list(self.until(line, section))
                self.notes.append(f"{self.path}:{line}: qos-setup has no effect, as in OpenSM: set qos_* options")
            elif section == "qos-ulps":
                self.read_ulps(line)
            else:
                self.read_blocks(line, section)
        default = self.levels.get("default", self.default)
        if default is None:
            self.refuse(None, "no level DEFAULT", "a qos-level with the name DEFAULT, or `default : 0` in qos-ulps")
        rules = (*(self.rule(block) for block in self.rules), *self.ulps)
        return Policy(default=default, rules=rules, notes=tuple(self.notes))

    def until(self, start: int, section: str) -> Iterator[tuple[int, str]]:
        for line, text in self.lines:
            if text == f"end-{section}":
                return
            yield line, text
        self.refuse(start, section, f"end-{section} somewhere after it")

    def read_blocks(self, start: int, section: str) -> None:
        kind = section.removesuffix("s")
        count = 0
        for line, text in self.until(start, section):
            if text != kind:
                self.refuse(line, text, f"{kind} or end-{section}")
            count += 1
            self.add(self.read_block(kind, line))
        if section == "port-groups" and not count:
            self.refuse(start, section, "one port-group at least")

    def read_block(self, kind: str, start: int) -> _Block:
        block = _Block(kind, start)
        for line, text in self.until(start, kind):
            key, colon, value = (part.strip() for part in text.partition(":"))
            if not colon or key not in _KEYS[kind] or not value:
                self.refuse(line, text, f"a value for one of {', '.join(_KEYS[kind])}, or end-{kind}")
            if key in block.said and key in _ONCE:
                self.refuse(line, text, f"{key} once in a {kind}")
            block.said.setdefault(key, []).append((line, value))
        return block

    def add(self, block: _Block) -> None:
        required = {"port-group": ("name",), "qos-level": ("name", "sl"), "qos-match-rule": ("qos-level-name",)}
        for key in required[block.kind]:
            if key not in block.said:
                self.refuse(block.line, f"a {block.kind} without {key}", f"{key} in every {block.kind}")
        if block.kind == "qos-match-rule":
            self.rules.append(block)  # it may refer to later lines
            return
        name = _unquoted(block.said["name"][0][1])
        existing: dict[str, PortGroup] | dict[str, Level] = self.groups if block.kind == "port-group" else self.levels
        if _key(name) in existing:
            self.notes.append(f"{self.path}:{block.line}: {block.kind} {name} is there already: the first counts")
        elif block.kind == "port-group":
            self.groups[_key(name)] = self.group(name, block)
        else:
            self.levels[_key(name)] = self.level(name, block)

    # -- what blocks mean

    def group(self, name: str, block: _Block) -> PortGroup:
        types = self.each(block, "node-type", self.node_type)
        return PortGroup(
            name=name,
            guids=self.ranges(block, "port-guid", _LONG),
            ports=frozenset(self.each(block, "port-name", self.port_name)),
            p_keys=self.ranges(block, "pkey", _P_KEY),
            partitions=frozenset(self.each(block, "partition", lambda line, text: text)),
            kinds=frozenset(kind for node_type in types for kind in _NODE_TYPES[node_type]),
            has_self="SELF" in types,
        )

    def level(self, name: str, block: _Block) -> Level:
        if "path-bits" in block.said:
            self.notes.append(f"{self.path}:{block.line}: path-bits of level {name} have no effect, as in OpenSM")
        return Level(
            name=name,
            sl=self.checked(*block.said["sl"][0], 0, 15),
            mtu_limit=self.number(block, "mtu-limit", 1, 5),
            rate_limit=self.number(block, "rate-limit", 2, 24),
            packet_life=self.number(block, "packet-life", 0, 63),
            p_key=self.ranges(block, "pkey", _P_KEY),
        )

    def rule(self, block: _Block) -> Rule:
        ((line, name),) = block.said["qos-level-name"]
        level = self.levels.get(_key(name))
        if level is None:
            names = ", ".join(level.name for level in self.levels.values())
            self.refuse(line, name, f"the name of a qos-level: {names}")
        return Rule(
            level=level,
            sources=tuple(self.each(block, "source", self.known_group)),
            destinations=tuple(self.each(block, "destination", self.known_group)),
            p_keys=self.ranges(block, "pkey", _P_KEY),
            qos_classes=self.ranges(block, "qos-class", _CLASS),
            service_ids=self.ranges(block, "service-id", _LONG),
        )

    def each(self, block: _Block, key: str, read: Callable[[int, str], _T]) -> list[_T]:
        return [read(line, text) for line, value in block.said.get(key, ()) for text in _split(value)]

    def node_type(self, line: int, text: str) -> str:
        if text.upper() not in _NODE_TYPES:
            self.refuse(line, text, f"a node type: {', '.join(_NODE_TYPES)}")
        return text.upper()

    def port_name(self, line: int, text: str) -> tuple[str, int]:
        match = re.fullmatch(r"(.*)/[Pp]([0-9]{1,3})", text)
        if match is None or not int(match[2]):
            self.refuse(line, text, "node description and port number, as vs1 HCA-1/P1")
        return match[1], int(match[2])

    def known_group(self, line: int, text: str) -> PortGroup:
        if _key(text) not in self.groups:
            self.refuse(line, text, f"a port-group: {', '.join(group.name for group in self.groups.values())}")
        return self.groups[_key(text)]

    def number(self, block: _Block, key: str, low: int, high: int) -> int | None:
        return self.checked(*block.said[key][0], low, high) if key in block.said else None

    def checked(self, line: int, text: str, low: int, high: int) -> int:
        try:
            value = read_number(text)
        except ValueError:
            value = -1
        if not low <= value <= high:
            self.refuse(line, text, f"a number from {low} to {high if high < _LONG else '2^64 - 1'}")
        return value

    def ranges(self, block: _Block, key: str, high: int) -> Ranges:
        return tuple(self.each(block, key, lambda line, text: self.range(line, text, key, high)))

    def range(self, line: int, text: str, key: str, high: int) -> tuple[int, int]:
        """Read `7` or `7-9`, in either order; P_Keys lose the membership bit, as in OpenSM."""
        ends = [self.checked(line, end.strip(), 0, high) for end in text.split("-", 1)]
        if key == "pkey":
            ends = [end & 0x7FFF for end in ends]
        return min(ends), max(ends)

    # -- qos-ulps

    def read_ulps(self, start: int) -> None:
        count = 0
        for line, text in self.until(start, "qos-ulps"):
            match = _ULP.fullmatch(text)
            if match is None:
                self.refuse(line, text, "a match, a colon and a service level: `sdp, port-num 30000 : 2`")
            count += 1
            sl = self.checked(line, match["sl"], 0, 15)
            if match["ulp"].lower() == "default" and match["key"] is None:
                self.default = Level(name="SimpleQoSLevel_DEFAULT", sl=sl)
            else:
                level = Level(name=f"SimpleQoSLevel_SL{sl}", sl=sl)
                self.ulps.append(self.ulp(line, match["ulp"].lower(), match["key"], match["list"], level))
        if not count:
            self.refuse(start, "qos-ulps", "one rule at least")

    def ulp(self, line: int, ulp: str, key: str | None, value: str | None, level: Level) -> Rule:
        """Return the rule of a ULP, which is identified by service ID, partition or port."""
        if ulp in _ULP_SERVICES and key in (None, "port-num"):
            base, first, last = _ULP_SERVICES[ulp]
            ports = ((first, last),) if value is None else self.listed(line, value, "port-num", _PORT)
            return Rule(level=level, service_ids=tuple((base + low, base + high) for low, high in ports))
        if ulp == "ipoib" and key is None:
            return Rule(level=level, p_keys=((_IPOIB_P_KEY, _IPOIB_P_KEY),))
        if value is None or key not in _ULP_KEYS.get(ulp, ()):
            forms = "; ".join(f"{name}, {form}" for name, keys in _ULP_KEYS.items() for form in keys)
            self.refuse(line, f"{ulp}, {key}" if key else ulp, f"default; sdp; rds; iser; ipoib; {forms}")
        if key == "pkey":
            return Rule(level=level, p_keys=self.listed(line, value, key, _P_KEY))
        if key == "service-id":
            return Rule(level=level, service_ids=self.listed(line, value, key, _LONG))
        group = (PortGroup(name=f"{ulp}, {key}", guids=self.listed(line, value, key, _LONG)),)
        at_source, at_target = key.startswith("source"), key.endswith("target-port-guid")
        return Rule(level=level, sources=group if at_source else (), destinations=group if at_target else ())

    def listed(self, line: int, text: str, key: str, high: int) -> Ranges:
        return tuple(self.range(line, part, key, high) for part in _split(text))


_ULP = re.compile(r"(?P<ulp>\w+)(?:\s*,\s*(?P<key>[a-z-]+)\s+(?P<list>[^:]+?))?\s*:\s*(?P<sl>\w+)")
_ULP_SERVICES = {  # service ID of TCP port 0, and the ports that are meant where none is said
    "sdp": (0x10000, 0, _PORT),
    "rds": (0x1060000, 0x48CA, 0x48CA),
    "iser": (0x1060000, 0x0CBC, 0x0CBC),
}
_ULP_KEYS = {
    **dict.fromkeys(_ULP_SERVICES, ("port-num",)),
    "srp": ("target-port-guid",),
    "ipoib": ("pkey",),
    "any": ("service-id", "pkey", "target-port-guid", "source-port-guid", "source-target-port-guid"),
}


def _without_comment(line: str) -> str:
    return re.sub(r'("[^"]*")|#.*', lambda match: match[1] or "", line).strip()


def _split(value: str) -> list[str]:
    """Split a list at commas outside of quotes."""
    return [_unquoted(part) for part in re.split(r',(?=(?:[^"]*"[^"]*")*[^"]*$)', value)]


def _unquoted(text: str) -> str:
    return text.replace('"', "").strip()


def _key(name: str) -> str:
    return "".join(name.split()).replace('"', "").lower()
