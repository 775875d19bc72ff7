from __future__ import annotations

import fcntl
import io
import os
import pty
import sys
import time
from pathlib import Path

import pytest
from tests.patience import wait_until

from weft import user_cache

DAY_S = 24 * 3600


def make(path: Path, days: float, *, is_file: bool = False) -> Path:
    """Create an entry last used so many days ago."""
    if is_file:
        path.write_text("x")
    else:
        path.mkdir()
        (path / "inside").write_text("x")
    then_s = time.time() - days * DAY_S
    os.utime(path, (then_s, then_s))
    return path


@pytest.mark.parametrize("is_file", [False, True])
def test_entries_unused_for_a_month_are_removed_with_a_new_entry_of_their_kind(tmp_path, is_file):
    """Leftovers of killed processes are removed too; entries of another kind and files with other names stay."""
    ending = ".so" if is_file else ""
    days = {"arm-0123456789abcdef": 31, "arm-0123456789abcdef.x7k": 31, "arm-00000000deadbeef": 29, "arm-new": 31}
    days |= {"arm.two-0123456789abcdef": 31, "arm": 31, "peers": 31}
    for name, age_days in days.items():
        make(tmp_path / f"{name}{ending}", age_days, is_file=is_file)
    new = make(tmp_path / f"arm-aaaaaaaaaaaaaaaa{ending}", 0, is_file=is_file)
    user_cache.remove_unused(new)
    stays = {"arm-00000000deadbeef", "arm-new", "arm.two-0123456789abcdef", "arm", "peers", "arm-aaaaaaaaaaaaaaaa"}
    assert {path.name for path in tmp_path.iterdir()} == {f"{name}{ending}" for name in stays}


def test_entries_in_use_stay(tmp_path):
    used, new = make(tmp_path / "k-0123456789abcdef", 31), make(tmp_path / "k-aaaaaaaaaaaaaaaa", 0)
    assert user_cache.mark_used(used) == used
    user_cache.remove_unused(new)
    assert used.is_dir()


def test_a_missing_cache_folder_is_no_error(tmp_path):
    user_cache.remove_unused(tmp_path / "nowhere" / "k-0123456789abcdef")
    assert user_cache.mark_used(tmp_path / "nowhere") == tmp_path / "nowhere"


def test_long_work_is_announced_on_stderr(monkeypatch):
    monkeypatch.setattr(user_cache, "_SILENT_S", 0.0)
    monkeypatch.setattr(sys, "stderr", printed := io.StringIO())
    announcer = user_cache.Announcer("compiling kernels")
    announcer.begin()
    announcer.begin()  # nested
    announcer.end()
    wait_until(lambda: "\n" in printed.getvalue(), "the announcement")
    announcer.end()
    announcer.begin()  # is not announced again
    announcer.end()
    hint = "`weft doctor --compile` does it for all commands"
    assert printed.getvalue() == f"weft: compiling kernels, once per machine; {hint}\n"


def test_long_work_is_counted_on_a_terminal_and_leaves_no_line(monkeypatch):
    monkeypatch.setattr(user_cache, "_SILENT_S", 0.0)
    far, near = pty.openpty()
    with open(near, "w") as terminal, open(far, "rb", buffering=0) as screen:
        monkeypatch.setattr(sys, "stderr", terminal)
        announcer = user_cache.Announcer("compiling kernels")
        announcer.begin()
        assert screen.read(200).startswith(b"\rweft: compiling kernels, once per machine: 0 s")
        announcer.end()
        assert screen.read(200).endswith(b"\r\x1b[K")


def test_the_lock_of_an_entry_keeps_others_out_until_it_is_made(tmp_path):
    entry = tmp_path / "cache" / "library-0123456789abcdef"
    with user_cache.lock(entry), open(f"{entry}.lock", "rb") as other, pytest.raises(BlockingIOError):
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    with open(f"{entry}.lock", "rb") as other:
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_short_work_is_not_announced(capfd):
    announcer = user_cache.Announcer("compiling kernels")
    announcer.begin()
    announcer.end()
    assert capfd.readouterr() == ("", "")
