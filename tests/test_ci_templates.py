"""The action for GitHub and the template for GitLab start a lab with faults, as their runners execute them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from weft.version import __version__

ROOT = Path(__file__).parents[1]
FAULTS = "break h1/1\n\ndegrade h2/1 --ber 1e-9\n"
WEFT = f'weft() {{ "{sys.executable}" -m weft "$@"; }}\n'  # the one that is tested


def run(script: str, **variables: str) -> str:
    ended = subprocess.run(
        ["bash", "-eo", "pipefail", "-c", WEFT + script],
        env=os.environ | variables,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


@pytest.fixture
def own_runtime(tmp_path, monkeypatch):
    """A runtime folder for this test alone, so that no other lab has the names in the templates."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    tmp_path.chmod(0o700)


def test_the_action_starts_a_lab_with_faults(own_runtime):
    action = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
    install, start = action["runs"]["steps"]
    assert install["run"] == 'python3 -m pip install "$GITHUB_ACTION_PATH"'
    given = {name: str(field["default"]) for name, field in action["inputs"].items()} | {"faults": FAULTS}
    variables = {
        name: given[text.removeprefix("${{ inputs.").removesuffix(" }}")] for name, text in start["env"].items()
    }
    printed = run(start["run"], **variables)
    try:
        assert "lab lab is up: star:hosts=2" in printed
        assert "h1/1: broken" in printed
        assert "h2/1: bit error rate 1e-09" in printed
    finally:
        run("weft down lab")
    start_without = start["run"].replace("weft up", "echo up")
    assert run(start_without, **variables | {"SUBNET_MANAGER": "none", "FAULTS": ""}).split() == [
        "up",
        "star:hosts=2",
        "--name",
        "lab",
        "--daemon",
    ]


def test_the_template_of_gitlab_starts_and_ends_a_lab(own_runtime):
    job = yaml.safe_load((ROOT / "ci" / "gitlab.yml").read_text(encoding="utf-8"))[".weft-lab"]
    install, *script = job["before_script"]
    assert install == 'python3 -m pip install "$WEFT_SOURCE"'
    variables = job["variables"] | {"WEFT_FAULTS": FAULTS}
    printed = run("\n".join([*script, *job["after_script"]]), **variables)
    assert "lab lab is up: star:hosts=2" in printed
    assert "h1/1: broken" in printed
    assert "lab lab is down" in printed


def test_the_citation_has_the_version():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == __version__


def test_the_changelog_has_notes_for_the_version():
    """`make dist` prints the notes of a release with this script."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    script = re.search(r"'(/\^## / \{.*)' CHANGELOG.md", makefile)
    assert script
    command = ["awk", "-v", f"version={__version__}", script[1].replace("$$", "$"), str(ROOT / "CHANGELOG.md")]
    notes = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "### Added" in notes
    assert "\n## " not in notes
