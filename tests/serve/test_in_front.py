"""A service in front of a UFM (another service): acknowledged changes persist, also if the UFM was down."""

from __future__ import annotations

import secrets
import shutil
import signal
from contextlib import closing

import pytest
from tests.patience import wait_until
from tests.serve.program import Service

from weft.cli import app
from weft.cli.subnets import Subnet
from weft.errors import SubnetError
from weft.tenants.reading import read_fabric


def keys(lab: str, host: str) -> set[int]:
    """Return the P_Keys of a host of the inner fabric; none while a new M_Key hides it."""
    with closing(Subnet(lab=lab).attach()) as carrier:
        fabric = read_fabric(carrier)
    return set(fabric.tables.pkey[fabric[f"{host}/1"].slot].tolist()) if host in fabric else set()


@pytest.mark.slow
@pytest.mark.usefixtures("warm")
def test_partitions_reach_the_fabric_behind_a_ufm_and_are_restored_with_it(tmp_path, monkeypatch):
    for name in ("inner", "outer"):
        (tmp_path / name).mkdir()
    # An address for this test alone, so that the port is free after a restart.
    address = f"127.{secrets.randbelow(200) + 20}.{secrets.randbelow(200) + 20}.9"
    inner = Service(tmp_path / "inner", "star:hosts=3", "--name", "inner", "--host", address)
    backup = shutil.copy(tmp_path / "inner/ledger.db", tmp_path / "backup.db")
    inner.start()
    outer = Service(tmp_path / "outer", "--ufm", inner.url)
    monkeypatch.setenv("WEFT_UFM_TOKEN", "weft_not_this_one")
    with pytest.raises(SubnetError, match="401"):
        app(["serve", *outer.where, "--port", "0", "--database", f"sqlite:///{tmp_path}/none.db"])
    outer.start(WEFT_UFM_TOKEN=inner.token)
    try:
        h2 = next(port["guid"] for port in outer.call("GET", "/api/v1/ports?host=h2").json())
        body = {"name": "acme", "members": [{"guid": h2}]}
        assert outer.call("PUT", "/api/v1/partitions/0x0101", body).status_code == 200
        assert 0x8101 in keys("inner", "h2")
        assert inner.call("GET", "/api/v1/partitions/0x0101").json()["name"] == "acme"

        inner.end(signal.SIGKILL)
        refused = outer.call("PUT", "/api/v1/partitions/0x0102", {"name": "beta"})
        assert refused.status_code == 503
        assert inner.url in refused.json()["detail"]
        assert "failed" in refused.json()["detail"]
        for path in (tmp_path / "inner").glob("ledger.db*"):
            path.unlink()
        shutil.copy(backup, tmp_path / "inner/ledger.db")  # from before the first partition
        inner.start(port=inner.url.rpartition(":")[2])
        wait_until(lambda: 0x8101 in keys("inner", "h2"))
        assert [item["p_key"] for item in inner.call("GET", "/api/v1/partitions").json()] == ["0x0101"]
    finally:
        outer.end(signal.SIGTERM)
        inner.end(signal.SIGTERM)
