"""opensm.conf: read as by OpenSM, refused where OpenSM would continue with another value."""

from __future__ import annotations

import contextlib
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.errors import ConfigError, FileError, UnknownName
from weft.sm.conf import option_values as kinds
from weft.sm.conf.option_values import UNUSED, is_default
from weft.sm.conf.options import Options, named_file, parse_engines, parse_options, read_options, write_options
from weft.sm.conf.qos_options import DEFAULTS, QosOptions
from weft.sm.configuration import _without_effect


def parse(*lines: str) -> Options:
    return parse_options("\n".join(lines), "opensm.conf")


# -- reading -----------------------------------------------------------------------------------------------------------


def test_an_empty_file_leaves_all_defaults(tmp_path):
    (tmp_path / "opensm.conf").write_text("# nothing\n\n   \n")
    assert read_options(tmp_path / "opensm.conf") == Options()


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(FileError, match=r"none\.conf: no such file"):
        read_options(tmp_path / "none.conf")


@pytest.mark.parametrize(
    ("line", "name", "value"),
    [
        ("guid 0x2c90300001230", "guid", 0x2C90300001230),
        ("lmc\t 3   # of 7", "lmc", 3),
        ("  sm_priority 0xE ", "sm_priority", 14),
        ("packet_life_time 010", "packet_life_time", 8),  # octal, as C reads it
        ("sweep_interval 30", "sweep_interval_s", 30),
        ("sweep_on_trap false", "sweep_on_trap", False),
        ("qos TRUE", "qos", True),
        ("max_wire_smps 0", "max_wire_smps", 0x7FFFFFFF),
        ("sminfo_polling_timeout 10000", "sminfo_polling_timeout_ms", 10_000),
        ("part_enforce In", "part_enforce", "in"),
        ("no_partition_enforcement TRUE", "part_enforce", "off"),
        ("no_partition_enforcement FALSE", "part_enforce", "both"),
        ("partition_config_file (null)", "partition_config_file", None),
        ('log_file "/var/log/my sm.log"', "log_file", Path("/var/log/my sm.log")),
        ("routing_engine (null)", "routing_engine", ("auto",)),
        ("routing_engine ftree, updn,DOR", "routing_engine", ("fat-tree", "up-down", "dimension-order")),
        ("routing_engine dragonfly,minhop", "routing_engine", ("dragonfly", "min-hop")),
        ("qos_high_limit -1", "qos_general", QosOptions()),
        ("qos_ca_max_vls 0", "qos_ca", QosOptions()),
        ("qos_swe_vlarb_low 0:0,1:0x40", "qos_swe", QosOptions(vlarb_low=((0, 0), (1, 64)))),
        ("cc_cct 0:1,3:16383", "cc_cct", ((0, 1), (3, 16383))),
        ("cc_sw_cong_setting_victim_mask 0xff", "cc_sw_cong_setting_victim_mask", 255),
    ],
)
def test_a_line_sets_its_option(line, name, value):
    options = parse(line)
    assert getattr(options, name) == value
    rest = [field.name for field in fields(Options) if field.name != name]
    assert [getattr(options, other) for other in rest] == [getattr(Options(), other) for other in rest]


def test_the_last_line_of_a_name_counts():
    assert parse("lmc 1", "lmc 2").lmc == 2


def test_congestion_control_of_service_levels_is_told_one_by_one():
    options = parse("cc_ca_cong_setting_ccti_timer 0 150", "cc_ca_cong_setting_ccti_timer 15 7")
    assert options.cc_ca_cong_setting_ccti_timer == (150, *(0,) * 14, 7)


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        ("lmc 8", "from 0 to 7"),
        ("lmc", "from 0 to 7"),
        ("lmc three", "from 0 to 7"),
        ("sm_priority 16", "from 0 to 15"),
        ("m_key_protection_level 4", "from 0 to 3"),
        ("guid 0x10000000000000000", "0xffffffffffffffff"),
        ("max_op_vls 6", "from 1 to 5"),
        ("polling_retry_number 0", "from 1 to"),
        ("qos yes", "TRUE or FALSE"),
        ("no_partition_enforcement 1", "TRUE or FALSE"),
        ("part_enforce none", "both, in, out or off"),
        ("qos_ca_max_vls 16", "from 0 to 15; 0: as said for all ports"),
        ("qos_high_limit 256", "from -1 to 255"),
        ("qos_vlarb_high 15:3", "VL from 0 to 14"),
        ("qos_vlarb_high 3:256", "weight from 0 to 255"),
        ("qos_vlarb_low 1", "VL:weight"),
        (f"qos_vlarb_low {'0:1,' * 64}0:1", "up to 64"),
        ("qos_sl2vl 0,1,2,3", "16 lanes"),
        ("qos_sl2vl 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,16", "from 0 to 15"),
        ("cc_cct 4:1", "from 0:0 to 3:16383"),
        ("cc_ca_cong_setting_ccti_min 16 1", "service level from 0 to 15"),
        ("routing_engine fattree", "fat-tree"),
        ("routing_engine lash", "no lash: take dfsssp"),
        ("routing_engine updn,nue", "no nue: take dfsssp"),
        ("routing_engine torus-2QoS", "take dimension-order"),
        ("flap_window_s inf", "seconds"),
    ],
)
def test_invalid_values_are_refused_with_line_and_rule(line, rule):
    with pytest.raises(FileError, match=re.escape(rule)) as caught:
        parse("# first", line)
    assert (caught.value.line, caught.value.read) == (2, line)


