"""A topology-aware scheduler reads the fabric that is there, not a canned listing."""

import re
import subprocess

import placement
import pytest

SPEC = "fat-tree:hosts=16,radix=8"
pytestmark = pytest.mark.weft_lab(SPEC)


def discover(host):
    ended = host("h1").run("ibnetdiscover")
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_leaves_are_those_of_slurm(host):
    exported = subprocess.run(
        ["weft", "export", SPEC, "-f", "slurm", "-o", "-"], capture_output=True, text=True, check=True
    )
    expected = {
        leaf: {f"h{number}" for number in range(int(first), int(last) + 1)}
        for leaf, first, last in re.findall(r"SwitchName=(leaf\d+) Nodes=h\[(\d+)-(\d+)\]", exported.stdout)
    }
    assert len(expected) == 4
    assert placement.leaves(discover(host)) == expected


def test_a_host_without_a_cable_gets_no_job_and_the_others_stay_together(host, break_cable):
    break_cable("h6/1")
    listing = discover(host)
    assert placement.place(listing, 3) == ["h5", "h7", "h8"]
    assert len(placement.place(listing, 4)) == 4
    assert "h6" not in placement.place(listing, 15)
    with pytest.raises(SystemExit, match="16 hosts are wanted and 15 are connected"):
        placement.place(listing, 16)


def test_a_job_larger_than_a_leaf_takes_whole_leaves(host, break_cable):
    break_cable("leaf2")
    assert {int(name[1:]) for name in placement.place(discover(host), 12)} == {*range(1, 5), *range(9, 17)}
