"""A `weft` that starts at once: one process has imported all of it and loaded its kernels, and forks for each command.

Starting Python and importing takes half a second, a service three, and the documents have 300 commands. A command has
its own standard streams, environment and exit status, as any process. The client passes on the signals that it
receives; if the client is killed, so is the command. Other tests start a cold `weft`.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import io
import marshal
import os
import runpy
import selectors
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from tests import argument_cache
from tests.patience import PATIENCE_S

import weft
from weft import plugins

WARM = "WEFT_WARM"  # environment variable: the path of the warm program
# Not imported: programs and the packages that they run in, and modules that need Neutron or PyTorch.
_LEFT_OUT = (
    "weft.__main__",
    "weft.verbs.",
    "weft.collectives.live.",
    "weft.cli.scenario",
    "weft.clouds.openstack.",
)
_REHEARSED = (
    "weft sim torus:3x3",
    "weft nccl all_reduce -b 1M -e 2M superpod:su=1",
    "weft train llama3-8b --gpus 8 --tp 1 --engine analytic",
    "weft infer llama3-8b --server dgx-h100",
    "weft route torus:4x4 --compare",
    "weft route torus:4x4 --picture load.png",
    # Refused after their arguments are assembled.
    *(f"weft {command} --no-such-option" for command in ("up", "down", "exec", "show", "train", "plan", "compare")),
    *(f"weft {command} --no-such-option" for command in ("export", "break", "degrade", "diag", "perf", "osu", "run")),
)
# Modules that are built into Python: importing json, os, signal and socket takes twice as long as starting Python.
_CLIENT = """
import _signal as signal, _socket as socket, marshal, posix, sys
server = socket.socket(socket.AF_UNIX)
server.connect({address!r})
request = marshal.dumps([sys.argv, posix.getcwd(), posix.environ])
streams = b"".join(number.to_bytes(4, sys.byteorder) for number in (0, 1, 2))
server.sendmsg([len(request).to_bytes(4, "big")], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, streams)])
server.sendall(request)
passed_on = {{
    number: number for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
}}
passed_on[signal.SIGQUIT] = signal.SIGKILL  # SIGKILL itself cannot be caught
for number in passed_on:
    signal.signal(number, lambda number, frame: server.sendall(bytes([passed_on[number]])))
status, ended_by = server.recv(2, socket.MSG_WAITALL)
if ended_by:
    signal.signal(ended_by, signal.SIG_DFL) if ended_by != signal.SIGKILL else None
    posix.kill(posix.getpid(), ended_by)
