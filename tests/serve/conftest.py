"""A database for each test: SQLite's. tests/interop/test_serve_postgres.py runs those with SQL on PostgreSQL."""

from __future__ import annotations

import os
import uuid
from pathlib import Path

import pytest


@pytest.fixture
def database(tmp_path) -> str:
    """The URL of an empty database."""
    return _empty(tmp_path, "ledger")


@pytest.fixture
def other_database(tmp_path) -> str:
    """The URL of another one."""
    return _empty(tmp_path, "other")


def _empty(folder: Path, name: str) -> str:
    server = os.environ.get("WEFT_TEST_POSTGRESQL")  # the URL of a database
    if not server:
        return f"sqlite:///{folder}/{name}.db"
    import psycopg

    schema = f"test_{uuid.uuid4().hex}"  # PostgreSQL makes a database by copying a thousand files
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {schema}")
    return f"{server}&options=-csearch_path%3D{schema}"
