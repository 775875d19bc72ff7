"""Most commands run in the warm `weft`, which has imported all modules."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session", autouse=True)
def _warm(warm: Path) -> None:
    """Set the warm program in the environment, for functions that are not fixtures."""
