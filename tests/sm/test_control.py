"""A client of a subnet manager that takes calls and does not answer."""

from __future__ import annotations

import pytest

from weft import runtime
from weft.errors import NoResponseError
from weft.sm.control import ManagerSocket


@pytest.fixture
def manager(tmp_path):
    """Stopped: its socket is there."""
    listener = runtime.Listener(tmp_path / "sm.sock")
    yield ManagerSocket(tmp_path / "sm.sock", timeout_s=0.05)
    listener.close()


def test_unanswered_query_changes_nothing(manager):
    with pytest.raises(NoResponseError, match=r"sm\.sock has not answered within 0\.05 s: nothing was changed"):
        manager.allocation()


def test_unanswered_change_may_still_apply(manager):
    with pytest.raises(NoResponseError, match=r"within 0\.05 s: it may still apply the change"):
        manager.allocate("1", remove=[0x0101])
