"""The run-time configuration: how it is combined with the files, changed, described and stored; without a manager."""

from __future__ import annotations

import io
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest

from weft.errors import ConfigError, FileError
from weft.sm.allocation import (
    NOTHING,
    FileConfig,
    RuntimeConfig,
    adopted,
    allocation_file,
    changed,
    default_is_full,
    described,
    qos_fields,
    read_qos,
    read_runtime_config,
    write_runtime_config,
)
from weft.sm.conf.options import Options
from weft.sm.conf.qos_options import Qos, QosOptions
from weft.sm.configuration import _read_guids, load_configuration, read_configuration, was_given_partitions
from weft.sm.events import Log
from weft.sm.pkey.definitions import MemberDefinition, PartitionDefinition
from weft.sm.pkey.partitions import NO_FILE, Everyone, Member, Membership, Partition, Partitions
from weft.sm.pkey.partitions_conf import parse_partitions
from weft.sm.protection import PortKey, own_sa_key, port_key, sm_key_of
from weft.sm.state import Service, State
from weft.wire.sa import ServiceRecord

FILES = FileConfig(partitions=NO_FILE)
RED = PartitionDefinition(name="red", p_key=0x0101, members=(MemberDefinition(0x11),), sl=3, ipoib=True)
BLUE = PartitionDefinition(name="blue", p_key=0x0001, members=(MemberDefinition(Everyone.ALL, Membership.LIMITED),))
FULL, LIMITED = Membership.FULL, Membership.LIMITED


def filed(text: str, qos: Qos | None = None) -> FileConfig:
    return FileConfig(partitions=parse_partitions(text), qos=qos)


def change(runtime: RuntimeConfig = NOTHING, files: FileConfig = FILES, **words: object) -> RuntimeConfig:
    return changed(runtime, files, **{"qos": None, "default_is_full": None} | words)  # type: ignore[arg-type]


# -- definitions ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("p_key", "is_accepted"), [(0, False), (1, True), (0x7FFE, True), (0x7FFF, False)])
def test_a_definition_needs_a_p_key_that_is_not_that_of_default(p_key, is_accepted):
    definition = PartitionDefinition(name="a", p_key=p_key)
    with nullcontext() if is_accepted else pytest.raises(ConfigError, match="must be from 0x0001 to 0x7ffe"):
        assert definition.partition().p_key == p_key


def test_rules_of_a_definition_are_numbered_and_all_comes_first():
    members = (MemberDefinition(Everyone.ALL), MemberDefinition(5, LIMITED, index0=True))
    partition = PartitionDefinition(name="a", p_key=1, members=members).partition(rank=40)
    assert partition.members == (
        Member(who=Everyone.ALL, membership=FULL, rank=41),
        Member(who=5, membership=LIMITED, index0=True, rank=42),
    )
    assert partition.groups == ()
    for wrong, rule in ((members[::-1], "ALL replaces the rules before it"), (members * 2, "it names ALL twice")):
        with pytest.raises(ConfigError, match=rule):
            PartitionDefinition(name="a", p_key=1, members=wrong).partition()


@pytest.mark.parametrize(("lanes", "sl"), [(True, 3), (False, 0)])
def test_a_service_level_counts_with_lanes_only(lanes, sl):
    partition = RED.partition(lanes=lanes)
    assert (partition.sl, [group.sl for group in partition.groups]) == (sl, [sl])
    assert partition.groups[0].q_key == 0x0B1B


# -- files and run-time changes ---------------------------------------------------------------------------------------


def test_partitions_of_files_come_first_and_others_in_the_order_of_p_keys():
    files = filed("Default=0x7fff: ALL=full; b=0x30: ALL; a=0x20: ALL;")
    assert files.taken == (0x20, 0x30)
    partitions, qos = files.with_runtime_config(change(files=files, define=[RED, BLUE]))
    assert [partition.p_key for partition in partitions.partitions][-2:] == [0x0001, 0x0101]
    assert len(partitions.partitions) == 5
    assert qos is None
    with pytest.raises(ConfigError, match=r"x=0x0020 is refused: a file of the subnet manager has a=0x0020"):
        change(files=files, define=[PartitionDefinition(name="x", p_key=0x20)])


def test_lanes_of_the_run_time_configuration_replace_those_of_the_files():
    own, theirs = QosOptions(high_limit=1), Qos.of(QosOptions(high_limit=2))
    files = FileConfig(partitions=NO_FILE, qos=theirs)
    assert files.with_runtime_config(NOTHING)[1] == theirs
    assert files.with_runtime_config(change(files=files, qos=own))[1] == Qos.of(own)


