"""Programs of others that run as a host of a lab: which library is put in front of them, and where they run.

Weft's own preload, compiled on first use, serves whole messages and all ports. Without a compiler, or if WEFT_UMAD2SIM
names it, it is libumad2sim of ibsim: single MADs, one port. That one makes its fake sysfs in `./sys-PID` and looks for
it there by a relative path; so programs run in the caller's folder, where relative paths in their arguments mean what
the caller thinks, and what it leaves is taken away. If that folder cannot be written, they run in a temporary one.
With our own there is nothing to clean, and a program that is run by itself takes the place of this process (`become`).

With what `Lab.sysfs` returns a program also has the host's adapters in its /sys: see `sysfs_mount`.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from weft import runtime
from weft.errors import ConfigError
from weft.lab import preload

_PRELOAD = "LD_PRELOAD"
UMAD2SIM = "libumad2sim.so"
_ADMIN = "/usr/sbin:/sbin"  # Debian's folder of InfiniBand tools, which some PATHs lack
_SIM_SOCKET = "IBSIM_SOCKNAME"  # by which libumad2sim finds a lab
# The terminal's SIGINT reaches both.
PASSED_ON = (signal.SIGHUP, signal.SIGTERM, signal.SIGUSR1)
_LEFT_BEHIND = re.compile(r"sys-(\d+)")


def find_umad2sim() -> Path:
    """Return libumad2sim, from $WEFT_UMAD2SIM or where Debian installs it."""
    named = os.environ.get("WEFT_UMAD2SIM")
    libraries = [Path(named)] if named else sorted(Path("/usr").glob(f"lib*/**/umad2sim/{UMAD2SIM}"))
    if not libraries or not libraries[0].is_file():
        where = f"{named} is not there" if named else f"there is neither a C compiler nor {UMAD2SIM}"
        raise ConfigError(f"{where}, through which programs see a lab: install gcc, or ibsim-utils (`make peers`)")
    return libraries[0]


def environment(host: Mapping[str, str], cache: Path | None = None) -> dict[str, str]:
    """Return the environment variables of a program on a host, as `Lab.host` describes it.

    OpenSM remembers LIDs between runs: `cache` keeps those of one lab from those of another.
    """
    ours = None if os.environ.get("WEFT_UMAD2SIM") else preload.library()
    if ours is not None:
        variables = preload.environment(ours, Path(host["socket"]), host.get("umad_host", host["host"]))
    else:
        earlier = os.environ.get("LD_PRELOAD")
        library = str(find_umad2sim())
        variables = {
            "LD_PRELOAD": f"{library}:{earlier}" if earlier else library,
            _SIM_SOCKET: host["sockname"],
            "SIM_HOST": host["sim_host"],
        }
    common = tools()
    if _PRELOAD in common:  # both are put in front of it
        common[_PRELOAD] = f"{common[_PRELOAD]}:{variables[_PRELOAD]}"
    variables |= common | _verbs(host)
    if cache is not None:
        variables |= {name: str(cache) for name in ("OSM_CACHE_DIR", "OSM_TMP_DIR") if name not in os.environ}
    return variables


def tools() -> dict[str, str]:
    """Return the variables of programs on any host: weft in place of pyverbs and libibverbs, the tools in PATH."""
    from weft.verbs import launch  # most of what a lab does needs no verbs

    variables = launch.environment()
    variables["PATH"] += f":{_ADMIN}"
    return variables


def _verbs(host: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of RDMA programs: lab and host."""
    from weft.verbs import hardware  # as above

    return {hardware.LAB: host["verbs"], hardware.HOST: host["host"]}


