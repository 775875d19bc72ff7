"""`weft grow`, run as a user runs it."""

from __future__ import annotations

import json
import subprocess
import sys


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "weft", "grow", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_json_has_every_step_and_its_proofs():
    done = run("fat-tree:hosts=16,radix=8", "--servers", 32, "--json")
    assert done.returncode == 0, done.stderr
    growth = json.loads(done.stdout)
    assert (growth["stay"], growth["moved"], growth["least_moved"], growth["new"]) == (24, 8, 8, 32)
    assert [step["out"] for step in growth["steps"]] == [0, 4, 4]
    assert all(step["during"]["worst_leaf"] == 0.75 for step in growth["steps"][1:])
    assert growth["steps"][-1]["after"]["hosts"] == 32


def test_what_it_grows_to_is_said_once():
    done = run("fat-tree:hosts=16,radix=8", "--servers", 32, "--to", "fat-tree:hosts=32,radix=8")
    assert done.returncode == 2
    assert "one of --gpus, --servers and --to" in done.stderr
