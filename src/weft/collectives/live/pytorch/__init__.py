"""`torch.distributed` on weft's queue pairs: backend `weft`.

    torch.distributed.init_process_group("weft")

PyTorch finds `register` by itself where weft is installed: a program needs no other line. `backend` is its process
group, `tensors` the memory that programs run on.
"""

from __future__ import annotations

from typing import Any

__all__ = ["NAME", "register"]

NAME = "weft"


def register() -> None:
    """Register the backend; PyTorch calls this at the end of `import torch`, so other imports are deferred."""
    import torch.distributed as dist

    if dist.is_available() and NAME not in dist.Backend.backend_list:
        dist.Backend.register_backend(NAME, _make, devices=["cpu", "cuda"])


def _make(store: Any, rank: int, size: int, timeout: Any) -> Any:
    from weft.collectives.live.pytorch.backend import ProcessGroup

    return ProcessGroup(store, rank, size, timeout)
