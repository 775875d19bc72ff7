"""A database for each test: SQLite's. tests/interop/test_serve_postgres.py runs the same tests on PostgreSQL."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator

import pytest


@pytest.fixture
def database(tmp_path) -> Iterator[str]:
    """The URL of an empty database."""
    server = os.environ.get("WEFT_TEST_POSTGRESQL")  # a URL with {} for the database
    if not server:
        yield f"sqlite:///{tmp_path}/ledger.db"
        return
    import psycopg

    name = f"test_{uuid.uuid4().hex}"
    with psycopg.connect(server.format("postgres"), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    yield server.format(name)
