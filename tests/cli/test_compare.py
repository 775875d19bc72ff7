"""`weft compare`, as a user runs it."""

from __future__ import annotations

import json

import pytest

import weft
from weft.cli import app
from weft.compare import comparison
from weft.errors import ConfigError, FileError, UnknownName

SMALL = ("superpod:su=1,servers=2", "--fabrics", "ndr,eth-100-tcp")


def test_the_finding_opens_the_table_follows_and_the_report_is_written(capsys, tmp_path):
    path = tmp_path / "compare.html"
    app(["compare", *SMALL, "--report", str(path)])
    printed = capsys.readouterr().out
    lines = printed.splitlines()
    assert lines[0].startswith("On 16 GPUs all_reduce of 1 GiB takes ")
    assert "times as long with TCP on 100G Ethernet." in lines[0]
    assert "90 % band" in printed
    assert lines[-2].startswith("How far to trust it: Largest error against published nccl-tests runs")
    assert lines[-1] == f"{path}: written"
    assert "seed 1" not in printed
    assert path.read_text().startswith("<!doctype html>")
    assert list(tmp_path.iterdir()) == [path]


def test_explain_adds_where_the_time_goes_and_why(capsys):
    app(["compare", *SMALL, "--explain"])
    printed = capsys.readouterr().out
    for words in ("Where the time goes", "8 × ConnectX-7 ", "8 × ConnectX-5-EN", "ndr: ", "eth-100-tcp: ", "seed 1"):
        assert words in printed
    with pytest.raises(ConfigError, match="--explain changes nothing here"):
        app(["compare", *SMALL, "--explain", "--json"])


def test_the_table_is_sorted_by_time(capsys):
    app(["compare", SMALL[0], "--fabrics", "eth-100-tcp,ndr"])
    printed = capsys.readouterr().out
    assert printed.index(" ndr ") < printed.index(" eth-100-tcp ")


def test_json_has_the_same_with_seed_job_and_version(capsys):
    app(["compare", *SMALL, "--job", "all_to_all:64M", "--seed", "7", "--json"])
    output = json.loads(capsys.readouterr().out)
    assert (output["weft"], output["seed"], output["job"], output["gpus"]) == (
        weft.__version__,
        7,
        "all_to_all:64M",
        16,
    )
    assert [item["fabric"] for item in output["fabrics"]] == ["ndr", "eth-100-tcp"]
    for item in output["fabrics"]:
        assert item["time_us"] == pytest.approx(sum(item["parts_us"].values()))
        assert item["adapters"]["per_server"] == 8
        assert item["cost"]["low_usd"] > 0
        assert len(item["by_size"]) > 10
        assert item["why"]
    assert output["finding"]
    assert output["trust"]


def test_your_own_prices_are_in_the_bill_and_said(capsys, tmp_path):
    path = tmp_path / "quotes.toml"
    offers = {"QM9700": 20_000, "ConnectX-7": 1_500, '"InfiniBand adapter"': 9, '"DAC cable"': 0, '"ACC cable"': 0}
    offers |= {'"transceiver port"': 0, "fibre": 0}
    path.write_text("".join(f'{k} = {{ usd = {v}, source = "offer", date = 2026-11-02 }}\n' for k, v in offers.items()))
    app(["compare", SMALL[0], "--fabrics", "ndr", "--prices", str(path), "--json"])
    output = json.loads(capsys.readouterr().out)
    (item,) = output["fabrics"]
    assert item["cost"]["low_usd"] == item["cost"]["high_usd"] == 20_000 + 16 * 1_500
    assert output["prices"] == str(path)
    assert output["trust"].endswith("Prices are your own.")


def test_a_switch_that_nobody_sells_is_said(capsys):
    app(["compare", "fat-tree:hosts=2,server=dgx-h100,radix=16", "--fabrics", "ndr", "--explain"])
    assert "16-port NDR switch: not a product: a QM9700 has 64 ports; priced per port" in capsys.readouterr().out


def test_a_trace_of_a_training_step(capsys, tmp_path):
    path = tmp_path / "step.csv"
    path.write_text("collective,size,count\nreduce_scatter,256M,4\nall_gather,256M,4\n")
    app(["compare", *SMALL, "--job", f"trace:{path}"])
    assert f"the 8 collectives of {path} take " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        (
            ("superpod:su=1", "--fabrics", "ndr,roce400"),
            UnknownName,
            "there is no fabric in the catalog 'roce400'; did you mean roce-400",
        ),
        (("superpod:su=1", "--fabrics", ","), ConfigError, "no fabric is named"),
        (("superpod:su=1", "--job", "all_reduce"), ConfigError, "write all_reduce:1G"),
        (("superpod:su=1", "--job", "allreduse:1G"), UnknownName, "did you mean all_reduce"),
        (("superpod:su=1", "--job", "all_reduce:1Q"), ConfigError, "size '1Q' is not a number of bytes"),
        (("superpod:su=1", "--job", "trace:/nosuch"), ConfigError, "no such file"),
        (("superpod:su=1", "--servers", "33"), ConfigError, "--servers 33: superpod:su=1.* has 32"),
        (("superpod:su=1", "--report", "x.pdf"), ConfigError, r"must end with \.html"),
        (("superpod:su=1", "--prices", "/nosuch.toml"), FileError, "no such file"),
        (("fat-tree:hosts=16",), ConfigError, "no servers with GPUs"),
        (("nosuch:4",), UnknownName, "there is no topology"),
    ],
)
def test_a_wrong_input_is_refused_before_anything_runs(arguments, error, says, monkeypatch):
    def fail(*_args, **_options):
        raise AssertionError("something ran")

    monkeypatch.setattr(comparison, "measure", fail)
    with pytest.raises(error, match=says):
        app(["compare", *arguments])


def test_a_wrong_line_of_a_trace_is_named(tmp_path):
    path = tmp_path / "step.csv"
    path.write_text("all_reduce,1M\nall_reduce;1M\n")
    with pytest.raises(FileError, match=r"step.csv:2: 'all_reduce;1M' is not valid; expected collective,size,count"):
        app(["compare", *SMALL, "--job", f"trace:{path}"])
