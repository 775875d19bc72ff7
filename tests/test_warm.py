"""The `weft` that tests keep warm."""

from __future__ import annotations

import subprocess
import sys

from tests.patience import PATIENCE_S


def test_it_ends_with_who_started_it(tmp_path):
    """Also if that was killed: all that the kernel does then is to close its end of the pipe."""
    code = f"from tests.warm import listen; listen({str(tmp_path / 'warm')!r})"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        assert server.stdin
        assert server.stdout
        try:
            assert server.stdout.readline() == b"ready\n"
            server.stdin.close()
            assert server.wait(PATIENCE_S) == 0
        finally:
            server.kill()