_32, _64, _256 = ((1 << bits) - 1 for bits in (32, 64, 256))
LIMITS = {
    **dict.fromkeys(("guid", "m_key", "sm_key", "sa_key", "subnet_prefix", "cc_key"), (0, _64)),
    **dict.fromkeys(("sm_sl", "local_phy_errors_threshold", "overrun_errors_threshold", "sm_priority"), (0, 15)),
    **dict.fromkeys(("packet_life_time", "head_of_queue_lifetime", "leaf_head_of_queue_lifetime"), (0, 31)),
    **dict.fromkeys(("lmc", "vl_stall_count", "leaf_vl_stall_count"), (0, 7)),
    **dict.fromkeys(("sweep_interval", "max_msg_fifo_timeout", "transaction_retries"), (0, _32)),
    **dict.fromkeys(("sminfo_polling_timeout", "polling_retry_number", "transaction_timeout"), (1, _32)),
    **dict.fromkeys(("cc_max_outstanding_mads", "flap_limit"), (1, _32)),
    **{f"qos{kind}_max_vls": (0, 15) for kind in ("", "_ca", "_sw0", "_swe", "_rtr")},
    **{f"qos{kind}_high_limit": (-1, 255) for kind in ("", "_ca", "_sw0", "_swe", "_rtr")},
    **{f"cc_sw_cong_setting_{kind}_mask": (0, _256) for kind in ("victim", "credit")},
    **{f"cc_sw_cong_setting_{kind}threshold": (0, 15) for kind in ("", "credit_starvation_")},
    **{f"cc_ca_cong_setting_{kind}": (0, 0xFFFF) for kind in ("port_control", "control_map")},
    "m_key_lease_period": (0, 0xFFFF),
    "m_key_protection_level": (0, 3),
    "max_op_vls": (1, 5),
    "subnet_timeout": (0, 31),
    "max_wire_smps": (0, 0x7FFF_FFFF),
    "cc_sw_cong_setting_control_map": (0, _32),
    "cc_sw_cong_setting_packet_size": (0, 255),
    "cc_sw_cong_setting_marking_rate": (0, 0xFFFF),
    "max_vls": (1, 15),
    **{f"{whose}_flid_{end}": (0, 0xBFFF) for whose in ("global", "local") for end in ("start", "end")},
    "flid_compression": (1, 4),
}


def test_numbers_have_the_limits_of_their_fields():
    """The limits are those of the field in an attribute, or of OpenSM's type; max_wire_smps 0 is no limit."""
    names = {
        line.split()[0] for line in write_options(Options()).splitlines() if re.fullmatch(r"\w+ [-0-9a-fx]+", line)
    }
    assert names == LIMITS.keys()
    for name, (low, high) in LIMITS.items():
        for value in (low, high):
            parse(f"{name} {value}")
        for value in (low - 1, high + 1):
            with pytest.raises(FileError, match=name):
                parse(f"{name} {value}")


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        (kinds.RateTable(1), [((0, 0),), ((3, 16383),)], [(), ((0, 0),) * 2, ((4, 0),), ((0, 16384),), ((-1, 0),)]),
        (kinds.RateTable(2), [(), ((0, 0),) * 2], [((0, 0),) * 3]),
        (kinds.Seconds(), [0, 0.5, 1e9], [-0.1, float("inf"), "1"]),
        (kinds.Number(2, 4), [2, 4], [1, 5, True, 2.0]),
        (
            kinds.ByServiceLevel(kinds.Number(0, 7)),
            [(0,) * 16, (7,) * 16],
            [(0,) * 15, (0,) * 17, (8,) * 16, (*(0,) * 15, 8)],
        ),
        (kinds.File(), [None, Path("a")], ["a", Path("a#"), Path("(null)")]),
    ],
)
def test_a_kind_of_value_holds_values_up_to_its_limits(kind, good, bad):
    assert [kind.holds(value) for value in good] == [True] * len(good)
    assert [kind.holds(value) for value in bad] == [False] * len(bad)


