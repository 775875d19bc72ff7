"""Measure the console in a real browser: load time and frame rate.

    python benchmarks/console.py [--fabric fat-tree:hosts=4500,radix=64] [--loads 5] [--seconds 5] [--card]

    first paint    of the page, in a browser that is already running; median and worst of some loads
    all drawn      until the fabric is drawn and its loads are known, likewise
    own work       of the page until then, and for a frame: processor time of its main thread
    frames/s       displayed by the browser, by its own trace, while the picture is zoomed and dragged; also those of a
                   page that only clears canvases of that size: one, and sigma's set
    oldest         a slow drawing may be shown moved: the largest age of the drawing in a frame
    drawings/s     new drawings per second

The service is `weft serve` on its own lab, with a job on half of its hosts. Service, lab and browser share the
machine with
other programs: the load is printed. Without --card WebGL is drawn by the processor (SwiftShader), as in CI. The
renderer is
printed.
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
# A drawing begins when sigma clears WebGL's canvases; a slow one is visible once an image is made of it.
_MOVE = """new Promise((done) => {
  const mouse = document.querySelector('.sigma-mouse'), area = mouse.getBoundingClientRect();
  const at = { clientX: area.x + area.width / 2, clientY: area.y + area.height / 2, bubbles: true };
  const send = (kind, type, more) => mouse.dispatchEvent(new kind(type, { ...at, ...more }));
  const began = performance.now();
  let [frames, drawings, drawn, seen, oldest] = [0, 0, began, began, 0];
  const spy = (of, name, work) => {
    const own = of.prototype[name];
    of.prototype[name] = function (...given) { work(performance.now()); return own.apply(this, given); };
    return () => (of.prototype[name] = own);
  };
  const spies = [
    spy(WebGL2RenderingContext, 'clear', (now) => { drawings += now - drawn > 2; drawn = now; }),
    spy(CanvasRenderingContext2D, 'drawImage', () => { seen = drawn; }),
  ];
  if (IS_DRAG) send(MouseEvent, 'mousedown', { button: 0 });
  const step = (now) => {
    if (document.querySelector('.gliding')) oldest = Math.max(oldest, performance.now() - seen);
    const [across, down] = [150 * Math.sin(now / 400), 60 * Math.cos(now / 400)];
    if (IS_DRAG) send(MouseEvent, 'mousemove', { clientX: at.clientX + across, clientY: at.clientY + down });
    else send(WheelEvent, 'wheel', { deltaY: frames++ % 20 < 10 ? -60 : 60 });
    if (now - began < 1000 * SECONDS) return requestAnimationFrame(step);
    if (IS_DRAG) send(MouseEvent, 'mouseup');
    for (const stop of spies) stop();
    done([(performance.now() - began) / 1000, drawings, oldest]);
  };
  requestAnimationFrame(step);
})"""
_FLOOR = """new Promise((done) => {
  document.body.replaceChildren();
  const works = KINDS.map((kind) => {
    const canvas = document.createElement('canvas');
    Object.assign(canvas, { width: WIDTH, height: HEIGHT });
    canvas.style.position = 'absolute';
    document.body.append(canvas);
    const pen = canvas.getContext(kind);
    return (i) => {
      if (kind === '2d') return pen.clearRect(0, 0, WIDTH, HEIGHT), pen.fillRect(i % 100, 0, 9, 9);
      pen.clearColor(0, 0, (i % 60) / 600, 0.1);
      pen.clear(pen.COLOR_BUFFER_BIT);
    };
  });
  const began = performance.now();
  let frames = 0;
  const step = (now) => {
    for (const work of works) work(frames);
    frames++;
    if (now - began < 1000 * SECONDS) requestAnimationFrame(step);
    else done((performance.now() - began) / 1000);
  };
  requestAnimationFrame(step);
})"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fabric", default="fat-tree:hosts=4500,radix=64")
    parser.add_argument("--loads", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--card", action="store_true", help="draw with the graphics card")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ.setdefault("XDG_RUNTIME_DIR", name)
        command = [sys.executable, "-m", "weft", "serve", options.fabric, "--name", "bench", "--port", "0"]
        with subprocess.Popen(
            [*command, "--database", f"sqlite:///{folder / 'ledger.db'}"], stdout=subprocess.PIPE, text=True
        ) as service:
            assert service.stdout
            lines = iter(service.stdout.readline, "")
            url = next(match[1] for line in lines if (match := re.search(r"(http://\S+#token=\S+)", line)))
            try:
                with chromium(folder, *(() if options.card else SOFTWARE_GL)) as page:
                    measure(page, url, options.fabric, options.loads, options.seconds)
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
    for title, (_, *times_ms) in rows:  # the first load also starts the browser
        print(f"{title:13}{statistics.median(times_ms):8.0f} ms, worst {max(times_ms):.0f} ms")
    size = page.run("(e => [e.clientWidth, e.clientHeight])(document.querySelector('#stage'))")
    for title, is_drag in (("zooming", "false"), ("dragging", "true")):
        script = _MOVE.replace("IS_DRAG", is_drag)
        page.run(script.replace("SECONDS", "1"))  # warm up
        measure_move(page, title, script.replace("SECONDS", str(seconds)))
    page.open("data:text/html,<title>floor</title><body>")
    page.wait("document.title === 'floor'")
    for title, kinds in (("one canvas", "['webgl2']"), ("sigma's set", "['webgl2', 'webgl2', '2d', '2d']")):
        script = _FLOOR.replace("KINDS", kinds).replace("SECONDS", str(seconds))
        floor_s, frames = page.count_frames(script.replace("WIDTH", str(size[0])).replace("HEIGHT", str(size[1])))
        print(f"{title:13}{frames / floor_s:8.1f} frames/s, only cleared, {size[0]} x {size[1]}")


def measure_move(page: Page, title: str, script: str) -> None:
    before = main_thread_s(page)
    (move_s, drawings, oldest_ms), frames = page.count_frames(script)
    own_ms = 1e3 * (main_thread_s(page) - before) / frames
    print(f"{title:13}{frames / move_s:8.1f} frames/s, {drawings / move_s:.1f} drawings/s, oldest {oldest_ms:.0f} ms")
    print(f"{'own work':13}{own_ms:8.1f} ms a frame")


def load_job(url: str) -> None:
    place, token = url.split("/#token=")
    headers = {"Authorization": f"Bearer {token}"}
    with httpx.Client(base_url=f"{place}/api/v1", headers=headers, timeout=600, trust_env=False) as client:
        hosts = sum(kind != "switch" for kind in wait_for_fabric(client)["nodes"]["kind"])
        client.put("/load", json={"jobs": [f"train=ring:h[1-{hosts // 2}]@80%"]}).raise_for_status()


def wait_for_fabric(client: httpx.Client) -> dict[str, dict[str, list[str]]]:
    """Wait until the service has read the fabric once."""
    while (answer := client.get("/fabric")).status_code == 503:
        time.sleep(1)
    return dict(answer.raise_for_status().json())


def main_thread_s(page: Page) -> float:
    metrics = {metric["name"]: metric["value"] for metric in page.call("Performance.getMetrics")["metrics"]}
    return float(metrics["TaskDuration"])


if __name__ == "__main__":
    main()
