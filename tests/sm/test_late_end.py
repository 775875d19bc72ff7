"""A manager that ends after its lab: it keeps the files of a successor with the same name."""

from __future__ import annotations

import io
import os
import threading
import time
from contextlib import closing

import msgspec
import pytest
from tests.patience import PATIENCE_S

import weft
from weft.errors import ConfigError
from weft.lab.lab import Lab
from weft.mad.ibsim_client import IbsimCarrier
from weft.sm.conf.options import Options
from weft.sm.events import Log
from weft.sm.run import SubnetManager
from weft.sm.status import _started, describe, read_status, write_status


def test_the_state_of_a_successor_stays(net, tmp_path):
    state = tmp_path / "state.json"
    manager = SubnetManager(net.carrier, Options(state_file=state), log=Log(io.StringIO()), clock=net.clock)
    manager.open()
    successor = msgspec.structs.replace(describe(manager, "master"), pid=os.getppid(), started=_started(os.getppid()))
    write_status(state, successor)
    manager.close()
    assert read_status(state) == successor


def test_manager_ends_with_its_lab_during_a_sweep():
    """It sends no MAD then, so none can fail."""
    lab = Lab(weft.load("star:hosts=2"), f"ends{time.monotonic_ns() % 10**12}").__enter__()
    with closing(IbsimCarrier("h1", lab.sockname)) as carrier:
        manager = SubnetManager(carrier, Options(sweep_interval_s=0))
        waiting = threading.Timer(PATIENCE_S, manager.stop)
        waiting.start()
        with pytest.raises(ConfigError, match="is gone"):
            manager.run(then=lab.stop)
        waiting.cancel()
