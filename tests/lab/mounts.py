"""Machines on which a program can get its own /sys."""

from __future__ import annotations

import subprocess

import pytest


def need_mounts(*less: str) -> None:
    """Skip the test if `unshare` of util-linux cannot create a mount namespace."""
    mount = "mount -t tmpfs none /sys"
    text = f"unshare --mount {mount} || unshare --map-root-user --mount {mount}"
    if subprocess.run([*less, "sh", "-c", text], capture_output=True, check=False).returncode:
        pytest.skip("Linux allows no mounts of one's own here")
