"""A tenant's host that runs OpenSM and ibportstate against `weft serve`: with weft's M_Key, and without."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.patience import PATIENCE_S, wait_until
from tests.serve.program import Service
from tests.warm import WARM

from weft.cli.subnets import Subnet
from weft.tenants.isolation import Proof, prove_isolation
from weft.tenants.partitions import Allocation, Member, Partition
from weft.tenants.reading import read_fabric
from weft.wire.port_info import PortInfo, PortPhysicalState

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.usefixtures("warm")]
INTENT = {"tenant": {"red": {"hosts": ["h[2-4]"]}, "blue": {"hosts": ["h[5-6]"]}}}


class Besieged:
    """A star of eight hosts under `weft serve`, with two tenants; h5 is hostile."""

    is_protected = True

    def __init__(self, folder: Path, *options: str) -> None:
        self.name, self.folder = f"hostile-{time.monotonic_ns() % 10**9}", folder
        self.service = Service(folder, "star:hosts=8", "--name", self.name, *options)
        self.service.start()
        assert self.service.call("PUT", "/api/v1/intent", INTENT).status_code == 200

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        """Start the hostile manager on h5."""
        places = {"OSM_CACHE_DIR": str(self.folder), "OSM_TMP_DIR": str(self.folder)}
        command = [os.environ[WARM], "exec", "--lab", self.name, "h5", *words]
        nothing, environment = subprocess.DEVNULL, {**os.environ, **places}
        return subprocess.Popen(command, stdout=nothing, stderr=nothing, env=environment, start_new_session=True)

    def violations(self) -> dict[str, list[dict[str, object]]]:
        return self.service.call("GET", "/api/v1/violations").json()

    def proof(self) -> Proof:
        """Prove the intent by the tables of the devices."""
        partitions = {}
        for item in self.service.call("GET", "/api/v1/partitions").json():
            whole = self.service.call("GET", f"/api/v1/partitions/{item['p_key']}").json()
            p_key = int(item["p_key"], 16)
            members = {int(member["guid"], 16): Member(member["membership"] == "full") for member in whole["members"]}
            partitions[p_key] = Partition(name=item["name"], p_key=p_key, members=members)
        with closing(Subnet(lab=self.name).attach()) as carrier:
            self.fabric = read_fabric(carrier)
        return prove_isolation(self.fabric, Allocation(partitions=partitions, default_is_full=False))

    def is_up(self, port: str) -> bool:
        self.proof()
        info = self.fabric.tables.port_info[self.fabric[port].slot]
        return PortInfo.port_physical_state.get(info) == PortPhysicalState.LINK_UP


@pytest.fixture(params=["with", "without"])
def besieged(request, peer, tmp_path) -> Iterator[Besieged]:
    result = Besieged(tmp_path, *(["--no-m-key"] if request.param == "without" else []))
    result.is_protected = request.param == "with"
    yield result
    result.service.end(signal.SIGTERM)


def test_tenants_stay_isolated_beside_a_hostile_opensm_and_ibportstate(besieged, peer):
    assert besieged.proof().ok
    rogue = besieged.start(peer("opensm"), "-p", "15", "-o", "-f", str(besieged.folder / "osm.log"))
    if besieged.is_protected:
        wait_until(lambda: [one for one in besieged.violations()["heard"] if one["kind"] == "M_Key"])
        (heard, *_) = besieged.violations()["heard"]
        assert (heard["sender"], heard["sender_partitions"]) == ("h5/1", ["blue"])
        assert besieged.proof().ok, besieged.proof().explain()
        os.killpg(rogue.pid, signal.SIGTERM)
        rogue.wait(PATIENCE_S)
        assert besieged.violations()["drift"] == []
    else:
        assert rogue.wait(PATIENCE_S) == 0
        wait_until(lambda: any("h2/1" in str(one["text"]) for one in besieged.violations()["drift"]))
        wait_until(lambda: besieged.proof().ok)
        wait_until(lambda: all(one["is_repaired"] for one in besieged.violations()["drift"]))
        assert besieged.service.call("GET", "/healthz").json()["repaired"] > 0
    disabled = besieged.start(peer("ibportstate"), "-D", "0,1", "2", "disable")
    assert (disabled.wait(PATIENCE_S) == 0) is not besieged.is_protected
    assert besieged.is_up("leaf1/2") is besieged.is_protected
