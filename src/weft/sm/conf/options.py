"""The options of the subnet manager: opensm.conf, read as OpenSM reads it, and weft's own.

    # whatever follows is a comment
    sm_priority 14
    routing_engine ftree,updn
    qos_ca_sl2vl 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,7

A name is OpenSM's; in Python it has its unit behind it. The last line that gives a name counts. Where OpenSM warns and
takes its default, weft refuses the file: a subnet manager that runs with other options than the file says is worse than
one that does not start. Defaults are OpenSM's; where they are not, the reason stands beside them.
"""

# ruff: noqa: RUF009 - `_option` makes a field, as `field` does
from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import Field, dataclass, field, fields, replace
from functools import cache
from pathlib import Path
from typing import Any

from weft.errors import ConfigError, FileError, UnknownName
from weft.fabric.files.text import read_text
from weft.ids import Gid, Lid
from weft.routing import ENGINES, OPENSM_ENGINES
from weft.sm.conf import qos_options as _qos
from weft.sm.conf.option_values import (
    BLANKS,
    UNSET,
    UNUSED,
    ByServiceLevel,
    Choice,
    File,
    Flag,
    Kind,
    Names,
    Number,
    RateTable,
    Refused,
    Seconds,
    is_default,
    quote,
)
from weft.sm.conf.qos_options import SILENT, Qos, QosOptions

_NO_ENGINE = {
    "dnup": "take up-down, which has the same rule the other way round",
    "lash": "take dfsssp, which fills its lanes as LASH does",
    "nue": "take dfsssp, or up-down where the lanes are too few",
    "sssp": "use dfsssp, which balances the same way and cannot deadlock",
    "torus-2qos": "take dimension-order",
    "file": "take auto",
    "chain": "take auto",
}

_ENGINE_NAMES = Names("auto", ENGINES, OPENSM_ENGINES, _NO_ENGINE)
_NO_LIMIT = 0x7FFF_FFFF  # OpenSM's meaning of 0
_LID = Number(0, Lid.FIRST_MULTICAST - 1)
_BYTE, _WORD, _LONG = Number(0, 0xFF), Number(0, 0xFFFF), Number(0, 0xFFFF_FFFF)
_KEY, _MASK, _HEX_WORD = Number(0, (1 << 64) - 1, 16), Number(0, (1 << 256) - 1, 64), Number(0, 0xFFFF, 4)
_CODE = Number(0, 31)  # a time of 4.096 us x 2^code
_NIBBLE, _BELOW_8 = Number(0, 15), Number(0, 7)
_FILE, _FLAG = File(), Flag()
_PER_SL = (0,) * 16


