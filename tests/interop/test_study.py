"""Studies on Ray, and tables in Parquet as pandas reads them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.interop.conftest import find_module
from tests.patience import PATIENCE_S

from weft.study import table

pytestmark = pytest.mark.interop
# Two Ray nodes with one core each, until standard input ends.
CLUSTER = """
import sys
from ray.cluster_utils import Cluster
here = {"num_cpus": 1, "node_ip_address": "127.0.0.1", "include_log_monitor": False}
cluster = Cluster(initialize_head=True, head_node_args=here | {"include_dashboard": False, "no_monitor": True})
cluster.add_node(**here)
print("at", cluster.address, flush=True)
sys.stdin.read()
cluster.shutdown()
"""
# Otherwise Ray replaces 127.0.0.1 by the machine's external address.
LOOPBACK = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_USAGE_STATS_ENABLED": "0"}


@pytest.fixture
def cluster() -> Iterator[str]:
    """The address of a Ray cluster of two nodes."""
    find_module("ray")
    with subprocess.Popen(
        [sys.executable, "-c", CLUSTER],
        env=os.environ | LOOPBACK | {"WEFT_DEFAULTS": "defaults of another user"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        output = next((line for line in process.stdout if line.startswith("at ")), "")
        assert output, "the cluster did not start"
        yield output.split()[1]
        process.communicate(timeout=PATIENCE_S)


def study(program: list[str], folder: Path, output: str, *more: str) -> subprocess.CompletedProcess[str]:
    words = ["sim", "star:hosts={hosts}", "--engine", "analytic", "--grid", "hosts=2,4", "--grid", "size=1K,x,1M"]
    command = [*program, "study", *words, "--grid", "seed=1..2", "-o", output, *more]
    env = os.environ | LOOPBACK
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=PATIENCE_S, check=False)


@pytest.mark.slow
def test_a_study_on_a_ray_cluster_gives_the_same_bytes_as_here(cluster, warm, tmp_path):
    """Also for runs that fail: those with a size of x."""
    local = study([str(warm)], tmp_path, "here.csv", "--workers", "2")
    present = study([sys.executable, "-m", "weft"], tmp_path, "there.csv", "--ray", cluster)
    assert local.stdout == "here.csv: written, 12 runs, 4 failed\n", local.stderr
    assert present.stdout == "there.csv: written, 12 runs, 4 failed\n", present.stderr
    assert present.stderr == local.stderr
    assert (tmp_path / "there.csv").read_bytes() == (tmp_path / "here.csv").read_bytes()


def test_a_cluster_that_is_not_there_is_named_at_once(warm, tmp_path):
    find_module("ray")
    done = study([str(warm)], tmp_path, "out.csv", "--ray", "127.0.0.1:1")
    assert done.returncode == 2
    assert "cannot use the Ray cluster at 127.0.0.1:1: " in done.stderr
    assert "refused" in done.stderr


def test_pandas_reads_the_kinds_of_values_from_parquet(tmp_path):
    find_module("pyarrow")
    import pandas

    rows = [
        {"size": "1K", "seed": 1, "rate": 1, "up": True, "mixed": 1, "error": ""},
        {"size": "x", "seed": 2, "rate": None, "up": None, "mixed": "many", "error": "no"},
        {"size": "1M", "seed": 3, "rate": 0.5, "up": False, "mixed": None, "error": ""},
    ]
    table.write(tmp_path / "t.parquet", list(rows[0]), rows)
    read = pandas.read_parquet(tmp_path / "t.parquet")
    assert list(read.columns) == list(rows[0])
    assert read["seed"].tolist() == [1, 2, 3]
    assert read["rate"].dropna().tolist() == [1.0, 0.5]
    assert read["up"].dropna().tolist() == [True, False]
    assert read["mixed"].dropna().tolist() == ["1", "many"]
    assert read["error"].tolist() == ["", "no", ""]
