"""schemathesis calls every route of the OpenAPI document with what it may take, and what it may not: no 5xx."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.interop.conftest import find_module
from tests.patience import PATIENCE_S
from tests.serve.service import Service

pytestmark = [pytest.mark.slow, pytest.mark.interop]


def test_no_request_makes_the_service_fail(tmp_path):
    find_module("schemathesis")
    service = Service(f"sqlite:///{tmp_path}/ledger.db")
    try:
        done = subprocess.run(
            [
                *(Path(sys.executable).with_name("st"), "run", f"{service.server.url}/api/v1/openapi.json"),
                *("--header", f"Authorization: Bearer {service.tokens['root']}"),
                *(
                    "--checks",
                    "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance",
                ),
                *("--phases", "coverage,fuzzing", "--max-examples", "2", "--seed", "1", "--no-color"),
                *("--exclude-path-regex", "tokens"),  # it would revoke its own
            ],
            cwd=tmp_path,
            env={**os.environ, "HYPOTHESIS_STORAGE_DIRECTORY": str(tmp_path)},
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert service.call("root", "GET", "/partitions").status_code == 200
    finally:
        service.close()
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-1000:]
