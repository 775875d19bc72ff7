"""The documentation site builds without a warning: every page is reached, every link leads somewhere."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from weft.cli import COMMANDS, LAB_COMMANDS, VERBS_COMMANDS

DOCS = Path(__file__).parents[1] / "docs"


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run([sys.executable, DOCS / "site/build.py", folder], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "html"


def test_every_page_is_in_the_navigation():
    config = tomllib.loads((DOCS / "site/zensical.toml").read_text(encoding="utf-8"))
    in_navigation = set(re.findall(r"[\w/.-]+\.md", str(config["project"]["nav"])))
    written = {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")}
    assert in_navigation == written | {"reference/commands.md", "reference/python.md"}


def test_every_command_and_every_way_in_is_described(site):
    commands = (site / "reference/commands.html").read_text(encoding="utf-8")
    for name in (*COMMANDS, *LAB_COMMANDS, *VERBS_COMMANDS):
        assert f'id="weft-{name}"' in commands
    assert 'id="weft.fabric.spec.load"' in (site / "reference/python.html").read_text(encoding="utf-8")


def test_the_site_fetches_nothing(site):
    for page in site.rglob("*.html"):
        assert not re.search(r'<(?:script|link|img)[^>]+(?:src|href)="https?:', page.read_text(encoding="utf-8")), page


@pytest.mark.parametrize("name", ["CONTRIBUTING.md", "docs/glossary.md"])
def test_what_a_newcomer_is_sent_to_exists(name):
    """Folders and files of the source, from its root or from the top of the house."""
    root = DOCS.parent
    named = re.findall(r"`([\w*/]+/[\w*]*(?:\.\w+)?|\w+\.py)`", (root / name).read_text(encoding="utf-8"))
    assert len(named) > 20
    missing = [
        path for path in named if not any(set(base.glob(path.rstrip("/"))) for base in (root, root / "src/weft"))
    ]
    assert missing == []
