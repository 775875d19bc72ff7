"""Neutron itself, its REST API and its bindings, on a lab: weft's driver and NVIDIA's (neutron_program.py)."""

from __future__ import annotations

import json
import subprocess
from contextlib import closing
from pathlib import Path

import pytest
from tests.conftest import ROOT
from tests.documents import find_block
from tests.interop.conftest import do_without

from weft.lab import control, registry
from weft.mad.ibsim_client import IbsimCarrier
from weft.mad.keyed import KeyedCarrier, KeyFile
from weft.serve.embedded import Ufm
from weft.tenants.drivers.port_tables import read_port_tables
from weft.tenants.drivers.ufm_rest import UfmClient

pytestmark = [pytest.mark.interop, pytest.mark.slow]
PYTHON = ROOT / ".venv" / "neutron" / "bin" / "python"  # installed by `make peers`
PROGRAM = Path(__file__).with_name("neutron_program.py")
STEPS = 20


def holders(ufm: Ufm, p_key: int) -> set[int]:
    """Return the GUIDs of the ports whose tables have a P_Key, read from the devices by MADs."""
    lab = registry.find(ufm.lab)
    with closing(IbsimCarrier("h4", control.ask(lab, "state")["sockname"])) as carrier:
        observed = read_port_tables(KeyedCarrier(carrier, KeyFile(lab.m_key_file)))
    held = ((observed.p_keys[observed.ends] & 0x7FFF) == p_key).any(axis=1)
    return set(observed.view.fabric.ports.guid[observed.ends][held].tolist())


def check(ufm: Ufm, said: dict[str, object]) -> None:
    """Assert that the UFM and the devices have the members that Neutron's program reports."""
    p_key, guids = int(str(said["p_key"])), set(said["guids"])  # type: ignore[call-overload]
    result = UfmClient(ufm.url, token=ufm.token).pkey(p_key)
    assert (said["step"], result and result.members.keys()) == (said["step"], guids if said["is_there"] else None)
    present = {int(ufm.fabric[f"h{number}/1"].guid) for number in range(1, 5)}
    assert (said["step"], holders(ufm, p_key)) == (said["step"], guids & present)


def test_partitions_follow_networks_and_ports(tmp_path):
    if not PYTHON.exists():
        do_without("Neutron")
    with Ufm("star:4") as ufm, (tmp_path / "log").open("w+") as log:
        guids = [f"{int(ufm.fabric[f'{host}/1'].guid):#x}" for host in ("h2", "h3")]
        documented = find_block("docs/openstack.md", "[ml2_weft]")
        (tmp_path / "ml2_conf.ini").write_text(
            documented.replace("https://ufm.example", ufm.url).replace("...", ufm.token)
        )
        command = [str(PYTHON), str(PROGRAM), ufm.url, ufm.token, str(tmp_path / "ml2_conf.ini"), *guids]
        steps = []
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True) as neutron:
            assert neutron.stdin
            assert neutron.stdout
            for line in neutron.stdout:
                output = json.loads(line)
                steps.append(output["step"])
                if output["step"] != "done":
                    check(ufm, output)
                    print("seen", file=neutron.stdin, flush=True)
        log.seek(0)
        assert (steps[-1:], len(steps)) == (["done"], STEPS), log.read()[-5000:]
