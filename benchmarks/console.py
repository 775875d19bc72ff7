"""The console in a real browser: how soon it is seen, and how smoothly it moves.

    python benchmarks/console.py [--fabric fat-tree:hosts=4500,radix=64] [--loads 5] [--seconds 5] [--card]

    first paint    of the page, in a browser that runs already; median and worst of some loads
    all drawn      until the fabric is drawn and its loads are known, likewise
    own work       of the page until then, and for a frame: processor time of its main thread
    frames/s       while the picture is zoomed to and fro; what a frame takes beyond own work is the graphics card's

The service is `weft serve` on a lab of its own, with a job on half of its hosts. It, the lab and the browser share the
machine, with whatever else runs there: how many programs want its processors is printed. Without --card WebGL is drawn
by the processor (SwiftShader), as in CI: the frames are then its, and where they are slow the page leaves lines out
while it moves. What drew is printed.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import httpx

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.interop.chromium import SOFTWARE_GL, Page, chromium

_READY = "document.querySelector('#line')?.textContent === 'live' && document.querySelector('.job')"
_RENDERER = """(() => {
  const gl = document.createElement('canvas').getContext('webgl2');
  return gl.getParameter(gl.getExtension('WEBGL_debug_renderer_info').UNMASKED_RENDERER_WEBGL);
})()"""
_ZOOM = """new Promise((done) => {
  const mouse = document.querySelector('.sigma-mouse'), area = mouse.getBoundingClientRect();
  const place = { clientX: area.x + area.width / 2, clientY: area.y + area.height / 2, bubbles: true };
  const began = performance.now();
  let frames = 0;
  const step = (now) => {
    frames++;
    mouse.dispatchEvent(new WheelEvent('wheel', { ...place, deltaY: frames % 20 < 10 ? -60 : 60 }));
    if (now - began < 1000 * SECONDS) requestAnimationFrame(step);
    else done(frames / (now - began) * 1000);
  };
  requestAnimationFrame(step);
})"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fabric", default="fat-tree:hosts=4500,radix=64")
    parser.add_argument("--loads", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--card", action="store_true", help="draw with the graphics card")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ.setdefault("XDG_RUNTIME_DIR", name)
        command = [sys.executable, "-m", "weft", "serve", given.fabric, "--name", "bench", "--port", "0"]
        with subprocess.Popen(
            [*command, "--database", f"sqlite:///{folder / 'ledger.db'}"], stdout=subprocess.PIPE, text=True
        ) as service:
            assert service.stdout
            lines = iter(service.stdout.readline, "")
            url = next(found[1] for line in lines if (found := re.search(r"(http://\S+#token=\S+)", line)))
            try:
                with chromium(folder, *(() if given.card else SOFTWARE_GL)) as page:
                    measure(page, url, given.fabric, given.loads, given.seconds)
            finally:
                service.send_signal(signal.SIGTERM)
                service.wait()


def measure(page: Page, url: str, fabric: str, loads: int, seconds: float) -> None:
    load_job(url)
    page.resize(1440, 900)
    page.call("Performance.enable", timeDomain="threadTicks")
    paints, drawn, own = [], [], []
    for _ in range(loads + 1):
        page.open("about:blank")
        time.sleep(1)
        began, before = time.monotonic(), main_thread_s(page)
        page.open(url)
        page.wait(_READY)
        own.append(1e3 * (main_thread_s(page) - before))
        drawn.append(1e3 * (time.monotonic() - began))
        paints.append(page.run("performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? NaN"))
    counts = page.run("[...document.querySelectorAll('#page-overview [aria-label=Fabric] dd')].map(o => o.innerText)")
    print(f"{fabric}: {', '.join(counts[1:])} (switches, hosts, cables)\ndrawn by {page.run(_RENDERER)}")
    waiting, cores = os.getloadavg()[0], os.cpu_count()
    print(f"{cores} processors, {waiting:.1f} programs on them")
    rows = (("first paint", paints), ("all drawn", drawn), ("own work", own))
    for title, (_, *found) in rows:  # the first load also starts the browser
        print(f"{title:13}{statistics.median(found):8.0f} ms, worst {max(found):.0f} ms")
    page.run(_ZOOM.replace("SECONDS", "2"))  # it finds its pace
    before = main_thread_s(page)
    frames_per_s = page.run(_ZOOM.replace("SECONDS", str(seconds)))
    own_ms = 1e3 * (main_thread_s(page) - before) / (frames_per_s * seconds)
    print(f"{'frames/s':13}{frames_per_s:8.1f}\n{'own work':13}{own_ms:8.1f} ms a frame")


def load_job(url: str) -> None:
    place, token = url.split("/#token=")
    headers = {"Authorization": f"Bearer {token}"}
    with httpx.Client(base_url=f"{place}/api/v1", headers=headers, timeout=600, trust_env=False) as client:
        hosts = sum(one != "switch" for one in wait_for_fabric(client)["nodes"]["kind"])
        client.put("/load", json={"jobs": [f"train=ring:h[1-{hosts // 2}]@80%"]}).raise_for_status()


def wait_for_fabric(client: httpx.Client) -> dict[str, dict[str, list[str]]]:
    """The service has to have looked at it once."""
    while (answer := client.get("/fabric")).status_code == 503:
        time.sleep(1)
    return dict(answer.raise_for_status().json())


def main_thread_s(page: Page) -> float:
    found = {one["name"]: one["value"] for one in page.call("Performance.getMetrics")["metrics"]}
    return float(found["TaskDuration"])


if __name__ == "__main__":
    main()
