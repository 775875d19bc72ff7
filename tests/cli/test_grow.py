"""`weft grow`, as the command line calls it."""

from __future__ import annotations

import json

import pytest

from weft.cli import app
from weft.errors import ConfigError


def test_json_has_every_step_and_its_proofs(capsys):
    app(["grow", "fat-tree:hosts=16,radix=8", "--servers", "32", "--json"])
    growth = json.loads(capsys.readouterr().out)
    assert (growth["stay"], growth["moved"], growth["least_moved"], growth["new"]) == (24, 8, 8, 32)
    assert [step["out"] for step in growth["steps"]] == [0, 4, 4]
    assert all(step["during"]["worst_leaf"] == 0.75 for step in growth["steps"][1:])
    assert growth["steps"][-1]["after"]["hosts"] == 32


def test_target_is_printed_once():
    with pytest.raises(ConfigError, match="one of --gpus, --servers and --to"):
        app(["grow", "fat-tree:hosts=16,radix=8", "--servers", "32", "--to", "fat-tree:hosts=32,radix=8"])
