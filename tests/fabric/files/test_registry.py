"""The formats: found by name or content, refused with suggestions, written completely or not at all."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.errors import ConfigError, FileError, UnknownName
from weft.fabric import files
from weft.fabric.files import FORMATS
from weft.fabric.spec import load

TREE = "fat-tree:hosts=12,radix=8"


@pytest.fixture(scope="module")
def tree():
    return load(TREE)


def test_every_format_is_complete():
    for name, entry in FORMATS.items():
        assert entry.name == name
        assert entry.description
        assert entry.suffixes
    suffixes = [suffix for entry in FORMATS.values() for suffix in entry.suffixes]
    assert len(suffixes) == len(set(suffixes))


@pytest.mark.parametrize(
    ("name", "format_name"),
    [
        (f"fabric{suffix}" if suffix.startswith(".") else suffix, entry.name)
        for entry in FORMATS.values()
        for suffix in entry.suffixes
        if suffix != ".toml"
    ],
)
def test_every_suffix_writes_its_format(name, format_name, tmp_path):
    fabric = load("fat-tree:hosts=2,server=dgx-h100")
    files.write(fabric, tmp_path / name)
    assert (tmp_path / name).read_text() == files.to_text(fabric, format_name)


@pytest.mark.parametrize("entry", [e for e in FORMATS.values() if e.reads], ids=lambda e: e.name)
def test_written_files_are_recognised_by_their_content(entry, tree, tmp_path):
    """The file name does not matter, except for lab files, which only their suffix identifies."""
    path = tmp_path / (f"anything{entry.suffixes[0]}" if entry.name == "lab" else "anything.log")
    path.write_text(files.to_text(tree, entry.name))
    again = files.read(path)
    assert {node.name for node in again.switches} == {node.name for node in tree.switches}
    assert len(again.links) == len(tree.links)
    assert load(str(path)).spec == str(path)


@pytest.mark.parametrize("entry", [e for e in FORMATS.values() if not e.reads], ids=lambda e: e.name)
def test_write_only_formats_are_refused_by_name(entry, tmp_path):
    path = tmp_path / "anything"
    path.write_text(files.to_text(load("fat-tree:hosts=2,server=dgx-h100"), entry.name))
    with pytest.raises(FileError, match=f"{entry.name} is only written"):
        files.read(path)


def test_opensm_writes_a_directory_of_dumps(tree, tmp_path):
    files.write(tree, tmp_path / "dumps", format="opensm")
    files.write(tree, tmp_path / "dumps", format="opensm")  # again, over the first
    again = files.read(tmp_path / "dumps" / "opensm-subnet.lst")
    assert len(again.links) == len(tree.links)


def test_nccl_describes_the_first_server_with_gpus():
    assert files.to_text(load("fat-tree:hosts=2,server=dgx-h100"), "nccl").count("<gpu ") == 8
    with pytest.raises(ConfigError, match="has no GPUs"):
        files.to_text(load("star:2"), "nccl")


def test_unknown_content_is_refused_with_the_readable_formats(tmp_path):
    for name in ("a.txt", "b", "c.bin"):
        path = tmp_path / name
        path.write_bytes(b"\x00\xffhello\nworld")
        with pytest.raises(FileError, match=r"one of: lab .*ibnetdiscover .*opensm .*ndt"):
            files.read(path)


def test_content_counts_more_than_a_suffix_but_that_of_a_lab_file(tree, tmp_path):
    (tmp_path / "dump.csv").write_text(files.to_text(tree, "ibnetdiscover"))
    assert len(files.read(tmp_path / "dump.csv").links) == len(tree.links)
    (tmp_path / "dump.yaml").write_text("vendid=0x2c9\n")
    with pytest.raises(FileError, match="expected a mapping"):
        files.read(tmp_path / "dump.yaml")


def test_a_wrong_suffix_gets_the_complaint_of_its_format(tmp_path):
    path = tmp_path / "plan.csv"
    path.write_text("a,b,c\n")
    with pytest.raises(FileError, match="a header with the columns StartDevice"):
        files.read(path)


def test_missing_files_directories_and_binary_files_are_refused(tmp_path):
    with pytest.raises(FileError, match="no such file"):
        files.read(tmp_path / "nowhere.yaml")
    with pytest.raises(FileError, match="a directory"):
        files.read(tmp_path)
    with pytest.raises(FileError):
        files.read("null\0character.yaml")
    (tmp_path / "bad.yaml").write_bytes(b"nodes:\n  \xff: 1\n")
    with pytest.raises(FileError, match=r"bad.yaml:2: not a text file"):
        files.read(tmp_path / "bad.yaml")


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_file_without_permission_is_refused(tmp_path):
    path = tmp_path / "secret.yaml"
    path.write_text("nodes: {}")
    path.chmod(0)
    with pytest.raises(FileError, match="ermission"):
        files.read(path)


def test_unwritable_files_and_unknown_formats_are_refused(tree, tmp_path):
    with pytest.raises(ConfigError, match=r"end the name with \.yaml \(lab\).* or give --format"):
        files.write(tree, tmp_path / "fabric.xyz")
    with pytest.raises(UnknownName, match="did you mean graphml"):
        files.write(tree, tmp_path / "fabric.xyz", format="grapml")
    with pytest.raises(ConfigError, match=r"cannot write .*fabric.yaml: no folder .*nowhere; create it first"):
        files.write(tree, tmp_path / "nowhere" / "fabric.yaml")
    with pytest.raises(ConfigError, match="written only in YAML"):
        files.write(tree, tmp_path / "fabric.toml")
    (tmp_path / "taken").write_text("")
    with pytest.raises(ConfigError, match="cannot write into"):
        files.write(tree, tmp_path / "taken", format="opensm")


def test_a_failed_write_leaves_the_old_file_alone(tmp_path):
    """A fabric without GPUs has no NCCL file."""
    path = tmp_path / "topology.xml"
    path.write_text("old")
    with pytest.raises(ConfigError):
        files.write(load("star:2"), path)
    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["topology.xml"]


def test_formats_cost_nothing_until_they_are_used():
    """The list of formats is there before numpy, yaml, or any module of a format."""
    program = "import sys, weft.fabric.files; print(*sys.modules)"
    source = Path(files.__file__).parents[3]
    done = subprocess.run(
        [sys.executable, "-c", program], env={"PYTHONPATH": str(source)}, capture_output=True, text=True
    )
    loaded = set(done.stdout.split())
    assert "weft.fabric.files" in loaded
    assert loaded.isdisjoint({"numpy", "yaml", "networkx", "weft.fabric.files.lab", "weft.fabric.files.ndt"})


@settings(max_examples=100)
@given(
    content=st.binary() | st.sampled_from([e.name for e in FORMATS.values()]).map(str.encode),
    start=st.sampled_from(
        [b"", b"vendid=0x2c9\n", b"{ CA ", b"#StartDevice,", b"nodes:\n", b"\xef\xbb\xbf", b"Switch 8 "]
    ),
    suffix=st.sampled_from(["", *(s for e in FORMATS.values() for s in e.suffixes)]),
)
def test_any_bytes_are_read_or_refused_with_a_reason(content, start, suffix, tmp_path):
    path = tmp_path / f"fuzz{suffix}"
    path.write_bytes(start + content)
    with contextlib.suppress(ConfigError):
        files.read(path)
