"""A real Chromium, controlled through a pipe by its DevTools protocol: no driver to install, no port to listen on."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import subprocess
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.patience import PATIENCE_S

from weft import runtime

_FLAGS = [
    *("--headless=new", "--no-sandbox", "--no-first-run", "--disable-quic", "--disable-sync", "--mute-audio"),
    *("--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage"),
    *("--remote-debugging-pipe", "--user-data-dir={folder}"),
]
SOFTWARE_GL = ("--enable-unsafe-swiftshader",)  # the fallback of a browser without a graphics card


class Page:
    """A tab. `complaints` has its errors, `requests` its requests."""

    def __init__(self, to_browser: int, from_browser: int) -> None:
        self._to, self._from = to_browser, from_browser
        self._rest, self._next, self._session = b"", 0, ""
        self._answers: dict[int, dict[str, Any]] = {}
        self.complaints: deque[str] = deque()
        self.requests: deque[str] = deque()
        self._displayed, self._is_traced = 0, False

    def attach(self, target: str = "") -> None:
        """Attach to a new tab, or to an existing one."""
        self._session = ""
        target = target or self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._next += 1
        message: dict[str, Any] = {"id": self._next, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        expected = self._next
        while expected not in self._answers:
            self._read()
        answer = self._answers.pop(expected)
        assert "error" not in answer, f"{method}: {answer['error']}"
        return dict(answer["result"])

    def _read(self) -> None:
        assert runtime.wait_ready([self._from], timeout_s=PATIENCE_S), "the browser does not answer"
        piece = os.read(self._from, 1 << 20)
        assert piece, "the browser has ended"
        *messages, self._rest = (self._rest + piece).split(b"\0")
        for message in map(json.loads, messages):
            if "id" in message:
                self._answers[message["id"]] = message
            else:
                self._note(message["method"], message["params"])

    def _note(self, event: str, told: dict[str, Any]) -> None:
        if event == "Runtime.exceptionThrown":
            details = told["exceptionDetails"]
            self.complaints.append(details.get("exception", {}).get("description", details["text"]))
        elif event == "Log.entryAdded" and told["entry"]["level"] == "error":
            self.complaints.append(f"{told['entry']['text']} {told['entry'].get('url', '')}")
        elif event == "Network.requestWillBeSent":
            self.requests.append(told["request"]["url"])
        elif event == "Tracing.dataCollected":
            self._displayed += sum(item["name"] == "Display::FrameDisplayed" for item in told["value"])
        elif event == "Tracing.tracingComplete":
            self._is_traced = True

    def close(self) -> None:
        self._session = ""
        self.call("Browser.close")
        with suppress(AssertionError):
            while True:
                self._read()

    @contextmanager
    def next_tab(self, address: str) -> Iterator[None]:
        """Send the commands of the block to the tab that the page opened, once it exists."""
        first, end, result = self._session, time.monotonic() + PATIENCE_S, []
        while not result:
            assert time.monotonic() < end, f"no tab of {address}: {self.call('Target.getTargets')}"
            tabs = self.call("Target.getTargets")["targetInfos"]
            result = [tab["targetId"] for tab in tabs if tab["type"] == "page" and tab["url"].startswith(address)]
        self.attach(result[0])
        yield
        self.call("Target.closeTarget", targetId=result[0])
        self._session = first

    # -- calls for tests -------------------------------------------------------------------------------------------

    def open(self, url: str) -> None:
        self.call("Page.navigate", url=url)

    def run(self, script: str) -> Any:
        """Return the value of an expression; if it is a promise, its result."""
        answer = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, f"{script}: {answer['exceptionDetails']}"
        return answer["result"].get("value")

    def count_frames(self, script: str) -> tuple[Any, int]:
        """Return the value of an expression and the number of frames that the browser displayed meanwhile."""
        self._displayed, self._is_traced = 0, False
        self.call("Tracing.start", transferMode="ReportEvents", traceConfig={"includedCategories": ["benchmark"]})
        value = self.run(script)
        self.call("Tracing.end")
        while not self._is_traced:
            self._read()
        return value, self._displayed

    def wait(self, script: str) -> None:
        """Wait until an expression is true."""
        end = time.monotonic() + PATIENCE_S
        while not self.run(f"!!({script})"):
            if time.monotonic() > end:
                output = self.run("document.body ? document.body.innerText : ''")
                raise AssertionError(f"not so: {script}\n{list(self.complaints)}\n{output}")
            time.sleep(0.05)

    def key(self, *names: str) -> None:
        for name in names:
            text = {"Enter": "\r"}.get(name, name if len(name) == 1 else "")
            messages = {"key": name, "code": name, "windowsVirtualKeyCode": _CODES.get(name, ord(name[0].upper()))}
            self.call("Input.dispatchKeyEvent", type="keyDown", **messages, **({"text": text} if text else {}))
            self.call("Input.dispatchKeyEvent", type="keyUp", **messages)

    def type(self, text: str) -> None:
        self.call("Input.insertText", text=text)

    def click(self, x: float, y: float) -> None:
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def press(self, selector: str, text: str = "") -> None:
        """Click the first visible element whose text starts with this one."""
        expected = f"e => e.offsetParent && e.textContent.trim().startsWith({json.dumps(text)})"
        find = f"[...document.querySelectorAll({json.dumps(selector)})].find({expected})"
        self.wait(f"!!{find} && !{find}.disabled")
        self.run(f"{find}.scrollIntoView({{block: 'center'}})")
        x, y = self.run(f"(r => [r.x + r.width / 2, r.y + r.height / 2])({find}.getBoundingClientRect())")
        self.click(x, y)

    def resize(self, width: int, height: int, *, is_phone: bool = False) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=is_phone
        )

    def prefer(self, **features: str) -> None:
        """Set the user's preferences: `color_scheme="dark"`, `reduced_motion="reduce"`."""
        messages = [{"name": f"prefers-{name.replace('_', '-')}", "value": value} for name, value in features.items()]
        self.call("Emulation.setEmulatedMedia", features=messages)

    def photograph(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))


_CODES = {"Enter": 13, "Escape": 27, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40, "Tab": 9}


@contextmanager
def chromium(folder: Path, *flags: str) -> Iterator[Page]:
    """Start a browser with its profile in `folder`, yield its page, and end the browser."""
    (low_in, our_out), (our_in, low_out) = os.pipe(), os.pipe()
    # Chromium reads from 3 and writes to 4: a shell puts them there, from numbers that are neither.
    their_in, their_out = (fcntl.fcntl(item, fcntl.F_DUPFD, 10) for item in (low_in, low_out))
    command = f'exec "$0" "$@" 3<&{their_in} 4>&{their_out} {their_in}<&- {their_out}>&-'
    words = [item.format(folder=folder / "browser") for item in _FLAGS]
    with open(folder / "browser.log", "wb") as log:
        process = subprocess.Popen(
            ["bash", "-c", command, "chromium", *words, *flags],
            pass_fds=(their_in, their_out),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    for item in (low_in, low_out, their_in, their_out):
        os.close(item)
    page = Page(our_out, our_in)
    try:
        page.attach()
        yield page
        page.close()  # wait for its end: it writes its profile until then
    finally:
        os.close(our_out)
        os.close(our_in)
        process.terminate()
        process.wait()
