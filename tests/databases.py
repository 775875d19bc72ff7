"""Empty databases for tests: of SQLite, or of the PostgreSQL server of WEFT_TEST_POSTGRESQL."""

from __future__ import annotations

import os
import uuid
from pathlib import Path


def empty_database(folder: Path, name: str) -> str:
    """Return the URL of an empty database."""
    server = os.environ.get("WEFT_TEST_POSTGRESQL")  # the URL of a database
    if not server:
        return f"sqlite:///{folder}/{name}.db"
    import psycopg

    schema = f"test_{uuid.uuid4().hex}"  # PostgreSQL makes a database by copying a thousand files
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {schema}")
    return f"{server}&options=-csearch_path%3D{schema}"
