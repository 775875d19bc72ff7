"""A plug-in of pytest: running fabrics as fixtures, so that tests of RDMA programs run anywhere, also under faults.

    import pytest

    @pytest.mark.weft_lab("fat-tree:hosts=16,radix=8")
    def test_my_program_survives_a_pulled_cable(host, break_cable):
        host("h1").start("ib_write_bw", "-D", "5").wait_for_port(18515)
        client = host("h9").start("ib_write_bw", "-D", "5", "localhost")
        break_cable("leaf1/5")
        assert client.wait() == 0

Installing weft is enough: pytest loads the plug-in by itself. A lab is started once for equal markers and shared by the
tests that use it; after a test that changed its cables it is started anew.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import pytest

__all__ = ["Host", "RunningLab", "break_cable", "host", "lab"]

MARKER = "weft_lab"
DEFAULT_SPEC = "star:hosts=2"
_numbers = count(1)


class Program(subprocess.Popen[str]):
    """A started program; `output()` returns its standard output and error so far."""

    log: Path

    def output(self) -> str:
        return self.log.read_text(errors="replace")

    def wait_for_port(self, port: int, timeout_s: float = 60.0) -> None:
        """Return when a program listens at a TCP port; raise TimeoutError if none does, or if this one ends first."""
        until_s = time.monotonic() + timeout_s
        while not _is_listening(port):
            if self.poll() is not None or time.monotonic() > until_s:
                raise TimeoutError(f"nothing listens at port {port}; the program printed:\n{self.output()}")
            time.sleep(0.02)


@dataclass(frozen=True, slots=True)
class Host:
    """A host of a lab, on which programs run with its adapters."""

    lab: RunningLab
    name: str

    def run(self, *command: str, timeout_s: float = 60.0, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a program to its end and return its result; arguments by keyword are environment variables."""
        return subprocess.run(
            self._words(command),
            env=os.environ | environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )

    def start(self, *command: str, **environment: str) -> Program:
        """Start a program and return at once; it is killed at the end of the test."""
        log = self.lab.folder / f"{self.name.replace('/', '-')}-{len(self.lab.programs)}.log"
        with log.open("w") as output:
            program = Program(
                self._words(command),
                env=os.environ | environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                text=True,
            )
        program.log = log
        self.lab.programs.append(program)
        return program

    def _words(self, command: tuple[str, ...]) -> list[str]:
        return [*_WEFT, "exec", "--lab", self.lab.name, self.name, "--", *command]


@dataclass(slots=True, eq=False)
class RunningLab:
    """A lab with its subnet manager, as tests see it."""

    name: str
    spec: str
    folder: Path  # for the outputs of programs
    programs: list[Program] = field(default_factory=list)
    is_changed: bool = False

    def host(self, name: str) -> Host:
        return Host(self, name)

    def free_port(self) -> int:
        """Return a TCP port of this machine that no program uses."""
        from weft.verbs.perftest.exchange import free_port

        return free_port()

    def break_cable(self, name: str) -> list[str]:
        """Pull the cable of a port, or all cables of a node or server; return the affected ports."""
        return self._change("break", name=name)

    def degrade(self, name: str, *options: str) -> None:
        """Degrade a cable with options of `weft degrade`: `lab.degrade("leaf1/5", "--ber", "1e-9")`."""
        self.is_changed = True
        _weft("degrade", name, *options, "--lab", self.name)

    def fix(self, name: str = "") -> list[str]:
        """Plug cables in again and replace bad ones: of a port, a node or the whole lab."""
        return self._change("fix", name=name)

    def port_counts(self) -> dict[str, list[dict[str, Any]]]:
        """Return the counters of each host's ports."""
        answer: dict[str, list[dict[str, Any]]] = self._ask("port_counts")
        return answer

    def end_programs(self) -> None:
        """Kill the programs of a test that still run."""
        while self.programs:
            program = self.programs.pop()
            program.kill()
            program.wait()

    def end(self) -> None:
        self.end_programs()
        _weft("down", self.name)

    def _change(self, do: str, **words: str) -> list[str]:
        self.is_changed = True
        answer: list[str] = self._ask(do, **words)
        return answer

    def _ask(self, do: str, **words: str) -> Any:
        from weft.lab import control, registry

        return control.ask(registry.find(self.name), do, **words)


_WEFT = (sys.executable, "-m", "weft")
_LISTEN = "0A"  # state of a socket in /proc/net/tcp


def _is_listening(port: int) -> bool:
    lines = [line.split() for name in ("tcp", "tcp6") for line in Path("/proc/net", name).read_text().splitlines()[1:]]
    return any(words[1].endswith(f":{port:04X}") and words[3] == _LISTEN for words in lines)


def _weft(*words: str) -> None:
    """Run a command of weft; raise its error."""
    from weft.errors import WeftError

    ended = subprocess.run([*_WEFT, *words], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if ended.returncode:
        raise WeftError(ended.stderr.strip().removeprefix("weft: "))


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        f"{MARKER}(spec, *options, sm=True): the fabric of the fixtures lab, host and break_cable, with options of "
        "`weft up`; sm=False: without weft's subnet manager",
    )


@pytest.fixture(scope="session")
def _labs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., RunningLab]]:
    """Return a function that starts a lab, or returns the one that runs with the same words and is unchanged."""
    running: dict[tuple[str, ...], RunningLab] = {}

    def find(*words: str) -> RunningLab:
        present = running.get(words)
        if present is not None and not present.is_changed:
            return present
        if present is not None:
            running.pop(words).end()
        name = f"pytest-{os.getpid()}-{next(_numbers)}"
        _weft("up", *words, "--daemon", "--name", name)
        running[words] = RunningLab(name, words[0], tmp_path_factory.mktemp(name))
        return running[words]

    yield find
    for each in running.values():
        each.end()


@pytest.fixture
def lab(request: pytest.FixtureRequest, _labs: Callable[..., RunningLab]) -> Iterator[RunningLab]:
    """A running lab with a subnet manager: `@pytest.mark.weft_lab(SPEC, ...)`, or two hosts on a switch."""
    marker = request.node.get_closest_marker(MARKER) or pytest.mark.weft_lab(DEFAULT_SPEC).mark
    running = _labs(*map(str, marker.args or (DEFAULT_SPEC,)), *(("--sm",) if marker.kwargs.get("sm", True) else ()))
    yield running
    running.end_programs()


@pytest.fixture
def host(lab: RunningLab) -> Callable[[str], Host]:
    """A function that returns a host of the lab: `host("h1").run("ibstat")`."""
    return lab.host


@pytest.fixture
def break_cable(lab: RunningLab) -> Callable[[str], list[str]]:
    """A function that pulls the cable of a port, or all cables of a node or server."""
    return lab.break_cable
