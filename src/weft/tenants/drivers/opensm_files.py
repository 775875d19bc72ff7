"""An allocation in OpenSM's files: partitions.conf, and what opensm.conf says of lanes.

The operator's own definitions stay, and their P_Keys are taken. Where he has a rule for Default that rule counts, and
an allocation that wants it otherwise is refused, with the line. An SL needs no file of policies: OpenSM gives a
partition's `sl=` to the paths within it.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, fields, replace
from pathlib import Path

from weft.errors import ConfigError
from weft.sm.conf.options import Options, parse_options
from weft.sm.conf.qos_options import QosOptions, write_vlarb
from weft.sm.pkey.partitions import DEFAULT_P_KEY, NO_FILE, Everyone, Membership, Partitions
from weft.sm.pkey.partitions import Member as MemberRule
from weft.sm.pkey.partitions import Partition as PartitionDefinition
from weft.sm.pkey.partitions_conf import parse_partitions
from weft.tenants.drivers.driver import Observed
from weft.tenants.drivers.managed_block import Managed, read_managed, write_managed
from weft.tenants.drivers.partition_files import read_definitions, write_definitions, write_partitions
from weft.tenants.partitions import Allocation, Partition

# Engines that put paths on service levels against deadlock. OpenSM does not tell how many they took.
_NEED_SLS = {"dfsssp", "lash", "nue", "torus-2QoS"}
_OFF = "qos FALSE\n"  # a name that is gone from the file leaves OpenSM with what it read before


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenSmFiles:
    """What both files hold."""

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
        """1, or 2 for more than one."""
        engines = re.findall(r"^\s*routing_engine\s+(.*)", self.options.text, re.MULTILINE)
        return 1 + bool(_NEED_SLS & set(re.split(r"[,\s]+", ",".join(engines))))

    def all_partitions(self) -> Partitions:
        """Of both authors, as OpenSM reads them; FileError if it would drop the file."""
        return parse_partitions(self.partitions.text, self.partitions_path)

    def observed(self) -> Observed:
        allocation = Allocation(
            partitions=read_definitions(self.partitions.body, str(self.partitions_path))
            if self.partitions.body
            else {},
            default_is_full=_default_is_full(self.all_partitions()),
            lanes=_lanes(self.options.body, self.options_path),
        )
        return Observed(allocation=allocation, taken=frozenset(self._theirs()), revision=self.revision)

    def with_allocation(self, wanted: Allocation) -> OpenSmFiles:
        """ConfigError, or FileError, if the files cannot hold it beside what is theirs."""
        theirs = self._theirs()
        for one in wanted.partitions.values():
            if one.p_key in theirs:
                raise ConfigError(
                    f"the P_Key of {one.label} is taken: {self.partitions_path} has {theirs[one.p_key].label}; "
                    "take another, or take it out there"
                )
        made = replace(
            self,
            partitions=replace(self.partitions, body=self._body(wanted)),
            options=replace(self.options, body=self._options_body(wanted.lanes)),
        )
        if made.partitions.body != self.partitions.body:
            made.all_partitions()
        return made

    def expected(self) -> tuple[list[Partition], frozenset[int], bool | None]:
        """What ports shall hold: partitions, P_Keys that are not ours, and Default if that is ours."""
        seen = self.observed()
        ruled = self._default_rules()
        return list(seen.allocation.partitions.values()), seen.taken, None if ruled else seen.allocation.default_is_full

    def opened(self) -> OpenSmFiles:
        return replace(self, partitions=replace(self.partitions, is_open=True))

    def closed(self) -> OpenSmFiles:
        return replace(self, partitions=replace(self.partitions, is_open=False))

    def write_partitions(self) -> None:
        write_managed(self.partitions_path, self.partitions)

    def write_options(self) -> None:
        write_managed(self.options_path, self.options)

    def _theirs(self) -> dict[int, PartitionDefinition]:
        """Without Default, which everybody shares."""
        said = parse_partitions(self.partitions.outside, self.partitions_path)
        return {one.p_key: one for one in (*said.partitions, *said.empty) if one.p_key != DEFAULT_P_KEY}

    def _default_rules(self) -> list[MemberRule]:
        """Theirs."""
        said = parse_partitions(self.partitions.outside, self.partitions_path)
        return [member for member in _default(said).members if member.line]

    def _body(self, wanted: Allocation) -> str:
        said = parse_partitions(self.partitions.outside, self.partitions_path)
        ruled = self._default_rules()
        if ruled:
            if _default_is_full(said) != wanted.default_is_full:
                now, other = ("full", "limited") if _default_is_full(said) else ("limited", "full")
                raise ConfigError(
                    f"{self.partitions_path}:{ruled[0].line}: all ports are {now} members of Default by "
                    f"{ruled[0].label}, and shall be {other} ones: take that rule out, and weft writes its own"
                )
            return write_definitions(wanted.partitions.values())
        is_as_without = _default_is_full(said) == wanted.default_is_full
        return "" if not wanted.partitions and is_as_without else write_partitions(wanted)

    def _options_body(self, lanes: QosOptions | None) -> str:
        if lanes == _lanes(self.options.body, self.options_path):
            return self.options.body
        self._refuse_their_lanes()
        return _OFF if lanes is None else _write_lanes(lanes)

    def _refuse_their_lanes(self) -> None:
        """Two who set lanes: nobody knows what comes of it."""
        for number, line in enumerate(self.options.outside.split("\n"), 1):
            name = "".join(line.partition("#")[0].split()[:1])
            is_of_lanes = name.startswith("qos") and name != "qos_policy_file"
            if is_of_lanes and parse_options("\n" * (number - 1) + line, self.options_path) != Options():
                raise ConfigError(
                    f"{self.options_path}:{number}: {line.strip()} sets lanes, and so shall weft: take it out there"
                )


def load(partitions: Path, options: Path) -> OpenSmFiles:
    return OpenSmFiles(
        partitions_path=partitions,
        options_path=options,
        partitions=read_managed(partitions),
        options=read_managed(options),
    )


def _default(said: Partitions) -> PartitionDefinition:
    return said.by_p_key(DEFAULT_P_KEY) or NO_FILE.partitions[0]


def _default_is_full(said: Partitions) -> bool:
    rules = [one.membership for one in _default(said).members if one.who is Everyone.ALL]
    return bool(rules) and rules[-1] is not Membership.LIMITED


def _lanes(body: str, path: Path) -> QosOptions | None:
    said = parse_options(body, path)
    return said.qos_general if said.qos else None


def _write_lanes(lanes: QosOptions) -> str:
    lines = ["qos TRUE"]
    for field in fields(QosOptions):
        value = getattr(lanes, field.name)
        if value is not None:
            lists = {"sl2vl": lambda vls: ",".join(map(str, vls)), "vlarb_high": write_vlarb, "vlarb_low": write_vlarb}
            lines.append(f"qos_{field.name} {lists.get(field.name, str)(value)}")
    return "".join(f"{line}\n" for line in lines)