@pytest.mark.parametrize(
    ("rules", "is_full"),
    [
        ("ALL=full", True),
        ("ALL=limited, SELF=full", False),
        ("ALL=full, ALL=limited", False),
        ("ALL=limited, ALL=full", True),
        ("ALL=both", True),
        ("0x5=full", False),
    ],
)
def test_the_last_rule_for_all_ports_decides_about_default(rules, is_full):
    assert default_is_full(parse_partitions(f"Default=0x7fff: {rules};").partitions) is is_full


@pytest.mark.parametrize("is_full", [True, False])
def test_default_changes_where_no_line_of_a_file_rules_it(is_full):
    own = filed("")
    assert default_is_full(own.with_runtime_config(RuntimeConfig(default_is_full=is_full))[0].partitions) is is_full
    text = "ALL=limited, SELF=full" if is_full else "ALL=full"
    ruled = filed(f"# mine\nDefault=0x7fff: {text};")
    word = "full members of Default: line 2" if is_full else "limited members of Default: line 2"
    with pytest.raises(ConfigError, match=f"ports are not made {word}"):
        ruled.with_runtime_config(RuntimeConfig(default_is_full=is_full))
    same = RuntimeConfig(default_is_full=not is_full)
    assert ruled.with_runtime_config(same)[0].partitions == ruled.partitions.partitions


def test_limited_members_of_default_reach_the_manager():
    partitions, _ = FILES.with_runtime_config(RuntimeConfig(default_is_full=False))
    assert [member.label for member in partitions.partitions[0].members] == ["ALL=limited", "SELF=full"]
    assert partitions.partitions[0].groups == NO_FILE.partitions[0].groups


# -- changes ----------------------------------------------------------------------------------------------------------


def test_a_change_defines_replaces_and_removes():
    first = change(define=[RED, BLUE])
    assert [*first.definitions] == [0x0101, 0x0001]
    second = change(first, define=[PartitionDefinition(name="red", p_key=0x0101)], remove=[0x0001])
    assert [*second.definitions] == [0x0101]
    assert second.partitions[0x0101].members == ()
    third = change(first, remove=[0x0101])
    assert third.partitions == {0x0001: first.partitions[0x0001]}
    assert third.partitions[0x0001] is first.partitions[0x0001]
    assert change(first, define=[RED], remove=[0x0101]).definitions[0x0101] == RED


@pytest.mark.parametrize(
    ("before", "after", "files", "levels"),
    [
        (None, None, None, (0, 0)),
        (None, QosOptions(), None, (0, 3)),
        (QosOptions(), None, None, (3, 0)),
        (QosOptions(), QosOptions(high_limit=1), None, (3, 3)),
        (None, None, Qos.of(), (3, 3)),
        (None, QosOptions(), Qos.of(), (3, 3)),
    ],
)
def test_service_levels_of_all_partitions_follow_the_lanes(before, after, files, levels):
    config = FileConfig(partitions=NO_FILE, qos=files)
    first = change(files=config, define=[RED], qos=before)
    second = change(first, config, define=[BLUE], qos=after)
    assert (first.partitions[0x0101].sl, second.partitions[0x0101].sl) == levels


def test_rules_of_partitions_are_ordered_by_p_key_not_by_arrival():
    one, other = change(define=[RED, BLUE]).partitions, change(change(define=[BLUE]), define=[RED]).partitions
    assert one == other
    assert one[0x0001].members[0].rank < one[0x0101].members[0].rank
    assert one[0x0101].members[0].rank == (0x0101 + 1 << 17) + 1


def test_equal_configurations_have_equal_revisions():
    one, other = change(define=[RED, BLUE]), change(change(define=[BLUE]), define=[RED])
    saved = described(FILES, one)
    assert saved == described(FILES, other)
    assert (saved.default_is_full, saved.taken, [item.p_key for item in saved.partitions]) == (True, (), [1, 0x101])
    limited = change(one, default_is_full=False)
    assert described(FILES, limited).default_is_full is False
    lanes = change(one, qos=QosOptions(high_limit=0))
    assert described(FILES, lanes).qos == {"high_limit": 0}
    assert len({described(FILES, item).revision for item in (one, limited, lanes, NOTHING)}) == 4


