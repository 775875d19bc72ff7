"""A UFM service for all tests of its calls: each test has its own P_Keys and hosts."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from tests.patience import PATIENCE_S, wait_until

from weft.serve.embedded import Ufm


class Client:
    """A client with UFM's token, making calls as carbide does."""

    def __init__(self, ufm: Ufm) -> None:
        self.ufm = ufm
        self.http = httpx.Client(base_url=ufm.url, timeout=PATIENCE_S, trust_env=False)

    def call(self, method: str, path: str, body: Any = None, base: str = "/ufmRestV3") -> httpx.Response:
        headers = {"Authorization": f"Basic {self.ufm.token}"}
        return self.http.request(method, f"{base}/{path}", json=body, headers=headers)

    def get(self, path: str) -> Any:
        result = self.call("GET", path)
        assert result.status_code == 200, result.text
        return result.json()

    def done(self, method: str, path: str, body: Any = None, status: int = 200) -> Any:
        result = self.call(method, path, body)
        assert result.status_code == status, result.text
        return result.json()

    def guid(self, host: str) -> str:
        """Return the GUID of a host's first port."""
        return f"{int(self.ufm.fabric[f'{host}/1'].guid):016x}"

    def members(self, p_key: str) -> dict[str, str]:
        result = self.get(f"resources/pkeys/{p_key}?guids_data=true")
        return {item["guid"]: item["membership"] for item in result.get("guids", [])}

    def wait_for_hosts(self, *names: str) -> None:
        def seen() -> bool:
            time.sleep(0.1)  # constant requests would delay the sweep
            return {item["system_name"] for item in self.get("resources/ports?sys_type=Computer")} == set(names)

        wait_until(seen, f"the subnet has the hosts {names}")


@pytest.fixture(scope="session")
def ufm() -> Iterator[Client]:
    with Ufm("fat-tree:hosts=6,radix=4") as result:
        client = Client(result)
        with client.http:
            yield client
