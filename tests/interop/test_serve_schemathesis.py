"""schemathesis calls every route of the OpenAPI document with valid and invalid input: no 5xx."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.interop.conftest import find_module
from tests.patience import PATIENCE_S
from tests.serve.program import Service as Program
from tests.serve.service import Service

pytestmark = [pytest.mark.slow, pytest.mark.interop]


def _run_schemathesis(folder: Path, url: str, token: str, *choice: str) -> None:
    find_module("schemathesis")
    done = subprocess.run(
        [
            *(Path(sys.executable).with_name("st"), "run", f"{url}/api/v1/openapi.json"),
            *("--header", f"Authorization: Bearer {token}"),
            *(
                "--checks",
                "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance",
            ),
            *("--phases", "coverage", "--seed", "1", "--no-color"),  # the limits of every value, systematically
            *choice,
        ],
        cwd=folder,
        env={**os.environ, "HYPOTHESIS_STORAGE_DIRECTORY": str(folder)},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-1000:]


def test_no_request_makes_the_service_fail(tmp_path):
    service = Service(f"sqlite:///{tmp_path}/ledger.db")
    try:
        exclude = ("--exclude-path-regex", "tokens")  # it would revoke its own token
        _run_schemathesis(tmp_path, service.server.url, service.tokens["root"], *exclude)
        assert service.call("root", "GET", "/partitions").status_code == 200
    finally:
        service.close()


def test_no_request_of_a_console_does(warm, tmp_path):
    """In a running lab the requests pull cables, change the load and start runs."""
    service = Program(tmp_path, "star:hosts=3", "--name", f"st-{tmp_path.parent.name}")
    service.start()
    try:
        routes = "fabric|state|nodes|routes|history|diagnosis|cables|load|runs|metrics|violations"
        _run_schemathesis(tmp_path, service.url, service.token, "--include-path-regex", routes)
        assert service.call("GET", "/api/v1/state").status_code == 200
    finally:
        service.end(signal.SIGTERM)
