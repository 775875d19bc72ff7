"""Who comes in by UFM's calls, and as what; on a fabric that shows no subnet."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import httpx
import pytest
from tests.patience import PATIENCE_S
from tests.serve.memory_fabric import MemoryFabric

from weft.serve.access import Role, add_token, new_user, put_user
from weft.serve.app import create_app
from weft.serve.desired import INTENT, Draft
from weft.serve.ledger import Ledger
from weft.serve.server import Server
from weft.serve.settings import Settings
from weft.serve.store import Store
from weft.tenants.partitions import Partition

BODY = {"pkey": "0x101", "guids": ["0000000000100001"]}


@pytest.fixture(scope="module")
def ledger(tmp_path_factory) -> Iterator[Ledger]:
    """With a user whom plugins name, and a partition of an intent."""
    user = new_user("ufmsystem", "a password", Role.ADMIN)

    def begin(draft: Draft) -> None:
        put_user(draft, user)
        draft.put(Partition(name="declared", p_key=0x200), INTENT)

    with Ledger(Store(f"sqlite:///{tmp_path_factory.mktemp('doors')}/ledger.db"), MemoryFabric()) as made:
        made.change("test", "begin", begin)
        yield made


@contextmanager
def served(ledger: Ledger, settings: Settings) -> Iterator[httpx.Client]:
    with (
        Server(create_app(settings, ledger), settings) as server,
        httpx.Client(base_url=server.url, timeout=PATIENCE_S, trust_env=False) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def client(ledger) -> Iterator[httpx.Client]:
    with served(ledger, Settings()) as client:
        yield client


@pytest.fixture(scope="module")
def tokens(ledger) -> dict[Role, dict[str, str]]:
    """What callers of each role send."""

    def let_in(draft: Draft) -> dict[Role, str]:
        return {role: add_token(draft, role, role, "blue" if role == Role.TENANT else "") for role in Role}

    return {role: {"Authorization": f"Basic {token}"} for role, token in ledger.change("test", "in", let_in).items()}


@pytest.mark.parametrize(
    ("role", "reads", "writes"),
    [(Role.ADMIN, 200, 200), (Role.OPERATOR, 200, 200), (Role.READ_ONLY, 200, 403), (Role.TENANT, 403, 403)],
)
def test_a_role_goes_as_far_as_it_does_elsewhere(client, tokens, role, reads, writes):
    headers = tokens[role]
    assert client.get("/ufmRestV3/resources/pkeys", headers=headers).status_code == reads
    assert client.post("/ufmRestV3/resources/pkeys", json=BODY, headers=headers).status_code == writes


@pytest.mark.parametrize("believes", [False, True])
def test_a_plugin_is_believed_only_where_the_service_was_told_to(ledger, believes):
    """UFM's plugins call it on its own machine, without a base and without a secret."""
    with served(ledger, Settings(trusts_remote_user=believes)) as client:
        found = client.get("/resources/pkeys?guids_data=true", headers={"X-Remote-User": "ufmsystem"})
        assert found.status_code == (200 if believes else 401)
        assert client.get("/resources/pkeys", headers={"X-Remote-User": "nobody"}).status_code == 401


def test_a_fabric_that_shows_no_subnet_says_so(client, tokens):
    headers = tokens[Role.ADMIN]
    found = client.get("/ufmRest/resources/ports", headers=headers)
    assert (found.status_code, "not known here, partitions are" in found.text) == (404, True)
    isolate = {"ports": ["0_1"], "ports_policy": "UNHEALTHY", "action": "isolate"}
    assert client.put("/ufmRest/app/unhealthy_ports", json=isolate, headers=headers).status_code == 404
    for path in ("faults", "lab/h1"):
        assert client.put(f"/api/v1/{path}", headers=headers).status_code in (404, 405)  # no lab, no trouble


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "resources/pkeys", {**BODY, "pkey": "0x200"}),
        ("PUT", "resources/pkeys", {**BODY, "pkey": "0x200"}),
        ("DELETE", "resources/pkeys/0x200", None),
        ("POST", "cloudx/Network", {"id": "net", "provider:segmentation_id": 0x200}),
    ],
)
def test_what_an_intent_has_declared_is_not_changed_behind_its_back(client, tokens, method, path, body):
    headers = tokens[Role.ADMIN]
    found = client.request(method, f"/ufmRest/{path}", json=body, headers=headers)
    assert (found.status_code, "declared" in found.text) == (409, True)
    assert client.get("/ufmRest/resources/pkeys/0x200?guids_data=true", headers=headers).json()["guids"] == []


def test_twenty_writers_at_once_lose_nothing_and_double_nothing(client, tokens):
    headers = tokens[Role.ADMIN]
    guids = [f"{0x10_0000 + number:016x}" for number in range(100)]

    def add(guid: str) -> int:
        body = {"pkey": "0x102", "guids": [guid]}
        return client.post("/ufmRest/resources/pkeys", json=body, headers=headers).status_code

    with ThreadPoolExecutor(20) as pool:
        assert set(pool.map(add, guids)) == {200}
    found = client.get("/ufmRest/resources/pkeys/0x102?guids_data=true", headers=headers).json()["guids"]
    assert sorted(one["guid"] for one in found) == guids
