"""The console in Chromium, on a service with its own lab."""

from __future__ import annotations

import importlib.util
import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from urllib.parse import urlsplit

import httpx
import pytest
from tests.interop.chromium import SOFTWARE_GL, Page, chromium
from tests.interop.conftest import do_without
from tests.patience import PATIENCE_S, wait_until
from tests.warm import WARM, kill

pytestmark = [pytest.mark.interop, pytest.mark.slow]
ROOT = Path(__file__).parents[2]
SPEC, LAB = "fat-tree:hosts=16,radix=8", "console"
SMALL = "fat-tree:hosts=2,server=dgx-h100"  # with GPUs
IS_LIVE = "document.querySelector('#line')?.textContent === 'live'"
DRAWN = """(name => {
  const canvas = document.querySelector(`.sigma-${name}`);
  const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
  return data.some((value, i) => i % 4 === 3 && value > 0);
})"""


def builder() -> ModuleType:
    """Import web/build.py."""
    spec = importlib.util.spec_from_file_location("build", ROOT / "web" / "build.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Program:
    """A `weft serve` that can be stopped and restarted at the same address."""

    def __init__(self, folder: Path, spec: str = SPEC, lab: str = LAB) -> None:
        self.spec, self.lab = spec, lab
        self.database, self._url = f"sqlite:///{folder / 'ledger.db'}", ""
        self.start()

    @property
    def url(self) -> str:
        """Return the console's address with its token, once it serves."""
        if not self._url:
            assert self.process.stdout
            lines = iter(self.process.stdout.readline, "")
            self._url = next(result[1] for line in lines if (result := re.search(r"(http://\S+#token=\S+)", line)))
        return self._url

    def start(self) -> None:
        port = urlsplit(self._url).port if self._url else 0
        words = ["serve", self.spec, "--name", self.lab, "--port", str(port), "--database", self.database]
        self.process = subprocess.Popen([os.environ[WARM], *words], stdout=subprocess.PIPE, text=True)

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.communicate(timeout=PATIENCE_S)


@pytest.fixture(scope="module")
def console(peer: Callable[[str], str], warm: Path) -> None:
    """Skip where there is no browser or no console to display."""
    peer("chromium")
    if not builder().is_fresh():
        do_without("a console of these sources (make web)")


@pytest.fixture(scope="module")
def program(console: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    program = Program(tmp_path_factory.mktemp("serve"))
    yield program
    program.stop()


@pytest.fixture(scope="module")
def browser(program: Program, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """A browser, which starts at the same time as the service."""
    with chromium(tmp_path_factory.mktemp("browser"), *SOFTWARE_GL) as page:
        yield page


@pytest.fixture(scope="module")
def url(program: Program, browser: Page) -> str:
    return program.url


@pytest.fixture(scope="module")
def service(url: str) -> Iterator[httpx.Client]:
    place, token = url.split("/#token=")
    headers = {"Authorization": f"Bearer {token}"}
    with httpx.Client(base_url=f"{place}/api/v1", headers=headers, timeout=PATIENCE_S, trust_env=False) as client:
        assert client.put("/load", json={"jobs": ["train=ring:h[1-8]@50%"]}).is_success
        yield client


@pytest.fixture(scope="module")
def page(browser: Page, url: str, service: httpx.Client) -> Iterator[Page]:
    browser.resize(1280, 800)
    browser.open(url)
    browser.wait(f"{IS_LIVE} && document.querySelector('.job')")
    yield browser
    assert list(browser.complaints) == []
    assert {urlsplit(request).netloc for request in browser.requests} <= {urlsplit(url).netloc, ""}, "a request left"


@pytest.fixture(scope="module")
def runs(page: Page) -> list[str]:
    """Start one run of each kind from the page and return their names: they continue beside other tests."""
    page.press("#tab-runs")
    assert page.run("document.querySelector('#run-spec').value") == ""
    titles = []
    for command, kind in (("compare", "all_reduce:1M"), ("train", "llama3-8b")):
        select = f"e => (e.value = '{command}', e.dispatchEvent(new Event('change')))"
        page.run(f"({select})(document.querySelector('#command'))")
        assert page.run("document.querySelector('#run-what').value") == ""
        page.run(f"document.querySelector('#run-spec').value = '{SMALL}'")
        page.run(f"document.querySelector('#run-what').value = '{kind}'")
        page.press("#page-runs button", "Run")
        title = "document.querySelector('.run-row h3').textContent"  # the newest is on top
        page.wait(f"document.querySelector('.run-row') && {title}.startsWith('weft {command} ')")
        titles.append(page.run(title))
    return titles


def find(page: Page, name: str) -> None:
    page.run("document.activeElement.blur()")
    page.key("/")
    page.type(name)
    page.key("Enter")
    page.wait(f"document.querySelector('#page-selected h2')?.textContent === '{name}'")


def choose_cable(page: Page, host: str) -> str:
    """Select the cable of a host and return the name of the host's port."""
    find(page, host)
    page.press("#page-selected td:nth-child(2) button")
    page.wait("document.querySelector('#page-selected .state.up')")
    ends = page.run("[...document.querySelectorAll('#page-selected h2 span')].map(one => one.textContent)")
    assert f"{host}/1" in ends
    return f"{host}/1"


def test_the_page_loads_and_keeps_its_token_to_itself(page: Page, url: str) -> None:
    assert page.run("location.hash") == ""
    assert not any(url.split("token=")[1] in request for request in page.requests if "#token=" not in request)
    assert page.run("document.querySelector('#spec').textContent") != ""
    assert page.run("document.querySelector('#manager').textContent").startswith("SM master h1")
    assert page.run(f"document.querySelectorAll('#stage canvas').length > 3 && {DRAWN}('labels')")


def test_a_run_says_how_far_it_is(page: Page, runs: list[str]) -> None:
    page.press("#page-runs .run-row button", "Lines")
    page.wait("document.querySelector('.run-row pre:not([hidden])')?.textContent")
    assert all(SMALL in run for run in runs)


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
    page.key("ArrowRight")  # nothing was selected: the first node of the top row
    page.wait("document.querySelector('#page-selected h2')?.textContent === 'spine1'")
    page.key("ArrowDown")
    page.wait("/^leaf/.test(document.querySelector('#page-selected h2')?.textContent)")
    page.key("ArrowDown")
    page.wait("/^h\\d/.test(document.querySelector('#page-selected h2')?.textContent)")
    page.key("Escape")
    page.wait("document.querySelector('#page-selected h2') === null")


def point_at_spine(page: Page) -> tuple[int, int]:
    """Return the centre of the first node of the top row, found by moving the pointer."""
    page.press("#fit")
    # In whole pixels: a WheelEvent has no fractions.
    box = "document.querySelector('#stage').getBoundingClientRect()"
    x, y, width = page.run(f"(r => [r.x, r.y, r.width].map(Math.round))({box})")
    page.wait(f"{DRAWN}('labels')")

    def middle(points: list[tuple[int, int]]) -> tuple[int, int] | None:
        """Return the middle of the first run of points at which the pointer is over a node."""
        over: list[tuple[int, int]] = []
        for point in points:
            page.call("Input.dispatchMouseEvent", type="mouseMoved", x=point[0], y=point[1])
            if page.run("document.querySelector('#stage').classList.contains('over')"):
                over.append(point)
            elif over:
                break
        return over[len(over) // 2] if over else None

    def look() -> tuple[int, int] | None:
        across = middle([(x + right, y + 36) for right in range(0, width, 4)])
        return across and middle([(across[0], y + down) for down in range(72)])

    return wait_until(look)  # there may be no such point while the camera moves


def test_a_node_is_chosen_with_the_pointer(page: Page) -> None:
    page.click(*point_at_spine(page))
    page.wait("document.querySelector('#page-selected h2')?.textContent === 'spine1'")


def test_where_drawing_is_slow_the_image_moves_with_the_camera(page: Page) -> None:
    """As for 10,000 lines without a graphics card: the fence after a drawing takes long to signal."""
    page.run("""(of => {
      const [fence, status] = [of.fenceSync, of.getSyncParameter];
      of.fenceSync = function (...given) { return Object.assign(fence.apply(this, given), { at: performance.now() }); };
      of.getSyncParameter = (one) => performance.now() - one.at < window.takes_ms ? of.UNSIGNALED : of.SIGNALED;
      window.takes_ms = 200;
      window.quicken = () => Object.assign(of, { fenceSync: fence, getSyncParameter: status });
    })(WebGL2RenderingContext.prototype)""")
    x, y = point_at_spine(page)
    at = f"{{ clientX: {x}, clientY: {y}, deltaY }}"
    send = f"document.querySelector('.sigma-mouse').dispatchEvent(new WheelEvent('wheel', {at}))"
    page.run(f"void (window.wheel = (deltaY) => {send})")
    page.wait("(wheel(performance.now() % 400 < 200 ? -40 : 40), document.querySelector('.gliding'))")
    page.run("window.takes_ms = 1e9")  # from now on only this image is displayed
    matrix = "new DOMMatrix(document.querySelector('.glide').style.transform)"
    before = page.run(f"{matrix}.a")
    page.wait(f"(wheel(-40), Math.abs({matrix}.a / {before} - 1) > 3)")  # several steps of the wheel
    corner = page.run("(r => [r.x, r.y])(document.querySelector('#stage').getBoundingClientRect())")
    place = [x - corner[0], y - corner[1]]
    moved = page.run(f"(p => [p.x, p.y])({matrix}.transformPoint(new DOMPoint(...{place})))")
    assert moved == pytest.approx(place, abs=3)  # the point under the pointer stays there
    page.key("Escape")
    page.click(x, y)
    page.wait("document.querySelector('#page-selected h2')?.textContent === 'spine1'")
    assert page.run("!!document.querySelector('.gliding')")
    page.run("void window.quicken()")
    page.wait("!document.querySelector('.gliding')")
    wait_until(lambda: point_at_spine(page) == pytest.approx((x, y), abs=8))  # in the new drawing too


def test_a_cable_is_broken_and_repaired(page: Page) -> None:
    port = choose_cable(page, "h7")
    page.press("#page-selected button", "Break")
    page.wait("document.querySelector('#page-selected .state.down')")
    says = f"one => one.textContent.includes('{port}') && one.textContent.endsWith('is down')"
    page.wait(f"[...document.querySelectorAll('.log li')].some({says})")
    page.press("#tab-table")
    page.wait(f"document.querySelector('#page-table tbody tr')?.textContent.includes('{port}')")
    page.press("#tab-selected")
    page.press("#page-selected button", "Repair")
    page.wait("document.querySelector('#page-selected .state.up')")


def test_a_bad_cable_is_an_alert_until_it_is_repaired(page: Page) -> None:
    port = choose_cable(page, "h3")
    page.run("document.querySelector('#page-selected select').value = '2'")
    page.press("#page-selected button", "Degrade")
    page.wait("!document.querySelector('#alerts').hidden")
    page.wait(f"document.querySelector('#alarm').textContent.includes('{port}')")  # announced to screen readers
    page.press("#alerts")
    alert = (
        f"[...document.querySelectorAll('.alert')].find(one => one.querySelector('h3').textContent.includes('{port}'))"
    )
    page.wait(alert)
    page.run(f"[...{alert}.querySelectorAll('button')].find(one => one.textContent.startsWith('Repair')).click()")
    page.wait(f"!{alert}")


def test_a_moment_of_the_past_is_shown_and_nothing_can_be_changed_in_it(page: Page, service: httpx.Client) -> None:
    page.wait("!document.querySelector('#timeline').hidden")
    for order in ("break", "fix"):  # each is recorded before the next
        assert service.post("/cables", json={"name": "leaf1/5", "do": order}).is_success
        ends = "is down" if order == "break" else "is up again"
        wait_until(lambda ends=ends: _event(service, f"leaf1/5 - spine1/1 {ends}"), ends)
    page.press("#tab-history")
    down = "[...document.querySelectorAll('#page-history li')].find(one => one.textContent.endsWith('is down'))"
    page.wait(f"{down}?.textContent.includes('leaf1/5')")
    page.run(f"{down}.querySelector('button').click()")
    page.wait("document.body.classList.contains('past') && !document.querySelector('#banner').hidden")
    assert page.run("document.querySelector('#line').textContent").startswith("past ")
    page.press("#page-history button", "Compare with now")
    page.wait("document.querySelector('#page-history ul')?.textContent.includes('link leaf1/5: none')")
    page.press("#tab-table")
    page.wait("document.querySelector('#page-table tbody tr')?.textContent.includes('down')")
    page.press("#page-table tbody button")
    page.wait("document.querySelector('#page-selected .state.down')")
    assert page.run("getComputedStyle(document.querySelector('#page-selected .acts')).display") == "none"
    page.run("[...document.querySelectorAll('#page-selected button')].find(one => one.textContent === 'Break').click()")
    page.wait("document.querySelector('#page-selected .problem').textContent.startsWith('this is the past')")
    assert service.get("/state").json()["links"]["state"].count("down") == 0
    slider = "document.querySelector('#when')"
    page.run(f"({slider}.value = 0, {slider}.dispatchEvent(new Event('input')))")
    page.wait("document.querySelector('#page-selected .state.up')")  # as when the recording began
    page.press("#banner button", "Back to now")
    page.wait(f"{IS_LIVE} && !document.body.classList.contains('past')")
    assert page.run(f"{slider}.getAttribute('aria-valuetext')") == "now"


def test_in_a_model_clicks_change_the_model_and_not_the_fabric(page: Page, service: httpx.Client) -> None:
    page.press("#tab-whatif")
    page.press("#page-whatif button", "Start a model")
    page.wait("document.body.classList.contains('model') && document.querySelector('#line').textContent === 'model'")
    page.wait("document.querySelector('#banner').textContent.includes('not the fabric')")
    find(page, "spine1")
    page.press("#page-selected button", "Remove in the model")
    page.press("#tab-table")
    down = "[...document.querySelectorAll('#page-table tbody tr')].filter(one => one.textContent.includes('down'))"
    page.wait(f"{down}.length === 8")
    assert service.get("/state").json()["links"]["state"].count("down") == 0
    page.press("#tab-whatif")
    page.wait("document.querySelector('.faults').textContent.includes('without spine1')")
    page.press("#page-whatif button", "Ask the model")
    page.wait("document.querySelector('.answer')?.textContent.includes('All 16 host ports stay connected')")
    assert "switch down: spine1" in page.run("document.querySelector('.answer').textContent")
    find(page, "h7")
    page.press("#page-selected td:nth-child(2) button")
    page.wait("document.querySelector('#page-selected .acts')")
    assert page.run("getComputedStyle(document.querySelector('#page-selected .acts')).display") == "none"
    page.run("[...document.querySelectorAll('#page-selected button')].find(one => one.textContent === 'Break').click()")
    page.wait("document.querySelector('#page-selected .problem').textContent.startsWith('this is the model')")
    page.press("#banner button", "Leave the model")
    page.wait(f"{IS_LIVE} && !document.body.classList.contains('model') && document.querySelector('#banner').hidden")
    page.press("#tab-table")
    page.wait("!document.querySelector('#page-table tbody').textContent.includes('down')")
    assert service.get("/state").json()["links"]["state"].count("down") == 0


def test_a_port_is_switched_off_and_on_and_its_counters_are_cleared(page: Page, service: httpx.Client) -> None:
    choose_cable(page, "h8")
    page.press("#page-selected button", "Switch off")
    page.wait("document.querySelector('#page-selected .state.down')")
    page.press("#page-selected button", "Switch on")
    page.wait("document.querySelector('#page-selected .state.up')")
    page.press("#page-selected button", "Clear counters")
    lines = "[...document.querySelectorAll('.log li')].map(one => one.textContent)"
    page.wait(f"{lines}.filter(one => /cleared at (h8.1|leaf2.4)/.test(one)).length === 2")


def test_a_cable_shows_the_serial_numbers_and_powers_of_its_modules(page: Page, service: httpx.Client) -> None:
    ends = service.get("/cables", params={"port": "leaf1/6"}).json()
    assert [(end["port"], end["technology"]) for end in ends] == [("leaf1/6", "optical"), ("spine1/2", "optical")]
    find(page, "leaf1")
    page.press("#page-selected td:nth-child(2) button", "spine1/2")
    page.wait("document.querySelectorAll('.modules h4').length === 2")
    shown = page.run("document.querySelector('.modules').textContent")
    assert all(end["serial"] in shown for end in ends)
    assert "dBm" in shown
    assert f"{ends[0]['temperature_c']:.1f} °C" in shown


def test_an_alarm_is_acknowledged_in_the_page(page: Page, service: httpx.Client) -> None:
    assert service.post("/cables", json={"name": "leaf2/5", "do": "break"}).is_success
    page.press("#tab-overview")
    alert = "[...document.querySelectorAll('.alert')].find(one => one.textContent.includes('leaf2/5'))"
    page.wait(f"{alert} && document.querySelector('#alerts').textContent === '1 alert'")
    page.run(f"{alert}.querySelector('.acknowledge details').open = true")
    page.run(f"{alert}.querySelector('.acknowledge input').focus()")
    page.type("Ann")
    page.run(f"{alert}.querySelectorAll('.acknowledge input')[1].focus()")
    page.type("replaced tonight")
    page.key("Enter")
    page.wait(f"{alert}.textContent.includes('Acknowledged by Ann')")
    page.wait(f"{alert}.classList.contains('acknowledged') && document.querySelector('#alerts').hidden")
    (stored,) = service.get("/acknowledgements").json()
    assert (stored["name"], stored["reason"], stored["caller"]) == ("Ann", "replaced tonight", "first")
    assert "replaced tonight" in page.run("document.querySelector('.log').textContent")
    page.press(".acknowledge button", "Withdraw")
    page.wait(f"{alert} && !{alert}.classList.contains('acknowledged')")
    assert service.post("/cables", json={"name": "leaf2/5", "do": "fix"}).is_success
    page.wait(f"!{alert}")


def _event(service: httpx.Client, text: str) -> bool:
    return any(event["text"] == text for event in service.get("/past").json()["events"])


def _write(page: Page, intent: str) -> None:
    """Write an intent as typing does, with the events of the page."""
    write = f"one => {{ one.value = '{intent}'; one.dispatchEvent(new Event('input')) }}"
    page.run(f"({write})(document.querySelector('#intent'))")


def test_a_tenant_is_planned_and_applied(page: Page, service: httpx.Client) -> None:
    page.press("#tab-tenants")
    apply = "[...document.querySelectorAll('#page-tenants button')].find(one => one.textContent === 'Apply')"
    assert page.run(f"[document.querySelector('#intent').value, {apply}.disabled]") == ["", True]  # nothing to apply
    _write(page, """[tenant.acme]\\nhosts = ["h[2-4]"]\\n""")
    page.press("#page-tenants button", "Plan")
    page.wait("document.querySelector('.plan .create b')?.textContent.startsWith('acme=0x')")
    assert service.get("/tenants").json() == {}  # only a plan
    page.press("#page-tenants button", "Apply")
    page.wait("document.querySelector('#page-tenants .done')?.textContent.startsWith('Applied')")
    assert service.get("/tenants").json()["acme"]["hosts"] == ["h[2-4]"]
    page.press("#measures label", "Tenant")
    page.wait("document.querySelector('#legend').textContent.includes('acme')")
    page.press("#tab-table")  # the values behind the colours
    owned = "[...document.querySelectorAll('#page-table tbody tr')].filter(one => one.lastChild.textContent === 'acme')"
    page.wait(f"{owned}.length === 3 && {owned}.every(one => /h[234].1/.test(one.textContent))")
    page.press("#tab-tenants")
    page.wait(f"{apply}.disabled")  # it is applied
    _write(page, """[tenant.acme]\\nhosts = ["h999"]\\n""")
    page.press("#page-tenants button", "Plan")
    page.wait("document.querySelector('#page-tenants .problem')?.textContent.includes('h999')")
    assert "422" in page.complaints.pop()  # the browser reports the refused request


@pytest.mark.parametrize(("number", "words"), [(0, ("roce-400", "all_reduce")), (1, ("llama3-8b", "tokens/s"))])
def test_the_report_of_a_run_opens(page: Page, runs: list[str], number: int, words: tuple[str, ...]) -> None:
    page.press("#tab-runs")
    row = f"[...document.querySelectorAll('.run-row')].find(one => one.firstChild.textContent === '{runs[number]}')"
    page.wait(f"{row}.querySelector('.faint').textContent.startsWith('done')")
    page.run(f"{row}.querySelector('.buttons button').focus()")
    assert page.run("document.activeElement.textContent") == "Report"
    page.key("Enter")
    with page.next_tab("blob:"):
        page.wait("document.readyState === 'complete'")
        output = page.run("document.body.innerText")
        assert all(word in output for word in words), output
        assert page.run("[...document.images].every(one => one.naturalWidth > 0)")


def test_the_table_keeps_the_focus_of_who_reads_it(page: Page) -> None:
    page.press("#tab-table")
    page.wait("document.querySelectorAll('#page-table tbody tr').length === 32")
    page.run("window.third = document.querySelectorAll('#page-table tbody button')[2]; third.focus()")
    name = page.run("third.textContent")
    page.run("document.querySelector('#page-table tbody td.number').textContent = 'old'")
    page.wait("document.querySelector('#page-table tbody td.number').textContent !== 'old'")  # a second later
    assert page.run("document.activeElement === third && third.textContent") == name


def test_master_and_standby_managers_are_shown(page: Page, tmp_path: Path) -> None:
    """A manager with a higher priority starts, and is killed."""
    words = ["sm", "--lab", LAB, "--at", "h9", "--priority", "15", "--state", str(tmp_path / "state.json")]
    other = subprocess.Popen([os.environ[WARM], *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        page.wait("document.querySelector('header').innerText.includes('SM master h9')")
    finally:
        kill(other)
    page.wait("document.querySelector('header').innerText.includes('SM master h1')")


def test_a_server_is_selected_as_one_item_and_then_its_adapters(console: None, tmp_path: Path) -> None:
    program = Program(tmp_path, "star:hosts=2,server=dgx-h100", "console-servers")
    try:
        with chromium(tmp_path, *SOFTWARE_GL) as page:
            page.resize(1280, 800)
            page.open(program.url)
            page.wait(IS_LIVE)
            page.wait("document.querySelector('#page-overview').innerText.split('standby\\nnone').length === 2")
            page.run("document.querySelector('#stage').focus()")
            page.key("ArrowRight", "ArrowDown")
            page.wait("document.querySelector('#page-selected h2')?.textContent === 'dgx1'")
            assert page.run("document.querySelectorAll('#page-selected tbody tr').length") == 8
            page.press("#page-selected tbody tr:nth-child(2) button")
            page.wait("document.querySelector('#page-selected h2').textContent === 'dgx1/mlx5_3'")
            page.press("#page-selected button", "Server dgx1")
            page.wait("document.querySelector('#page-selected h2').textContent === 'dgx1'")
            page.resize(800, 700)
            page.wait("document.querySelector('#stage').offsetWidth === innerWidth")  # the panel is below the drawing
            assert list(page.complaints) == []
    finally:
        program.stop()


def test_a_service_that_goes_away_is_missed_and_comes_back(page: Page, program: Program) -> None:
    program.stop()
    page.wait("document.querySelector('#line').textContent.startsWith('no data since')")
    program.start()
    page.wait(IS_LIVE)
    page.complaints.clear()  # the browser reports requests without an answer


def test_without_webgl_there_are_tables(page: Page, url: str) -> None:
    page.call("Page.addScriptToEvaluateOnNewDocument", source="HTMLCanvasElement.prototype.getContext = () => null")
    page.open("about:blank")
    page.open(url.split("#")[0] + "#token=wrong")
    page.wait("document.querySelector('#login')?.open")
    page.wait("document.querySelector('#login-why').textContent.includes('no valid token')")
    assert "401" in page.complaints.pop()
    page.type(url.split("token=")[1])
    page.key("Enter")
    page.wait(f"{IS_LIVE} && document.querySelectorAll('#page-table tbody tr').length === 32")
    assert "no WebGL" in page.run("document.querySelector('#nothing').textContent")