@pytest.mark.parametrize(
    ("text", "number"), [("0", 0), ("00", 0), ("07", 7), ("-010", -8), ("0x10", 16), ("10", 10), ("-1", -1)]
)
def test_numbers_are_read_as_c_reads_them(text, number):
    assert kinds.read_number(text) == number


@pytest.mark.parametrize("levels", ["-1 3", "16 3", "1", "1 2 3"])
def test_a_line_for_a_service_level_needs_one_from_0_to_15_and_a_number(levels):
    with pytest.raises(FileError, match="a service level from 0 to 15, a blank, and a number from 0 to 65,535"):
        parse(f"cc_ca_cong_setting_ccti_timer {levels}")


@pytest.mark.parametrize(
    ("line", "path"), [('log_file "a"', "a"), ("log_file 'a", "'a"), ("log_file \"a'", "\"a'"), ('log_file "', '"')]
)
def test_one_pair_of_equal_quotes_is_removed(line, path):
    assert parse(line).log_file == Path(path)


@pytest.mark.parametrize(
    ("good", "bad"),
    [
        ({"max_vls": 1}, {"max_vls": 0}),
        ({"max_vls": 15}, {"max_vls": 16}),
        ({"high_limit": 0}, {"high_limit": -1}),
        ({"high_limit": 255}, {"high_limit": 256}),
        ({"vlarb_high": ((14, 255),) * 64}, {"vlarb_high": ((0, 1),) * 65}),
        ({"vlarb_low": ((0, 0),)}, {"vlarb_low": ()}),
        ({"vlarb_low": ((14, 0),)}, {"vlarb_low": ((15, 0),)}),
        ({"vlarb_low": ((0, 255),)}, {"vlarb_low": ((0, 256),)}),
        ({"vlarb_low": ((1, 1),)}, {"vlarb_low": ((-1, 1),)}),
        ({"sl2vl": (0, 15) * 8}, {"sl2vl": (0, 16) * 8}),
        ({"sl2vl": (15,) * 16}, {"sl2vl": (15,) * 17}),
    ],
)
def test_qos_options_are_allowed_up_to_their_limits(good, bad):
    assert QosOptions(**good)
    with pytest.raises(ConfigError, match=f"{next(iter(bad))} .* is refused: it must be"):
        QosOptions(**bad)


def test_opensms_lanes_are_the_defaults():
    assert (DEFAULTS.max_vls, DEFAULTS.high_limit) == (15, 0)
    assert DEFAULTS.vlarb_high == ((0, 4), *((vl, 0) for vl in range(1, 15)))
    assert DEFAULTS.vlarb_low == ((0, 0), *((vl, 4) for vl in range(1, 15)))
    assert DEFAULTS.sl2vl == (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 7)


def test_an_unknown_name_is_refused_with_its_line_and_near_ones():
    with pytest.raises(UnknownName, match=r"'sm_prio'; did you mean.*sm_priority(.|\n)*opensm\.conf:3"):
        parse("", "lmc 1", "sm_prio 3")


NAMES = st.sampled_from(["lmc", "log_file", "cc_cct", "qos_vlarb_low", "routing_engine", "flap_window_s", "console"])


@settings(max_examples=50)
@given(st.lists(st.tuples(NAMES, st.text(max_size=20)).map(" ".join) | st.text(max_size=20), max_size=8))
def test_no_text_is_too_odd_to_be_refused(lines):
    with contextlib.suppress(ConfigError):
        parse(*lines)


def test_an_m_key_must_be_renewed_before_its_lease_ends():
    with pytest.raises(ConfigError, match=r"opensm\.conf: sweep_interval 10 is refused with m_key_lease_period 10"):
        parse("m_key_protection_level 2", "m_key_lease_period 10")
    assert parse("m_key_protection_level 2", "m_key_lease_period 11").m_key_lease_period_s == 11
    level = "m_key_protection_level 2"
    assert parse(level, "m_key_lease_period 2", "sweep_interval 1").sweep_interval_s == 1
    with pytest.raises(ConfigError, match="sweep_interval 0 is refused"):
        parse(level, "m_key_lease_period 2", "sweep_interval 0")
    for line in ("m_key_lease_period 0", "m_key_protection_level 0"):  # no lease to renew
        assert parse(level, "m_key_lease_period 10", line).sweep_interval_s == 10


