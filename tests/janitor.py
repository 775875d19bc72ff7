"""End the processes that killed tests leave behind: a lab runs on as a daemon after the process that started it.

Processes inherit the environment, which has a mark of this test run.
"""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

MARK = "WEFT_TESTS"
_LOOK_S = 0.5


def hire() -> subprocess.Popen[bytes] | None:
    """Start a janitor for this process and its children; None if a parent has started one, as pytest for its workers.

    It runs in its own session, so a signal to this one does not end it.
    """
    if MARK in os.environ:
        return None
    os.environ[MARK] = secrets.token_hex(8)
    command = [sys.executable, "-m", __name__, str(os.getpid())]
    null = subprocess.DEVNULL
    return subprocess.Popen(
        command, cwd=Path(__file__).parents[1], stdin=null, stdout=null, stderr=null, start_new_session=True
    )


def _main(employer: int) -> None:
    mark = f"{MARK}={os.environ[MARK]}".encode()
    while os.getppid() == employer:
        time.sleep(_LOOK_S)
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended, or belongs to another user
            if int(place.name) != os.getpid() and mark in (place / "environ").read_bytes().split(b"\0"):
                os.kill(int(place.name), signal.SIGTERM)


if __name__ == "__main__":
    _main(int(sys.argv[1]))
