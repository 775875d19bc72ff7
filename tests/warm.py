"""A `weft` that starts at once: one process has imported all of it and loaded its kernels, and forks for each command.

Starting Python and importing takes half a second, and the documents have 180 commands. What a command reads, writes,
finds in its environment and returns is its own, as of any process. That `weft` also starts cold other tests see.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import io
import json
import os
import select
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import weft

# Programs, and what they run on; what plugins add to; what Neutron and PyTorch load, and needs them
_LEFT_OUT = (
    "weft.__main__",
    "weft.verbs.",
    "weft.collectives.live.",
    "weft.mpi.",
    "weft.cli.scenario",
    "weft.clouds.openstack.",
)
_REHEARSED = (
    "weft sim torus:3x3",
    "weft nccl all_reduce -b 1M -e 2M superpod:su=1",
    "weft route torus:4x4 --compare",
    "weft route torus:4x4 --picture load.png",
)
_CLIENT = """
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as to:
    to.connect({address!r})
    socket.send_fds(to, [b"x"], [0, 1, 2])
    to.sendall(json.dumps([sys.argv, os.getcwd(), dict(os.environ)]).encode())
    to.shutdown(socket.SHUT_WR)
    sys.exit(to.recv(1)[0])
"""


@contextlib.contextmanager
def warm_weft(folder: Path, environment: dict[str, str]) -> Iterator[Path]:
    """The path of this program; nothing else that PATH would find is in its folder."""
    address, client, program = folder / "warm", folder / "client.py", folder / "weft"
    client.write_text(_CLIENT.format(address=str(address)), encoding="utf-8")
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -ISs {client} "$@"\n', encoding="utf-8")
    program.chmod(0o755)
    command = [sys.executable, "-m", __name__, str(address)]
    house, pipe = Path(__file__).parents[1], subprocess.PIPE
    with subprocess.Popen(command, env=environment, cwd=house, stdin=pipe, stdout=pipe) as server:
        assert server.stdout is not None
        assert server.stdout.readline() == b"ready\n"
        try:
            yield program
        finally:
            server.terminate()


def _serve(address: str) -> None:
    house = Path(weft.__file__).parents[1]
    files = [path.relative_to(house).with_suffix("").parts for path in sorted(house.glob("weft/**/*.py"))]
    for name in (*map(".".join, files), "matplotlib.backends.backend_agg"):
        if not name.startswith(_LEFT_OUT):
            importlib.import_module(name.removesuffix(".__init__"))
    for words in _REHEARSED:
        _rehearse(words)
    gc.freeze()
    listen(address)


def listen(address: str) -> None:
    """Until whoever started us is gone: it may be killed, and then says nothing, but its end of the pipe is closed."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those who attend
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen(64)
        print("ready", flush=True)
        while sys.stdin not in select.select([listener, sys.stdin], [], [])[0]:
            asked, _ = listener.accept()
            if not os.fork():
                listener.close()
                _attend(asked)
                os._exit(0)
            asked.close()


def _rehearse(words: str) -> None:
    """Run a command in this process: those that are forked find its kernels, fonts and tables of flags."""
    from weft.cli import main

    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder), contextlib.redirect_stdout(io.StringIO()):
        sys.argv = words.split()
        with contextlib.suppress(SystemExit):
            main()


def _play(words: list[str]) -> int:
    """`weft WORDS`, or `-c CODE` as Python would; returns the status."""
    try:
        if words[1:2] == ["-c"]:
            sys.path.insert(0, "")
            exec(words[2], {"__name__": "__main__"})
        else:
            from weft.cli import main

            main()
    except SystemExit as end:
        if end.code is not None and not isinstance(end.code, int):
            print(end.code, file=sys.stderr)
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    return 0


def _end(status: int) -> NoReturn:
    """As Python does, but for taking apart a million objects that the next command has again: most of its time."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):
            stream.flush()
    os._exit(status)


def _attend(asked: socket.socket) -> None:
    """Run the command in a process of its own, since it may end in any way, and tell its status."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    _, descriptors, _, _ = socket.recv_fds(asked, 1, 3)
    with asked.makefile("rb") as told:
        words, folder, environment = json.load(told)
    command = os.fork()
    if not command:
        asked.close()
        for number, descriptor in enumerate(descriptors):
            os.dup2(descriptor, number)
            os.close(descriptor)
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(environment)
        sys.argv = words
        _end(_play(words))
    for descriptor in descriptors:
        os.close(descriptor)
    ends, watched = select.poll(), os.pidfd_open(command)
    ends.register(asked, 0)  # that the other end is closed is always told
    ends.register(watched, select.POLLIN)
    if watched not in dict(ends.poll()):
        os.kill(command, signal.SIGTERM)  # whoever was started by that name was ended
    status = os.waitstatus_to_exitcode(os.waitpid(command, 0)[1])
    asked.sendall(bytes([status % 256]))


if __name__ == "__main__":
    _serve(sys.argv[1])
