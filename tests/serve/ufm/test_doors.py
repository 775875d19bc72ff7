"""Authentication and roles of UFM's calls, on a fabric without a subnet."""

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
    """Return a ledger with a user for plugins, and a partition of an intent."""
    user = new_user("ufmsystem", "a password", Role.ADMIN)

    def begin(draft: Draft) -> None:
        put_user(draft, user)
        draft.put(Partition(name="declared", p_key=0x200), INTENT)

    with Ledger(Store(f"sqlite:///{tmp_path_factory.mktemp('doors')}/ledger.db"), MemoryFabric()) as result:
        result.change("test", "begin", begin)
        yield result


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
    """Return the credentials of a caller of each role."""

    def let_in(draft: Draft) -> dict[Role, str]:
        return {role: add_token(draft, role, role, "blue" if role == Role.TENANT else "") for role in Role}

    return {role: {"Authorization": f"Basic {token}"} for role, token in ledger.change("test", "in", let_in).items()}


@pytest.mark.parametrize(
    ("role", "reads", "writes"),
    [(Role.ADMIN, 200, 200), (Role.OPERATOR, 200, 200), (Role.READ_ONLY, 200, 403), (Role.TENANT, 403, 403)],
)
def test_roles_apply_to_ufms_calls(client, tokens, role, reads, writes):
    headers = tokens[role]
    assert client.get("/ufmRestV3/resources/pkeys", headers=headers).status_code == reads
    assert client.post("/ufmRestV3/resources/pkeys", json=BODY, headers=headers).status_code == writes


@pytest.mark.parametrize("believes", [False, True])
def test_x_remote_user_is_trusted_only_if_enabled(ledger, believes):
    """UFM's plugins call the service on its own machine, without a base path and without credentials."""
    with served(ledger, Settings(trusts_remote_user=believes)) as client:
        result = client.get("/resources/pkeys?guids_data=true", headers={"X-Remote-User": "ufmsystem"})
        assert result.status_code == (200 if believes else 401)
        assert client.get("/resources/pkeys", headers={"X-Remote-User": "nobody"}).status_code == 401


def test_a_fabric_without_a_subnet_returns_an_error(client, tokens):
    headers = tokens[Role.ADMIN]
    result = client.get("/ufmRest/resources/ports", headers=headers)
    assert (result.status_code, "only partitions are available here" in result.text) == (404, True)
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
def test_ufms_calls_cannot_change_partitions_of_the_intent(client, tokens, method, path, body):
    headers = tokens[Role.ADMIN]
    result = client.request(method, f"/ufmRest/{path}", json=body, headers=headers)
    assert (result.status_code, "declared" in result.text) == (409, True)
    assert client.get("/ufmRest/resources/pkeys/0x200?guids_data=true", headers=headers).json()["guids"] == []


def test_twenty_concurrent_writers_lose_and_duplicate_nothing(client, tokens):
    headers = tokens[Role.ADMIN]
    guids = [f"{0x10_0000 + number:016x}" for number in range(100)]

    def add(guid: str) -> int:
        body = {"pkey": "0x102", "guids": [guid]}
        return client.post("/ufmRest/resources/pkeys", json=body, headers=headers).status_code

    with ThreadPoolExecutor(20) as pool:
        assert set(pool.map(add, guids)) == {200}
    result = client.get("/ufmRest/resources/pkeys/0x102?guids_data=true", headers=headers).json()["guids"]
    assert sorted(item["guid"] for item in result) == guids