sys.exit(status)
"""


@contextlib.contextmanager
def warm_weft(folder: Path, environment: dict[str, str]) -> Iterator[Path]:
    """Start the server and yield the path of its `weft`, the only program in its folder (for PATH)."""
    address, client, program = folder / "warm", folder / "client.py", folder / "weft"
    client.write_text(_CLIENT.format(address=str(address)), encoding="utf-8")
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -ISs {client} "$@"\n', encoding="utf-8")
    program.chmod(0o755)
    command = [sys.executable, "-m", __name__, str(address)]
    root, pipe = Path(__file__).parents[1], subprocess.PIPE
    with subprocess.Popen(command, env=environment, cwd=root, stdin=pipe, stdout=pipe) as server:
        assert server.stdout is not None
        assert server.stdout.readline() == b"listens\n"
        try:
            yield program
        finally:
            server.terminate()


def kill(started: subprocess.Popen[Any]) -> None:
    """Kill a command of the warm program and wait until it has ended."""
    started.send_signal(signal.SIGQUIT)
    started.wait(PATIENCE_S)


class _Popen(subprocess.Popen[Any]):
    """A process that a command starts; `python -m weft…` is forked by this program, as the command was."""

    program: Path

    def __init__(self, args: Any, *more: Any, **options: Any) -> None:
        if args[:2] == [sys.executable, "-m"] and args[2] in ("weft", "weft.study.worker"):
            args = [str(self.program), *args[1:]]
        super().__init__(args, *more, **options)


def _serve(address: str) -> None:
    """Serve commands; those that arrive before all modules are imported wait."""
    argument_cache.install()
    _Popen.program = Path(address).with_name("weft")
    subprocess.Popen = _Popen  # type: ignore[misc]
    listener = listen(address)
    root = Path(weft.__file__).parents[1]
    files = [path.relative_to(root).with_suffix("").parts for path in sorted(root.glob("weft/**/*.py"))]
    for name in (*map(".".join, files), "matplotlib.backends.backend_agg"):
        if not name.startswith(_LEFT_OUT):
            importlib.import_module(name.removesuffix(".__init__"))
    for words in _REHEARSED:
        _rehearse(words)
    gc.freeze()
    attend(listener)


def listen(address: str) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address)
    listener.listen(64)
    print("listens", flush=True)
    return listener


@dataclass(frozen=True, slots=True)
class _Command:
    client: socket.socket
    process: int
    ends: int  # the process's pidfd: readable when it has ended


def attend(listener: socket.socket) -> None:
    """Serve commands until stdin closes: the kernel closes the other end even if the starting process is killed."""
    with selectors.DefaultSelector() as events:
        events.register(sys.stdin, selectors.EVENT_READ)
        events.register(listener, selectors.EVENT_READ)
        while True:
            key = events.select()[0][0]  # one at a time: handling an event may unregister others
            if key.fileobj is sys.stdin:
                return
            if key.fileobj is listener:
                _begin(listener.accept()[0], events)
            elif key.fd == key.data.ends:
                _tell_end(key.data, events)
            else:
                _pass_on(key.data, events)


def _rehearse(words: str) -> None:
    """Run a command in this process: forked commands inherit its loaded kernels, fonts and tables of flags."""
    from weft.cli import main

    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder), contextlib.ExitStack() as silence:
        silence.enter_context(contextlib.redirect_stdout(io.StringIO()))
        silence.enter_context(contextlib.redirect_stderr(io.StringIO()))
        sys.argv = words.split()
        with contextlib.suppress(SystemExit):
            main()


def _play(words: list[str]) -> int:
    """Run `weft WORDS`, or `-c CODE` or `-m MODULE` as Python does; return the status."""
    try:
        if words[1:2] == ["-c"]:
            sys.path.insert(0, "")
            exec(words[2], {"__name__": "__main__"})
        elif words[1:2] == ["-m"]:
            sys.argv = words[2:]
            runpy.run_module(words[2], run_name="__main__", alter_sys=True)
        else:
            from weft.cli import main

            main()
    except SystemExit as end:
        if end.code is not None and not isinstance(end.code, int):
            print(end.code, file=sys.stderr)
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    return 0


def _end(status: int) -> NoReturn:
    """Exit without freeing a million objects, which would take most of the time."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            status = 120
    os._exit(status)


def _begin(client: socket.socket, events: selectors.BaseSelector) -> None:
    """Run the command in a process of its own, since it may end in any way."""
    length, descriptors, _, _ = socket.recv_fds(client, 4, 3)
    words, folder, environment = marshal.loads(client.recv(int.from_bytes(length, "big"), socket.MSG_WAITALL))
    process = os.fork()
    if not process:
        for key in [*events.get_map().values()]:
            if key.fd:
                os.close(key.fd)
        client.close()
        for number, descriptor in enumerate(descriptors):
            os.dup2(descriptor, number)
            os.close(descriptor)
        os.chdir(folder)
        os.environ.clear()
        os.environ.update({os.fsdecode(name): os.fsdecode(value) for name, value in environment.items()})
        if packages := os.environ.get("PYTHONPATH"):
            sys.path[:0] = packages.split(os.pathsep)
            plugins._installed.cache_clear()
        sys.argv = words
        _end(_play(words))
    for descriptor in descriptors:
        os.close(descriptor)
    command = _Command(client, process, os.pidfd_open(process))
    events.register(client, selectors.EVENT_READ, command)
    events.register(command.ends, selectors.EVENT_READ, command)


def _pass_on(command: _Command, events: selectors.BaseSelector) -> None:
    """Send a client's signal to its command; kill the command if the client has closed the connection."""
    with contextlib.suppress(ConnectionResetError):
        if messages := command.client.recv(1):
            signal.pidfd_send_signal(command.ends, messages[0])
            return
    events.unregister(command.client)
    signal.pidfd_send_signal(command.ends, signal.SIGKILL)


def _tell_end(command: _Command, events: selectors.BaseSelector) -> None:
    status = os.waitstatus_to_exitcode(os.waitpid(command.process, 0)[1])
    with contextlib.suppress(KeyError):
        events.unregister(command.client)
    events.unregister(command.ends)
    os.close(command.ends)
    with command.client, contextlib.suppress(BrokenPipeError):
        command.client.sendall(bytes([max(status, 0), max(-status, 0)]))


if __name__ == "__main__":
    _serve(sys.argv[1])
