"""`weft join`: this machine, or this container, as a host of a lab that runs elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

if TYPE_CHECKING:
    from weft.fabric.model import Fabric
    from weft.lab.registry import Entry

_USAGE = """weft join ADDRESS:PORT --as HOST [--token T] [--patience SECONDS] [--sysfs] [--roce ADDRESS] -- COMMAND...

Run a program as a host of a lab on another machine, which `weft up SPEC --join ADDRESS:PORT` brought up there.
The token is what that printed; without --token it is in WEFT_JOIN_TOKEN, where a list of processes does not show it.
After a cut it tries to come back for SECONDS, 30 if nothing is said.
With --sysfs the program finds the host's adapters in /sys.
With --roce its RDMA goes as RoCE v2 from that address of this machine, past the lab."""
_VALUES = ("--token", "--as", "--patience", "--roce")


def join(*words: Annotated[str, Parameter(allow_leading_hyphen=True)]) -> None:
    """Run a program as a lab's host on another machine."""
    import os

    from weft.errors import ConfigError
    from weft.lab.join import client
    from weft.lab.join.handshake import TOKEN, JoinRequest
    from weft.verbs import launch

    if not words or words[0] in ("--help", "-h"):
        print(_USAGE)
        return
    address, options, has_sysfs, command = _read(words)
    token = options.get("--token") or os.environ.pop(TOKEN, "")
    if not token:
        raise ConfigError(f"weft join needs the lab's token: --token TOKEN, or the variable {TOKEN}")
    if "--as" not in options:
        raise ConfigError(f"weft join needs a host to join as: --as h3; {_USAGE.splitlines()[0]}")
    request = JoinRequest(
        host=options["--as"], patience_s=_seconds(options.get("--patience", "30")), has_sysfs=has_sysfs
    )
    invitation = client.Invitation(address=address, token=token, request=request)
    raise SystemExit(client.run(command, invitation, launch.roce_environment(options.get("--roce", ""))))


def _read(words: tuple[str, ...]) -> tuple[str, dict[str, str], bool, tuple[str, ...]]:
    """Address, options, whether there is to be a /sys, command."""
    from weft.errors import ConfigError

    if "--" not in words or words[-1] == "--":
        raise ConfigError(f"weft join needs a command behind `--`: {_USAGE.splitlines()[0]}")
    at = words.index("--")
    ours, command = list(words[:at]), words[at + 1 :]
    address, has_sysfs, options = "", False, {}
    while ours:
        word = ours.pop(0)
        name, equals, value = word.partition("=")
        if name in _VALUES:
            if not equals and not ours:
                raise ConfigError(f"{name} has no value: {_USAGE.splitlines()[0]}")
            options[name] = value if equals else ours.pop(0)
        elif word == "--sysfs":
            has_sysfs = True
        elif address or word.startswith("-"):
            raise ConfigError(f"weft join does not know {word!r}: {_USAGE.splitlines()[0]}")
        else:
            address = word
    if not address:
        raise ConfigError(f"weft join needs the address of a lab: {_USAGE.splitlines()[0]}")
    return address, options, has_sysfs, command


def _seconds(text: str) -> float:
    from weft.errors import ConfigError
    from weft.lab.join.server import PATIENCE_MAX_S

    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= PATIENCE_MAX_S:
        raise ConfigError(f"--patience {text}: give seconds from 0 to {PATIENCE_MAX_S:g}")
    return seconds


def say_how(entry: Entry, fabric: Fabric) -> None:
    """To join a lab, if it lets anybody."""
    from weft.lab import control

    if (join_server := control.ask(entry, "state")["join"]) is not None:
        print(how(join_server["address"], entry.token.read_text(encoding="ascii").strip(), fabric))


def how(address: str, token: str, fabric: Fabric) -> str:
    host = [*fabric.servers][-1] if fabric.servers else fabric.hcas[-1].name if fabric.hcas else "HOST"
    return f"hosts join by `weft join {address} --token {token} --as {host} -- ibstat`"
