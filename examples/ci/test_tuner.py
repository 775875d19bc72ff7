"""Choices of a tuner are never much slower than NCCL's own, by prediction: a run on the cluster confirms them."""

import pytest
import tuner

import weft


@pytest.fixture(scope="module")
def cluster():
    return weft.route(tuner.CLUSTER)


@pytest.mark.parametrize("size", ["64K", "4M", "16M", "1G"])
def test_a_choice_is_within_a_tenth_of_nccls_own(cluster, size):
    number = int(size[:-1]) << {"K": 10, "M": 20, "G": 30}[size[-1]]
    algorithm, protocol = tuner.choose(number)
    chosen = weft.time(cluster, "all_reduce", size, algo=algorithm, proto=protocol)
    usual = weft.time(cluster, "all_reduce", size)
    assert chosen.choice.startswith(f"{algorithm}/{protocol}")
    assert chosen.time_us <= 1.1 * usual.time_us, f"{chosen} instead of {usual}"
