"""`peers.sh`, which installs the programs against which the tests check weft."""

from __future__ import annotations

import re
from pathlib import Path

SCRIPT = (Path(__file__).parents[1] / "peers.sh").read_text()


def test_commands_that_take_the_package_lock_wait_for_another_package_manager():
    commands = re.findall(r"^ *apt-get .*\b(?:update|install)\b.*$", SCRIPT, re.M)
    assert len(commands) == 2
    assert all("$wait_for_lock" in command for command in commands)
    assert re.search(r'^wait_for_lock="-o DPkg::Lock::Timeout=300"', SCRIPT, re.M)
