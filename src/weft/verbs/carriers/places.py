"""Find the folder for the sockets of RDMA programs: one per user, and one per lab.

Programs with the same folder can connect: outside of labs all of the user's programs, on lab hosts those of the lab.
"""

from __future__ import annotations

import os
from pathlib import Path

from weft import runtime

LAB = "WEFT_VERBS_LAB"  # variable with the socket of the lab of a program


def place() -> Path:
    """Return the folder of this process."""
    lab = os.environ.get(LAB, "")
    return place_of(lab) if lab else runtime.private_folder(runtime.folder() / "verbs")


def place_of(lab: str) -> Path:
    """Return the folder of programs on hosts of the lab with this socket."""
    return runtime.private_folder(Path(f"{lab}.programs"))
