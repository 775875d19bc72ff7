"""Real packets after each call: they arrive just where the answers of the service say that they may."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator

import httpx
import pytest
from tests.lab.rdma import managed
from tests.patience import PATIENCE_S

import weft
from weft.lab.lab import Lab
from weft.serve.access import Role, add_token
from weft.serve.app import create_app
from weft.serve.ledger import Ledger
from weft.serve.server import Server
from weft.serve.settings import Settings
from weft.serve.store import Store
from weft.serve.ufm.routes.context import UfmContext
from weft.serve.ufm.watch import Watch
from weft.sm.control import ManagerSocket, socket_of
from weft.tenants.drivers.subnet_manager import ManagerDriver
from weft.wire.headers import BTH, DETH, LRH, Opcode
from weft.wire.packet import Packet

HOSTS = ("h1", "h2", "h3", "h4")
FULL, DEFAULT = 0x8000, 0x7FFF


class Bench:
    """A lab whose packets can be sent by hand, and the service on its subnet manager."""

    def __init__(self, lab: Lab, client: httpx.Client) -> None:
        self.lab, self.client = lab, client
        slots = {host: lab.fabric[f"{host}/1"].slot for host in HOSTS}
        self.guid = {host: f"{int(lab.fabric[f'{host}/1'].guid):016x}" for host in HOSTS}
        self.lid = {host: lab.subnet.devices.lid(slot) for host, slot in slots.items()}

    def call(self, method: str, path: str, body: object = None) -> None:
        result = self.client.request(method, f"/ufmRest/{path}", json=body)
        assert result.status_code == 200, result.text

    def arrives(self, sender: str, receiver: str, p_key: int) -> bool:
        lrh = LRH(slid=self.lid[sender], dlid=self.lid[receiver])
        bth = BTH(opcode=Opcode.UD_SEND_ONLY, dest_qp=0x48, p_key=p_key)
        packet = Packet((lrh, bth, DETH(q_key=0x1B, src_qp=0x47)), b"hello").pack()
        return bool(self.lab.send_packet(sender, packet).delivered)

    def check(self, *p_keys: int) -> int:
        """Check that exactly the pairs of a partition reach each other. Return their number."""
        output = self.client.get("/ufmRest/resources/pkeys?guids_data=true").json()
        reached = 0
        for p_key, (a, b) in itertools.product(p_keys, itertools.permutations(HOSTS, 2)):
            members = {item["guid"]: item["membership"] for item in output.get(f"{p_key:#x}", {}).get("guids", [])}
            present = [members.get(self.guid[host]) for host in (a, b)]
            may = None not in present and "full" in present
            # A host that is not a member sends with a full member's key.
            key = p_key if present[0] == "limited" else p_key | FULL
            assert self.arrives(a, b, key) == may, f"{a} to {b} by {key:#06x}, said {present}"
            reached += may
        return reached


@pytest.fixture
def bench(tmp_path) -> Iterator[Bench]:
    name, settings = f"u{time.monotonic_ns() % 10**12}", Settings()
    with Lab(weft.load("star:hosts=4"), name) as lab, managed(lab, state_file=tmp_path / "sm.json"):
        manager = ManagerSocket(socket_of(tmp_path / "sm.json"))
        with Ledger(Store(f"sqlite:///{tmp_path}/ledger.db"), ManagerDriver(manager)) as ledger:
            token = ledger.change("test", "a token", lambda draft: add_token(draft, "test", Role.ADMIN))
            headers = {"Authorization": f"Bearer {token}"}
            with (
                Server(create_app(settings, ledger, UfmContext(Watch(manager))), settings) as server,
                httpx.Client(base_url=server.url, headers=headers, timeout=PATIENCE_S, trust_env=False) as client,
            ):
                yield Bench(lab, client)


def test_packets_arrive_only_within_partitions(bench):
    item, two = 0x101, 0x102
    guids = bench.guid
    assert bench.arrives("h2", "h3", DEFAULT | FULL)  # before there are partitions everybody talks
    bench.call("POST", "resources/pkeys", {"pkey": "0x101", "guids": [guids["h2"], guids["h3"]]})
    assert bench.check(item) == 2
    assert not bench.arrives("h2", "h3", DEFAULT | FULL)
    limited = {"pkey": "0x101", "guids": [guids["h1"], guids["h4"]], "membership": "limited"}
    bench.call("POST", "resources/pkeys", limited)
    assert bench.check(item) == 10  # all but the two limited ones among themselves
    bench.call("PUT", "resources/pkeys", {"pkey": "0x102", "guids": [guids["h1"], guids["h4"]], "index0": True})
    assert bench.check(item, two) == 12
    bench.call("POST", "actions/remove_guids_from_pkey", {"pkey": "0x101", "guids": [guids["h3"]]})
    assert bench.check(item, two) == 6
    bench.call("DELETE", "resources/pkeys/0x101")
    assert bench.check(item, two) == 2
    bench.call("POST", "resources/pkeys/hosts", {"pkey": "0x101", "hosts_names": "h[1-2]"})
    assert bench.check(item, two) == 4
    bench.call("DELETE", "resources/pkeys/0x101/hosts/h1")
    assert bench.check(item, two) == 2
    bench.call("POST", "cloudx/Network", {"id": "n", "provider:segmentation_id": 0x103})
    for host in ("h3", "h4"):
        client_id = "ff:00:00:00:00:00:02:00:00:02:c9:00:" + bytes.fromhex(guids[host]).hex(":")
        option = {"opt_name": "client-id", "opt_value": client_id}
        bench.call("POST", "cloudx/Port", {"id": host, "network_id": "n", "extra_dhcp_opts": [option]})
    assert bench.check(item, two, 0x103) == 4
    bench.call("DELETE", "cloudx/Port/h3")
    assert bench.check(item, two, 0x103) == 2
