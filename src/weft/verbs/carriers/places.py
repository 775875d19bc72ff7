"""Where programs for RDMA have their sockets: a folder of their user's, and one for each lab that he has.

Whom a program can meet is who uses the same folder: outside of labs all of his, on hosts of a lab those of the lab.
"""

from __future__ import annotations

import os
from pathlib import Path

from weft import runtime

LAB = "WEFT_VERBS_LAB"  # variable of a program on a host of a lab: the lab's socket


def place() -> Path:
    """Of this process, as its environment says."""
    lab = os.environ.get(LAB, "")
    return place_of(lab) if lab else runtime.private_folder(runtime.folder() / "verbs")


def place_of(lab: str) -> Path:
    """Of programs on hosts of the lab with this socket."""
    return runtime.private_folder(Path(f"{lab}.programs"))
