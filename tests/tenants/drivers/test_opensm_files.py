"""OpenSM's files have two authors: the operator's part stays to the byte, and contradictions to weft are refused."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conformance.drivers import LANES
from tests.tenants.drivers.test_partition_files import SLICES

import weft
from weft.errors import ConfigError, FileError, SubnetError
from weft.mad.local import LocalCarrier
from weft.mad.subnet import Subnet
from weft.tenants.drivers.opensm import OpenSmDriver
from weft.tenants.drivers.opensm_files import Managed, OpenSmFiles, load, read_managed, write_managed
from weft.tenants.drivers.partition_files import as_read
from weft.tenants.partitions import Allocation, Member, Partition

ACME = Partition(name="acme", p_key=0x101, members={0xA: Member()})
SLICED = Allocation(partitions={0x101: ACME}, default_is_full=False)
TEMPLATE = (
    "# as opensm -c writes it\nqos FALSE\nqos_max_vls 0\nqos_high_limit -1\nqos_ca_sl2vl (null)\npart_enforce both\n"
)


def files(partitions: str = "", options: str = "") -> OpenSmFiles:
    return OpenSmFiles(
        partitions_path=Path("partitions.conf"),
        options_path=Path("opensm.conf"),
        partitions=Managed(outside=partitions),
        options=Managed(outside=options),
    )


@given(st.binary(max_size=30), st.booleans())
def test_the_operators_text_is_unchanged(tmp_path_factory, theirs, is_open):
    path = tmp_path_factory.getbasetemp() / "file"
    path.write_bytes(theirs)
    managed = Managed(outside=read_managed(path).outside, body="ours\n", is_open=is_open)
    write_managed(path, managed)
    assert path.read_bytes().startswith(theirs)
    assert read_managed(path) == managed
    write_managed(path, Managed(outside=read_managed(path).outside))
    assert path.read_bytes() == theirs


def test_text_after_the_block_is_unchanged(tmp_path):
    path = tmp_path / "file"
    write_managed(path, Managed(outside="before\n", body="ours\n"))
    with path.open("a") as file:
        file.write("behind\n")
    assert read_managed(path) == Managed(outside="before\nbehind\n", body="ours\n")


@pytest.mark.parametrize("text", ["# >>> weft tenants\na\n", "a\n# <<< weft tenants\n", "# >>> weft tenants\n" * 2])
def test_marks_that_do_not_pair_are_refused(tmp_path, text):
    (tmp_path / "partitions.conf").write_text(text)
    with pytest.raises(FileError, match=r"partitions\.conf:\d: '# .*expected one '# >>> weft tenants'"):
        load(tmp_path / "partitions.conf", tmp_path / "opensm.conf")


@given(
    st.lists(SLICES.filter(lambda one: one.p_key != 0x200), max_size=3, unique_by=lambda one: one.p_key),
    st.booleans(),
    st.sampled_from([None, LANES]),
    st.sampled_from(["", "own=0x200: 0x1=full;"]),
)
def test_written_partitions_are_read_back(partitions, default_is_full, lanes, theirs):
    expected = Allocation(
        partitions={one.p_key: one for one in partitions}, default_is_full=default_is_full, lanes=lanes
    )
    result = files(theirs, TEMPLATE).with_allocation(expected).observed()
    assert result.allocation.partitions == as_read(expected.partitions)
    assert (result.allocation.default_is_full, result.allocation.lanes) == (default_is_full, lanes)
    assert result.foreign_p_keys == ({0x200} if theirs else set())


@pytest.mark.parametrize("theirs", ["", "# nothing\n", "own=0x200 : ALL ;\n"])
def test_removing_the_last_partition_removes_the_block(theirs):
    untouched = files(theirs)
    present = untouched.with_allocation(SLICED)
    assert present.partitions.body
    back = present.with_allocation(Allocation(default_is_full=untouched.observed().allocation.default_is_full))
    assert back.partitions.text == theirs


def test_p_keys_of_the_operator_are_refused():
    with pytest.raises(ConfigError, match=r"acme=0x0101 is taken: partitions\.conf has own=0x0101"):
        files("own=0x101 : ALL ;").with_allocation(SLICED)


def test_an_operators_rule_for_default_that_prevents_isolation_is_named():
    with pytest.raises(ConfigError, match=r"partitions\.conf:2: all ports are full members of Default by ALL=full"):
        files("# mine\nDefault=0x7fff,ipoib : ALL=full ;").with_allocation(SLICED)
    limited = files("Default=0x7fff : ALL=limited, SELF=full, 0x77=full ;").with_allocation(SLICED)
    assert "Default" not in limited.partitions.body
    assert limited.expected()[2] is None
    assert not limited.observed().allocation.default_is_full


@pytest.mark.parametrize("broken", ["own=0x200 : h1 ;", "own=0x200 : 0x1=full"])
def test_a_file_that_opensm_would_reject_is_not_written(broken):
    with pytest.raises(FileError, match="OpenSM would drop the whole file"):
        files(broken).with_allocation(SLICED)


@pytest.mark.parametrize(
    "line", ["qos TRUE", "qos_ca_sl2vl 0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0", "qos_high_limit 3 # mine"]
)
def test_lanes_set_by_the_operator_are_named(line):
    theirs = files(options=f"{TEMPLATE}{line}\n")
    with pytest.raises(ConfigError, match=rf"opensm\.conf:7: {line} sets lanes, which weft has to set"):
        theirs.with_allocation(Allocation(lanes=LANES))
    assert theirs.with_allocation(Allocation()).options == theirs.options


def test_removed_lanes_turn_qos_off():
    """OpenSM keeps options that are removed from the file."""
    present = files(options=TEMPLATE).with_allocation(Allocation(lanes=LANES))
    assert "qos TRUE\n" in present.options.body
    assert present.with_allocation(Allocation()).options.body == "qos FALSE\n"


@pytest.mark.parametrize(
    ("options", "sls"),
    [
        ("", 1),
        ("routing_engine ftree,updn\n", 1),
        ("# routing_engine dfsssp\n", 1),
        ("qos TRUE\nrouting_engine updn, dfsssp\n", 2),
        ("routing_engine torus-2QoS\n", 2),
    ],
)
def test_routing_engines_that_need_service_levels_are_recognised(options, sls):
    assert files(options=options).routing_sls == sls


def test_a_process_that_is_not_opensm_is_not_signalled(tmp_path):
    """A pid file that is absent or has no number, a process that does not exist, and one that SIGHUP would kill."""
    pid_file = tmp_path / "opensm.pid"
    paths = {"partitions": tmp_path / "partitions.conf", "options": tmp_path / "opensm.conf"}
    carrier = LocalCarrier(Subnet(weft.load("star:hosts=2")), 1)
    by_file = OpenSmDriver(**paths, signal=pid_file, carrier=carrier, timeout_s=1)
    with pytest.raises(SubnetError, match=rf"cannot signal the process in {pid_file}: .*No such file"):
        by_file._check_process()
    pid_file.write_text("opensm")
    with pytest.raises(SubnetError, match=r"cannot signal the process in .*: invalid literal"):
        by_file._check_process()
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        other.stdin.write(b"\n")
        other.stdin.flush()
        other.stdout.readline()  # from here on the process has the name of its program
        pid_file.write_text(f"{other.pid}\n")
        try:
            with pytest.raises(SubnetError, match=f"process {other.pid} is cat, which SIGHUP would kill"):
                by_file._check_process()
        finally:
            other.kill()
        other.wait()
        without_handler = OpenSmDriver(**paths, signal=os.getpid(), carrier=carrier)
        with pytest.raises(SubnetError, match="which SIGHUP would kill"):  # it handles SIGINT, not SIGHUP
            without_handler._check_process()
        by_number = OpenSmDriver(**paths, signal=other.pid, carrier=carrier, timeout_s=1)
        for signal_it in (by_number._check_process, by_number._signal):
            with pytest.raises(SubnetError, match=f"cannot signal process {other.pid}: .*No such"):
                signal_it()


@pytest.mark.parametrize(
    ("rules", "is_full"),
    [
        ("", True),
        ("Default=0x7fff : ALL=full, ALL=limited ;", False),
        ("Default=0x7fff : ALL=limited, ALL=full ;", True),
        ("Default=0x7fff : 0x77=full ;", False),
        ("Default=0x7fff : ALL_CAS=full ;", False),
    ],
)
def test_the_last_rule_for_all_ports_decides_the_membership_in_default(rules, is_full):
    present = files(rules)
    assert present.observed().allocation.default_is_full is is_full
    assert present.expected()[2] is (None if rules else True)


def test_other_options_of_the_operator_stay():
    """A QoS policy file, comments and default values set no lanes."""
    text = f"{TEMPLATE}qos_policy_file /etc/qos.conf\n# qos TRUE\nsm_priority 3\n\n"
    assert files(options=text).with_allocation(Allocation(lanes=LANES)).options.outside == text


def test_a_block_that_is_open_has_its_marks_without_partitions():
    begin = "# >>> weft tenants (not yet obeyed): written by weft, changes here are lost\n# <<< weft tenants\n"
    assert Managed(is_open=True).text == begin
    assert Managed(outside="a\n", is_open=True).text == f"a\n\n{begin}"
    assert (Managed(outside="a\n").text, Managed().text) == ("a\n", "")


@pytest.mark.parametrize(
    ("text", "line"),
    [("# >>> weft tenants\na\n", 1), ("a\n# <<< weft tenants\n", 2), ("\n\n# >>> weft tenants\n", 3)],
)
def test_the_line_of_a_mark_without_a_pair_is_named(tmp_path, text, line):
    path = tmp_path / "partitions.conf"
    path.write_text(text)
    with pytest.raises(FileError, match=rf"partitions\.conf:{line}: "):
        read_managed(path)


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    assert read_managed(tmp_path / "absent") == Managed()
    with pytest.raises(FileError, match="Is a directory"):
        read_managed(tmp_path)


def test_the_revision_is_of_both_files_and_not_of_the_mark():
    present = files("own=0x200 : ALL ;\n", TEMPLATE).with_allocation(SLICED)
    assert present.revision == present.opened().revision == present.opened().closed().revision
    assert len({present.revision, files().revision, files("# a\n").revision, files("", "# a\n").revision}) == 4
