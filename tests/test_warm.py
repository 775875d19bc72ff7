"""The warm `weft` of the tests: signals, exit statuses and the end of its server."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.patience import PATIENCE_S, wait_until

from weft.cli import app


def test_it_ends_with_who_started_it(tmp_path):
    """Also if that process was killed: the kernel then closes its end of the pipe."""
    code = f"from tests.warm import attend, listen; attend(listen({str(tmp_path / 'warm')!r}))"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        assert server.stdin
        assert server.stdout
        try:
            assert server.stdout.readline() == b"listens\n"
            server.stdin.close()
            assert server.wait(PATIENCE_S) == 0
        finally:
            server.kill()


@pytest.mark.parametrize(
    ("number", "status"),
    [
        (signal.SIGUSR1, 7),
        (signal.SIGTERM, -signal.SIGTERM),
        (signal.SIGKILL, -signal.SIGKILL),
        (signal.SIGQUIT, -signal.SIGKILL),
    ],
)
def test_a_signal_reaches_the_command_and_its_end_who_started_it(warm, number, status):
    code = (
        "import os, signal, time; signal.signal(signal.SIGUSR1, lambda *_: os._exit(7));"
        "print(os.getpid(), flush=True); time.sleep(600)"
    )
    with subprocess.Popen([warm, "-c", code], stdout=subprocess.PIPE, text=True) as started:
        assert started.stdout
        place = Path("/proc", started.stdout.readline().strip())
        assert place.exists()
        assert int(place.name) != started.pid
        started.send_signal(number)
        assert started.wait(PATIENCE_S) == status
    wait_until(lambda: not place.exists())


def test_remembered_arguments_have_no_values_of_an_earlier_command_line(capsys):
    for words in (["links", "--json"], ["links"]):
        app(words)
    tables = capsys.readouterr().out.partition("\n]\n")
    assert json.loads(tables[0] + tables[1])
    assert not tables[2].startswith("[")
