"""A server of PostgreSQL from Debian's package, and tests that run with it in a process of their own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.interop.conftest import find_module, find_peer
from tests.patience import PATIENCE_S

_USER = "postgres"  # a server of PostgreSQL does not run as root


@contextmanager
def postgresql() -> Iterator[str]:
    """The URL of a database."""
    find_module("psycopg")
    programs = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    initdb = str(programs[-1]) if programs else find_peer("initdb")
    folder = Path(subprocess.check_output(["mktemp", "-d", "/tmp/weft-postgres-XXXXXX"], text=True).strip())
    is_root = os.geteuid() == 0
    if is_root:
        shutil.chown(folder, _USER)
    data = folder / "data"

    def run(*command: str) -> None:
        options = {"user": _USER, "group": _USER, "extra_groups": []} if is_root else {}
        with (folder / "log").open("ab") as log:
            subprocess.run(command, cwd="/", stdout=log, stderr=log, check=True, timeout=PATIENCE_S, **options)

    control = [str(Path(initdb).with_name("pg_ctl")), "-D", str(data), "-w", "-t", str(int(PATIENCE_S))]
    try:
        run(initdb, "-D", str(data), "-A", "trust", "-U", "weft", "--no-sync", "-E", "UTF8")
        run(*control, "-o", f"-k {folder} -c listen_addresses='' -F", "-l", str(folder / "server.log"), "start")
        try:
            yield f"postgresql://weft@/postgres?host={folder}"
        finally:
            run(*control, "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def run_tests(server: str, *tests: str) -> None:
    """Run tests whose databases are those of a server; fail if one of them fails or is skipped."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *(f"tests/{name}" for name in tests)],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "WEFT_TEST_POSTGRESQL": server},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-1000:]
    assert " passed" in done.stdout
    assert "skipped" not in done.stdout
