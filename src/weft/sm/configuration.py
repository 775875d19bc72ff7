"""The files that options name, as they stand now: partitions, virtual fabrics, QoS."""

from __future__ import annotations

from weft.fabric.files.text import read_text
from weft.sm.events import Event
from weft.sm.options import Options, named_file
from weft.sm.partition_file import read_partitions
from weft.sm.partitions import NO_FILE
from weft.sm.qos import from_shares
from weft.sm.qos_policy import parse_policy
from weft.sm.state import State
from weft.sm.virtual_fabrics import read_virtual_fabrics


def load_configuration(state: State) -> None:
    """Read all files again; ConfigError, and all stays as it was, if one of them cannot be used."""
    options: Options = state.options
    partitions, qos = NO_FILE, options.port_qos
    if options.virtual_fabrics_file is not None:
        fabrics = read_virtual_fabrics(options.virtual_fabrics_file)
        partitions = fabrics.partitions
        qos = from_shares(fabrics.shares) if fabrics.shares else qos
    elif (file := named_file(options.partition_config_file)) is not None:
        partitions = read_partitions(file)
    policy = None
    if options.qos and (file := named_file(options.qos_policy_file)) is not None:
        policy = parse_policy(read_text(file), file)
    state.partitions, state.qos, state.policy = partitions, qos, policy
    for note in partitions.notes:
        state.log.say_once(Event.PARTITIONS, note)
    for note in policy.notes if policy is not None else ():
        state.log.say_once(Event.QOS, note)
    for name, value in options.ignored:
        state.log.say_once(Event.OPTION_IGNORED, f"{name} {value}: weft's subnet manager has no use for it")
