"""Tests that are killed leave no lab."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.janitor import MARK
from tests.patience import wait_until

from weft.lab import registry

TESTS = """
import subprocess, sys, time
from tests.janitor import hire
hire()
subprocess.run([sys.executable, "-m", "weft", "up", "star:hosts=2", "--daemon", "--name", sys.argv[1]], check=True)
time.sleep(1e6)
"""


def test_a_lab_ends_with_the_tests_that_started_it():
    name, environment = f"left{os.getpid()}", {key: value for key, value in os.environ.items() if key != MARK}
    command = [sys.executable, "-c", TESTS, name]
    root = Path(__file__).parents[1]
    with subprocess.Popen(command, env=environment, cwd=root, stdout=subprocess.DEVNULL) as tests:
        wait_until(lambda: registry.entry(name).answers(), "a lab")
        tests.send_signal(signal.SIGKILL)
    wait_until(lambda: not registry.entry(name).answers(), "its end")