def _option(default: Any, kind: Kind | None, comment: str, name: str = "") -> Any:
    """Return a field; `name` is OpenSM's name where the field's name has a unit."""
    return field(default=default, metadata={"kind": kind, "comment": comment, "name": name})


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of `weft sm`."""

    # -- the subnet
    guid: int = _option(0, _KEY, "GUID of the port to run on; 0: the first that is up")
    m_key: int = _option(0, _KEY, "M_Key of all ports")
    m_key_lease_period_s: int = _option(0, _WORD, "seconds until a port forgets its M_Key", "m_key_lease_period")
    m_key_protection_level: int = _option(0, Number(0, 3), "requests that a port refuses without its M_Key")
    sm_key: int = _option(1, _KEY, "other subnet managers must have this SM_Key")
    sa_key: int = _option(1, _KEY, "queries with this SM_Key are trusted")
    subnet_prefix: int = _option(Gid.LINK_LOCAL_PREFIX, _KEY, "first half of every GID")
    global_flid_start: int = _option(0, _LID, "first floating LID of all subnets that routers join; 0: none")
    global_flid_end: int = _option(0, _LID, "the last")
    local_flid_start: int = _option(0, _LID, "first floating LID of this subnet; 0: none")
    local_flid_end: int = _option(0, _LID, "the last")
    flid_compression: int = _option(2, Number(1, 4), "most leaf switches that share a floating LID")
    lmc: int = _option(0, _BELOW_8, "every port gets 2^lmc LIDs")
    lmc_esp0: bool = _option(False, _FLAG, "so does the enhanced port 0 of a switch")
    sm_sl: int = _option(0, _NIBBLE, "service level of queries to this subnet manager")
    packet_life_time: int = _option(0x12, _CODE, "code of how long a packet may stay in a switch; 20: for ever")
    vl_stall_count: int = _option(7, _BELOW_8, "packets dropped in a row that stall a lane")
    leaf_vl_stall_count: int = _option(7, _BELOW_8, "the same where a switch meets a host")
    head_of_queue_lifetime: int = _option(0x12, _CODE, "code of how long a packet may stand first in a queue")
    leaf_head_of_queue_lifetime: int = _option(0x10, _CODE, "the same where a switch meets a host")
    max_op_vls: int = _option(5, Number(1, 5), "code of the most lanes: 1, 2, 4, 8, 15")
    subnet_timeout: int = _option(18, _CODE, "code of how long a packet may be under way")
    local_phy_errors_threshold: int = _option(8, _NIBBLE, "errors on the line that cause trap 129")
    overrun_errors_threshold: int = _option(8, _NIBBLE, "overruns of buffers that cause trap 130")

    # -- partitions. No file is read unless it is named: what happens to lie in /etc is no part of a command.
    partition_config_file: Path | None = _option(None, _FILE, "partitions.conf")
    part_enforce: str = _option("both", Choice(("both", "in", "out", "off")), "where switches enforce partitions")
    allow_both_pkeys: bool = _option(False, _FLAG, "a port may be full and limited member of one partition")
    keep_pkey_indexes: bool = _option(True, _FLAG, "a P_Key stays at its index")

    # -- sweeps
    sweep_interval_s: int = _option(
        10, _LONG, "seconds between sweeps; 0: only when something happens", "sweep_interval"
    )
    reassign_lids: bool = _option(False, _FLAG, "all LIDs are given anew")
    force_heavy_sweep: bool = _option(False, _FLAG, "every sweep discovers all")
    sweep_on_trap: bool = _option(True, _FLAG, "a trap causes a sweep")

    # -- routing. OpenSM's default is minhop, which can deadlock; auto proves that its tables do not.
    routing_engine: tuple[str, ...] = _option(
        ("auto",), _ENGINE_NAMES, "tried in turn: auto, or fat-tree, up-down, ..."
    )
    root_guid_file: Path | None = _option(None, _FILE, "GUIDs of the top switches, one to a line")

    # -- several subnet managers. OpenSM polls every 10 s: it takes 50 s to notice that the master is gone. Here 2 s.
    sm_priority: int = _option(0, _NIBBLE, "the highest is master")
    ignore_other_sm: bool = _option(False, _FLAG, "as if no other subnet manager were there")
    sminfo_polling_timeout_ms: int = _option(
        500, Number(1, 0xFFFF_FFFF), "milliseconds between two polls of the master", "sminfo_polling_timeout"
    )
    polling_retry_number: int = _option(4, Number(1, 0xFFFF_FFFF), "polls without an answer: the master is gone")
    honor_guid2lid_file: bool = _option(False, _FLAG, "a new master takes LIDs from the file, not from the ports")
    sm_inactive: bool = _option(False, _FLAG, "starts as not active")

    # -- MADs. OpenSM has 4 under way. The kernel queues 128 (ib_core's send_queue_size): more would only wait there.
    max_wire_smps: int = _option(128, Number(1, _NO_LIMIT, zero_is=_NO_LIMIT), "MADs under way at once; 0: no limit")
    transaction_timeout_ms: int = _option(
        200, Number(1, 0xFFFF_FFFF), "milliseconds until a MAD counts as lost", "transaction_timeout"
    )
    max_msg_fifo_timeout_ms: int = _option(
        10_000,
        _LONG,
        "milliseconds that a query waits before it is answered BUSY; 0: any",
        "max_msg_fifo_timeout",
    )
    transaction_retries: int = _option(3, _LONG, "times that a lost MAD is sent again")

    # -- others
    babbling_port_policy: bool = _option(False, _FLAG, "a port that sends trap after trap is disabled")
    drop_event_subscriptions: bool = _option(False, _FLAG, "those of a port that is gone are dropped")
    no_clients_rereg: bool = _option(False, _FLAG, "hosts are not asked to register again")
    node_name_map_name: Path | None = _option(None, _FILE, "names for nodes, by GUID")
    log_file: Path | None = _option(None, _FILE, "log; (null): standard error, for it runs in the foreground")
    dump_files_dir: Path | None = _option(None, _FILE, "folder of dumps; (null): none are written")

    # -- quality of service
    qos: bool = _option(False, _FLAG, "write SL to VL and VL arbitration tables, follow the policy")
    qos_policy_file: Path | None = _option(None, _FILE, "qos-policy.conf")
    qos_general: QosOptions = _option(SILENT, None, "all ports", "qos")
    qos_ca: QosOptions = _option(SILENT, None, "adapters")
    qos_sw0: QosOptions = _option(SILENT, None, "port 0 of switches")
    qos_swe: QosOptions = _option(SILENT, None, "other ports of switches")
    qos_rtr: QosOptions = _option(SILENT, None, "routers")

    # -- congestion control
    congestion_control: bool = _option(False, _FLAG, "configure congestion control")
    cc_key: int = _option(0, _KEY, "CC_Key")
    cc_max_outstanding_mads: int = _option(500, Number(1, 0xFFFF_FFFF), "MADs of congestion control under way at once")
    cc_sw_cong_setting_control_map: int = _option(0, Number(0, 0xFFFF_FFFF, 1), "which of those for switches count")
    cc_sw_cong_setting_victim_mask: int = _option(0, _MASK, "ports that mark victims too, bit 0 is port 0")
    cc_sw_cong_setting_credit_mask: int = _option(0, _MASK, "ports that watch for lack of credits")
    cc_sw_cong_setting_threshold: int = _option(0, Number(0, 15, 2), "0: no marking, 15: early marking")
    cc_sw_cong_setting_packet_size: int = _option(0, _BYTE, "smaller packets, in units of 64 bytes, are not marked")
    cc_sw_cong_setting_credit_starvation_threshold: int = _option(0, Number(0, 15, 2), "0: none, 15: aggressive")
    cc_sw_cong_setting_credit_starvation_return_delay: tuple[tuple[int, int], ...] = _option(
        ((0, 0),), RateTable(1), "shift:multiplier"
    )
    cc_sw_cong_setting_marking_rate: int = _option(0, _WORD, "packets between two marks, in the mean")
    cc_ca_cong_setting_port_control: int = _option(0, _HEX_WORD, "bit 0: by service level, not by queue pair")
    cc_ca_cong_setting_control_map: int = _option(0, _HEX_WORD, "service levels that are configured")
    cc_ca_cong_setting_ccti_timer: tuple[int, ...] = _option(
        _PER_SL, ByServiceLevel(_WORD), "service level, and units of 1.024 us until the index falls by one"
    )
    cc_ca_cong_setting_ccti_increase: tuple[int, ...] = _option(
        _PER_SL, ByServiceLevel(_BYTE), "service level, and by how much a BECN raises the index"
    )
    cc_ca_cong_setting_trigger_threshold: tuple[int, ...] = _option(
        _PER_SL, ByServiceLevel(_BYTE), "service level, and the index at which an event is logged"
    )
    cc_ca_cong_setting_ccti_min: tuple[int, ...] = _option(
        _PER_SL, ByServiceLevel(_BYTE), "service level, and the lowest index"
    )
    cc_cct: tuple[tuple[int, int], ...] = _option((), RateTable(128), "rates by index, as shift:multiplier")

    # -- weft's own
    max_vls: int = _option(8, Number(1, 15), "weft: data lanes that routing may use")
    adaptive_routing: bool = _option(False, _FLAG, "weft: groups of ports for adaptive routing")
    virtual_fabrics_file: Path | None = _option(None, _FILE, "weft: Omni-Path's virtual fabrics, instead of partitions")
    state_file: Path | None = _option(None, _FILE, "weft: where LIDs are kept, and `weft sm status` looks")
    protect_tenants: bool = _option(True, _FLAG, "weft: where partitions exist, ports get an M_Key that weft makes")
    m_key_file: Path | None = _option(None, _FILE, "weft: where that M_Key is kept; managers of one subnet share it")
    repair_drift: bool = _option(True, _FLAG, "weft: ports that others have changed are repaired; FALSE: reported only")
    flap_limit: int = _option(5, Number(1, 0xFFFF_FFFF), "weft: a port that goes down so often is left out")
    flap_window_s: float = _option(60.0, Seconds(), "weft: within so many seconds")

    ignored: tuple[tuple[str, str], ...] = ()  # options of OpenSM that have no effect here, and are not at its default

    def __post_init__(self) -> None:
        for entry in _entries().values():
            value = entry.value_in(self)
            if entry.part is None and not entry.kind.holds(value):
                raise ConfigError(f"{entry.name} {value} is refused: it must be {entry.kind.rule}")
        lease_s, sweep_s = self.m_key_lease_period_s, self.sweep_interval_s
        if self.m_key_protection_level and lease_s and not 0 < sweep_s < lease_s:
            raise ConfigError(
                f"sweep_interval {sweep_s} is refused with m_key_lease_period {lease_s}: a sweep renews the M_Key, "
                "and must come before ports forget it"
            )

    @property
    def flids(self) -> tuple[int, int, int, int]:
        """The ranges of floating LIDs: first and last of all subnets, first and last of this one."""
        return self.global_flid_start, self.global_flid_end, self.local_flid_start, self.local_flid_end

    @property
    def port_qos(self) -> Qos | None:
        """The QoS settings of ports; None if QoS is off."""
        if not self.qos:
            return None
        return Qos.of(self.qos_general, ca=self.qos_ca, sw0=self.qos_sw0, swe=self.qos_swe, rtr=self.qos_rtr)


# -- by the names of the file ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _QosNumber:
    """A number, one value of which means that the general set is asked."""

    number: Number
    silent: int

    @property
    def rule(self) -> str:
        return f"{self.number.rule}; {self.silent}: as said for all ports"

    def read(self, text: str, before: Any) -> int | None:
        value = self.number.read(text, before)
        return None if value == self.silent else value

    def write(self, value: int | None) -> list[str]:
        return [str(self.silent if value is None else value)]

    def holds(self, value: Any) -> bool:
        return value is None or self.number.holds(value)


@dataclass(frozen=True, slots=True)
class _QosList:
    """A VL arbitration or SL to VL list; (null) uses the general set."""

    part: str
    rule: str

    def read(self, text: str, before: Any) -> Any:
        if text == UNSET:
            return None
        return tuple(int(vl, 0) for vl in text.split(",")) if self.part == "sl2vl" else _qos.read_vlarb(text)

    def write(self, value: Any) -> list[str]:
        if value is None:
            return [UNSET]
        return [",".join(map(str, value)) if self.part == "sl2vl" else _qos.write_vlarb(value)]

    def holds(self, value: Any) -> bool:
        try:
            QosOptions(**{self.part: value})
        except ConfigError:
            return False
        return True


_QOS_PARTS: dict[str, tuple[Kind, str]] = {
    "max_vls": (_QosNumber(Number(0, 15), 0), "most lanes"),
    "high_limit": (_QosNumber(Number(-1, 255), -1), "units of 4 KiB from the high table before the low one; 255: all"),
    "vlarb_high": (_QosList("vlarb_high", _qos.VLARB_RULE), "high table, VL:weight; 64: a packet of 4 KiB"),
    "vlarb_low": (_QosList("vlarb_low", _qos.VLARB_RULE), "low table, VL:weight; 64: a packet of 4 KiB"),
    "sl2vl": (_QosList("sl2vl", _qos.SL2VL_RULE), "lanes of service levels 0 to 15"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    """A name of the file, and where its value is kept."""

    name: str
    field: str
    kind: Kind
    comment: str
    part: str | None = None  # name of the field of a QosOptions

    def value_in(self, options: Options) -> Any:
        value = getattr(options, self.field)
        return value if self.part is None else getattr(value, self.part)

    def read(self, text: str, before: Any) -> Any:
        """Return the new value of the field; raise ValueError if it is invalid."""
        value = self.kind.read(text, before)
        if not self.kind.holds(value):
            raise ValueError
        return value if self.part is None else replace(before, **{self.part: value})


def _entries_of(option: Field[Any]) -> Iterator[_Entry]:
    if "comment" not in option.metadata:
        return
    name, kind, comment = option.metadata["name"] or option.name, option.metadata["kind"], option.metadata["comment"]
    if kind is not None:
        yield _Entry(name=name, field=option.name, kind=kind, comment=comment)
        return
    for part, (kind, part_comment) in _QOS_PARTS.items():
        yield _Entry(
            name=f"{name}_{part}", field=option.name, kind=kind, comment=f"{part_comment}, {comment}", part=part
        )


@cache
def _entries() -> dict[str, _Entry]:
    return {entry.name: entry for option in fields(Options) for entry in _entries_of(option)}


_NO_ENFORCEMENT = "no_partition_enforcement"  # the old way to say part_enforce off; OpenSM still obeys it


def read_options(path: Path | str) -> Options:
    """Read the options of a file in the form of opensm.conf."""
    return parse_options(read_text(Path(path)), path)


def parse_options(text: str, path: Path | str = "opensm.conf") -> Options:
    entries = _entries()
    values: dict[str, Any] = {option.name: option.default for option in fields(Options)}
    ignored, enforced = {}, True
    for number, line in enumerate(text.split("\n"), 1):
        name, value = _split(line)
        try:
            if name == _NO_ENFORCEMENT:
                enforced = not _FLAG.read(value, None)
            elif name in entries:
                field_name = entries[name].field
                values[field_name] = entries[name].read(value, values[field_name])
            elif name in UNUSED:
                ignored[name] = value or UNSET
            elif name:
                raise UnknownName("option", name, [*entries, *UNUSED, _NO_ENFORCEMENT], f"In {path}:{number}.")
        except ValueError as error:
            kind = entries[name].kind if name in entries else _FLAG
            rule = str(error) if isinstance(error, Refused) else kind.rule
            raise FileError(path, number, f"{name} {value}".strip(), rule) from None
    if not enforced:
        values["part_enforce"] = "off"
    values["ignored"] = tuple((name, value) for name, value in ignored.items() if not is_default(name, value))
    try:
        return Options(**values)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def _split(line: str) -> tuple[str, str]:
    """Name and value; a # begins a comment, in quotes too, and one pair of quotes is taken off."""
    name, *rest = re.split(f"[{BLANKS}]+", line.partition("#")[0].strip(BLANKS), maxsplit=1)
    value = rest[0] if rest else ""
    if len(value) >= 2 and value[0] == value[-1] and value[0] in "\"'":
        value = value[1:-1]
    return name, value


