"""A fixture for tests that run garbage collection."""

from __future__ import annotations

import gc

import pytest


@pytest.fixture
def few_objects() -> None:
    """A heap without old objects: garbage collection of a million of earlier tests would take a second."""
    gc.freeze()
