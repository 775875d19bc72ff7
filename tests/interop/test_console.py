"""The console, judged by Chromium: what a person does with it, on a service with a lab of its own."""

from __future__ import annotations

import importlib.util
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from urllib.parse import urlsplit

import httpx
import pytest
from tests.interop.chromium import SOFTWARE_GL, Page, chromium
from tests.interop.conftest import do_without
from tests.patience import PATIENCE_S

pytestmark = [pytest.mark.interop, pytest.mark.slow]
ROOT = Path(__file__).parents[2]
IS_LIVE = "document.querySelector('#line')?.textContent === 'live'"
DRAWN = """(name => {
  const canvas = document.querySelector(`.sigma-${name}`);
  const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
  return data.some((value, i) => i % 4 === 3 && value > 0);
})"""


def builder() -> ModuleType:
    """web/build.py"""
    spec = importlib.util.spec_from_file_location("build", ROOT / "web" / "build.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Program:
    """`weft serve`, which may go and come back at the same place."""

    def __init__(self, folder: Path) -> None:
        self.database, self.url, self.port = f"sqlite:///{folder / 'ledger.db'}", "", 0
        self.start()

    def start(self) -> None:
        words = ["serve", "fat-tree:hosts=16,radix=8", "--name", "console", "--port", str(self.port)]
        command = [sys.executable, "-m", "weft", *words, "--database", self.database]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout
        if not self.url:
            lines = iter(self.process.stdout.readline, "")
            self.url = next(found[1] for line in lines if (found := re.search(r"(http://\S+#token=\S+)", line)))
            self.port = urlsplit(self.url).port or 0

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.communicate(timeout=PATIENCE_S)


@pytest.fixture(scope="module")
def program(peer: Callable[[str], str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    peer("chromium")
    if not builder().is_fresh():
        do_without("a console of these sources (make web)")
    program = Program(tmp_path_factory.mktemp("serve"))
    yield program
    program.stop()


@pytest.fixture(scope="module")
def url(program: Program) -> str:
    """Of the console, with its token."""
    return program.url


@pytest.fixture(scope="module")
def service(url: str) -> Iterator[httpx.Client]:
    place, token = url.split("/#token=")
    headers = {"Authorization": f"Bearer {token}"}
    with httpx.Client(base_url=f"{place}/api/v1", headers=headers, timeout=PATIENCE_S, trust_env=False) as client:
        assert client.put("/load", json={"jobs": ["train=ring:h[1-8]@50%"]}).is_success
        yield client


@pytest.fixture(scope="module")
def page(url: str, service: httpx.Client, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with chromium(tmp_path_factory.mktemp("browser"), *SOFTWARE_GL) as page:
        page.resize(1280, 800)
        page.open(url)
        page.wait(f"{IS_LIVE} && document.querySelector('.job')")
        yield page
        assert list(page.complaints) == []
        assert {urlsplit(one).netloc for one in page.requests} <= {urlsplit(url).netloc, ""}, "a request left"


def find(page: Page, name: str) -> None:
    page.run("document.activeElement.blur()")
    page.key("/")
    page.type(name)
    page.key("Enter")
    page.wait(f"document.querySelector('#page-selected h2')?.textContent === '{name}'")


def choose_cable(page: Page, host: str) -> str:
    """The one of a host; the name of its port there."""
    find(page, host)
    page.press("#page-selected td:nth-child(2) button")
    page.wait("document.querySelector('#page-selected .state.up')")
    ends = page.run("[...document.querySelectorAll('#page-selected h2 span')].map(one => one.textContent)")
    assert f"{host}/1" in ends
    return f"{host}/1"


def test_the_page_loads_and_keeps_its_token_to_itself(page: Page, url: str) -> None:
    assert page.run("location.hash") == ""
    assert not any(url.split("token=")[1] in one for one in page.requests if "#token=" not in one)
    assert page.run("document.querySelector('#spec').textContent") != ""
    assert page.run("document.querySelector('#manager').textContent").startswith("SM master h1")
    assert page.run(f"document.querySelectorAll('#stage canvas').length > 3 && {DRAWN}('labels')")


def test_a_host_is_found_and_its_path_is_lit(page: Page) -> None:
    find(page, "h5")
    page.wait("document.querySelector('#page-selected td:nth-child(2)')?.textContent.startsWith('leaf2/')")
    page.press("#page-selected button", "Path from here")
    page.type("h14")
    page.key("Enter")
    page.wait("document.querySelectorAll('.hops li').length === 5")
    hops = page.run("[...document.querySelectorAll('.hops button')].map(one => one.textContent)")
    assert (hops[0], hops[1], hops[3], hops[4]) == ("h5", "leaf2", "leaf4", "h14")
    page.run("document.querySelector('#stage').focus()")
    page.wait(f"{DRAWN}('marks')")
    page.key("Escape")
    page.wait(f"!{DRAWN}('marks')")
    assert page.run("document.querySelector('.hops') === null")


def test_arrow_keys_walk_through_the_picture(page: Page) -> None:
    page.run("document.querySelector('#stage').focus()")
    page.key("ArrowRight")  # nothing was chosen: the first of the top row
    page.wait("document.querySelector('#page-selected h2')?.textContent === 'spine1'")
    page.key("ArrowDown")
    page.wait("/^leaf/.test(document.querySelector('#page-selected h2')?.textContent)")
    page.key("ArrowDown")
    page.wait("/^h\\d/.test(document.querySelector('#page-selected h2')?.textContent)")
    page.key("Escape")
    page.wait("document.querySelector('#page-selected h2') === null")


def test_a_node_is_chosen_with_the_pointer(page: Page) -> None:
    page.press("#fit")
    x, y, width = page.run("(r => [r.x, r.y, r.width])(document.querySelector('#stage').getBoundingClientRect())")
    page.wait(f"{DRAWN}('labels')")
    for across in range(0, int(width), 6):  # along the top row
        page.call("Input.dispatchMouseEvent", type="mouseMoved", x=x + across, y=y + 38)
        if page.run("document.querySelector('#stage').classList.contains('over')"):
            page.click(x + across, y + 38)
            break
    page.wait("document.querySelector('#page-selected h2')?.textContent === 'spine1'")


def test_a_cable_is_broken_and_mended(page: Page) -> None:
    port = choose_cable(page, "h7")
    page.press("#page-selected button", "Break")
    page.wait("document.querySelector('#page-selected .state.down')")
    says = f"one => one.textContent.includes('{port}') && one.textContent.endsWith('is down')"
    page.wait(f"[...document.querySelectorAll('.log li')].some({says})")
    page.press("#tab-table")
    page.wait(f"document.querySelector('#page-table tbody tr')?.textContent.includes('{port}')")
    page.press("#tab-selected")
    page.press("#page-selected button", "Mend")
    page.wait("document.querySelector('#page-selected .state.up')")


def test_a_bad_cable_is_an_alert_until_it_is_mended(page: Page) -> None:
    port = choose_cable(page, "h3")
    page.run("document.querySelector('#page-selected select').value = '2'")
    page.press("#page-selected button", "Degrade")
    page.wait("!document.querySelector('#alerts').hidden")
    page.wait(f"document.querySelector('#alarm').textContent.includes('{port}')")  # said aloud
    page.press("#alerts")
    assert port in page.run("document.querySelector('.alert h3').textContent")
    page.press(".alert button", "Mend")
    page.wait("document.querySelector('#alerts').hidden && document.querySelector('.alert') === null")


def test_a_tenant_is_planned_and_applied(page: Page, service: httpx.Client) -> None:
    page.press("#tab-tenants")
    page.wait("document.querySelector('#intent').value")
    page.run("""document.querySelector('#intent').value = '[tenant.acme]\\nhosts = ["h[2-4]"]\\n'""")
    page.press("#page-tenants button", "Plan")
    page.wait("document.querySelector('.plan .create b')?.textContent.startsWith('acme=0x')")
    assert service.get("/tenants").json() == {}  # it was a plan
    page.press("#page-tenants button", "Apply")
    page.wait("document.querySelector('#page-tenants .done')?.textContent.startsWith('Applied')")
    assert service.get("/tenants").json()["acme"]["hosts"] == ["h[2-4]"]
    page.press("#measures label", "Tenant")
    page.wait("document.querySelector('#legend').textContent.includes('acme')")
    page.run("""document.querySelector('#intent').value = '[tenant.acme]\\nhosts = ["h999"]\\n'""")
    page.press("#page-tenants button", "Plan")
    page.wait("document.querySelector('#page-tenants .problem')?.textContent.includes('h999')")
    assert "422" in page.complaints.pop()  # the browser's own word for what was refused


def test_without_webgl_there_are_tables(url: str, service: httpx.Client, tmp_path: Path) -> None:
    with chromium(tmp_path, "--disable-gpu", "--disable-3d-apis") as page:
        page.open(url.split("#")[0] + "#token=wrong")
        page.wait("document.querySelector('#login')?.open")
        page.wait("document.querySelector('#login-why').textContent.includes('no token that is known')")
        page.type(url.split("token=")[1])
        page.key("Enter")
        page.wait(f"{IS_LIVE} && document.querySelectorAll('#page-table tbody tr').length === 32")
        assert "no WebGL" in page.run("document.querySelector('#nothing').textContent")


def test_a_service_that_goes_away_is_missed_and_comes_back(page: Page, program: Program) -> None:
    program.stop()
    page.wait("document.querySelector('#line').textContent.startsWith('no data since')")
    program.start()
    page.wait(IS_LIVE)
    page.complaints.clear()  # the browser's, that nobody answered
