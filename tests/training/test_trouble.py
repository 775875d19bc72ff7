"""Faults and failures of a job of `weft train`, as a user asks for them."""

import json
from dataclasses import replace

import pytest

from weft.cli import app
from weft.errors import ConfigError, UnknownName
from weft.sim.flow.engine import FlowEngine
from weft.training.goodput import find_rate
from weft.training.job import run_job
from weft.training.parallel import Layout
from weft.training.site import find_site
from weft.training.transformer import find
from weft.training.trouble import checkpoint_of, disturb_run, find_faults, goodput_of

JOB = ("train", "llama3-8b", "--fabric", "fat-tree:hosts=8,server=dgx-h100,radix=32", "--tp", "4")


def json_of(capsys, *more):
    app([*JOB, *more, "--json"])
    return json.loads(capsys.readouterr().out)


@pytest.fixture(scope="module")
def run():
    layout = Layout(gpus=64, tp=8, global_batch=64, seq=4096)
    return run_job(find("llama3-8b"), layout, find_site("fat-tree:hosts=10,server=dgx-h100,radix=32", gpus=64))


def hurt(run, fault):
    return disturb_run(run, find_faults(run.site, [fault]), FlowEngine())[0]


def test_faults_outside_the_job_do_not_affect_it(run):
    """The last two servers are not the job's."""
    for fault in ("dead:dgx9", "flap:dgx10/mlx5_0/1@60s", "slow:dgx9/mlx5_0/1=4xHDR"):
        quiet = hurt(run, fault)
        assert not quiet.on_its_way
        assert (quiet.stands_s, quiet.slowdown) == (0, 1)
    assert hurt(run, "slow:dgx8/mlx5_0/1=4xSDR").slowdown > 1


def test_a_gpu_or_a_server_that_dies_ends_the_job_even_where_it_needs_no_network(run):
    alone = run_job(find("llama3-8b"), Layout(gpus=8, tp=8, global_batch=8, seq=4096), find_site("ndr", gpus=8))
    for job, fault in ((run, "dead:dgx1/gpu3"), (run, "dead:dgx2"), (alone, "dead:dgx1"), (alone, "dead:dgx1/gpu0")):
        assert not hurt(job, fault).survives
    assert not hurt(alone, "dead:leaf1").on_its_way


@pytest.mark.parametrize(
    ("site", "gpus", "unused", "used"),
    [
        (
            {"fabric": "ndr"},
            4,
            ("dead:dgx1/gpu6", "cut:dgx1/gpu6/1", "cut:dgx1/mlx5_0/1", "dead:leaf1"),
            "dead:dgx1/gpu2",
        ),
        ({"server": "gb200-nvl72"}, 8, ("dead:nvl1/tray5", "dead:nvl1/gpu8"), "dead:nvl1/tray1"),
    ],
)
def test_a_job_on_part_of_a_server_is_disturbed_by_faults_of_its_own_gpus_alone(site, gpus, unused, used):
    layout = Layout(gpus=gpus, tp=4, global_batch=8, seq=4096)
    part = run_job(find("llama3-8b"), layout, find_site(gpus=gpus, **site))
    for fault in unused:
        assert not hurt(part, fault).on_its_way, fault
    assert not hurt(part, used).survives


def test_a_lost_nvlink_slows_a_job_on_part_of_a_server():
    layout = Layout(gpus=4, tp=4, global_batch=8, seq=4096)
    slower = hurt(run_job(find("llama3-8b"), layout, find_site("ndr", gpus=4)), "cut:dgx1/gpu1/1")
    assert slower.survives
    assert slower.slowdown > 1


def test_a_checkpoint_blocks_until_it_is_in_host_memory_or_on_disks(run):
    background, waits = (checkpoint_of(run, waits=waits) for waits in (False, True))
    assert background.total_bytes == waits.total_bytes == pytest.approx(14 * 8.03e9, rel=0.01)
    assert waits.blocks_s == waits.written_s == pytest.approx(waits.total_bytes / 65e9)
    assert background.blocks_s < waits.blocks_s


def test_storage_on_the_fabric_of_the_job_slows_its_steps(run):
    own, shared = checkpoint_of(run, waits=True), checkpoint_of(run, waits=True, storage=["dgx9", "dgx10"])
    assert own.beside_step_s is None
    assert shared.written_s == pytest.approx(own.written_s / 2)  # two servers, not one
    assert shared.beside_step_s > run.step.step_s * 1.001


def test_checkpoints_do_not_overtake_each_other(run):
    rate = find_rate("rsc-1")
    saved = checkpoint_of(run, waits=False)
    assert goodput_of(run, rate, saved).interval_s > saved.written_s
    busy = replace(rate, per_node_day=50.0)
    by_default = goodput_of(run, busy, replace(saved, blocks_s=0.03))
    assert by_default.interval_s == 900  # the shortest that is usual
    assert by_default.report()["best_interval_s"] < 60
    slow = replace(saved, written_s=1e6)
    assert goodput_of(run, rate, slow).interval_s == 1e6
    assert goodput_of(run, rate, slow, interval_s=60).interval_s == 60


def test_json_has_faults_and_goodput(capsys):
    output = json_of(
        capsys, "--fault", "dead:spine1", "--fault", "flap:dgx1/mlx5_0/1@60s", "--goodput", "llama3", "--tokens", "1T"
    )
    spine, flap = output["faults"]
    assert spine["survives"]
    assert spine["before_step_s"] == pytest.approx(output["step_s"])
    assert (flap["survives"], flap["stands_s"], flap["cut_off"]) == (False, None, ["dgx1/mlx5_0"])
    assert output["goodput"]["nodes"] == 8
    assert output["goodput"]["days"] == pytest.approx(output["days"] / output["goodput"]["ettr"])
    assert "faults" not in json_of(capsys)


def test_the_tables_say_what_happens(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    app([*JOB, "--fault", "flap:dgx1/mlx5_0/1@5s", "--goodput", "rsc-2", "--checkpoint-waits"])
    printed = capsys.readouterr().out
    for words in ("8.59", "dgx1/mlx5_0 cut off: continues at the next retry", "training (ETTR)", "rsc-2: Revisiting"):
        assert words in printed


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        (("--fault", "dead:spine99"), "spine99"),
        (("--fault", "spine1"), "KIND:WHERE"),
        (("--fault", "dead:spine1", "--search"), "leave out --search, --fabrics and --scale"),
        (("--storage", "dgx8"), "dgx8 is a server of the job"),
        (("--storage", "dgx99"), "dgx99"),
        (("--checkpoint-waits",), "add --goodput"),
        (("--goodput", "llama3", "--checkpoint-minutes", "-1"), "above 0"),
    ],
)
def test_invalid_faults_are_refused_before_the_run(flags, why, monkeypatch):
    monkeypatch.setattr("weft.training.prediction.run_job", lambda *_: pytest.fail("it ran"))
    with pytest.raises(ConfigError, match=why):
        app([*JOB, *flags])
    with pytest.raises(UnknownName, match="llama3"):
        app([*JOB, "--goodput", "llama"])
