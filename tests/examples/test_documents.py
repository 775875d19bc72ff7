"""Every `console` and `python` block of README and docs runs, and prints what the document shows.

    ```console     lines after `$ ` are run by the shell; what follows is what they print; a line `...` is any lines.
    ```python      is run as it stands, by a Python that has imported weft.

Blocks of one document share a folder, in order; those that need the real fabrics run by themselves, as they are skipped
where there are none. A document's labs are nobody else's, and none is left when it fails. Blocks in other languages:
test_configuration.py.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.conftest import find_dump
from tests.documents import DOCUMENTS, ROOT, read_blocks
from tests.interop.conftest import find_peer
from tests.lab.mounts import need_mounts
from tests.patience import without_notices

import weft
from weft.draw import draw
from weft.lab import control, registry

_TOOL = re.compile(r"^\$ weft exec (?:--lab \w+ )?h\d+ (ib\w+|perfquery)", re.M)  # installed with infiniband-diags
_DUMP = re.compile(r"\$WEFT_DUMPS/([\w.-]+)")


def blocks(document: Path, *, on_dumps: bool) -> list[tuple[str, str]]:
    """Return the language and the text of the blocks that need real fabrics, or of those that do not."""
    result = [
        (block.language, block.text) for block in read_blocks(document) if block.language in ("console", "python")
    ]
    return [(language, text) for language, text in result if bool(_DUMP.search(text)) is on_dumps]


@pytest.fixture
def _own_labs(warm, compiled, monkeypatch) -> Iterator[None]:
    """A runtime folder of the document's own; paths of sockets must be short."""
    monkeypatch.setenv("PATH", f"{warm.parent}:{Path(sys.executable).parent}:{os.environ['PATH']}")
    with tempfile.TemporaryDirectory(prefix="weft-") as folder:
        monkeypatch.setenv("XDG_RUNTIME_DIR", folder)
        monkeypatch.setenv("XDG_STATE_HOME", folder)
        yield
        for entry in registry.running():
            control.end(entry)


def environment() -> dict[str, str]:
    """Return the environment of documents, with a fixed locale: `ls` sorts by it."""
    return {name: value for name, value in os.environ.items() if name != "COLUMNS"} | {"LC_ALL": "C.UTF-8"}


def steps(block: str) -> list[tuple[str, list[str]]]:
    """Return the commands of a console block, each with its lines of output."""
    result: list[tuple[str, list[str]]] = []
    for line in block.splitlines():
        if line.startswith("$ "):
            result.append((line[2:], []))
        else:
            result[-1][1].append(line.rstrip())
    return result


def matches(expected: list[str], printed: list[str]) -> bool:
    """Return whether output matches, without blank lines; `...` stands for any lines, or any characters of a line."""
    pattern = "".join(
        ".*" if line == "..." else re.escape(line).replace(r"\.\.\.", "[^\n]*") + "\n"
        for line in expected
        if line.strip()
    )
    text = "".join(line.rstrip() + "\n" for line in printed if line.strip())
    return re.fullmatch(pattern, text, re.S) is not None


def run(language: str, block: str, folder: Path) -> None:
    if language == "python":
        done = subprocess.run(
            ["weft", "-c", block], cwd=folder, env=environment(), capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return
    for command, expected in steps(block):
        done = subprocess.run(
            command, shell=True, cwd=folder, env=environment(), capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"$ {command}\n{done.stdout}{done.stderr}"
        assert matches(expected, without_notices(done.stdout).splitlines()), (
            f"$ {command}\n{done.stdout}\nis not what is shown"
        )


def name(document: Path) -> str:
    return str(document.relative_to(ROOT))


@pytest.mark.usefixtures("_own_labs")
@pytest.mark.parametrize("document", [one for one in DOCUMENTS if blocks(one, on_dumps=False)], ids=name)
def test_the_blocks_of_a_document_run(document, tmp_path):
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    for language, block in blocks(document, on_dumps=False):
        if "exec --sysfs" in block:
            need_mounts()
        for program in _TOOL.findall(block):
            find_peer(program)
        run(language, block, tmp_path)


@pytest.mark.usefixtures("_own_labs")
@pytest.mark.parametrize("document", [one for one in DOCUMENTS if blocks(one, on_dumps=True)], ids=name)
def test_the_blocks_on_real_fabrics_run(document, tmp_path, monkeypatch):
    for language, block in blocks(document, on_dumps=True):
        for dump in _DUMP.findall(block):
            monkeypatch.setenv("WEFT_DUMPS", str(find_dump(dump).parent))
        run(language, block, tmp_path)


def test_a_wrong_line_is_noticed():
    assert matches(["one", "...", "three"], ["one", "", "two", "three"])
    assert not matches(["one", "four"], ["one", "two"])
    assert not matches(["one"], ["one", "two"])


def test_the_picture_in_the_readme_is_what_weft_draws(tmp_path):
    draw(weft.load("superpod:su=1"), tmp_path / "superpod.svg")
    assert (tmp_path / "superpod.svg").read_bytes() == (ROOT / "docs" / "superpod.svg").read_bytes(), (
        "draw it again: weft draw superpod:su=1 -o docs/superpod.svg"
    )


def test_the_terminal_in_the_readme_is_what_weft_prints(monkeypatch, warm):
    monkeypatch.syspath_prepend(ROOT / "docs" / "site")
    import terminal

    assert terminal.draw(terminal.record(warm.parent)) == terminal.PICTURE.read_text(encoding="utf-8"), (
        "record it again: python docs/site/terminal.py"
    )


def test_the_readme_is_short_and_its_links_exist():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 45
    for door in re.findall(r"\]\(([\w./-]+)\)", text):
        assert (ROOT / door).is_file(), door
