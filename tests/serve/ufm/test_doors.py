"""Who comes in by UFM's calls, and as what; on a fabric that shows no subnet."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
from tests.patience import PATIENCE_S
from tests.serve.memory_fabric import MemoryFabric

from weft.serve.access import Role, add_token, new_user, put_user
from weft.serve.app import create_app
from weft.serve.desired import Draft
from weft.serve.ledger import Ledger
from weft.serve.server import Server
from weft.serve.settings import Settings
from weft.serve.store import Store

BODY = {"pkey": "0x101", "guids": ["0000000000100001"]}


@pytest.fixture(params=[False, True], ids=["closed", "open"])
def service(request, database) -> Iterator[tuple[httpx.Client, dict[str, str], bool]]:
    """A client, tokens by role, and whether plugins are believed who they are."""
    settings = Settings(trusts_remote_user=request.param)
    user = new_user("ufmsystem", "a password", Role.ADMIN)

    def let_in(draft: Draft) -> dict[str, str]:
        put_user(draft, user)
        return {role: add_token(draft, role, role, "blue" if role == Role.TENANT else "") for role in Role}

    with Ledger(Store(database), MemoryFabric()) as ledger:
        tokens = ledger.change("test", "tokens", let_in)
        with (
            Server(create_app(settings, ledger), settings) as server,
            httpx.Client(base_url=server.url, timeout=PATIENCE_S, trust_env=False) as client,
        ):
            yield client, tokens, request.param


@pytest.mark.parametrize(
    ("role", "reads", "writes"),
    [(Role.ADMIN, 200, 200), (Role.OPERATOR, 200, 200), (Role.READ_ONLY, 200, 403), (Role.TENANT, 403, 403)],
)
def test_a_role_goes_as_far_as_it_does_elsewhere(service, role, reads, writes):
    client, tokens, _ = service
    headers = {"Authorization": f"Basic {tokens[role]}"}
    assert client.get("/ufmRestV3/resources/pkeys", headers=headers).status_code == reads
    assert client.post("/ufmRestV3/resources/pkeys", json=BODY, headers=headers).status_code == writes


def test_a_plugin_is_believed_only_where_the_service_was_told_to(service):
    """UFM's plugins call it on its own machine, without a base and without a secret."""
    client, _, believes = service
    found = client.get("/resources/pkeys?guids_data=true", headers={"X-Remote-User": "ufmsystem"})
    assert found.status_code == (200 if believes else 401)
    assert client.get("/resources/pkeys", headers={"X-Remote-User": "nobody"}).status_code == 401


def test_a_fabric_that_shows_no_subnet_says_so(service):
    client, tokens, _ = service
    headers = {"Authorization": f"Basic {tokens[Role.ADMIN]}"}
    found = client.get("/ufmRest/resources/ports", headers=headers)
    assert (found.status_code, "weft's subnet manager" in found.text) == (404, True)
    isolate = {"ports": ["0_1"], "ports_policy": "UNHEALTHY", "action": "isolate"}
    assert client.put("/ufmRest/app/unhealthy_ports", json=isolate, headers=headers).status_code == 404
    for path in ("faults", "lab/h1"):
        assert client.put(f"/api/v1/{path}", headers=headers).status_code in (404, 405)  # no lab, no trouble
