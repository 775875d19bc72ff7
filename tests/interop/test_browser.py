"""The HTML page, in Chromium: it runs without an error and reacts to the pointer and the keys."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from tests.patience import PATIENCE_S

import weft
from weft.cli import app
from weft.draw import draw
from weft.fabric.model import Fabric

pytestmark = pytest.mark.interop

_OFFLINE = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-quic", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update"),
]
_REPORT = """<script>
const report = { errors: [] };
window.onerror = (message) => { report.errors.push(message); };
addEventListener("load", () => {
  const at = (element) => {
    const area = element.getBoundingClientRect();
    return [area.x + area.width / 2, area.y + area.height / 2];
  };
  const point = (kind, [x, y]) => {
    document.elementFromPoint(x, y).dispatchEvent(new PointerEvent(kind, { clientX: x, clientY: y, bubbles: true }));
  };
  const lit = () => [...svg.querySelectorAll("rect.node.lit")].map((b) => told.get(b).split("\\n")[0]);
  const find = (text) => { search.value = text; search.dispatchEvent(new Event("input")); };
  const named = (name) => [...svg.querySelectorAll("rect.node")].find((b) => told.get(b).split("\\n")[0] === name);
  try { SCRIPT } catch (error) { report.errors.push(String(error)); }
  const pre = document.createElement("pre");
  pre.id = "report";
  pre.textContent = JSON.stringify(report);
  document.body.append(pre);
});
</script>"""


@pytest.fixture(scope="module", autouse=True)
def _browser(peer: Callable[[str], str]) -> None:
    peer("chromium")


def run_page(fabric: Fabric, folder: Path, script: str) -> dict[str, Any]:
    """Draw a fabric as a page and run the script in it."""
    draw(fabric, folder / "fabric.html")
    return run_script(folder / "fabric.html", folder, script)


def run_script(document: Path, folder: Path, script: str, *, window: str = "1600,1000") -> dict[str, Any]:
    """Load a page in a browser, run the script in it, and return what it left in `report`."""
    page = document.read_text(encoding="utf-8")
    (folder / "page.html").write_text(page + _REPORT.replace("SCRIPT", script), encoding="utf-8")
    command = [
        "chromium",
        *_OFFLINE,
        f"--window-size={window}",
        f"--user-data-dir={folder / 'browser'}",
        "--dump-dom",
        f"file://{folder / 'page.html'}",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    result = re.search(r'<pre id="report">(.*?)</pre>', done.stdout, re.DOTALL)
    assert result, done.stderr
    report = json.loads(unescape(result[1]))
    assert report["errors"] == []
    assert isinstance(report, dict)
    return report


@pytest.fixture(scope="module")
def report(_browser: None, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Walk once through the report of a small fat tree."""
    script = """
      const before = svg.getAttribute("viewBox");
      point("pointermove", at(named("spine1")));
      report.hover = [tip.textContent, getComputedStyle(tip).display];
      point("pointerdown", at(named("leaf2")));
      point("pointerup", at(named("leaf2")));
      report.clicked = lit();
      report.lines = svg.querySelectorAll("path.lit").length;
      window.dispatchEvent(new KeyboardEvent("keydown", { key: "Escape" }));
      report.cleared = lit();
      find("h17"); report.search = [lit(), found.textContent, svg.getAttribute("viewBox") !== before];
      find("h17/1"); report.port = lit().includes("h17");
      find("nosuch"); report.missing = [lit(), found.textContent];
      document.getElementById("fit").click(); report.fitted = svg.getAttribute("viewBox") === before;
      const [x, y] = [innerWidth / 2, innerHeight - 20];
      point("pointerdown", [x, y]); point("pointermove", [x - 100, y]); point("pointerup", [x - 100, y]);
      report.panned = view[0] - whole[0];
      svg.dispatchEvent(new WheelEvent("wheel", { deltaY: -500, clientX: 800, clientY: 500 }));
      report.zoomed = view[2] / whole[2];
      report.titles = svg.querySelectorAll("title").length;
    """
    return run_page(weft.load("fat-tree:hosts=32,radix=16"), tmp_path_factory.mktemp("page"), script)


def test_the_pointer_tells_what_is_under_it(report: dict[str, Any]) -> None:
    assert report["hover"] == ["spine1\nQM9700, 16 of 16 ports in use", "block"]
    assert report["titles"] == 0  # the browser's own tooltips would repeat the text


def test_a_click_lights_a_node_its_links_and_its_neighbours(report: dict[str, Any]) -> None:
    assert sorted(report["clicked"]) == sorted(["leaf2", "spine1", "spine2", *(f"h{i}" for i in range(9, 17))])
    assert report["lines"] == 16
    assert report["cleared"] == []


def test_the_search_finds_a_node_by_its_name(report: dict[str, Any]) -> None:
    assert report["search"] == [["leaf3", "h17"], "1 found", True]
    assert report["port"] is True
    assert report["missing"] == [[], "0 found"]


def test_the_picture_pans_zooms_and_fits(report: dict[str, Any]) -> None:
    assert report["panned"] > 0
    assert 0 < report["zoomed"] < 0.6
    assert report["fitted"] is True


def test_a_host_in_a_block_is_found_too(tmp_path: Path) -> None:
    """A block stands for the hosts of a leaf at 27,648 hosts; search still finds their names."""
    script = 'find("h20000"); report.chosen = told.get(hits[0]); report.count = hits.length; report.lit = lit();'
    report = run_page(weft.load("fat-tree:hosts=27648"), tmp_path, script)
    assert report["chosen"] == "h19969..20000\n32 hosts"
    assert report["count"] == 1
    assert "leaf625" in report["lit"]


def test_the_racks_of_a_plan_can_be_seen_whole_in_a_narrow_window(tmp_path):
    """The page is as wide as the window, and the picture of a wide row of racks scrolls to its end."""
    app(["plan", "--gpus", "512", "--folder", str(tmp_path / "plan")])
    script = """
      report.page = document.documentElement.scrollWidth <= innerWidth;
      report.widest = Math.max(...[...document.querySelectorAll("figure")].map((f) => f.scrollWidth));
      report.hidden = [...document.querySelectorAll("figure")].filter((figure) => {
        figure.scrollLeft = 1e6;
        const picture = figure.querySelector("iframe");
        return picture && picture.getBoundingClientRect().right > figure.getBoundingClientRect().right + 1;
      }).length;
    """
    report = run_script(tmp_path / "plan" / "report.html", tmp_path, script, window="1000,900")
    assert report["page"]
    assert report["widest"] > 1000
    assert report["hidden"] == 0
