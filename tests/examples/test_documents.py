"""Every block of README and docs runs, and prints what the document shows.

    ```console     lines after `$ ` are run by the shell; what follows is what they print; a line `...` is any lines.
    ```python      is run as it stands.

Blocks of one document share a folder, in order. A block that needs the real fabrics is skipped where they are not.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import weft
from weft.fabric.draw import draw

ROOT = Path(__file__).parents[2]
DUMPS = Path(os.environ.get("WEFT_DUMPS", ROOT.parent / "shared" / "dumps"))
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
_BLOCK = re.compile(r"^```(console|python)\n(.*?)^```$", re.M | re.S)


def environment() -> dict[str, str]:
    return os.environ | {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "WEFT_DUMPS": str(DUMPS),
        "COLUMNS": "120",
    }


def steps(block: str) -> list[tuple[str, list[str]]]:
    """Commands of a console block with the lines that each prints."""
    made: list[tuple[str, list[str]]] = []
    for line in block.splitlines():
        if line.startswith("$ "):
            made.append((line[2:], []))
        else:
            made[-1][1].append(line.rstrip())
    return made


def matches(expected: list[str], printed: list[str]) -> bool:
    """Blank lines do not count; a line `...` is any number of lines, and `...` in a line any number of characters."""
    pattern = "".join(
        ".*" if line == "..." else re.escape(line).replace(r"\.\.\.", "[^\n]*") + "\n"
        for line in expected
        if line.strip()
    )
    text = "".join(line.rstrip() + "\n" for line in printed if line.strip())
    return re.fullmatch(pattern, text, re.S) is not None


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_blocks_of_a_document_run(document, tmp_path):
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    for language, block in _BLOCK.findall(document.read_text(encoding="utf-8")):
        if "WEFT_DUMPS" in block and not DUMPS.is_dir():
            continue
        if language == "python":
            run = subprocess.run(
                [sys.executable, "-c", block], cwd=tmp_path, env=environment(), capture_output=True, text=True
            )
            assert run.returncode == 0, run.stderr
            continue
        for command, expected in steps(block):
            run = subprocess.run(
                command, shell=True, cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False
            )
            assert run.returncode == 0, f"{command}\n{run.stderr}"
            printed = run.stdout.splitlines()
            assert matches(expected, printed), f"$ {command}\n{run.stdout}\nis not what {document.name} shows"


def test_a_wrong_line_is_noticed():
    assert matches(["one", "...", "three"], ["one", "", "two", "three"])
    assert not matches(["one", "four"], ["one", "two"])
    assert not matches(["one"], ["one", "two"])


def test_the_picture_in_the_readme_is_what_weft_draws(tmp_path):
    draw(weft.load("superpod:su=1"), tmp_path / "superpod.svg")
    assert (tmp_path / "superpod.svg").read_bytes() == (ROOT / "docs" / "superpod.svg").read_bytes(), (
        "draw it again: weft draw superpod:su=1 -o docs/superpod.svg"
    )
