"""Define the values of opensm.conf: a class for each way to write one, with its rule, and options without effect.

`read` raises ValueError if a text is not such a value, and Refused if there is more to say than the rule; the caller
knows the file and the line. `holds` is for values from elsewhere, such as the command line.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any, Protocol

UNSET = "(null)"  # as OpenSM writes a string that is not set
BLANKS = " \t\n\v\f\r"  # C's isspace


class Refused(ValueError):
    """A value that is refused; the text says what to write instead."""


class Kind(Protocol):
    @property
    def rule(self) -> str: ...

    def read(self, text: str, before: Any) -> Any:
        """Return the value; `before` is the value so far, for options that take several lines."""
        ...

    def write(self, value: Any) -> list[str]:
        """Return the texts after the name, one for each line."""
        ...

    def holds(self, value: Any) -> bool: ...


def read_number(text: str) -> int:
    """Read a number as C's strtoul does: 0x12, 022 and 18 are equal."""
    digits = text.removeprefix("-")
    return int(text, 8 if len(digits) > 1 and digits.startswith("0") and digits.isdecimal() else 0)


@dataclass(frozen=True, slots=True)
class Number:
    low: int
    high: int
    hex_digits: int = 0  # written in hexadecimal
    zero_is: int | None = None  # meaning of 0

    @property
    def rule(self) -> str:
        spelled = [f"0x{end:x}" if self.hex_digits else f"{end:,}" for end in (self.low, self.high)]
        return f"a number from {spelled[0]} to {spelled[1]}{'' if self.zero_is is None else ', or 0 for no limit'}"

    def read(self, text: str, before: Any) -> int:
        value = read_number(text)
        return self.zero_is if self.zero_is is not None and value == 0 else value

    def write(self, value: int) -> list[str]:
        return [f"0x{value:0{self.hex_digits}x}" if self.hex_digits else str(value)]

    def holds(self, value: Any) -> bool:
        return isinstance(value, int) and not isinstance(value, bool) and self.low <= value <= self.high


@dataclass(frozen=True, slots=True)
class Seconds:
    """A time that may have a fraction; only weft's own options have one."""

    rule: str = "a number of seconds, 0 or more"

    def read(self, text: str, before: Any) -> float:
        return float(text)

    def write(self, value: float) -> list[str]:
        return [f"{value!r}"]

    def holds(self, value: Any) -> bool:
        return isinstance(value, int | float) and 0 <= value < float("inf")


@dataclass(frozen=True, slots=True)
class Flag:
    """A flag. OpenSM takes TRUE for true and everything else for false, even `true`; weft refuses other words."""

    rule: str = "TRUE or FALSE"

    def read(self, text: str, before: Any) -> bool:
        if text.lower() not in ("true", "false"):
            raise ValueError
        return text.lower() == "true"

    def write(self, value: bool) -> list[str]:
        return ["TRUE" if value else "FALSE"]

    def holds(self, value: Any) -> bool:
        return isinstance(value, bool)


@dataclass(frozen=True, slots=True)
class File:
    rule: str = "the name of a file, or (null); without # and line breaks"

    def read(self, text: str, before: Any) -> Path | None:
        if not text:
            raise ValueError
        return None if text == UNSET else Path(text)

    def write(self, value: Path | None) -> list[str]:
        return [UNSET if value is None else quote(str(value))]

    def holds(self, value: Any) -> bool:
        return value is None or (isinstance(value, Path) and is_writable(str(value)))


def quote(text: str) -> str:
    """Quote a text so that reading it, which strips blanks and one pair of quotes, gives the text back."""
    return f'"{text}"' if text != text.strip(BLANKS) or text[0] in "\"'" else text


def is_writable(text: str) -> bool:
    return bool(text) and text != UNSET and not any(character in text for character in "#\n\0")


@dataclass(frozen=True, slots=True)
class Choice:
    choices: tuple[str, ...]

    @property
    def rule(self) -> str:
        return f"{', '.join(self.choices[:-1])} or {self.choices[-1]}"

    def read(self, text: str, before: Any) -> str:
        return text.lower()

    def write(self, value: str) -> list[str]:
        return [value]

    def holds(self, value: Any) -> bool:
        return value in self.choices


@dataclass(frozen=True, slots=True)
class Names:
    """A list with commas, of names that may be known by others: `ftree,updn`."""

    usual: str
    known: Collection[str]  # others
    aliases: Mapping[str, str]
    instead: Mapping[str, str]  # names that are refused, and what to take

    @property
    def rule(self) -> str:
        return f"one or more of {', '.join((self.usual, *self.known, *self.aliases))}, with commas"

    def read(self, text: str, before: Any) -> tuple[str, ...]:
        if text == UNSET:
            return (self.usual,)
        names = [name.strip().lower() for name in text.split(",")]
        for name in names:
            if name in self.instead:
                raise Refused(f"a name that weft has; it has no {name}: {self.instead[name]}")
        return tuple(self.aliases.get(name, name) for name in names)

    def write(self, value: tuple[str, ...]) -> list[str]:
        return [",".join(value)]

    def holds(self, value: Any) -> bool:
        return bool(value) and all(name == self.usual or name in self.known for name in value)


