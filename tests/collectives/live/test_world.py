"""The ranks of a job as threads: collectives and messages on numpy arrays."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from tests.collectives.live.ranks import as_ranks
from tests.patience import PATIENCE_S

from weft.collectives.live.world import World, join_world
from weft.errors import ConfigError, SubnetError


def ranks(n: int, do: Callable[[World], None]) -> None:
    as_ranks(n, lambda end, board, rank: do(World(end, board, rank, n, timeout_s=PATIENCE_S)))


@pytest.mark.parametrize("n", [1, 3])
def test_collectives_and_messages_move_the_right_data(n: int) -> None:
    def rank(world: World) -> None:
        me, right, left = world.rank, (world.rank + 1) % n, (world.rank - 1) % n
        world.all_reduce(total := np.full(5, me + 1))
        assert (total == n * (n + 1) // 2).all()
        world.all_reduce(largest := np.array([float(me)]), np.maximum)
        assert largest[0] == n - 1
        world.all_gather(np.array([me, -me]), every := np.empty((n, 2), int))
        assert every.tolist() == [[rank, -rank] for rank in range(n)]
        world.broadcast(data := np.full(3000, me), root=n - 1)
        assert (data == n - 1).all()
        world.exchange(np.full(40_000, me), right, place := np.empty(40_000, int), left)
        assert (place == left).all()
        copy = world.copy("copy")
        copy.barrier()
        if n > 1:
            if me % 2:
                copy.send(np.array([me]), me - 1)
            elif me + 1 < n:
                copy.receive(one_more := np.empty(1, int), me + 1)
                assert one_more[0] == me + 1
        copy.barrier()

    ranks(n, rank)


@pytest.mark.parametrize("mine", [np.ones(4, np.float32), np.ones(2)], ids=["type", "size"])
def test_calls_with_different_types_or_sizes_fail_on_all_ranks(mine: np.ndarray) -> None:
    def rank(world: World) -> None:
        with pytest.raises(SubnetError, match="all ranks must call the same"):
            world.all_reduce(mine if world.rank else np.ones(4))

    ranks(2, rank)


def test_wrong_arguments_are_refused() -> None:
    def rank(world: World) -> None:
        with pytest.raises(ConfigError, match="broadcast from rank 1; give a rank from 0 to 0"):
            world.broadcast(np.ones(1), root=1)
        with pytest.raises(ConfigError, match="`every` has 8 bytes, not 1 × 16"):
            world.all_gather(np.ones(2), np.ones(1))

    ranks(1, rank)


@pytest.mark.parametrize(
    ("variables", "error"),
    [
        ({"WORLD_SIZE": "2", "RANK": "0"}, "WORLD_SIZE=2 but WEFT_JOB is not set; start the ranks with `weft run -n 2"),
        ({"WORLD_SIZE": "2", "RANK": "2"}, "RANK=2 is not below WORLD_SIZE=2"),
        ({"WORLD_SIZE": "x"}, "WORLD_SIZE=x is not a whole number"),
    ],
)
def test_environment_without_a_job_is_refused(variables: dict[str, str], error: str) -> None:
    with pytest.raises(ConfigError, match=error):
        join_world(variables)


def test_a_process_without_a_job_is_the_only_rank() -> None:
    with join_world({}) as world:
        world.all_reduce(total := np.ones(3))
        assert (world.rank, world.size, total.tolist()) == (0, 1, [1.0] * 3)
