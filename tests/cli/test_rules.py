"""Rules of the command line that need no fabric: words of `join` and `run`, defaults, errors and plurals."""

from __future__ import annotations

import errno

import pytest

from weft.cli import _describe, _show_default, join, lab, run
from weft.cli.elsewhere import advice_for_option
from weft.cli.nccl import nccl
from weft.cli.tenant_drivers import PASSWORD, TOKEN, USER, connect_ufm
from weft.cli.train import Trouble
from weft.errors import ConfigError, UnknownName


@pytest.mark.parametrize(
    ("value", "shown"), [(None, None), (False, None), ("", None), ((), None), (True, "on"), (0, "0"), ("ring", "ring")]
)
def test_help_shows_defaults_but_not_flags_that_are_off(value, shown):
    assert _show_default(value) == shown


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (OSError(errno.ENOSPC, "No space left"), "cannot write standard output: No space left"),
        (OSError(errno.ENOSPC, "No space left", "out.json"), "out.json: No space left"),
        (OSError(errno.EACCES, "Permission denied"), "Permission denied"),
        (OSError(), "OSError"),
    ],
)
def test_an_error_of_the_system_is_named_with_its_file(error, text):
    assert _describe(error) == text


def test_join_reads_its_words_before_two_dashes():
    words = ("lab:7", "--as=h3", "--token", "secret", "--sysfs", "--", "ib_write_bw", "--as", "x")
    options = {"--as": "h3", "--token": "secret"}
    assert join._read(words) == ("lab:7", options, True, ("ib_write_bw", "--as", "x"))


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("lab:7", "ls"), "needs a command after"),
        (("lab:7", "--"), "needs a command after"),
        (("lab:7", "--as", "h1", "--share", "x", "--", "ls"), "--share runs no command: leave out `-- ls`"),
        (("lab:7", "--as", "h1", "--share"), "--share has no value"),
        (("lab:7", "--as", "--", "ls"), "--as has no value"),
        (("lab:7", "lab:8", "--", "ls"), "does not know 'lab:8'"),
        (("lab:7", "--lab", "--", "ls"), "does not know '--lab'"),
        (("--as=", "--", "ls"), "needs the address of a lab"),
    ],
)
def test_wrong_words_of_join_are_refused(words, error):
    with pytest.raises(ConfigError, match=error):
        join._read(words)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("h1", "ls", "--lab", "x"), ("", set(), "h1", ("ls", "--lab", "x"))),
        (("--lab", "a", "h1", "ls", "-l"), ("a", set(), "h1", ("ls", "-l"))),
        (("--lab=a", "--sysfs", "h1", "--", "ls"), ("a", {"--sysfs"}, "h1", ("ls",))),
        (("--ip", "--sysfs", "h1", "ls", "--ip"), ("", {"--ip", "--sysfs"}, "h1", ("ls", "--ip"))),
        (("--sysfs", "--lab", "a", "h1", "echo", "--"), ("a", {"--sysfs"}, "h1", ("echo", "--"))),
    ],
)
def test_exec_reads_its_options_before_the_host(words, expected):
    assert lab._read_exec(words) == expected


@pytest.mark.parametrize("words", [(), ("h1",), ("h1", "--"), ("--lab", "a", "h1"), ("--sysfs",), ("--lab",)])
def test_exec_needs_a_host_and_a_command(words):
    with pytest.raises(ConfigError, match="needs a host and a command"):
        lab._read_exec(words)


def test_run_reads_its_options_before_the_program():
    words = ("-n", "4", "--lab=a", "-q", "--mpi", "python", "-q", "-n")
    assert run._read(words) == ({"-n": "4", "--lab": "a", "--quiet": "", "--mpi": "mpirun"}, ("python", "-q", "-n"))
    assert run._read(("--mpi=srun", "-n=2", "--", "-x")) == ({"--mpi": "srun", "-n": "2"}, ("-x",))
    for wrong, error in ((("-n",), "-n has no value"), (("--lab", "a", "true"), "-n is missing")):
        with pytest.raises(ConfigError, match=error):
            run._read(wrong)
    with pytest.raises(UnknownName, match="--quiet=yes"):
        run._read(("-n", "1", "--quiet=yes", "true"))


@pytest.mark.parametrize(
    ("given", "is_enough"),
    [
        ({}, False),
        ({USER: "me"}, False),
        ({PASSWORD: "x"}, False),
        ({TOKEN: "t"}, True),
        ({USER: "me", PASSWORD: "x"}, True),
    ],
)
def test_ufm_needs_a_token_or_a_user_with_a_password(monkeypatch, given, is_enough):
    for name in (TOKEN, USER, PASSWORD):
        monkeypatch.delenv(name, raising=False)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    if is_enough:
        connect_ufm("http://127.0.0.1:1", None)
    else:
        with pytest.raises(ConfigError, match="needs credentials"):
            connect_ufm("http://127.0.0.1:1", None)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"checkpoint_minutes": 5.0}, "part of --goodput"),
        ({"checkpoint_waits": True}, "part of --goodput"),
        ({"goodput": "llama3", "checkpoint_minutes": 0.0}, "must be above 0"),
        ({"goodput": "llama3", "checkpoint_minutes": 1e6}, "must be above 0"),
    ],
)
def test_checkpoints_are_part_of_goodput(options, error):
    Trouble(goodput="llama3", checkpoint_minutes=5.0, checkpoint_waits=True)
    Trouble()
    with pytest.raises(ConfigError, match=error):
        Trouble(**options)


def test_options_of_other_tools_have_advice():
    assert advice_for_option("nccl", "-G", ()) == "CUDA graphs are not modelled; leave it out"
    assert advice_for_option("nccl", "--nodes=4", ()).startswith("every GPU is a rank")
    assert advice_for_option("sim", "--plot=x.svg", ("--picture", "--json")) == "use --picture"
    assert advice_for_option("sim", "--plot", ("--json",)) is None


def test_nccl_needs_a_cluster():
    with pytest.raises(ConfigError, match="all_reduce needs a cluster"):
        nccl("all_reduce")
