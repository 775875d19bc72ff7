"""Hold the run-time configuration of a subnet manager: partitions, and lanes for their traffic.

    files of the operator  +  run-time changes  ->  the partitions that ports get

A P_Key that a file defines cannot be changed at run time. Run-time changes are stored in one file beside the state,
written atomically, so that a manager which was killed restores them. There is no count of changes: `revision` is a
digest of the run-time configuration, so equal configurations have equal revisions.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from weft.errors import ConfigError, FileError
from weft.fabric.files.atomic import write_atomically
from weft.sm.conf.qos_options import Qos, QosOptions
from weft.sm.pkey.definitions import MemberDefinition, PartitionDefinition
from weft.sm.pkey.partitions import DEFAULT_P_KEY, Devices, Everyone, Member, Membership, Partition, Partitions

_RULES = 1 << 17  # more than a partition can have: rules are ordered by P_Key, not by arrival
_FULL = (Member(who=Everyone.ALL, membership=Membership.FULL),)
_LIMITED = (
    Member(who=Everyone.ALL, membership=Membership.LIMITED),
    Member(who=Everyone.SELF, membership=Membership.FULL),
)


class Saved(msgspec.Struct, frozen=True, kw_only=True):
    """A runtime configuration as it is stored, and as it goes over the socket."""

    revision: str = ""
    partitions: tuple[PartitionDefinition, ...] = ()
    qos: dict[str, Any] | None = None  # the fields of QosOptions; None: QoS is as the files say
    default_is_full: bool | None = None  # over the socket: as it is; in the file None: as the files say
    taken: tuple[int, ...] = ()  # P_Keys of the files


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeConfig:
    definitions: Mapping[int, PartitionDefinition] = field(default_factory=dict)  # by P_Key
    partitions: Mapping[int, Partition] = field(default_factory=dict)  # the same
    qos: QosOptions | None = None
    default_is_full: bool | None = None  # None: not set


NOTHING = RuntimeConfig()


# -- files and run-time changes ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class FileConfig:
    """The configuration that the files define."""

    partitions: Partitions
    qos: Qos | None = None

    @property
    def taken(self) -> tuple[int, ...]:
        return tuple(
            sorted(partition.p_key for partition in self.partitions.partitions if partition.p_key != DEFAULT_P_KEY)
        )

    def with_runtime_config(self, runtime: RuntimeConfig) -> tuple[Partitions, Qos | None]:
        """Combine files and runtime configuration; raise ConfigError if they contradict each other."""
        both = sorted(set(self.taken) & runtime.definitions.keys())
        if both:
            mine, theirs = self.partitions.by_p_key(both[0]), runtime.partitions[both[0]]
            assert mine is not None
            raise ConfigError(
                f"the P_Key of {theirs.label} is refused: a file of the subnet manager has {mine.label}; "
                "take another, or take it out of the file"
            )
        partitions = _with_default(self.partitions.partitions, runtime.default_is_full)
        partitions += tuple(runtime.partitions[p_key] for p_key in sorted(runtime.partitions))
        return replace(self.partitions, partitions=partitions), self.qos if runtime.qos is None else Qos.of(runtime.qos)


def _with_default(partitions: tuple[Partition, ...], is_full: bool | None) -> tuple[Partition, ...]:
    if is_full is None or is_full == default_is_full(partitions):
        return partitions
    default = _default(partitions)
    ruled = [member for member in default.members if member.line]
    if ruled:
        membership, rule = ("full", "ALL=full") if is_full else ("limited", "ALL=limited, SELF=full")
        raise ConfigError(
            f"ports are not made {membership} members of Default: line {ruled[0].line} of the partitions' file says "
            f"{ruled[0].label}; take it out, or write {rule}"
        )
    changed_default = replace(default, members=_FULL if is_full else _LIMITED)
    return tuple(changed_default if partition is default else partition for partition in partitions)


def default_is_full(partitions: Iterable[Partition]) -> bool:
    """Return whether every port is a full member of Default unless a rule says otherwise."""
    rules = [member.membership for member in _default(partitions).members if member.who is Everyone.ALL]
    return bool(rules) and rules[-1] is not Membership.LIMITED


def _default(partitions: Iterable[Partition]) -> Partition:
    return next(partition for partition in partitions if partition.p_key == DEFAULT_P_KEY)


def described(files: FileConfig, runtime: RuntimeConfig) -> Saved:
    """Return the runtime configuration and its revision, for clients of the socket."""
    partitions, _ = files.with_runtime_config(runtime)
    effective = replace(runtime, default_is_full=default_is_full(partitions.partitions))
    saved = _saved(effective, files.taken)
    digest = hashlib.blake2b(msgspec.json.encode(saved), digest_size=12).hexdigest()
    return msgspec.structs.replace(saved, revision=digest)


def _saved(runtime: RuntimeConfig, file_p_keys: tuple[int, ...] = ()) -> Saved:
    return Saved(
        partitions=tuple(runtime.definitions[p_key] for p_key in sorted(runtime.definitions)),
        qos=qos_fields(runtime.qos),
        default_is_full=runtime.default_is_full,
        taken=file_p_keys,
    )


# -- changes ----------------------------------------------------------------------------------------------------------


def changed(
    runtime: RuntimeConfig,
    files: FileConfig,
    *,
    define: Iterable[PartitionDefinition] = (),
    remove: Iterable[int] = (),
    qos: QosOptions | None,
    default_is_full: bool | None,
) -> RuntimeConfig:
    """Return the configuration with definitions added, replaced or removed; raise ConfigError if it is invalid."""
    new = {definition.p_key: definition for definition in define}
    removed = set(remove)
    definitions = {p_key: old for p_key, old in runtime.definitions.items() if p_key not in removed} | new
    has_lanes = [lanes is not None or files.qos is not None for lanes in (runtime.qos, qos)]
    if has_lanes[0] != has_lanes[1]:
        new = definitions  # service levels have or lose their effect
    partitions = {
        p_key: new[p_key].partition(lanes=has_lanes[1], rank=(p_key + 1) * _RULES)
        if p_key in new
        else runtime.partitions[p_key]
        for p_key in definitions
    }
    result = RuntimeConfig(definitions=definitions, partitions=partitions, qos=qos, default_is_full=default_is_full)
    files.with_runtime_config(result)
    return result


def adopted(partitions: Partitions, files: FileConfig) -> tuple[FileConfig, RuntimeConfig]:
    """Return the configuration of a manager without partitions of its own that adopts those of the ports."""
    base = replace(files, partitions=Partitions(partitions=(_default(partitions.partitions),)))
    define = [_definition(partition) for partition in partitions.partitions if partition.p_key != DEFAULT_P_KEY]
    return base, changed(NOTHING, base, define=define, qos=None, default_is_full=None)


def _definition(partition: Partition) -> PartitionDefinition:
    """Return the definition of a partition that was read from the ports."""
    members = tuple(
        MemberDefinition(member.who, member.membership, member.index0)
        for member in partition.members
        if not isinstance(member.who, Devices)  # never in ports
    )
    return PartitionDefinition(name=partition.name, p_key=partition.p_key, members=members)


# -- its file ---------------------------------------------------------------------------------------------------------


def allocation_file(state_file: Path) -> Path:
    return state_file.with_suffix(".allocation")


def write_runtime_config(path: Path, runtime: RuntimeConfig) -> None:
    write_atomically(path, msgspec.json.format(msgspec.json.encode(_saved(runtime)), indent=1) + b"\n")


def read_runtime_config(path: Path, files: FileConfig) -> RuntimeConfig:
    """Read the runtime configuration of a file; return an empty one if the file does not exist."""
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return NOTHING
    try:
        saved = msgspec.json.decode(text, type=Saved)
        qos = None if saved.qos is None else read_qos(saved.qos)
        return changed(NOTHING, files, define=saved.partitions, qos=qos, default_is_full=saved.default_is_full)
    except (msgspec.MsgspecError, ConfigError) as error:
        raise FileError(
            path,
            None,
            str(error),
            "a file of weft's subnet manager; delete it to start without partitions",
        ) from None


def qos_fields(qos: QosOptions | None) -> dict[str, Any] | None:
    """Return the fields that are set, for JSON."""
    return None if qos is None else {name: value for name, value in asdict(qos).items() if value is not None}


def read_qos(fields: Mapping[str, Any]) -> QosOptions:
    """Return options from JSON, which has no tuples; raise ConfigError if they are invalid."""
    try:
        return msgspec.convert(fields, QosOptions)
    except msgspec.ValidationError as error:
        raise ConfigError(f"qos {dict(fields)} is refused: {error}") from None
