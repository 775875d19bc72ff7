"""`weft plan`: what it prints and where it writes."""

from __future__ import annotations

import json
import re
import signal

import pytest

from weft.cli import app
from weft.errors import ConfigError
from weft.plan import plan
from weft.plan.optimise import optimise


def said(capsys, *arguments: str) -> str:
    app(["plan", *arguments])
    return capsys.readouterr().out


def test_json_is_the_published_row_and_writes_nothing(capsys, tmp_path, monkeypatch):
    """DGX SuperPOD of DGX H100, RA-11333-001 V11, Table 4: one unit with UFM."""
    monkeypatch.chdir(tmp_path)
    messages = json.loads(said(capsys, "--gpus", "248", "--ufm-hosts", "--json"))
    assert [messages[name] for name in ("servers", "leaf", "spine", "core")] == [31, 8, 4, 0]
    assert [messages[f"cables_{between}"] for between in ("node_leaf", "leaf_spine", "spine_core")] == [248, 256, 0]
    assert messages["cables_ufm"] == 4
    assert messages["bill"]["items"][0]["count"] == 12
    assert not list(tmp_path.iterdir())


def test_a_screen_for_people_and_a_folder(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    out = said(capsys, "--gpus", "64")
    assert "8 × dgx-h100, 64 GPUs: superpod:su=1,leaves=1,switch=QM9700" in out
    trust = (
        "How far to trust it: All prices are rough estimates. Give your own prices with --prices FILE. More: --explain"
    )
    assert trust in " ".join(out.split())
    assert out.endswith("plan-dgx-h100-64: written\nOpen report.html, order by bill.csv, cable by cables.csv.\n")
    assert (tmp_path / "plan-dgx-h100-64" / "fabric.yaml").is_file()


def test_a_plan_says_what_moved_switches_would_save(capsys, tmp_path):
    """An additional server can cost less where switches have better places; `--optimise` finds this for either size."""
    messages = json.loads(said(capsys, "--servers", "53", "--server", "dgx-b200", "--json"))
    saving = messages["possible_saving"]
    assert saving["rounds"] == 1
    assert saving["optical_before"] > 2 * saving["optical_after"]
    out = said(capsys, "--servers", "53", "--server", "dgx-b200", "--folder", str(tmp_path / "p"), "--explain")
    assert f"USD or more: {saving['optical_before']} optical links become {saving['optical_after']}\n" in out
    moved = json.loads(said(capsys, "--servers", "53", "--server", "dgx-b200", "--json", "--optimise"))
    assert moved["possible_saving"] is None
    assert moved["bill"]["low_usd"] <= messages["bill"]["low_usd"] - min(saving["usd"])


def test_the_possible_saving_follows_the_users_own_prices(capsys, tmp_path):
    prices = tmp_path / "quotes.toml"
    quotes = {"transceiver port": 1_000, "DAC cable": 0, "ACC cable": 0, "fibre": 0}
    prices.write_text(
        "".join(f'"{name}" = {{ usd = {usd}, source = "x", date = 2026-11-02 }}\n' for name, usd in quotes.items())
    )
    arguments = "--servers", "53", "--server", "dgx-b200", "--json", "--prices", str(prices)
    saving = json.loads(said(capsys, *arguments))["possible_saving"]
    replaced = saving["optical_before"] - saving["optical_after"]
    assert saving["usd"] == [2_000 * replaced] * 2, "a port at either end of each optical link"


def test_a_sum_without_switches_is_no_sum(capsys, tmp_path):
    out = said(capsys, "--gpus", "64", "--fabric", "opa-400", "--folder", str(tmp_path / "p"))
    assert "has no total price, because switches or adapters have none" in out
    assert "; give your own with --prices FILE" in out


def test_any_fabric_can_be_planned(capsys, ndr_dump):
    messages = json.loads(said(capsys, str(ndr_dump), "--json"))
    assert (messages["leaf"], messages["spine"], messages["request"]) == (31, 9, None)
    assert sum(run["count"] for run in messages["runs"]) == messages["cables_node_leaf"] + messages["cables_leaf_spine"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "by --gpus or by --servers, such as --gpus 1024"),
        (("--gpus", "0"), "--gpus must be 1 or more"),
        (("superpod:su=1", "--gpus", "8"), "leave out --gpus, or the spec"),
        (("--servers", "4", "--server", "host", "--train", "llama3-8b"), "leave out --train"),
    ],
)
def test_invalid_sizes_are_refused(arguments, says):
    with pytest.raises(ConfigError, match=says):
        app(["plan", *arguments, "--json"])


def test_ctrl_c_ends_the_search_with_the_best_so_far(capsys, monkeypatch):
    def interrupted(racks, prices, *, progress, stop):
        def pressed(done: int, of: int) -> None:
            progress(done, of)
            if done == 2:
                signal.raise_signal(signal.SIGINT)

        return optimise(racks, prices, progress=pressed, stop=stop)

    monkeypatch.setattr(plan, "optimise", interrupted)
    before = signal.getsignal(signal.SIGINT)
    saving = json.loads(said(capsys, "--gpus", "96", "--optimise", "--json"))["saving"]
    assert saving["rounds"] == 2
    assert saving["optical_after"] <= saving["optical_before"]
    assert signal.getsignal(signal.SIGINT) is before


def test_training_counts_the_servers_and_no_host_of_ufm(capsys, tmp_path):
    messages = json.loads(
        said(capsys, "--gpus", "8", "--ufm-hosts", "--train", "llama3-8b", "--json", "--folder", str(tmp_path / "p"))
    )
    assert messages["upkeep"]["tokens_per_s"] > 0
    assert messages == json.loads((tmp_path / "p" / "plan.json").read_text())


def test_the_rest_of_a_plan_is_printed_and_written(capsys, tmp_path):
    (tmp_path / "phases.toml").write_text("[[phase]]\ndate = 2027-03-01\nservers = 8\n")
    phases = ["--phases", str(tmp_path / "phases.toml")]
    around = ["--storage-fabric", "ndr:2", "--management-fabric", "eth-100-tcp", "--spares", "0.9", *phases]
    app(["plan", "--gpus", "64", *around, "--folder", str(tmp_path / "p")])
    out = capsys.readouterr().out
    assert "Storage network: 1 switch, 20 cables, 1 more rack, " in " ".join(out.split())
    assert re.search(r"QM9700 +2 +0.05 +1", out)
    assert re.search(r"phase 1 +2027-03-01 +2026-12-07 +8 +1 ", out)
    written = {path.name for path in (tmp_path / "p").iterdir()}
    assert {"power.csv", "spares.csv", "phases.csv", "storage-cables.csv", "management-bill.csv"} <= written
    site = json.loads((tmp_path / "p" / "plan.json").read_text())["site"]
    assert [network["name"] for network in site["networks"]] == ["storage", "management"]
    assert site["phases"][0]["order_by"] == "2026-12-07"


def test_rates_without_spares_are_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"give --spares 0\.99 too"):
        app(["plan", "--gpus", "64", "--failure-rates", str(tmp_path / "rates.toml"), "--json"])