def write_options(options: Options) -> str:
    """Return all options in the form of opensm.conf, each with a comment."""
    lines = ["# Options of weft sm, in the form of opensm.conf."]
    for entry in _entries().values():
        written = entry.kind.write(entry.value_in(options))
        lines += ["", f"# {entry.comment}", *(f"{entry.name} {value}" for value in written)]
    if options.ignored:
        lines += ["", "# OpenSM's, without effect here", *(f"{name} {quote(text)}" for name, text in options.ignored)]
    return "\n".join(lines) + "\n"


def parse_engines(text: str) -> tuple[str, ...]:
    """Return routing engines by their names or OpenSM's, separated by commas, as in a file or on a command line."""
    try:
        engines = _ENGINE_NAMES.read(text, None)
    except Refused as error:
        raise ConfigError(f"routing_engine {text} is refused: it must be {error}") from None
    if not _ENGINE_NAMES.holds(engines):
        raise ConfigError(f"routing_engine {text} is refused: it must be {_ENGINE_NAMES.rule}")
    return engines


def named_file(path: Path | None) -> Path | None:
    """Return the file to read; None for a default of `opensm -c` that does not exist."""
    if path is None or path.exists():
        return path
    is_opensms = path.parent.name == "opensm" and path.name in ("partitions.conf", "qos-policy.conf")
    return None if is_opensms else path