def test_partitions_of_ports_are_adopted_but_for_rules_of_devices():
    held = Partitions(
        partitions=(
            NO_FILE.partitions[0],
            Partition(name="x", p_key=5, members=(Member(who=7, membership=LIMITED, index0=True),)),
        )
    )
    base, runtime = adopted(held, filed("other=0x20: ALL;"))
    assert base.partitions.partitions == NO_FILE.partitions
    assert runtime.definitions == {
        5: PartitionDefinition(name="x", p_key=5, members=(MemberDefinition(7, LIMITED, index0=True),))
    }


# -- files ------------------------------------------------------------------------------------------------------------


def test_a_stored_configuration_is_read_back(tmp_path):
    path = allocation_file(tmp_path / "sm.json")
    assert path.name == "sm.allocation"
    assert read_runtime_config(path, FILES) == NOTHING
    runtime = change(define=[RED, BLUE], qos=QosOptions(sl2vl=(0, 1) * 8), default_is_full=False)
    write_runtime_config(path, runtime)
    assert read_runtime_config(path, FILES) == runtime
    for text in ("{", '{"partitions": [{"name": "a", "p_key": 0}]}', '{"qos": {"high_limit": "x"}}'):
        path.write_text(text)
        with pytest.raises(FileError, match="delete it to start without partitions"):
            read_runtime_config(path, FILES)


def test_only_options_of_lanes_that_are_set_are_stored():
    assert qos_fields(None) is None
    assert qos_fields(QosOptions(high_limit=0, sl2vl=(0,) * 16)) == {"high_limit": 0, "sl2vl": (0,) * 16}
    assert read_qos({"sl2vl": [0] * 16}) == QosOptions(sl2vl=(0,) * 16)
    with pytest.raises(ConfigError, match="is refused"):
        read_qos({"high_limit": "x"})


def test_guids_of_a_file_are_one_per_line(tmp_path):
    path = tmp_path / "roots"
    path.write_text("# roots\n\n 0x10 # the first\n0x0002c90300000001\n")
    assert _read_guids(path) == (0x10, 0x0002C90300000001)
    assert read_configuration(Options(root_guid_file=path)).roots == (0x10, 0x0002C90300000001)
    path.write_text("0x10\n\nspine1\n")
    with pytest.raises(FileError, match=r"roots:3: 'spine1'"):
        _read_guids(path)


def test_files_are_read_as_the_options_say(tmp_path):
    plain = read_configuration(Options())
    assert (plain.partitions, plain.qos, plain.policy, plain.roots) == (NO_FILE, None, None, ())
    partitions, policy = tmp_path / "p.conf", tmp_path / "qos.conf"
    partitions.write_text("Red=0x10, sl=3: ALL;")
    policy.write_text("qos-ulps\ndefault : 2\nend-qos-ulps\n")
    files = {"partition_config_file": partitions, "qos_policy_file": policy}
    off, on = read_configuration(Options(**files)), read_configuration(Options(**files, qos=True))
    assert (off.partitions.by_p_key(0x10).sl, off.policy) == (0, None)
    assert (on.partitions.by_p_key(0x10).sl, on.policy.default.sl) == (3, 2)


@pytest.mark.parametrize(
    ("options", "told", "expected"),
    [
        ({}, NOTHING, False),
        ({"partition_config_file": None}, NOTHING, False),
        ({"virtual_fabrics_file": Path("x")}, NOTHING, True),
        ({}, RuntimeConfig(default_is_full=True), True),
    ],
)
def test_partitions_were_given_by_a_file_or_over_the_socket(options, told, expected):
    state = SimpleNamespace(options=Options(**options), told=told)
    assert was_given_partitions(state) is expected


# -- keys and leases --------------------------------------------------------------------------------------------------


def test_an_m_key_is_made_only_for_tenants_and_without_a_key_of_the_options(tmp_path):
    log, tenants = SimpleNamespace(say_once=None), FILES.with_runtime_config(change(define=[RED]))[0]
    file = {"m_key_file": tmp_path / "m_key"}
    assert port_key(Options(**file), NO_FILE, log) == PortKey()
    assert port_key(Options(), tenants, log) == PortKey()
    given = {"m_key": 9, "m_key_lease_period_s": 60, "m_key_protection_level": 1}
    assert port_key(Options(**file, **given), tenants, log) == PortKey(9, 60, 1)
    assert not file["m_key_file"].exists()
    made = port_key(Options(**file), tenants, log)
    assert (made.lease_period_s, made.level, made.m_key) == (0, 2, int(file["m_key_file"].read_text(), 16))
    assert port_key(Options(**file, m_key_protection_level=1), tenants, log).level == 1


