"""`weft up` when one of its programs does not start."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

import weft
from weft.cli import app, up
from weft.errors import ConfigError, SubnetError
from weft.lab.managers import managers_of
from weft.lab.planes import planarize
from weft.lab.registry import Entry
from weft.sm.conf.options import Options


@pytest.mark.parametrize(
    ("does", "says"),
    [
        ("exec sleep 1000", r"the console was not up after 0.1 s .*weft serve --lab mine"),
        ("exit 3", "failed to start"),
    ],
)
def test_a_console_that_does_not_come_up_is_told(
    does: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A console that hangs blocked the terminal forever."""
    program = tmp_path / "python"
    program.write_text(f"#!/bin/sh\n{does}\n")
    program.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(program))
    monkeypatch.setattr(up, "CONSOLE_S", 0.1 if "sleep" in does else 1000.0)
    with pytest.raises(SubnetError, match=says):
        up._start_console(Entry(name="mine", folder=tmp_path), True)


def test_each_subnet_has_a_manager_with_its_own_prefix():
    managers = managers_of(weft.load("subnets:2,of=superpod:su=1,servers=2"), Options(sm_priority=3), "")
    assert [(host, hex(options.subnet_prefix), options.sm_priority) for host, options in managers] == [
        ("s1-dgx1/mlx5_0", "0xfec0000000000001", 3),
        ("s2-dgx1/mlx5_0", "0xfec0000000000002", 3),
    ]
    ((host, options),) = managers_of(weft.load("star:hosts=2"), Options(subnet_prefix=7), "h2")
    assert (host, options.subnet_prefix) == ("h2", 7)


def test_at_starts_the_manager_of_one_subnet_or_plane_alone():
    managers = managers_of(weft.load("subnets:2,of=star:hosts=2"), Options(), "s2-h2")
    assert [(host, hex(own.subnet_prefix)) for host, own in managers] == [("s2-h2", "0xfec0000000000002")]
    planes = planarize(weft.load("star:hosts=2,planes=2"))
    assert [host for host, _ in managers_of(planes, Options(), "h2/2")] == ["h2/2"]
    both = planarize(weft.load("subnets:2,of=star:hosts=2,planes=2"))
    ((host, own),) = managers_of(both, Options(), "s2-h2/2")
    assert (host, hex(own.subnet_prefix)) == ("s2-h2/2", "0xfec0000000000002")
    hosts = [(host, own.subnet_prefix & 0xFF) for host, own in managers_of(both, Options(), "")]
    assert hosts == [("s1-h1/1", 1), ("s1-h1/2", 1), ("s2-h1/1", 2), ("s2-h1/2", 2)]


def test_each_subnet_gets_an_equal_part_of_the_floating_lids():
    options = Options(global_flid_start=1000, global_flid_end=1009)
    managers = managers_of(weft.load("subnets:3,of=star:hosts=2"), options, "")
    assert [own.flids for _, own in managers] == [(1000, 1009, 1000 + 3 * n, 1002 + 3 * n) for n in range(3)]
    with pytest.raises(ConfigError, match="local_flid_start 1000 would be that of 2 subnets: leave it out"):
        managers_of(weft.load("subnets:2,of=star:hosts=2"), replace(options, local_flid_start=1000), "")
    with pytest.raises(ConfigError, match="global_flid_start 5 to global_flid_end 5 has fewer than 2 LIDs"):
        managers_of(weft.load("subnets:2,of=star:hosts=2"), Options(global_flid_start=5, global_flid_end=5), "")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("star:hosts=2,planes=2 --at h2", "--at h2 is in 2 planes, .* give its port in one of them, h2/1"),
        (
            "subnets:2,of=star:hosts=2 --subnet-prefix 0xfec0000000000007",
            "subnet_prefix 0xfec0000000000007 would be that of 2 subnets: .* need different prefixes",
        ),
        ("star:hosts=2 --subnet-prefix fe::1", "--subnet-prefix fe::1 is not a 64-bit hexadecimal number"),
        ("star:hosts=2 --subnet-prefix 0", "--subnet-prefix 0 is not a 64-bit hexadecimal number"),
    ],
)
def test_prefix_that_managers_cannot_use_is_refused_before_the_lab_starts(words: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        app(["up", *words.split(), "--sm", "--daemon", "--name", "never"])
