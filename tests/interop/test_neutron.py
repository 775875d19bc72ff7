"""Neutron itself drives weft's mechanism driver: its REST API, its database, its bindings (neutron_program.py)."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from tests.clouds.ufm_server import running_ufm
from tests.conftest import ROOT
from tests.interop.conftest import do_without

pytestmark = [pytest.mark.interop, pytest.mark.slow]
PYTHON = ROOT / ".venv" / "neutron" / "bin" / "python"  # of `make peers`
PROGRAM = Path(__file__).with_name("neutron_program.py")
FIRST, SECOND = 0x0002C90300001231, 0x0002C90300001241


def test_partitions_follow_networks_and_ports(tmp_path):
    if not PYTHON.exists():
        do_without("Neutron")
    with running_ufm() as ufm, (tmp_path / "log").open("w+") as log:
        command = [str(PYTHON), str(PROGRAM), ufm.url, "token", f"{FIRST:#x}", f"{SECOND:#x}"]
        steps = []
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True) as neutron:
            assert neutron.stdin
            assert neutron.stdout
            for line in neutron.stdout:
                said = json.loads(line)
                steps.append(said["step"])
                if said["step"] == "done":
                    break
                wanted = set(said["guids"]) if said["is_there"] else None
                assert (said["step"], ufm.members(said["p_key"])) == (said["step"], wanted)
                neutron.stdin.write("seen\n")
                neutron.stdin.flush()
        log.seek(0)
        assert steps[-1:] == ["done"], log.read()[-5000:]
    assert len(steps) == 16
