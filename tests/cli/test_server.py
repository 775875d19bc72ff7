"""Own clusters on the command line: `weft server import`, `--as` of nccl, compare and train."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from weft.cli import app
from weft.errors import ConfigError
from weft.fabric import catalog, files
from weft.fabric.spec import load

SIZES = ("-b", "1M", "-e", "1G", "-f", "32", "--json")


@pytest.fixture(scope="module")
def dump(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("dump") / "star.net"
    files.write(load("star:hosts=3,server=dgx-a100"), path, "ibnetdiscover")
    return path


def said(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    app(list(words))
    return json.loads(capsys.readouterr().out)  # type: ignore[no-any-return]


def times_us(found: dict[str, Any]) -> list[float]:
    return [row["out_of_place"]["time"] for row in found["results"]]


def test_a_dump_takes_as_long_as_the_fabric_that_it_is_of(dump: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Except for the cables: a dump does not contain their length."""
    whole = said(capsys, "nccl", "all_reduce", "star:hosts=3,server=dgx-a100", "--servers", "dgx2..3", *SIZES)
    words = ("nccl", "all_reduce", str(dump), "--as", "dgx*=dgx-a100", "--servers", "dgx2..3", *SIZES)
    assert times_us(said(capsys, *words)) == pytest.approx(times_us(whole), rel=1e-3)
    with pytest.raises(ConfigError, match="has no GPUs"):
        app(["nccl", "all_reduce", str(dump), *SIZES])


def test_compare_and_train_take_it_too(dump: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("compare", str(dump), "--as", "dgx*=dgx-a100", "--servers", "dgx2..3", "--fabrics", "hdr", "--json")
    result = said(capsys, *words)
    assert (result["servers"], result["gpus"]) == (2, 16)
    job = ("train", "gpt-5b", "--gpus", "16", "--tp", "8", "--json")
    item = said(capsys, *job, "--fabric", str(dump), "--as", "dgx1..3=dgx-a100")
    other = said(capsys, *job, "--fabric", "star:hosts=3,server=dgx-a100")
    assert item["step_s"] == pytest.approx(other["step_s"], rel=1e-3)
    with pytest.raises(ConfigError, match="give --fabric FILE"):
        app([*job, "--as", "dgx*=dgx-a100"])


def test_import_writes_a_template_that_is_used_by_its_path(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files.write(load("star:hosts=1,server=dgx-h100"), tmp_path / "topo.xml", None)
    result = tmp_path / "my-server.yaml"
    app(["server", "import", str(tmp_path / "topo.xml"), "-o", str(result), "--gpu", "H100", "--adapter", "ConnectX-7"])
    assert "written" in capsys.readouterr().out
    assert catalog.server(str(result)).pcie_tree["pcie0"] == ("gpu0", "gpu1", "mlx5_0", "mlx5_3")
    times = [
        said(capsys, "nccl", "all_reduce", f"star:hosts=2,server={server}", *SIZES)["results"]
        for server in (result, "dgx-h100")
    ]
    assert times[0] == times[1]
    for words, says in (((), "needs -o FILE"), (("-o", str(tmp_path / "my.txt")), "end in .yaml")):
        with pytest.raises(ConfigError, match=says):
            app(["server", "import", str(tmp_path / "topo.xml"), *words])
