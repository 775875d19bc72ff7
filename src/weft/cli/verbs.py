"""`weft verbs`, `perftest`, `ibv_devinfo`, `ibv_rc_pingpong` and others: run RDMA programs on weft's adapter."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from weft.errors import ConfigError

Arguments = Annotated[str, Parameter(allow_leading_hyphen=True)]

_VERBS = """weft verbs [--roce ADDRESS] COMMAND...

Run a pyverbs program on weft's software adapter: weft verbs python app.py. It and its children find weft's pyverbs
and RDMA tools (ib_write_bw, ibv_devinfo ...). --roce: send RoCE v2 from an address of this host."""


def verbs(*arguments: Arguments) -> None:
    """Run a pyverbs program on weft's software adapter.

    For example: weft verbs python app.py. --roce ADDRESS sends RoCE v2 over UDP.
    """
    from weft.verbs import launch

    if arguments[:1] in (("--help",), ("-h",)):
        print(_VERBS)
        return
    roce, rest = (
        (arguments[1], arguments[2:]) if arguments[:1] == ("--roce",) and len(arguments) > 1 else ("", arguments)
    )
    if not rest or rest[0].startswith("-"):
        raise ConfigError(f"weft verbs needs a command: {_VERBS.splitlines()[0]}")
    launch.become(rest, roce=roce)


def perftest(*arguments: Arguments) -> None:
    """Run one end of a perftest program: ib_write_bw, ...

    For example: weft perftest ib_write_bw [HOST] [-s 64K].
    """
    from weft.verbs.perftest import perftest as tool
    from weft.verbs.perftest.kinds import Test

    if not arguments or arguments[0] in ("-h", "--help"):
        print("\n".join(f"{test:<14} `weft perftest {test} --help` lists its options" for test in Test))
        return
    tool.main(arguments[0], arguments[1:], _say)


def ibv_devices() -> None:
    """List the RDMA devices."""
    from weft.verbs.perftest import devinfo

    print(devinfo.devices())


def ibv_devinfo(*arguments: Arguments) -> None:
    """Show the attributes of RDMA devices.

    -v shows all attributes, -l lists names only.
    """
    from weft.verbs.perftest import devinfo

    print(devinfo.main(arguments))


def ibv_rc_pingpong(*arguments: Arguments) -> None:
    """Run one end of a ping-pong over RC."""
    _pingpong("ibv_rc_pingpong", arguments)


def ibv_uc_pingpong(*arguments: Arguments) -> None:
    """Run one end of a ping-pong over UC."""
    _pingpong("ibv_uc_pingpong", arguments)


def ibv_ud_pingpong(*arguments: Arguments) -> None:
    """Run one end of a ping-pong over UD."""
    _pingpong("ibv_ud_pingpong", arguments)


def _pingpong(name: str, arguments: tuple[str, ...]) -> None:
    from weft.verbs.perftest import pingpong

    pingpong.main(name, arguments, _say)


def _say(line: str) -> None:
    """Print a line and flush it: the reader of the output may start the peer."""
    print(line, flush=True)
