"""A database for each test: SQLite's. tests/interop/test_serve_postgres.py runs those with SQL on PostgreSQL."""

from __future__ import annotations

import pytest
from tests.databases import empty_database


@pytest.fixture
def database(tmp_path) -> str:
    """The URL of an empty database."""
    return empty_database(tmp_path, "ledger")


@pytest.fixture
def other_database(tmp_path) -> str:
    """The URL of another one."""
    return empty_database(tmp_path, "other")
