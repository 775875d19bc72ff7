"""Arguments that many commands take."""

from __future__ import annotations

import json
import os
import subprocess

import pytest


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([os.environ["WEFT_WARM"], *words], capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    "words",
    [
        ("sim", "star:hosts=2", "--seed", "1.9"),
        ("sim", "star:hosts=4", "--traffic", "incast", "--senders", "1.5"),
        ("route", "torus:4x4", "--lmc", "1.9"),
        ("nccl", "all_reduce", "superpod:su=1", "-f", "2.5"),
        ("perf", "write_bw", "h1", "h2", "star:hosts=2", "-n", "5.5"),
        ("scenario", "qos", "--seed", "1e3"),
    ],
)
def test_a_number_that_is_not_whole_is_refused(words):
    done = run(*words)
    assert done.returncode == 2
    assert f"'{words[-1]}' is not a whole number" in done.stderr


def test_a_whole_number_may_be_hexadecimal():
    done = run("sim", "star:hosts=2", "--seed", "0x10", "--json")
    assert json.loads(done.stdout)["seed"] == 16


@pytest.mark.parametrize(("opensm", "ours"), [("minhop", "min-hop"), ("updn", "up-down"), ("dor", "dimension-order")])
def test_engines_go_by_opensms_names(opensm, ours):
    done = run("route", "torus:4x4", "--routing-engine", opensm)
    assert done.stdout.startswith(f"{ours}:")


def test_the_catalog_has_words_for_kinds():
    done = run("catalog", "NDR-SR4", "--json")
    assert json.loads(done.stdout)["medium"] == "TRANSCEIVER"


@pytest.mark.parametrize(
    ("option", "why"),
    [
        ("--NCCL_IB_HCA", "changes nothing here: adapters are those of the compute rails"),
        ("--NCCL_IB_FIFO_TC", "changes nothing here: it is about queue pairs"),
        ("--NCCL_FUTURE", "changes nothing here: this part of NCCL is not modelled"),
        ("--NCCL_ALGOS", "there is no option --NCCL_ALGOS. Did you mean --NCCL_ALGO?"),
    ],
)
def test_a_variable_of_nccls_that_has_no_effect_says_why(option, why):
    done = run("nccl", "all_reduce", "star:hosts=1,server=dgx-h100", option, "1")
    assert done.returncode == 2
    assert why in done.stderr


def test_other_commands_know_no_variables_of_nccls():
    done = run("sim", "star:hosts=2", "--NCCL_ALGO", "Ring")
    assert done.returncode == 2
    assert "there is no option --NCCL_ALGO; `weft nccl` has the variables of NCCL" in done.stderr
