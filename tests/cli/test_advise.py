"""`weft advise`: bad combinations are named; what is given is what is asked about."""

from __future__ import annotations

import pytest

from weft.cli.advise import _case
from weft.errors import ConfigError


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ({"gpus": 12}, "--gpus 12 are no whole servers of 8, which a dgx-h100 has: 8, say"),
        ({"gpus": 8, "servers": 1}, "--gpus and --servers are two forms of the same"),
        ({"workload": "train"}, "no workload 'train'; did you mean training"),
        ({"budget_usd": "lots"}, "budget 'lots' are not a number"),
        ({"sequences": 2, "tokens": "16M"}, "--batch and --tokens are two forms of the same"),
        ({"workload": "mpi", "tokens": "16M"}, "--tokens has no effect on mpi; it is for training, single-node"),
        ({"workload": "mpi", "message_bytes": "x"}, "size 'x' is not a number of bytes"),
    ],
)
def test_flags_that_cannot_be_are_named(told, said):
    with pytest.raises(ConfigError, match=said):
        _case(told, None, cloud=False, seed=1)


def test_defaults_depend_on_the_work():
    assert _case({}, None, cloud=False, seed=1).gpus == 1024
    assert _case({"workload": "web"}, None, cloud=False, seed=1).servers == 32
    assert _case({"workload": "web", "servers": 3}, None, cloud=False, seed=1).server == "host"
    case = _case({"workload": "parallel-fs", "servers": 4}, None, cloud=True, seed=2)
    assert (case.workload, case.bytes_sent, case.cloud, case.seed) == ("storage", 128 << 20, True, 2)