def test_the_sa_key_is_a_digest_of_an_m_key_that_weft_made():
    made = own_sa_key(Options(), 5)
    assert made == own_sa_key(Options(), 5) != own_sa_key(Options(), 6)
    assert (own_sa_key(Options(), 0), own_sa_key(Options(m_key=5), 5), own_sa_key(Options(sa_key=7), 5)) == (1, 1, 7)
    assert len({made, sm_key_of(5, 1, 0), sm_key_of(5, 1, 1), sm_key_of(5, 2, 0), sm_key_of(6, 1, 0)}) == 5


@pytest.mark.parametrize(("now_s", "lease"), [(0, 10), (0.4, 10), (0.6, 9), (9.4, 1), (9.9, 1), (11, 1)])
def test_a_lease_is_shown_in_whole_seconds_and_at_least_one(now_s, lease):
    assert Service(ServiceRecord(service_lease=99), 10.0).at(now_s).service_lease == lease
    assert Service(ServiceRecord(service_lease=99), None).at(now_s).service_lease == 99


@pytest.mark.parametrize(
    ("service_key", "key", "guid", "expected"),
    [(0, 5, 2, True), (7, 7, 2, True), (7, 5, 1, True), (7, 5, 2, False), (7, 0, 2, False)],
)
def test_a_service_yields_to_its_owner_and_to_its_key(service_key, key, guid, expected):
    assert Service(ServiceRecord(service_key=service_key), None, owner=1).yields_to(key, guid) is expected


def test_keys_are_the_same_in_every_version():
    """Managers of different versions that share an M_Key trust each other."""
    assert (sm_key_of(5, 1, 0), own_sa_key(Options(), 5)) == (0xA9B9C399AFD25C27, 0x701B65A85111F09D)


# -- all files of a manager -------------------------------------------------------------------------------------------


def test_all_files_are_loaded_and_what_is_notable_is_logged_once(tmp_path):
    policy, partitions, roots = tmp_path / "qos.conf", tmp_path / "p.conf", tmp_path / "roots"
    policy.write_text("qos-setup\nend-qos-setup\nqos-ulps\ndefault : 2\nend-qos-ulps\n")
    partitions.write_text("Red=0x10: ALL;")
    roots.write_text("0x77\n")
    options = Options(
        qos=True, qos_policy_file=policy, partition_config_file=partitions, root_guid_file=roots,
        state_file=tmp_path / "sm.json", lmc_esp0=True, ignored=(("exit_on_fatal", "FALSE"),),
    )  # fmt: skip
    state = State(options=options, sender=None, log=Log(io.StringIO(), clock=lambda: 0.0))  # type: ignore[arg-type]
    runtime = change(define=[BLUE])
    write_runtime_config(allocation_file(tmp_path / "sm.json"), runtime)
    for _ in range(2):
        load_configuration(state)
    assert (state.told, state.roots) == (runtime, (0x77,))
    assert state.policy is not None
    assert state.policy.default.sl == 2
    assert [partition.name for partition in state.partitions.partitions] == ["Default", "Red", "blue"]
    texts = [line.split(" ", 3)[2:] for line in state.log.recent]
    assert [event for event, _ in texts] == ["PARTITIONS", "PARTITIONS", "QOS", "OPTION_IGNORED", "OPTION_IGNORED"]
    assert texts[0][1].startswith("restored run-time configuration: 1 partition of ")
    assert "no rule for Default" in texts[1][1]
    assert "qos-setup has no effect" in texts[2][1]
    assert texts[3][1] == "lmc_esp0 True: not followed; port 0 of a switch has one LID"
    assert texts[4][1] == "exit_on_fatal FALSE: weft's subnet manager has no use for it"
    before = state.filed, state.told, state.policy, state.roots
    for path, text in ((partitions, "blue=1: ALL;"), (policy, "x"), (roots, "x")):
        kept = path.read_text()
        path.write_text(text)
        with pytest.raises(ConfigError):
            load_configuration(state)
        path.write_text(kept)
        assert (state.filed, state.told, state.policy, state.roots) == before


def test_without_files_nothing_is_restored():
    state = State(options=Options(), sender=None, log=Log(io.StringIO(), clock=lambda: 0.0))  # type: ignore[arg-type]
    load_configuration(state)
    assert (state.told, state.policy, state.roots, [*state.log.recent]) == (NOTHING, None, (), [])
    assert (state.partitions, state.qos, state.sm_lid) == (NO_FILE, None, 0)
