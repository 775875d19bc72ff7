"""A fixture for tests that collect garbage."""

from __future__ import annotations

import gc

import pytest


@pytest.fixture
def few_objects() -> None:
    """Exempt the objects of earlier tests from garbage collection: they are a million, and it takes a second."""
    gc.freeze()
