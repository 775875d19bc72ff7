"""The page of `weft compare`, judged by Chromium: it opens from a file, fits, and shows the finding first."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from html import unescape
from typing import Any

import pytest
from tests.patience import PATIENCE_S

from weft.compare.comparison import compare
from weft.compare.job import parse_job
from weft.compare.report import to_html

pytestmark = pytest.mark.interop

_OFFLINE = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-quic", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update"),
]
_LOOK = """<script>
addEventListener("load", () => {
  const area = (selector) => {
    const { top, bottom, width, height } = document.querySelector(selector).getBoundingClientRect();
    return { top, bottom, width, height };
  };
  const inside = document.querySelector("iframe").contentDocument;
  const pre = document.createElement("pre");
  pre.id = "report";
  pre.textContent = JSON.stringify({
    finding: area(".finding"), trust: area(".trust"), table: area("table"), chart: area("svg.chart"),
    overflow: document.documentElement.scrollWidth - innerWidth,
    frame: area("iframe"), cables: inside.querySelectorAll("path").length,
    picture: inside.querySelector("svg").getBoundingClientRect().height,
    time: Math.max(...[...document.querySelectorAll("td b")].map((one) => one.getBoundingClientRect().right)),
    paper: getComputedStyle(inside.querySelector(".paper")).fill,
    fetched: performance.getEntriesByType("resource").length,
  });
  document.body.append(pre);
});
</script>"""


@pytest.fixture(scope="module")
def look(peer: Callable[[str], str], tmp_path_factory: pytest.TempPathFactory) -> Callable[..., dict[str, Any]]:
    browser = peer("chromium")
    folder = tmp_path_factory.mktemp("report")
    found = compare("superpod:su=1,servers=2", parse_job("all_reduce:1G"), ["ndr", "eth-100-tcp"])
    (folder / "page.html").write_text(to_html(found) + _LOOK, encoding="utf-8")
    where = [f"--user-data-dir={folder / 'browser'}", "--dump-dom", f"file://{folder / 'page.html'}"]

    def look(*how: str) -> dict[str, Any]:
        command = [browser, *_OFFLINE, *how, *where]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=True)
        told = re.search(r'<pre id="report">(.*?)</pre>', done.stdout, re.DOTALL)
        assert told, done.stderr
        said: dict[str, Any] = json.loads(unescape(told[1]))
        return said

    return look


@pytest.fixture(scope="module")
def seen(look: Callable[..., dict[str, Any]]) -> dict[str, Any]:
    return look("--window-size=1400,1000")


def test_the_finding_and_its_trust_are_on_the_first_screen(seen: dict[str, Any]) -> None:
    assert 0 < seen["finding"]["top"] < seen["trust"]["top"] < seen["table"]["top"]
    assert seen["trust"]["bottom"] < 500


def test_the_page_fits_and_fetches_nothing(seen: dict[str, Any]) -> None:
    assert seen["overflow"] <= 0
    assert seen["fetched"] == 0


def test_curves_and_cables_have_room(seen: dict[str, Any]) -> None:
    assert seen["chart"]["width"] > 400
    assert seen["cables"] > 16
    assert seen["picture"] == pytest.approx(seen["frame"]["height"], abs=4)


def test_on_a_narrow_dark_screen_the_times_are_in_sight_and_the_picture_is_dark(
    look: Callable[..., dict[str, Any]],
) -> None:
    seen = look("--window-size=500,900", "--blink-settings=preferredColorScheme=0")
    assert seen["overflow"] <= 0
    assert 0 < seen["time"] <= 500
    assert seen["paper"] == "rgb(20, 24, 29)"
