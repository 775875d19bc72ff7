"""An operator's OpenSM behind `weft serve`, and inspected by `weft tenants`."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from tests.interop.test_tenants_opensm import Opensm
from tests.patience import wait_until
from tests.serve.program import Service
from tests.tenants.subnets import packet

from weft.cli import app
from weft.lab import registry
from weft.lab.commands import serve_commands

pytestmark = [pytest.mark.interop, pytest.mark.slow]


class Listed(Opensm):
    """A registered lab, which commands find."""

    def start(self) -> None:
        self.opened = ExitStack()
        commands = serve_commands(self.lab, self.opened.enter_context(registry.claim(self.lab.name)))
        self.opened.callback(commands.server_close)
        self.theirs = self.options.read_text()
        self.partitions.write_text("")
        super().start()
        self.where = ["--opensm", str(self.folder), "--lab", self.lab.name]
        self.pid = self.folder / "opensm.pid"
        self.pid.write_text(str(self.process.pid))

    def start_again_without_our_files(self) -> None:
        self.process.kill()
        self.process.wait()
        for path in (self.partitions, self.log):
            path.unlink()
        self.options.write_text(self.theirs)
        places = {"OSM_CACHE_DIR": str(self.folder), "OSM_TMP_DIR": str(self.folder)}
        self.process = self.lab.start("h1", *self.words, folder=self.folder, **places)
        wait_until(lambda: self.log.exists() and "SUBNET UP" in self.log.read_text(), "SUBNET UP")
        self.pid.write_text(str(self.process.pid))

    def guid(self, host: str) -> int:
        return int(self.lab.fabric[f"{host}/1"].guid)

    def end(self) -> None:
        super().end()
        self.opened.close()


@pytest.fixture(scope="module")
def opensm(peer, tmp_path_factory) -> Iterator[Listed]:
    result = Listed(tmp_path_factory.mktemp("osm"), peer("opensm"))
    result.start()
    yield result
    result.end()


def test_acknowledged_changes_are_restored_in_an_opensm_that_lost_them(opensm, warm, tmp_path):
    service = Service(tmp_path, *opensm.where)
    service.start()
    h2 = opensm.guid("h2")
    ports = service.call("GET", "/ufmRest/resources/ports?sys_type=Computer").json()
    assert {port["system_name"] for port in ports} == {f"h{number}" for number in range(1, 7)}
    assert len(service.call("GET", "/ufmRest/resources/links").json()) == 6
    acme = {"name": "acme", "members": [{"guid": f"{h2:#018x}"}]}
    put = service.call("PUT", "/api/v1/partitions/0x0101", acme)
    assert (put.status_code, 0x8101 in opensm.held(h2)) == (200, True), put.text

    service.end(signal.SIGKILL)
    opensm.start_again_without_our_files()
    assert 0x8101 not in opensm.held(h2)
    service.start()
    assert 0x8101 in opensm.held(h2)

    wait_until(lambda: not service.call("GET", "/api/v1/violations").json()["not_heard_because"])
    opensm.lab.send_packet("h2", packet(opensm.lab.fabric, "h2", "h3", 0x8700))
    heard: list[dict[str, Any]] = []
    wait_until(lambda: heard.extend(service.call("GET", "/api/v1/violations").json()["heard"]) or heard)
    result = {key: heard[0][key] for key in ("sender", "sender_partitions", "receiver", "key")}
    assert result == {"sender": "h2/1", "sender_partitions": ["acme"], "receiver": "h3/1", "key": "0x8700"}

    assert service.call("DELETE", "/api/v1/partitions/0x0101").status_code == 204
    assert 0x8101 not in opensm.held(h2)
    service.end(signal.SIGTERM)


def test_tenants_of_an_opensm_are_shown_and_proved_and_who_tried_is_named(opensm, tmp_path, capsys):
    def said(action: str, *words: str) -> Any:
        app(["tenants", action, *words, *opensm.where, "--json"])
        return json.loads(capsys.readouterr().out)

    intent = tmp_path / "tenants.toml"
    intent.write_text('[tenant.acme]\nhosts = ["h[2-3]"]\np_key = "0x0101"\n[tenant.beta]\nhosts = ["h[4-5]"]\n')
    app(["tenants", "apply", str(intent), "--yes", *opensm.where])
    capsys.readouterr()
    assert 0x8101 in opensm.held(opensm.guid("h3"))
    assert {item["name"] for item in said("show")["partitions"]} == {"acme", "beta"}
    assert said("prove")["is_isolated"]
    opensm.lab.send_packet("h4", packet(opensm.lab.fabric, "h4", "h3", 0x8101))
    (counted,) = [item for item in said("violations")["counted"] if item["port"] == "h4/1"]
    assert (counted["partitions"], counted["from_port"]) == (["beta"], 1)
    app(["tenants", "destroy", str(intent), "--yes", *opensm.where])
