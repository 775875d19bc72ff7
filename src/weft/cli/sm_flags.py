"""The subnet manager options of `weft sm` and `weft up --sm`; the string below a field is its help."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from weft.cli.arguments import File, OnByDefault, Whole
from weft.errors import ConfigError

if TYPE_CHECKING:
    from weft.sm.conf.options import Options

_OPENSM_DEFAULTS = (Path("/var/log/opensm.log"), Path("/var/log"))  # written by `opensm -c`, not chosen by the user


@dataclass(frozen=True, kw_only=True)
class SmFlags:
    """The options of a subnet manager; None, False and empty mean that an option is not set."""

    at: str = ""
    """The host to run on: a name of the lab, or the id in ibsim's net. [the first]"""
    config: Annotated[File, Parameter(("--config", "-F"))] = None
    """Options in the form of opensm.conf."""
    partitions: Annotated[File, Parameter(("--partitions", "-P"))] = None
    """partitions.conf; or opafm.xml, the virtual fabrics of Omni-Path."""
    priority: Annotated[Whole | None, Parameter(("--priority", "-p"))] = None
    """Priority from 0 to 15; the highest becomes master."""
    subnet_prefix: str = ""
    """The first 64 bits of the GIDs, such as 0xfec0000000000002: subnets that routers join need different ones."""
    routing_engine: Annotated[str, Parameter(("--routing-engine", "-R"))] = ""
    """Routing engine: auto, fat-tree, up-down, min-hop, dfsssp, dimension-order or dragonfly; several are tried in
    turn. [auto]"""
    qos: Annotated[bool, Parameter(("--qos", "-Q"))] = False
    """Write SL to VL and VL arbitration tables, and follow the QoS policy."""
    m_key: OnByDefault = True
    """Protect the ports by an M_Key, where partitions exist: no other subnet manager can change them."""
    state: Path | None = None
    """The state file of weft's subnet manager, JSON, to write."""
    dump: Path | None = None
    """The folder for dumps in OpenSM's formats, after each sweep, which ibdmchk reads."""

    @property
    def set_flags(self) -> list[str]:
        """The flags that are not at their defaults."""
        changed = (field for field in fields(self) if getattr(self, field.name) != field.default)
        return ["--no-m-key" if field.name == "m_key" else f"--{field.name.replace('_', '-')}" for field in changed]


NOTHING = SmFlags()


def read_flags(flags: SmFlags) -> Options:
    """Return the options of the file and of the command line, after reading and checking all files that they name."""
    from weft.sm.configuration import read_configuration

    options = sm_options(flags)
    read_configuration(options)
    return options


def sm_options(flags: SmFlags) -> Options:
    from weft.sm.conf.options import Options, parse_engines, read_options

    options = read_options(flags.config) if flags.config else Options()
    is_opafm = flags.partitions is not None and flags.partitions.suffix == ".xml"
    values: dict[str, Any] = {
        "virtual_fabrics_file" if is_opafm else "partition_config_file": flags.partitions,
        "sm_priority": flags.priority,
        "subnet_prefix": _read_prefix(flags.subnet_prefix) if flags.subnet_prefix else None,
        "routing_engine": parse_engines(flags.routing_engine) if flags.routing_engine else None,
        "qos": flags.qos or None,
        "state_file": flags.state,
        "protect_tenants": None if flags.m_key else False,
    }
    if options.m_key and not flags.m_key:
        raise ConfigError(f"--no-m-key contradicts m_key in {flags.config}: leave out one of them")
    return replace(options, **{name: value for name, value in values.items() if value is not None})


def _read_prefix(text: str) -> int:
    try:
        prefix = int(text, 16)
    except ValueError:
        prefix = 0
    if not 0 < prefix < 1 << 64:
        raise ConfigError(f"--subnet-prefix {text} is not a 64-bit hexadecimal number, such as 0xfec0000000000002")
    return prefix


def dump_folder(flags: SmFlags, options: Options) -> Path | None:
    """Create and return the folder for dumps; None without one."""
    chosen = options.dump_files_dir if options.dump_files_dir not in _OPENSM_DEFAULTS else None
    folder = flags.dump or chosen
    if folder is not None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"cannot create the folder {folder} for dumps: {error.strerror}; use --dump") from None
    return folder


def log_file(options: Options) -> Path | None:
    """Return the log file of the options; None without one."""
    path = options.log_file if options.log_file not in _OPENSM_DEFAULTS else None
    if path is not None:
        try:
            path.open("a").close()
        except OSError as error:
            raise ConfigError(
                f"log_file {path}: cannot write this file: {error.strerror}; (null) logs to the terminal"
            ) from None
    return path
