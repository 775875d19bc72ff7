"""Commands to a process that runs; what labs and managers do with them, their own tests see."""

from __future__ import annotations

import threading

from weft.json_lines import Commands, ask


def test_a_server_that_is_closed_leaves_no_thread(tmp_path):
    """It would find the closed socket ready for ever, and take a processor for as long as the process lives."""
    made = Commands(tmp_path / "door", {"add": lambda one, two: one + two})
    assert ask(tmp_path / "door", "add", None, one=1, two=2) == {"ok": 3}
    made.server_close()
    made.server_close()
    assert not [one.name for one in threading.enumerate() if one.name == "commands at door"]
