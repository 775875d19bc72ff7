"""Runs of `weft compare` and `weft train` for the console: separate processes, two at a time.

The output of a run is kept as lines, with progress lines among them; its report is an HTML page. Arguments that name
files of this machine are refused.
"""

from __future__ import annotations

import html
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Self

import msgspec

from weft.draw.page import make_page
from weft.errors import ConfigError
from weft.fabric.files.atomic import write_atomically
from weft.fabric.spec import is_topology
from weft.serve.desired import ConflictError, NotFoundError

_AT_ONCE, _KEPT, _LINES = 2, 20, 400
_LONGEST_S = 3600.0
_NICE = 10  # lower priority than the service
_WORDS = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.,:=-]*")
_STYLE = "pre { font: 13px/1.45 ui-monospace, monospace; overflow-x: auto } img { max-width: 100% }"


class Compare(msgspec.Struct, kw_only=True, tag_field="command", tag="compare", forbid_unknown_fields=True):
    """A run of `weft compare`: one job on several fabrics."""

    spec: str
    job: str = "all_reduce:1G"
    fabrics: str = ""  # comma-separated; "": the default ones

    def arguments(self) -> list[str]:
        _check(spec=self.spec, job=self.job, fabrics=self.fabrics)
        chosen = ["--fabrics", self.fabrics] if self.fabrics else []
        return ["compare", self.spec, "--job", self.job, *chosen, "--report", "report.html"]


class Train(msgspec.Struct, kw_only=True, tag_field="command", tag="train", forbid_unknown_fields=True):
    """A run of `weft train`: one training step."""

    model: str
    spec: str

    def arguments(self) -> list[str]:
        _check(spec=self.spec, model=self.model)
        return ["train", self.model, "--fabric", self.spec, "--timeline", "timeline.svg"]


def _check(**arguments: str) -> None:
    """Refuse paths of files: clients of the console must not read files of this machine."""
    for name, word in arguments.items():
        if word and not _WORDS.fullmatch(word):
            raise ConfigError(f"{name} {word!r} must be a name with options, not the path of a file")
    if not is_topology(arguments["spec"]):
        raise ConfigError(f"spec {arguments['spec']!r} is not a topology: give superpod:su=1, or see `weft topologies`")


RunIn = Compare | Train


class RunOut(msgspec.Struct, kw_only=True):
    """A run and its output."""

    id: int
    command: str
    state: str  # waiting, running, done, failed, ended
    progress: str  # last line of output
    began_at_s: float
    seconds: float
    lines: list[str] = []


class _Run:
    def __init__(self, number: int, arguments: list[str], folder: Path) -> None:
        self.number, self.arguments, self.folder = number, arguments, folder
        self.state, self.lines = "waiting", list[str]()
        self.began_at_s, self.began_s, self.ended_s = time.time(), time.monotonic(), 0.0
        self.process: subprocess.Popen[str] | None = None

    def out(self, *, with_lines: bool) -> RunOut:
        return RunOut(
            id=self.number,
            command=" ".join(["weft", *self.arguments]),
            state=self.state,
            progress=self.lines[-1] if self.lines else "",
            began_at_s=self.began_at_s,
            seconds=round((self.ended_s or time.monotonic()) - self.began_s, 1),
            lines=self.lines if with_lines else [],
        )

    @property
    def is_over(self) -> bool:
        return self.state not in ("waiting", "running")


class Runs:
    """The runs of a console. Use it as a context manager: running ones end with it."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="weft-runs-"))
        self._runs: dict[int, _Run] = {}
        self._workers = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="run")
        self._lock = threading.Lock()
        self._last = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for number in list(self._runs):
            self.end(number)
        self._workers.shutdown(cancel_futures=True)
        shutil.rmtree(self._folder, ignore_errors=True)

    def start(self, requested: RunIn) -> int:
        """Start a run and return its number. The oldest ended runs are dropped if there are too many."""
        arguments = requested.arguments()
        with self._lock:
            for run in [over for over in self._runs.values() if over.is_over][: max(0, len(self._runs) + 1 - _KEPT)]:
                shutil.rmtree(run.folder, ignore_errors=True)
                del self._runs[run.number]
            if len(self._runs) >= _KEPT:
                raise ConflictError(f"{_KEPT} runs are waiting: end one of them, or try later")
            self._last += 1
            run = self._runs[self._last] = _Run(self._last, arguments, self._folder / str(self._last))
        run.folder.mkdir()
        self._workers.submit(self._run_process, run)
        return run.number

    def listed(self) -> list[RunOut]:
        return [run.out(with_lines=False) for run in list(self._runs.values())]

    def get(self, number: int) -> RunOut:
        return self._find(number).out(with_lines=True)

    def report(self, number: int) -> bytes:
        """Return the report of a run."""
        run = self._find(number)
        place = run.folder / "report.html"
        if not place.is_file():
            raise NotFoundError(f"run {number} has no report: it is {run.state}")
        return place.read_bytes()

    def end(self, number: int) -> None:
        run = self._find(number)
        with self._lock:
            if run.is_over:
                return
            run.state, process = "ended", run.process
        if process is not None:
            process.terminate()

    def _find(self, number: int) -> _Run:
        run = self._runs.get(number)
        if run is None:
            raise NotFoundError(f"there is no run {number}")
        return run

    def _run_process(self, run: _Run) -> None:
        with self._lock:
            if run.is_over:  # it was ended while it waited
                return
            run.state, run.began_s = "running", time.monotonic()
            run.process = subprocess.Popen(
                [sys.executable, "-m", "weft", *run.arguments],
                cwd=run.folder,
                env=os.environ | {"WEFT_PROGRESS": "lines"},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
            )
            os.setpriority(os.PRIO_PROCESS, run.process.pid, _NICE)
        timer = threading.Timer(_LONGEST_S, run.process.terminate)
        timer.start()
        assert run.process.stdout is not None
        with run.process.stdout as lines:
            for line in lines:
                run.lines = [*run.lines[1 - _LINES :], line.rstrip()]
        status = run.process.wait()
        timer.cancel()
        run.ended_s = time.monotonic()
        if run.state == "running":
            if status == 0:
                _write_report(run)
            run.state = "done" if status == 0 else "failed"


def _write_report(run: _Run) -> None:
    """Write a report with the output and the picture, for commands that write none."""
    place, picture = run.folder / "report.html", run.folder / "timeline.svg"
    if place.exists():
        return
    drawn = picture.read_text() if picture.exists() else ""
    drawn = drawn[drawn.find("<svg") :]
    text = html.escape("\n".join(run.lines))
    title = html.escape(" ".join(["weft", *run.arguments[:-2]]))
    write_atomically(place, make_page(title, f"<h1>{title}</h1>{drawn}<pre>{text}</pre>", style=_STYLE))