@dataclass(frozen=True, slots=True)
class RateTable:
    """A list of congestion control table entries, shift:multiplier; `at_most` 1 for a single entry."""

    at_most: int

    @property
    def rule(self) -> str:
        many = "(null), or " if self.at_most > 1 else ""
        return f"{many}{self.at_most} x shift:multiplier at most, from 0:0 to 3:16383"

    def read(self, text: str, before: Any) -> tuple[tuple[int, int], ...]:
        if text == UNSET:
            return ()
        pairs = [entry.split(":") for entry in text.split(",")]
        return tuple((read_number(shift), read_number(multiplier)) for shift, multiplier in pairs)

    def write(self, value: tuple[tuple[int, int], ...]) -> list[str]:
        return [",".join(f"{shift}:{multiplier}" for shift, multiplier in value) or UNSET]

    def holds(self, value: Any) -> bool:
        enough = len(value) == 1 if self.at_most == 1 else len(value) <= self.at_most
        return enough and all(0 <= shift < 1 << 2 and 0 <= multiplier < 1 << 14 for shift, multiplier in value)


@dataclass(frozen=True, slots=True)
class ByServiceLevel:
    """A list of 16 numbers, one on each line: `3 150` sets that of service level 3."""

    number: Number

    @property
    def rule(self) -> str:
        return f"a service level from 0 to 15, a blank, and {self.number.rule}"

    def read(self, text: str, before: tuple[int, ...]) -> tuple[int, ...]:
        level, value = text.split()
        values = list(before)
        if not 0 <= read_number(level) < len(values):
            raise ValueError
        values[read_number(level)] = read_number(value)
        return tuple(values)

    def write(self, value: tuple[int, ...]) -> list[str]:
        return [f"{level} {part}" for level, part in enumerate(value) if part] or ["0 0"]

    def holds(self, value: Any) -> bool:
        return len(value) == 16 and all(self.number.holds(part) for part in value)


_DEFAULTS = """
m_key_lookup TRUE
force_link_speed 15
force_link_speed_ext 31
force_link_width 255
fdr10 1
use_mfttop TRUE
sm_assigned_guid 0x00
port_profile_switch_nodes FALSE
port_prof_ignore_file (null)
hop_weights_file (null)
port_search_ordering_file (null)
dimn_ports_file (null)
avoid_throttled_links FALSE
connect_roots FALSE
use_ucast_cache FALSE
lid_matrix_dump_file (null)
lfts_file (null)
cn_guid_file (null)
io_guid_file (null)
quasi_ftree_indexing FALSE
max_reverse_hops 0
ids_guid_file (null)
guid_routing_order_file (null)
do_mesh_analysis FALSE
lash_start_vl 0
nue_max_num_vls 1
nue_include_switches FALSE
port_shifting FALSE
scatter_ports 0
guid_routing_order_no_scatter FALSE
sa_db_file (null)
sa_db_dump FALSE
torus_config /etc/opensm/torus-2QoS.conf
max_wire_smps2 4
max_smps_timeout 600000
long_transaction_timeout 500
single_thread FALSE
daemon FALSE
ipoib_mcgroup_creation_validation TRUE
mcgroup_join_validation TRUE
use_original_extended_sa_rates_only FALSE
use_optimized_slvl FALSE
fsync_high_avail_files TRUE
perfmgr FALSE
perfmgr_redir TRUE
perfmgr_sweep_time_s 180
perfmgr_max_outstanding_queries 500
perfmgr_ignore_cas FALSE
perfmgr_rm_nodes TRUE
perfmgr_log_errors TRUE
perfmgr_query_cpi TRUE
perfmgr_xmit_wait_log FALSE
perfmgr_xmit_wait_threshold 65535
event_db_dump_file (null)
event_plugin_name (null)
event_plugin_options (null)
log_flags 0x03
force_log_flush FALSE
log_max_size 0
accum_log_file TRUE
per_module_logging_file /etc/opensm/per-module-logging.conf
enable_quirks FALSE
disable_multicast FALSE
exit_on_fatal TRUE
console off
console_port 10000
suppress_sl2vl_mad_status_errors FALSE
prefix_routes_file /etc/opensm/prefix-routes.conf
consolidate_ipv6_snm_req FALSE
log_prefix (null)
"""

UNUSED: dict[str, str] = dict(line.split(" ", 1) for line in _DEFAULTS.split("\n") if line)


def is_default(name: str, text: str) -> bool:
    """Return whether the text is OpenSM's default. The folder of its files depends on the build."""
    default = UNUSED[name]
    if default.startswith("/"):
        return PurePath(text).name == PurePath(default).name
    try:
        return read_number(text) == read_number(default)
    except ValueError:
        return text.lower() == default.lower()
