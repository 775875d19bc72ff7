"""A database for each test: SQLite's. tests/interop/test_serve_postgres.py runs the same tests on PostgreSQL."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator

import pytest


@pytest.fixture
def database(tmp_path) -> Iterator[str]:
    """The URL of an empty database."""
    server = os.environ.get("WEFT_TEST_POSTGRESQL")  # the URL of a database
    if not server:
        yield f"sqlite:///{tmp_path}/ledger.db"
        return
    import psycopg

    name = f"test_{uuid.uuid4().hex}"  # a schema of its own: PostgreSQL makes a database by copying a thousand files
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {name}")
    yield f"{server}&options=-csearch_path%3D{name}"