def test_options_from_elsewhere_are_held_to_the_same_rules():
    with pytest.raises(ConfigError, match="lmc 9 is refused: it must be a number from 0 to 7"):
        Options(lmc=9)
    with pytest.raises(ConfigError, match="without #"):
        Options(log_file=Path("a#b"))


# -- options without effect --------------------------------------------------------------------------------------------


def test_unused_options_are_kept_unless_default():
    options = parse("perfmgr TRUE", "console off", "scatter_ports 0x0", "fdr10 2", "daemon false", "fdr10 0")
    assert options.ignored == (("perfmgr", "TRUE"), ("fdr10", "0"))


def test_a_default_file_of_another_installation_is_a_default_too():
    assert is_default("torus_config", "/usr/local/etc/opensm/torus-2QoS.conf")
    assert not is_default("torus_config", "/etc/opensm/other.conf")


# -- defaults ----------------------------------------------------------------------------------------------------------


OPENSM_DEFAULTS = """
guid 0x0000000000000000
m_key 0x0000000000000000
m_key_lease_period 0
m_key_protection_level 0
sm_key 0x0000000000000001
sa_key 0x0000000000000001
subnet_prefix 0xfe80000000000000
lmc 0
lmc_esp0 FALSE
sm_sl 0
packet_life_time 0x12
vl_stall_count 0x07
leaf_vl_stall_count 0x07
head_of_queue_lifetime 0x12
leaf_head_of_queue_lifetime 0x10
max_op_vls 5
subnet_timeout 18
local_phy_errors_threshold 0x08
overrun_errors_threshold 0x08
part_enforce both
allow_both_pkeys FALSE
keep_pkey_indexes TRUE
sweep_interval 10
reassign_lids FALSE
force_heavy_sweep FALSE
sweep_on_trap TRUE
sm_priority 0
ignore_other_sm FALSE
polling_retry_number 4
honor_guid2lid_file FALSE
sm_inactive FALSE
transaction_timeout 200
max_msg_fifo_timeout 10000
transaction_retries 3
babbling_port_policy FALSE
drop_event_subscriptions FALSE
no_clients_rereg FALSE
qos FALSE
congestion_control FALSE
cc_key 0x0000000000000000
cc_max_outstanding_mads 500
cc_sw_cong_setting_control_map 0x0
cc_sw_cong_setting_threshold 0x00
cc_sw_cong_setting_packet_size 0
cc_sw_cong_setting_credit_starvation_threshold 0x00
cc_sw_cong_setting_credit_starvation_return_delay 0:0
cc_sw_cong_setting_marking_rate 0
cc_ca_cong_setting_port_control 0x0000
cc_ca_cong_setting_control_map 0x0000
"""


def test_a_file_with_opensms_defaults_changes_nothing():
    assert parse_options(OPENSM_DEFAULTS, "opensm.conf") == Options()


def test_an_own_option_of_weft_has_its_documented_default():
    options = Options()
    assert (options.max_vls, options.adaptive_routing, options.protect_tenants) == (8, False, True)
    assert (options.repair_drift, options.flap_limit, options.flap_window_s) == (True, 5, 60.0)
    assert (options.max_wire_smps, options.sminfo_polling_timeout_ms, options.routing_engine) == (128, 500, ("auto",))


def test_a_standby_notices_within_three_seconds_that_the_master_is_gone():
    options = Options()
    assert options.sminfo_polling_timeout_ms * (options.polling_retry_number + 1) <= 3000


def test_engines_of_a_command_line_are_read_as_those_of_a_file():
    assert parse_engines("ftree,up-down") == ("fat-tree", "up-down")
    with pytest.raises(ConfigError, match="no lash: take dfsssp"):
        parse_engines("lash")
    with pytest.raises(ConfigError, match="routing_engine updown is refused: it must be one or more of auto"):
        parse_engines("updown")


def test_a_file_that_opensm_names_of_its_own_accord_may_be_absent(tmp_path):
    folder = tmp_path / "opensm"
    absent = folder / "partitions.conf"
    assert named_file(absent) is None
    assert named_file(folder / "mine.conf") == folder / "mine.conf"
    folder.mkdir()
    absent.touch()
    assert named_file(absent) == absent
    assert named_file(None) is None


