"""The files that options name, as they stand now: partitions, virtual fabrics, QoS; and options that do nothing."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING

from weft.errors import ConfigError, FileError
from weft.fabric.files.text import read_text
from weft.ids import Guid
from weft.sm.allocation import NOTHING, FileConfig, allocation_file, read_runtime_config
from weft.sm.conf.options import Options, named_file
from weft.sm.conf.qos_options import Qos
from weft.sm.events import Event
from weft.sm.pkey.partitions import NO_FILE, Partitions
from weft.sm.qos.tables import from_shares
from weft.sm.state import State
from weft.units import format_items

if TYPE_CHECKING:
    from weft.sm.qos.policy import Policy

# Options with a default of OpenSM's that weft keeps in the file, and does not follow: what to do instead.
_NOT_FOLLOWED = {
    "guid": "say where with --at HOST, or --umad ADAPTER",
    "lmc_esp0": "port 0 of a switch has one LID",
    "max_wire_smps": "as many MADs are under way as the port takes",
    "babbling_port_policy": "a port that flaps is left out, see flap_limit",
    "node_name_map_name": "nodes go by their descriptions",
    "cc_max_outstanding_mads": "as many MADs are under way as the port takes",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """The configuration of all files."""

    partitions: Partitions
    qos: Qos | None
    policy: Policy | None
    roots: tuple[int, ...]


def read_configuration(options: Options) -> Configuration:
    """Read the files that the options name; raise ConfigError if one is invalid. Import their parsers on demand."""
    partitions, qos = NO_FILE, options.port_qos
    if options.virtual_fabrics_file is not None:
        from weft.sm.opafm.virtual_fabrics import parse_virtual_fabrics

        fabrics = parse_virtual_fabrics(read_text(options.virtual_fabrics_file), options.virtual_fabrics_file)
        partitions = fabrics.partitions
        qos = from_shares(fabrics.shares) if fabrics.shares else qos
    elif (file := named_file(options.partition_config_file)) is not None:
        from weft.sm.pkey.partitions_conf import parse_partitions

        partitions = parse_partitions(read_text(file), file, qos=options.qos)
    policy = None
    if options.qos and (file := named_file(options.qos_policy_file)) is not None:
        from weft.sm.qos.policy import parse_policy

        policy = parse_policy(read_text(file), file)
    roots = () if options.root_guid_file is None else _read_guids(options.root_guid_file)
    return Configuration(partitions=partitions, qos=qos, policy=policy, roots=roots)


def _read_guids(path: Path) -> tuple[int, ...]:
    """Read one GUID per line; # starts a comment."""
    guids = []
    for number, line in enumerate(read_text(path).split("\n"), 1):
        text = line.partition("#")[0].strip()
        if text:
            try:
                guids.append(int(Guid.parse(text)))
            except ConfigError:
                raise FileError(path, number, text, "the GUID of a switch, 0x0002c90300001230") from None
    return tuple(guids)


def load_configuration(state: State) -> None:
    """Read all files again; ConfigError, and all stays as it was, if one of them cannot be used."""
    options = state.options
    read = read_configuration(options)
    filed = FileConfig(partitions=read.partitions, qos=read.qos)
    file = None if options.state_file is None else allocation_file(options.state_file)
    state.merge(filed, NOTHING if file is None else read_runtime_config(file, filed))
    state.policy, state.roots = read.policy, read.roots
    if state.told != NOTHING:
        summary = f"{format_items(len(state.told.definitions), 'partition')} of {file}"
        state.log.say_once(Event.PARTITIONS, f"restored run-time configuration: {summary}; delete it to reset")
    for note in read.partitions.notes:
        state.log.say_once(Event.PARTITIONS, note)
    for note in read.policy.notes if read.policy is not None else ():
        state.log.say_once(Event.QOS, note)
    for text in _without_effect(options):
        state.log.say_once(Event.OPTION_IGNORED, text)


def was_given_partitions(state: State) -> bool:
    """Return whether partitions were given by a file or over the socket."""
    options = state.options
    return bool(named_file(options.partition_config_file) or options.virtual_fabrics_file) or state.told != NOTHING


def _without_effect(options: Options) -> list[str]:
    """Return the options that were set and have no effect, so that an operator does not rely on them."""
    ours = [
        f"{option.name} {getattr(options, option.name)}: not followed; {_NOT_FOLLOWED[option.name]}"
        for option in fields(Options)
        if option.name in _NOT_FOLLOWED and getattr(options, option.name) != option.default
    ]
    return ours + [f"{name} {value}: weft's subnet manager has no use for it" for name, value in options.ignored]
