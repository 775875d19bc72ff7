"""`weft advise`: invalid combinations of flags are named; flags reach the case."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import pytest

from weft.advise import advice
from weft.advise.formatting import short_trust
from weft.advise.sensitivity import Flip
from weft.cli import app
from weft.cli.advise import _case
from weft.errors import ConfigError


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"gpus": 12}, "--gpus 12 must be a multiple of 8, the GPUs of a dgx-h100: --gpus 8"),
        ({"gpus": 23}, "--gpus 23 must be a multiple of 8, the GPUs of a dgx-h100: --gpus 16"),
        ({"gpus": 5}, "--gpus 5 must be a multiple of 8, the GPUs of a dgx-h100: --gpus 8"),
        ({"gpus": 0}, "--gpus 0 must be a multiple of 8, the GPUs of a dgx-h100: --gpus 8"),
        ({"gpus": 8, "servers": 1}, "use --gpus or --servers, not both"),
        ({"workload": "train"}, "no workload 'train'; did you mean training"),
        ({"budget_usd": "lots"}, "budget must be a number above 0, got 'lots'"),
        ({"sequences": 2, "tokens": "16M"}, "use --batch or --batch-tokens, not both"),
        ({"workload": "mpi", "tokens": "16M"}, "--batch-tokens has no effect on mpi; it is for training, single-node"),
        ({"workload": "mpi", "sequences": 4}, "--batch has no effect on mpi: leave it out"),
        ({"workload": "mpi", "prompt_tokens": 5}, "--input-len has no effect on mpi: leave it out"),
        ({"workload": "web", "answer_tokens": 5}, "--output-len has no effect on web: leave it out"),
        ({"tpot_s": "30ms"}, "--slo-tpot has no effect on training: leave it out"),
        ({"weights": "fp8"}, "--weights has no effect on training: leave it out"),
        ({"workload": "inference", "tokens": "4M"}, "--batch-tokens has no effect on inference; it is for training"),
        ({"workload": "inference", "tpot_s": "soon"}, "--slo-tpot must be a time above 0, such as 2s or 30ms"),
        ({"workload": "inference", "prompt_tokens": 0}, "--input-len must be above 0, got 0"),
        ({"workload": "inference", "server": "host"}, "inference needs GPUs; host has none"),
        ({"workload": "mpi", "message_bytes": "x"}, "size 'x' is not a number of bytes"),
    ],
)
def test_invalid_flags_are_named(options, said):
    with pytest.raises(ConfigError, match=said):
        _case(options, None, cloud=False, seed=1)


def test_defaults_depend_on_the_work():
    assert _case({}, None, cloud=False, seed=1).gpus == 1024
    assert _case({"workload": "web"}, None, cloud=False, seed=1).servers == 32
    assert _case({"workload": "web", "servers": 3}, None, cloud=False, seed=1).server == "host"
    served = _case({"workload": "serving", "servers": 1, "tpot_s": "30ms"}, None, cloud=False, seed=1)
    assert (served.workload, served.chosen_model, served.tpot_s) == ("inference", "llama3-70b", 0.03)
    assert (served.prompt_tokens, served.answer_tokens) == (1024, 256)
    case = _case({"workload": "parallel-fs", "servers": 4}, None, cloud=True, seed=2)
    assert (case.workload, case.bytes_sent, case.cloud, case.seed) == ("storage", 128 << 20, True, 2)


def test_points_where_the_answer_changes_are_sought_only_to_be_shown(capsys, monkeypatch):
    """The search takes ten times as long as the answer."""
    flips = (
        Flip(by="fewer GPUs", at=64.0, where="from 64 GPUs", answer="another"),
        Flip(by="larger pages", at=None, where="to 1 GB"),
    )
    calls: list[object] = []
    monkeypatch.setattr(advice, "find_flips", lambda *given: calls.append(given) or flips)
    command = ["advise", "--workload", "web", "--servers", "4", "--cloud"]
    app(command, result_action="return_value")
    assert "When the answer would change: --explain" in " ".join(capsys.readouterr().out.split())
    assert calls == []
    app([*command, "--explain"], result_action="return_value")
    printed = " ".join(capsys.readouterr().out.split())
    assert "fewer GPUs another from 64 GPUs larger pages the same to 1 GB" in printed


def test_answer_names_the_cheaper_fabric_of_those_that_are_alike(capsys):
    """Two web servers: all fabrics take equally long, so the cheapest is the answer, and the others only cost more."""
    app(["advise", "--workload", "web", "--servers", "2"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "You do not need InfiniBand: take TCP on 100G Ethernet."
    assert lines[1].startswith("  For 2 servers, web: ")
    assert "NDR InfiniBand as long, TCP on 400G Ethernet as long." in lines[2]
    assert re.fullmatch(r"  - The fabric costs .* USD to buy, .* NDR InfiniBand \+\d+ %, TCP on 400G .*\.", lines[3])
    assert [line.split("  ")[0].strip() for line in lines if " ms" in line and "│" not in line][-3:] == [
        "* TCP on 100G Ethernet",
        "NDR InfiniBand",
        "TCP on 400G Ethernet",
    ]
    assert lines[-1].startswith("How far to trust it: ")
    assert lines[-1].endswith("When the answer would change: --explain")


def test_line_on_trust_names_only_evidence_that_the_answer_uses():
    steps, prices = (
        "Training steps are 7 % off published ones on average. ",
        "Prices are rough estimates: give your own ",
    )
    ties = "Differences under 5 % are ties."

    def line(cloud: bool, **options: Any) -> str:
        advice: Any = SimpleNamespace(case=_case(options, None, cloud=cloud, seed=1), rows=())
        return short_trust(advice)

    assert line(False) == f"{steps}{prices}with --prices FILE. {ties}"
    assert line(True) == f"{steps}{ties}"
    assert line(False, workload="mpi") == f"{prices}with --prices FILE. {ties}"
