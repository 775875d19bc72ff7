from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from tests.patience import wait_until

from weft import kept

DAY_S = 24 * 3600


def make(path: Path, days: float, *, is_file: bool = False) -> Path:
    """So long ago."""
    if is_file:
        path.write_text("x")
    else:
        path.mkdir()
        (path / "inside").write_text("x")
    then_s = time.time() - days * DAY_S
    os.utime(path, (then_s, then_s))
    return path


@pytest.mark.parametrize("is_file", [False, True])
def test_what_nobody_has_used_for_a_month_goes_when_one_of_its_kind_is_made(tmp_path, is_file):
    """Also what somebody who was killed has left; nothing of another kind, and nothing that is not named so."""
    ending = ".so" if is_file else ""
    days = {"arm-0123456789abcdef": 31, "arm-0123456789abcdef.x7k": 31, "arm-00000000deadbeef": 29, "arm-new": 31}
    days |= {"arm.two-0123456789abcdef": 31, "arm": 31, "peers": 31}
    for name, one in days.items():
        make(tmp_path / f"{name}{ending}", one, is_file=is_file)
    made = make(tmp_path / f"arm-aaaaaaaaaaaaaaaa{ending}", 0, is_file=is_file)
    kept.replace_old(made)
    stays = {"arm-00000000deadbeef", "arm-new", "arm.two-0123456789abcdef", "arm", "peers", "arm-aaaaaaaaaaaaaaaa"}
    assert {one.name for one in tmp_path.iterdir()} == {f"{name}{ending}" for name in stays}


def test_what_is_used_stays(tmp_path):
    used, made = make(tmp_path / "k-0123456789abcdef", 31), make(tmp_path / "k-aaaaaaaaaaaaaaaa", 0)
    assert kept.use(used) == used
    kept.replace_old(made)
    assert used.is_dir()


def test_where_nothing_was_kept_yet_nothing_happens(tmp_path):
    kept.replace_old(tmp_path / "nowhere" / "k-0123456789abcdef")
    assert kept.use(tmp_path / "nowhere") == tmp_path / "nowhere"


def test_what_takes_long_is_announced_on_stderr(monkeypatch, capfd):
    monkeypatch.setattr(kept, "_SILENT_S", 0.0)
    said: list[str] = []
    announcer = kept.Announcer("compiling kernels")
    announcer.begin()
    announcer.begin()  # on the way
    announcer.end()
    wait_until(lambda: said.append(capfd.readouterr().err) or "\n" in "".join(said), "the announcement")
    announcer.end()
    assert "".join(said) == "weft: compiling kernels, once per machine: 0 s so far\n"


def test_what_is_quick_is_not_announced(capfd):
    announcer = kept.Announcer("compiling kernels")
    announcer.begin()
    announcer.end()
    assert capfd.readouterr() == ("", "")