def test_qos_of_a_kind_of_port_is_its_own_then_the_general_then_opensms():
    assert parse("qos_ca_high_limit 3").port_qos is None
    qos = parse("qos TRUE", "qos_high_limit 6", "qos_ca_high_limit 3", "qos_swe_vlarb_low 2:2").port_qos
    assert qos is not None
    assert (qos.ca.high_limit, qos.sw0.high_limit, qos.rtr.high_limit) == (3, 6, 6)
    assert (qos.swe.vlarb_low, qos.ca.vlarb_low) == (((2, 2),), DEFAULTS.vlarb_low)


# -- writing -----------------------------------------------------------------------------------------------------------


def values_of(kind: Any) -> st.SearchStrategy[Any]:
    match kind:
        case kinds.Number():
            return st.integers(kind.low, kind.high)
        case kinds.Flag():
            return st.booleans()
        case kinds.Seconds():
            return st.floats(0, 1e9)
        case kinds.File():
            characters = st.characters(exclude_characters="#\n\0", exclude_categories=["Cs"])
            names = st.text(characters, min_size=1) | st.sampled_from(['"a"', " a ", "'", "'a'", "a b", "\u3000a"])
            return st.none() | names.map(Path).filter(kind.holds)
        case kinds.Choice():
            return st.sampled_from(kind.choices)
        case kinds.Names():
            return st.lists(st.sampled_from([kind.usual, *kind.known]), min_size=1).map(tuple)
        case kinds.RateTable():
            pair = st.tuples(st.integers(0, 3), st.integers(0, 16383))
            least = 1 if kind.at_most == 1 else 0
            return st.lists(pair, min_size=least, max_size=min(kind.at_most, 5)).map(tuple)
        case kinds.ByServiceLevel():
            return st.lists(values_of(kind.number), min_size=16, max_size=16).map(tuple)
    assert kind is None, kind
    weights = st.lists(st.tuples(st.integers(0, 14), st.integers(0, 255)), min_size=1, max_size=64).map(tuple)
    return st.builds(
        QosOptions,
        max_vls=st.none() | st.integers(1, 15),
        high_limit=st.none() | st.integers(0, 255),
        vlarb_high=st.none() | weights,
        vlarb_low=st.none() | weights,
        sl2vl=st.none() | st.lists(st.integers(0, 15), min_size=16, max_size=16).map(tuple),
    )


TOLD = {field.name: values_of(field.metadata["kind"]) for field in fields(Options) if field.metadata}
TOLD["m_key_lease_period_s"] = st.just(0)  # else it must fit the sweeps
WITHOUT_EFFECT = st.dictionaries(st.sampled_from(sorted(UNUSED)), st.sampled_from(["77", '"quoted"', " blank "]))


@settings(max_examples=40)
@given(st.fixed_dictionaries({}, optional=TOLD), WITHOUT_EFFECT)
def test_written_file_is_read_back(values, ignored):
    options = Options(**values, ignored=tuple(ignored.items()))
    assert parse_options(write_options(options), "opensm.conf") == options


def test_every_option_is_written_with_a_line_of_comment():
    paragraphs = write_options(Options()).strip().split("\n\n")[1:]
    written = [re.fullmatch(r"# .+\n(\w+) .*", paragraph)[1] for paragraph in paragraphs]
    plain = [field for field in fields(Options) if field.metadata.get("kind")]
    assert len(written) == len(set(written)) == len(plain) + 25
    assert {"sminfo_polling_timeout", "qos_max_vls", "qos_rtr_sl2vl", "state_file"} <= set(written)


def test_numbers_that_opensm_writes_in_hexadecimal_have_its_digits():
    written = dict(line.split(maxsplit=1) for line in write_options(Options()).splitlines() if " 0x" in line)
    digits = {name: len(value) - 2 for name, value in written.items() if name != "#"}
    sixteen = ("guid", "m_key", "sm_key", "sa_key", "subnet_prefix", "cc_key")
    assert digits == dict.fromkeys(sixteen, 16) | {
        "cc_sw_cong_setting_control_map": 1,
        "cc_sw_cong_setting_victim_mask": 64,
        "cc_sw_cong_setting_credit_mask": 64,
        "cc_sw_cong_setting_threshold": 2,
        "cc_sw_cong_setting_credit_starvation_threshold": 2,
        "cc_ca_cong_setting_port_control": 4,
        "cc_ca_cong_setting_control_map": 4,
    }


def test_options_that_are_not_followed_are_named_if_they_are_set():
    assert _without_effect(Options()) == []
    assert _without_effect(Options(max_wire_smps=9, ignored=(("no_clients_rereg", "TRUE"),))) == [
        "max_wire_smps 9: not followed; as many MADs are under way as the port takes",
        "no_clients_rereg TRUE: weft's subnet manager has no use for it",
    ]
