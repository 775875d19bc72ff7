"""Partitions and lanes in OpenSM's files: partitions.conf and opensm.conf.

The operator's own definitions are not changed, and weft does not use their P_Keys. If the operator has a rule for
Default, an allocation that contradicts it is refused, with the line. Service levels need no QoS policy file: OpenSM
applies a partition's `sl=` to its paths.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, fields, replace
from pathlib import Path

from weft.errors import ConfigError, FileError
from weft.fabric.files.atomic import write_atomically
from weft.sm.conf.options import Options, parse_options
from weft.sm.conf.qos_options import QosOptions, write_vlarb
from weft.sm.pkey.partitions import DEFAULT_P_KEY, NO_FILE, Everyone, Membership, Partitions
from weft.sm.pkey.partitions import Member as MemberRule
from weft.sm.pkey.partitions import Partition as PartitionDefinition
from weft.sm.pkey.partitions_conf import parse_partitions
from weft.tenants.drivers.driver import Observed
from weft.tenants.drivers.partition_files import read_definitions, write_definitions, write_partitions
from weft.tenants.partitions import Allocation, Partition

# Routing engines that use service levels against deadlock. OpenSM does not report how many.
_NEED_SLS = {"dfsssp", "lash", "nue", "torus-2QoS"}
_OFF = "qos FALSE\n"  # OpenSM keeps the old value of an option that is removed from the file


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenSmFiles:
    """The contents of both files."""

    partitions_path: Path
    options_path: Path
    partitions: Managed
    options: Managed

    @property
    def revision(self) -> str:
        texts = (self.closed().partitions.text, self.options.text)
        return hashlib.blake2b(repr(texts).encode(), digest_size=12).hexdigest()

    @property
    def routing_sls(self) -> int:
        """The number of service levels that routing uses: 1, or 2 for several."""
        engines = re.findall(r"^\s*routing_engine\s+(.*)", self.options.text, re.MULTILINE)
        return 1 + bool(_NEED_SLS & set(re.split(r"[,\s]+", ",".join(engines))))

    def all_partitions(self) -> Partitions:
        """Parse the whole partitions.conf as OpenSM does. Raise FileError if OpenSM would reject it."""
        return parse_partitions(self.partitions.text, self.partitions_path)

    def observed(self) -> Observed:
        """Return the state that the files describe."""
        allocation = Allocation(
            partitions=read_definitions(self.partitions.body, str(self.partitions_path))
            if self.partitions.body
            else {},
            default_is_full=_default_is_full(self.all_partitions()),
            lanes=_lanes(self.options.body, self.options_path),
        )
        return Observed(allocation=allocation, foreign_p_keys=frozenset(self._theirs()), revision=self.revision)

    def with_allocation(self, desired: Allocation) -> OpenSmFiles:
        """Return the files with another allocation. Raise ConfigError if it conflicts with the operator's text."""
        theirs = self._theirs()
        for partition in desired.partitions.values():
            if partition.p_key in theirs:
                definition = theirs[partition.p_key].label
                raise ConfigError(
                    f"the P_Key of {partition.label} is taken: {self.partitions_path} has {definition}; "
                    "use another, or remove that definition"
                )
        files = replace(
            self,
            partitions=replace(self.partitions, body=self._body(desired)),
            options=replace(self.options, body=self._options_body(desired.lanes)),
        )
        if files.partitions.body != self.partitions.body:
            files.all_partitions()
        return files

    def expected(self) -> tuple[list[Partition], frozenset[int], bool | None]:
        """Return the expected partitions, foreign P_Keys, and Default's membership (None if the operator has rules)."""
        observed = self.observed()
        ruled = self._default_rules()
        return (
            list(observed.allocation.partitions.values()),
            observed.foreign_p_keys,
            None if ruled else observed.allocation.default_is_full,
        )

    def opened(self) -> OpenSmFiles:
        return replace(self, partitions=replace(self.partitions, is_open=True))

    def closed(self) -> OpenSmFiles:
        return replace(self, partitions=replace(self.partitions, is_open=False))

    def write_partitions(self) -> None:
        write_managed(self.partitions_path, self.partitions)

    def write_options(self) -> None:
        write_managed(self.options_path, self.options)

    def _theirs(self) -> dict[int, PartitionDefinition]:
        """Return the operator's definitions by P_Key, without Default."""
        parsed = parse_partitions(self.partitions.outside, self.partitions_path)
        return {
            definition.p_key: definition
            for definition in (*parsed.partitions, *parsed.empty)
            if definition.p_key != DEFAULT_P_KEY
        }

    def _default_rules(self) -> list[MemberRule]:
        """Return the operator's rules for Default."""
        parsed = parse_partitions(self.partitions.outside, self.partitions_path)
        return [member for member in _default(parsed).members if member.line]

    def _body(self, desired: Allocation) -> str:
        parsed = parse_partitions(self.partitions.outside, self.partitions_path)
        ruled = self._default_rules()
        if ruled:
            if _default_is_full(parsed) != desired.default_is_full:
                now, other = ("full", "limited") if _default_is_full(parsed) else ("limited", "full")
                raise ConfigError(
                    f"{self.partitions_path}:{ruled[0].line}: all ports are {now} members of Default by "
                    f"{ruled[0].label}, but must be {other} members: remove that rule, and weft writes its own"
                )
            return write_definitions(desired.partitions.values())
        is_as_without = _default_is_full(parsed) == desired.default_is_full
        return "" if not desired.partitions and is_as_without else write_partitions(desired)

    def _options_body(self, lanes: QosOptions | None) -> str:
        if lanes == _lanes(self.options.body, self.options_path):
            return self.options.body
        self._refuse_their_lanes()
        return _OFF if lanes is None else _write_lanes(lanes)

    def _refuse_their_lanes(self) -> None:
        """Raise ConfigError if the operator's part of opensm.conf sets lanes."""
        for number, line in enumerate(self.options.outside.split("\n"), 1):
            name = "".join(line.partition("#")[0].split()[:1])
            is_of_lanes = name.startswith("qos") and name != "qos_policy_file"
            if is_of_lanes and parse_options("\n" * (number - 1) + line, self.options_path) != Options():
                raise ConfigError(
                    f"{self.options_path}:{number}: {line.strip()} sets lanes, which weft has to set: remove the line"
                )


