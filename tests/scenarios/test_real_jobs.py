"""Real jobs: speed-ups follow from the waiting time of a job, and storage is limited by its network."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from weft.errors import ConfigError
from weft.scenarios import real_jobs


@pytest.fixture(scope="module")
def finding():
    return real_jobs.run(servers=8)


def test_a_speed_up_follows_from_the_time_waited(finding):
    """Amdahl: compute is the same on both."""
    for each in finding.figures["jobs"].values():
        compute_s = each["slow_s"] * (1 - each["slow_waits"])
        assert compute_s == pytest.approx(each["fast_s"] * (1 - each["fast_waits"]), rel=1e-6)
        assert each["speedup"] == pytest.approx(each["slow_s"] / each["fast_s"])
        assert 0 <= each["fast_waits"] <= each["slow_waits"] < 1
    experts = finding.figures["jobs"]["mixture of experts over servers"]
    assert experts["fast_waits"] < 0.1 < experts["slow_waits"]  # launches hide the all-to-all on a fast network only


def test_jobs_go_from_none_to_more_than_ten_times(finding):
    times = {name: each["speedup"] for name, each in finding.figures["jobs"].items()}
    assert list(times.values()) == sorted(times.values())
    assert times["8B, a job in each server"] == 1
    assert times["inference, a replica on each GPU"] < 1.001
    assert 1.05 < times["70B, tensor and pipeline, 8 sequences a GPU"] < 1.3
    assert 8 < times["8B data-parallel, 1 sequence a GPU"] < times["Fourier transform, 1 GiB a GPU"]
    assert max(times.values()) < 49.05 / 1.875  # ratio of the adapters' rates: no job gains more


def test_a_solver_reads_its_matrix_and_ten_vectors_and_sends_three_faces():
    """Seven entries of 12 bytes in each row, vectors of 8 bytes."""
    on = SimpleNamespace(gpu=SimpleNamespace(pass_s=float), send_s=lambda _: 0.0, mpi_all_reduce_s=lambda _: 0.0)
    assert real_jobs._solver(on, 4) == 64 * (7 * 12 + 10 * 8)
    on.gpu.pass_s, on.send_s = (lambda _: 0.0), float
    assert real_jobs._solver(on, 4) == 3 * 16 * 8


def test_less_compute_for_the_same_messages_gains_more(finding):
    jobs = finding.figures["jobs"]
    for little, much in (
        ("solver, 64³ cells a GPU", "solver, 256³ cells a GPU"),
        ("8B data-parallel, 1 sequence a GPU", "8B data-parallel, 16 sequences a GPU"),
    ):
        assert jobs[little]["speedup"] > 2 * jobs[much]["speedup"]


def test_mixed_fabrics_cost_only_time_that_does_not_overlap(finding):
    stored = finding.figures["storage"]
    waits, background, tokens, pictures = stored["rows"].values()
    disks_gbyte_s, ethernet_gbyte_s = 2 * 65, 4 * 12.5
    assert waits["speedup"] == pytest.approx(disks_gbyte_s / ethernet_gbyte_s, rel=0.05)
    assert background["speedup"] == tokens["speedup"] == 1
    assert pictures["speedup"] >= 1
    assert stored["checkpoint_bytes"] == pytest.approx(14 * 70.55e9, rel=0.01)


def test_a_checkpoint_on_the_lane_of_the_job_blocks_it(finding):
    stored = finding.figures["storage"]
    assert stored["one_lane"] > 5 > 2 > stored["fair_shares"] > 1
    assert stored["own_lane"] == pytest.approx(1, abs=0.02)
    assert stored["step_one_lane_s"] > 2 * stored["step_s"]


def test_servers_that_layouts_do_not_fit_are_refused():
    with pytest.raises(ConfigError, match="multiple of 4 and at least 8"):
        real_jobs.run(servers=10)
