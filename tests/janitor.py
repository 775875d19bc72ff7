"""Ends what tests leave behind when they are killed: labs go on by themselves, as they should, and nobody else would.

Whatever is started has the environment of who started it, and in there the mark of this run.
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
    """Start a janitor for this process and its children; None where a parent has started one, as pytest for its
    workers.

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
        with suppress(OSError):  # it has ended, or is another's
            if int(place.name) != os.getpid() and mark in (place / "environ").read_bytes().split(b"\0"):
                os.kill(int(place.name), signal.SIGTERM)


if __name__ == "__main__":
    _main(int(sys.argv[1]))