def load(partitions: Path, options: Path) -> OpenSmFiles:
    return OpenSmFiles(
        partitions_path=partitions,
        options_path=options,
        partitions=read_managed(partitions),
        options=read_managed(options),
    )


def _default(parsed: Partitions) -> PartitionDefinition:
    return parsed.by_p_key(DEFAULT_P_KEY) or NO_FILE.partitions[0]


def _default_is_full(parsed: Partitions) -> bool:
    rules = [member.membership for member in _default(parsed).members if member.who is Everyone.ALL]
    return bool(rules) and rules[-1] is not Membership.LIMITED


def _lanes(body: str, path: Path) -> QosOptions | None:
    parsed = parse_options(body, path)
    return parsed.qos_general if parsed.qos else None


def _write_lanes(lanes: QosOptions) -> str:
    lines = ["qos TRUE"]
    for field in fields(QosOptions):
        value = getattr(lanes, field.name)
        if value is not None:
            lists = {"sl2vl": lambda vls: ",".join(map(str, vls)), "vlarb_high": write_vlarb, "vlarb_low": write_vlarb}
            lines.append(f"qos_{field.name} {lists.get(field.name, str)(value)}")
    return "".join(f"{line}\n" for line in lines)


# A block at the end of an operator's file that weft writes, between two marks; all other bytes are unchanged.
#
#     Default=0x7fff, ipoib : ALL=limited, SELF=full ;       the operator's
#
#     # >>> weft tenants: written by weft, changes here are lost
#     acme=0x0101 : 0x0002c90300001231=full ;
#     # <<< weft tenants
#
# The empty line before the mark is part of the block: removing the block restores the file.

_BEGIN, _END = "# >>> weft tenants", "# <<< weft tenants"
_RULE = ": written by weft, changes here are lost"
_OPEN = " (not yet obeyed)"
_BLOCK = re.compile(
    rf"\n?^{re.escape(_BEGIN)}(?P<open>{re.escape(_OPEN)})?[^\n]*\n(?P<body>.*?)^{re.escape(_END)}[^\n]*(?:\n|\Z)",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Managed:
    """A file with the operator's text and weft's block."""

    outside: str = ""  # the operator's text
    body: str = ""  # weft's block
    is_open: bool = False  # it is unknown whether OpenSM has applied the block

    @property
    def text(self) -> str:
        if not self.body and not self.is_open:
            return self.outside
        blank = "\n" if self.outside else ""
        return f"{self.outside}{blank}{_BEGIN}{_OPEN if self.is_open else ''}{_RULE}\n{self.body}{_END}\n"


def read_managed(path: Path) -> Managed:
    """Read a file; a missing file is empty. Raise FileError if the marks do not pair."""
    try:
        text = path.read_bytes().decode("utf-8", "surrogateescape")  # the operator's text may have any encoding
    except FileNotFoundError:
        return Managed()
    except OSError as error:
        raise FileError(path, None, error.strerror or str(error), "a file that can be read") from None
    block = _BLOCK.search(text)
    if block is None:
        managed = Managed(outside=text)
    else:
        outside = text[: block.start()] + text[block.end() :]
        managed = Managed(outside=outside, body=block["body"], is_open=block["open"] is not None)
    for number, line in enumerate(text.split("\n"), 1):
        if line.startswith((_BEGIN, _END)) and line in managed.outside.split("\n"):
            raise FileError(
                path, number, line, f"one {_BEGIN!r} and after it one {_END!r}; remove the lines between them"
            )
    return managed


def write_managed(path: Path, managed: Managed) -> None:
    write_atomically(path, managed.text.encode("utf-8", "surrogateescape"))
