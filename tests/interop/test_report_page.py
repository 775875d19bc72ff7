"""The pages of `weft compare` and `weft plan`, opened in Chromium from a file: they fit, finding first."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from functools import partial
from html import unescape
from typing import Any

import pytest
from tests.patience import PATIENCE_S

from weft.compare.comparison import compare
from weft.compare.job import parse_job
from weft.compare.report import to_html
from weft.plan.plan import make_plan
from weft.plan.report import to_html as plan_to_html
from weft.plan.request import Request
from weft.plan.size import size

pytestmark = pytest.mark.interop

_OFFLINE = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-quic", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update"),
]
_LOOK = """<script>
const errors = [];
addEventListener("error", (event) => { errors.push(event.message ?? event.target.tagName); }, true);
addEventListener("load", () => {
  const area = (selector) => {
    const { top, bottom, width, height } = document.querySelector(selector)?.getBoundingClientRect() ?? {};
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
    boxes: [...document.querySelectorAll("iframe")].map((one) => one.contentDocument.querySelectorAll(".node").length),
    errors, time: Math.max(...[...document.querySelectorAll("td b")].map((one) => one.getBoundingClientRect().right)),
    paper: getComputedStyle(inside.querySelector(".paper")).fill,
    fetched: performance.getEntriesByType("resource").length,
  });
  document.body.append(pre);
});
</script>"""


@pytest.fixture(scope="module")
def open_page(peer: Callable[[str], str], tmp_path_factory: pytest.TempPathFactory) -> Callable[..., dict[str, Any]]:
    browser = peer("chromium")
    folder = tmp_path_factory.mktemp("report")

    def open_page(page: str, *how: str) -> dict[str, Any]:
        (folder / "page.html").write_text(page.replace("<head>", f"<head>{_LOOK}"), encoding="utf-8")
        where = [f"--user-data-dir={folder / 'browser'}", "--dump-dom", f"file://{folder / 'page.html'}"]
        command = [browser, *_OFFLINE, *how, *where]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=True)
        messages = re.search(r'<pre id="report">(.*?)</pre>', done.stdout, re.DOTALL)
        assert messages, done.stderr
        output: dict[str, Any] = json.loads(unescape(messages[1]))
        assert output["errors"] == []
        assert output["fetched"] == 0
        return output

    return open_page


@pytest.fixture(scope="module")
def look(open_page: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
    result = compare("superpod:su=1,servers=2", parse_job("all_reduce:1G"), ["ndr", "eth-100-tcp"])
    return partial(open_page, to_html(result))


@pytest.fixture(scope="module")
def seen(look: Callable[..., dict[str, Any]]) -> dict[str, Any]:
    return look("--window-size=1400,1000")


def test_the_finding_and_its_trust_are_on_the_first_screen(seen: dict[str, Any]) -> None:
    assert 0 < seen["finding"]["top"] < seen["trust"]["top"] < seen["table"]["top"]
    assert seen["trust"]["bottom"] < 500


def test_the_page_fits(seen: dict[str, Any]) -> None:
    assert seen["overflow"] <= 0


def test_curves_and_cables_have_room(seen: dict[str, Any]) -> None:
    assert seen["chart"]["width"] > 400
    assert seen["cables"] > 16
    assert seen["picture"] == pytest.approx(seen["frame"]["height"], abs=4)


def test_on_a_narrow_dark_screen_the_times_are_in_sight_and_the_picture_is_dark(
    look: Callable[..., dict[str, Any]],
) -> None:
    observed = look("--window-size=500,900", "--blink-settings=preferredColorScheme=0")
    assert observed["overflow"] <= 0
    assert 0 < observed["time"] <= 500
    assert observed["paper"] == "rgb(20, 24, 29)"


def test_the_page_of_a_plan_fits_a_narrow_dark_screen_and_has_its_racks(
    open_page: Callable[..., dict[str, Any]],
) -> None:
    plan = make_plan(size(Request(servers=4)))
    observed = open_page(plan_to_html(plan), "--window-size=500,900", "--blink-settings=preferredColorScheme=0")
    assert 0 < observed["finding"]["top"] < observed["trust"]["top"] < observed["table"]["top"]
    assert observed["overflow"] <= 0
    assert observed["paper"] == "rgb(20, 24, 29)"
    assert observed["boxes"] == [2, len(plan.racks.boxes)]  # the servers and the leaf of one rack
