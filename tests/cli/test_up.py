"""`weft up`, where what it starts does not."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from weft.cli import up
from weft.errors import SubnetError
from weft.lab.registry import Entry


@pytest.mark.parametrize(
    ("does", "says"),
    [
        ("exec sleep 1000", r"the console was not up after 0.1 s .*weft serve --lab mine"),
        ("exit 3", "failed to start"),
    ],
)
def test_a_console_that_does_not_come_up_is_told(
    does: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A console that hangs blocked the terminal forever."""
    program = tmp_path / "python"
    program.write_text(f"#!/bin/sh\n{does}\n")
    program.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(program))
    monkeypatch.setattr(up, "CONSOLE_S", 0.1 if "sleep" in does else 1000.0)
    with pytest.raises(SubnetError, match=says):
        up._start_console(Entry(name="mine", folder=tmp_path), True)
