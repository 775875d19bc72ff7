"""Groups of PyTorch exchange addresses in a store that may be older than they are."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from weft.errors import SubnetError


def test_ranks_that_torchrun_starts_again_do_not_find_the_name_of_the_ranks_before(monkeypatch):
    """The store outlives the processes, so the addresses under that name belong to dead processes."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    from weft.collectives.live.pytorch.backend import TorchStore, _name

    store = TorchStore(torch.distributed.HashStore())
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "0")
    first = _name(store, 0, 0.0)
    assert _name(store, 1, 0.0) == first
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    with pytest.raises(SubnetError, match="rank 0: it did not come"):
        _name(store, 1, 0.0)
    assert _name(store, 0, 0.0) == _name(store, 1, 0.0) != first


@pytest.mark.parametrize("of_gpu", [[], ["gpu"]])
def test_shutdown_closes_the_groups_of_host_and_gpu_memory(of_gpu):
    pytest.importorskip("torch", reason="torch is not installed")
    from weft.collectives.live.pytorch.backend import ProcessGroup

    closed = []
    groups = [SimpleNamespace(close=lambda name=name: closed.append(name)) for name in ("host", *of_gpu)]
    ProcessGroup.shutdown(SimpleNamespace(_group=groups[0], _on_gpu=("cuda:0", groups[1]) if of_gpu else None))
    assert closed == ["host", *of_gpu]
