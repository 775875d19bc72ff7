"""`weft join`: run a program as a host of a lab on another machine."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from weft.errors import ConfigError

if TYPE_CHECKING:
    from weft.fabric.model import Fabric
    from weft.lab.registry import Entry

_USAGE = """weft join ADDRESS:PORT --as HOST [--token T] [--patience SECONDS] [--sysfs] [--roce ADDRESS] -- COMMAND...
weft join ADDRESS:PORT --as HOST ... --share FOLDER

Run a program as a host of a lab on another machine, started there with `weft up SPEC --join ADDRESS:PORT`.
That command prints the token. Without --token it is read from WEFT_JOIN_TOKEN, which a process list does not show.
After a lost connection it tries to reconnect for SECONDS (default 30).
With --sysfs the program finds the host's adapters in /sys.
With --roce its RDMA traffic bypasses the lab as RoCE v2 from that address of this machine.
With --share it runs no program, but serves those of other containers that mount FOLDER: FOLDER/run ibstat. A probe
tests for FOLDER/env, which is there while the host is joined. SIGTERM ends it."""
_VALUES = ("--token", "--as", "--patience", "--roce", "--share")


def join(*arguments: Annotated[str, Parameter(allow_leading_hyphen=True)]) -> None:
    """Run a program as a lab's host on another machine."""
    from weft.lab.join import client
    from weft.lab.join.handshake import TOKEN, JoinRequest
    from weft.verbs import launch

    if not arguments or arguments[0] in ("--help", "-h"):
        print(_USAGE)
        return
    address, options, has_sysfs, command = _read(arguments)
    token = options.get("--token") or os.environ.pop(TOKEN, "")
    if not token:
        raise ConfigError(f"weft join needs the lab's token: --token TOKEN, or the variable {TOKEN}")
    if "--as" not in options:
        raise ConfigError(f"weft join needs a host to join as: --as h3; {_USAGE.splitlines()[0]}")
    request = JoinRequest(
        host=options["--as"], timeout_s=_seconds(options.get("--patience", "30")), has_sysfs=has_sysfs
    )
    invitation = client.Invitation(address=address, token=token, request=request)
    variables = launch.roce_environment(options.get("--roce", ""))
    if "--share" in options:
        from weft.lab.join.share import share

        raise SystemExit(share(Path(options["--share"]), invitation, variables))
    raise SystemExit(client.run(command, invitation, variables))


def _read(arguments: tuple[str, ...]) -> tuple[str, dict[str, str], bool, tuple[str, ...]]:
    """Return the address, the options, whether --sysfs is set, and the command."""
    is_shared = any(argument.partition("=")[0] == "--share" for argument in arguments)
    if not is_shared and ("--" not in arguments or arguments[-1] == "--"):
        raise ConfigError(f"weft join needs a command after `--`, or --share FOLDER: {_USAGE.splitlines()[0]}")
    at = arguments.index("--") if "--" in arguments else len(arguments)
    ours, command = list(arguments[:at]), arguments[at + 1 :]
    address, has_sysfs, options = "", False, {}
    while ours:
        argument = ours.pop(0)
        name, equals, value = argument.partition("=")
        if name in _VALUES:
            if not equals and not ours:
                raise ConfigError(f"{name} has no value: {_USAGE.splitlines()[0]}")
            options[name] = value if equals else ours.pop(0)
        elif argument == "--sysfs":
            has_sysfs = True
        elif address or argument.startswith("-"):
            raise ConfigError(f"weft join does not know {argument!r}: {_USAGE.splitlines()[0]}")
        else:
            address = argument
    if command and "--share" in options:
        raise ConfigError(f"--share runs no command: leave out `-- {command[0]}`, or --share")
    if not address:
        raise ConfigError(f"weft join needs the address of a lab: {_USAGE.splitlines()[0]}")
    return address, options, has_sysfs, command


def _seconds(text: str) -> float:
    from weft.lab.join.server import TIMEOUT_MAX_S

    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= TIMEOUT_MAX_S:
        raise ConfigError(f"--patience must be 0 to {TIMEOUT_MAX_S:g} seconds, got {text}")
    return seconds


def print_join_command(entry: Entry, fabric: Fabric) -> None:
    """Print the command that joins a lab, if the lab accepts joins."""
    from weft.lab import control

    if (join_server := control.ask(entry, "state")["join"]) is not None:
        print(join_command(join_server["address"], entry.token.read_text(encoding="ascii").strip(), fabric))


def join_command(address: str, token: str, fabric: Fabric) -> str:
    host = [*fabric.servers][-1] if fabric.servers else fabric.hcas[-1].name if fabric.hcas else "HOST"
    return f"join from another machine: `weft join {address} --token {token} --as {host} -- ibstat`"
