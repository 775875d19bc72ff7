"""The Dockerfile, without a daemon: copied files exist, are not ignored, and are all that the wheel needs."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "Dockerfile").read_text()
STEPS = re.findall(r"^([A-Z]+) ((?:.*\\\n)*.*)$", TEXT, re.M)


def test_copied_files_exist_and_are_not_ignored():
    copied = [path for step, text in STEPS if step == "COPY" for path in text.split()[:-1]]
    let_in = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert set(copied) == let_in
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    named = {project["project"]["readme"], *project["project"]["license-files"]}
    assert {"pyproject.toml", "src", "web"} | named == set(copied)
    assert all((ROOT / path).exists() for path in copied)


def test_requirements_are_a_layer_before_the_sources_and_those_of_the_wheel():
    step = next(at for at, (_, text) in enumerate(STEPS) if "requirements" in text)
    assert step < next(at for at, (_, text) in enumerate(STEPS) if text.startswith("src "))
    script = re.search(r"python -c '(.*?)'", STEPS[step][1], re.S)
    assert script
    code = script[1].replace("\\\n", "").replace("/src/pyproject.toml", str(ROOT / "pyproject.toml"))
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    assert printed.splitlines() == project["dependencies"] + extras["plots"] + extras["postgres"] + extras["serve"]


def test_the_image_runs_as_a_user_that_kubernetes_knows_not_to_be_root():
    """With runAsNonRoot the kubelet refuses a user given by name: it must be a number."""
    users = [text for step, text in STEPS if step == "USER"]
    assert users
    assert all(re.fullmatch(r"[1-9]\d*", user) for user in users)
