"""Who ends late, after its lab, leaves what its successor of the same name has written."""

from __future__ import annotations

import io
import os

import msgspec

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
