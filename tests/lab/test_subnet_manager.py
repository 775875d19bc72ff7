"""The subnet manager process of a lab: it waits for a busy lab, and its waiting clients learn of its end."""

from __future__ import annotations

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest
from tests.patience import wait_until

import weft
from weft import user_cache
from weft.errors import SubnetError
from weft.lab import control, daemon, subnet_manager
from weft.lab.lab import Lab
from weft.mad.ibsim_client import IbsimCarrier
from weft.sm.conf.options import Options
from weft.sm.sender import attach

_BUSY_S = 2.0  # longer than OpenSM's four tries


def test_a_lab_that_looks_at_its_fabric_first_is_waited_for():
    lab = Lab(weft.load("star:hosts=2"), f"busy{time.monotonic_ns() % 10**12}")
    begun = threading.Event()

    def look() -> None:
        begun.set()
        time.sleep(_BUSY_S)

    with lab, closing(IbsimCarrier("h1", lab.sockname)) as carrier:
        busy = threading.Thread(target=lab.server.call, args=(look,))
        busy.start()
        begun.wait()
        assert attach(carrier, 0) == lab.fabric["h1"].port(1).guid
        busy.join()


def test_one_that_cannot_begin_is_not_waited_for_and_its_log_says_why(tmp_path):
    entry = daemon.start(weft.load("star:hosts=2"), f"none{time.monotonic_ns() % 10**12}", follow=True)
    try:
        sockname = control.ask(entry, "state")["sockname"]
        with pytest.raises(SubnetError, match="has not brought it up") as messages:
            subnet_manager.launch(entry, sockname, "h9", Options(), log=tmp_path / "sm.log").wait()
        assert str(tmp_path / "sm.log") in str(messages.value)
        assert "h9" in (tmp_path / "sm.log").read_text()
    finally:
        control.end(entry)


def test_kernels_that_the_manager_compiles_are_announced_to_the_caller(tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(user_cache, "_SILENT_S", 0.0)
    (tmp_path / "sm.log").write_text(f"weft: compiling kernels, {user_cache.NOTICE}\n")
    printed: list[str] = []
    entry = daemon.start(weft.load("star:hosts=2"), f"slow{time.monotonic_ns() % 10**12}", follow=True)
    alive, held = os.pipe()  # the lab has no copy of it
    launched = subnet_manager.Launched(entry, tmp_path / "sm.log", tmp_path / "state.json", alive)
    try:
        with ThreadPoolExecutor(1) as threads:
            waiting = threads.submit(launched.wait)
            wait_until(lambda: printed.append(capfd.readouterr().err) or "manager is" in "".join(printed), "the notice")
            os.close(held)
            with pytest.raises(SubnetError, match="has not brought it up"):
                waiting.result()
    finally:
        control.end(entry)
    assert "weft: the subnet manager is compiling kernels, once per machine" in "".join(printed)
