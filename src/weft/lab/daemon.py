"""A lab as a process: in front, behind the prompt, or on its own."""

from __future__ import annotations

import logging
import os
import resource
import signal
import sys
from collections.abc import Callable
from contextlib import suppress

from weft.errors import ConfigError, SubnetError, WeftError
from weft.fabric.model import Fabric
from weft.lab import control, registry
from weft.lab.commands import serve_commands
from weft.lab.lab import Lab

_FORMAT = "%(asctime)s %(levelname)s %(message)s"
_UP = b"up"
followed: list[int] = []  # pipes of this process, whose end tells others to end
_processes: list[tuple[str, int]] = []  # labs that follow this process
log = logging.getLogger("weft.lab")


def serve(
    fabric: Fabric,
    name: str,
    ready: Callable[[Lab], None],
    *,
    timed: bool = False,
    join: str = "",
    until: int | None = None,
) -> None:
    """Run a lab in this process until the command `down`, or until the pipe `until` is closed.

    `join` is an address at which other machines may join it as hosts.
    """
    _, most_files = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most_files, most_files))  # each attached program needs one or two
    with registry.claim(name) as entry:
        lab = Lab(fabric, name, timed=timed)
        if join:
            _let_join(lab, entry, join)
        commands = serve_commands(lab, entry)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: lab.server.stop())
        if until is not None:
            lab.server.stop_when_closed(until)
        ready(lab)
        log.info("lab %s up: %s", name, fabric.spec)
        try:
            lab.serve()
        finally:
            commands.server_close()
            log.info("lab %s down after %d MADs", name, lab.subnet.mads)


def _let_join(lab: Lab, entry: registry.Entry, address: str) -> None:
    try:
        join_server = lab.accept_joins(address, os.environ.get("WEFT_JOIN_TOKEN", ""))
    except BaseException:
        lab.server.close()
        raise
    token = os.open(entry.token, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(token, "w") as file:
        print(join_server.token, file=file)


def start(
    fabric: Fabric, name: str, *, timed: bool = False, join: str = "", follow: bool = False, has_log: bool = True
) -> registry.Entry:
    """Run a lab in another process and return when it is up.

    `follow`: it ends when this process does. `has_log`: its messages go to a file, else to this process's stderr.
    """
    entry = registry.entry(name)
    write_end, read_end = os.pipe()[::-1]
    life_read, life_write = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    process = os.fork()
    if process == 0:
        os.close(read_end)
        os.close(life_write)
        unfollow()
        _live(fabric, entry, write_end, life_read if follow else None, timed, join, has_log)
    os.close(write_end)
    os.close(life_read)
    if follow:
        followed.append(life_write)
        _processes.append((entry.name, process))
    else:
        os.close(life_write)
    with os.fdopen(read_end, "rb") as news:
        message = news.read()
    if not message.startswith(_UP):
        raise ConfigError(message.decode() or f"the lab {name} did not start: see {entry.log}")
    return entry


def end_on_signals() -> None:
    """End this process on SIGTERM and SIGINT, also as PID 1 of a container, which ignores them by default."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(0))


def wait(entry: registry.Entry) -> None:
    """Wait for a lab that follows this process; end it if a signal arrives first. Fail if the lab failed.

    PID 1 of a container inherits processes, such as subnet managers, whose exit status it has to collect.
    """
    lab = dict(_processes)[entry.name]
    try:
        while (ended := os.wait())[0] != lab:
            pass
        if ended[1]:
            raise SubnetError(f"the lab {entry.name} failed with status {os.waitstatus_to_exitcode(ended[1])}")
    finally:
        control.end(entry)


def unfollow() -> None:
    """Close the pipes of followers in a child that outlives its parent."""
    while followed:
        os.close(followed.pop())


def _live(
    fabric: Fabric, entry: registry.Entry, tell: int, until: int | None, timed: bool, join: str, has_log: bool
) -> None:
    """Run the lab in the child process; never return."""
    status = 1
    try:
        os.setsid()
        if until is None and os.fork():  # it is not waited for
            os._exit(0)

        def ready(lab: Lab) -> None:
            if has_log:
                _turn_to_log(entry)
            logging.basicConfig(format=_FORMAT, level=logging.INFO, force=True)
            os.write(tell, _UP)
            os.close(tell)

        serve(fabric, entry.name, ready, timed=timed, join=join, until=until)
        status = 0
    except WeftError as error:
        with suppress(OSError):
            os.write(tell, str(error).encode())
    except BaseException:
        log.exception("the lab %s ended by an error", entry.name)
    finally:
        logging.shutdown()
        os._exit(status)


def _turn_to_log(entry: registry.Entry) -> None:
    """Let go of the terminal."""
    log = os.open(entry.log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    null = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((null, 0), (log, 1), (log, 2)):
        os.dup2(source, target)