def run(
    command: Sequence[str],
    variables: Mapping[str, str],
    sysfs: Mapping[str, Any] | None = None,
    *,
    folder: Path | None = None,
    timeout_s: float = 300,
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end; its output is in the result."""
    with WorkingFolder(folder) as place, _words(command, variables, sysfs) as (words, files):
        return subprocess.run(
            words,
            cwd=place,
            pass_fds=files,
            env=os.environ | dict(variables),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s,
            check=False,
        )


def start(
    command: Sequence[str], variables: Mapping[str, str], folder: Path, sysfs: Mapping[str, Any] | None = None
) -> subprocess.Popen[str]:
    """Start a program in the background."""
    with _words(command, variables, sysfs) as (words, files), (folder / "output").open("a") as output:
        return subprocess.Popen(
            words,
            cwd=folder,
            pass_fds=files,
            env=os.environ | dict(variables),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            text=True,
        )


def attend(
    command: Sequence[str],
    variables: Mapping[str, str],
    sysfs: Mapping[str, Any] | None = None,
    *,
    passes_on: Sequence[signal.Signals] = (),
) -> int:
    """Run a program on the caller's terminal; return its status as a shell would."""
    with WorkingFolder() as place:
        child = launch(command, variables, sysfs, folder=place, passes_on=passes_on)
        while True:
            try:
                status = child.wait()
            except KeyboardInterrupt:  # the child has it too, and decides what to do
                continue
            return shell_status(status)


def launch(
    command: Sequence[str],
    variables: Mapping[str, str],
    sysfs: Mapping[str, Any] | None = None,
    *,
    folder: Path | None = None,
    passes_on: Sequence[signal.Signals] = (),
) -> subprocess.Popen[bytes]:
    """Start a program on the caller's terminal, and return at once."""
    child: subprocess.Popen[bytes] | None = None
    early: list[int] = []  # signals that came before it was there

    def pass_on(number: int, _: object) -> None:
        if child is None:
            early.append(number)
        else:
            child.send_signal(number)

    with _words(command, variables, sysfs) as (words, files):
        for number in passes_on:
            if signal.getsignal(number) != signal.SIG_IGN:  # by nohup, say: for the child too
                signal.signal(number, pass_on)
        child = subprocess.Popen(words, cwd=folder, env=os.environ | dict(variables), pass_fds=files)
        for signal_number in early:
            child.send_signal(signal_number)
    return child


def shell_status(status: int) -> int:
    return status if status >= 0 else 128 - status


def become(command: Sequence[str], variables: Mapping[str, str], sysfs: Mapping[str, Any] | None = None) -> NoReturn:
    """Replace this process by a program, so that signals and status are its own."""
    if _SIM_SOCKET in variables:  # the library leaves files behind
        raise SystemExit(attend(command, variables, sysfs, passes_on=PASSED_ON))
    with _words(command, variables, sysfs) as (words, files):
        for file in files:
            os.set_inheritable(file, True)
        for name in (signal.SIGPIPE, signal.SIGXFSZ):  # which Python ignores, and programs would inherit
            signal.signal(name, signal.SIG_DFL)
        try:
            os.execve(words[0], words, os.environ | dict(variables))
        except OSError as error:
            raise ConfigError(f"{words[0]} cannot be run: {error.strerror}") from None


class WorkingFolder:
    """A folder for a program's files: the given one, else the current, else a temporary one; cleaned afterwards."""

    def __init__(self, folder: Path | None = None) -> None:
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self.folder = folder or Path.cwd()
        if not os.access(self.folder, os.W_OK):
            self._temporary = tempfile.TemporaryDirectory(prefix="weft-")
            self.folder = Path(self._temporary.name)

    def __enter__(self) -> Path:
        return self.folder

    def __exit__(self, *raised: object) -> None:
        self.clean()

    def clean(self) -> None:
        """Take away what libumad2sim made for processes that are gone."""
        if self._temporary is not None:
            self._temporary.cleanup()
            return
        for entry in self.folder.glob("sys-*"):
            match = _LEFT_BEHIND.fullmatch(entry.name)
            if match and not Path(f"/proc/{match[1]}").exists() and (entry / "sys/class/infiniband_mad").is_dir():
                shutil.rmtree(entry, ignore_errors=True)


@contextmanager
def _words(
    command: Sequence[str], variables: Mapping[str, str], sysfs: Mapping[str, Any] | None
) -> Iterator[tuple[list[str], list[int]]]:
    """Yield the command to start, and the file descriptors to pass."""
    words = resolve(command, variables)
    if sysfs is None:
        yield words, []
        return
    text = json.dumps(sysfs).encode()
    tree = runtime.memory("sysfs", len(text))
    try:
        os.pwrite(tree, text, 0)
        mount = Path(__file__).with_name("sysfs_mount.py")
        yield [sys.executable, "-I", "-S", str(mount), str(tree), *words], [tree]
    finally:
        os.close(tree)


def resolve(command: Sequence[str], variables: Mapping[str, str]) -> list[str]:
    """Return the command with the full path of its program, by these variables."""
    from weft.verbs import launch  # as above

    if not command:
        raise ConfigError("there is no command to run: weft exec h1 ibstat")
    program = shutil.which(command[0], path=variables["PATH"])
    if program is None:
        raise ConfigError(f"there is no program {command[0]!r} in the PATH; tools of InfiniBand: `make peers`")
    launch.warn_if_unusable(program, variables)
    return [program, *command[1:]]
