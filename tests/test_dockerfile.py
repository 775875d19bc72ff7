"""The Dockerfile, without a daemon: what it copies is there, is let in, and is all that the wheel is made of."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_copied_files_exist_and_are_not_ignored():
    copied = [
        path
        for line in re.findall(r"^COPY (.+) \S+$", (ROOT / "Dockerfile").read_text(), re.M)
        for path in line.split()
    ]
    let_in = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert set(copied) == let_in
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    named = {project["project"]["readme"], *project["project"]["license-files"]}
    assert {"pyproject.toml", "src", "web"} | named == set(copied)
    assert all((ROOT / path).exists() for path in copied)
