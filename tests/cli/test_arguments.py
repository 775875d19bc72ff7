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
    assert f"'{words[-1]}' is no whole number" in done.stderr


def test_a_whole_number_may_be_hexadecimal():
    done = run("sim", "star:hosts=2", "--seed", "0x10", "--json")
    assert json.loads(done.stdout)["seed"] == 16


@pytest.mark.parametrize(("opensm", "ours"), [("minhop", "min-hop"), ("updn", "up-down"), ("dor", "dimension-order")])
def test_engines_go_by_opensms_names(opensm, ours):
    done = run("route", "torus:4x4", "--engine", opensm)
    assert done.stdout.startswith(f"{ours}:")


def test_the_catalog_has_words_for_kinds():
    done = run("catalog", "NDR-SR4", "--json")
    assert json.loads(done.stdout)["medium"] == "TRANSCEIVER"
