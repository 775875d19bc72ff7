from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.clouds.ufm_server import UfmServer, running_ufm

from weft.tenants.drivers.ufm_rest import UfmClient


@pytest.fixture
def server() -> Iterator[UfmServer]:
    with running_ufm() as server:
        yield server


@pytest.fixture
def ufm(server) -> UfmClient:
    return UfmClient(server.url, token="t")
