"""`weft verbs`, `perftest`, `ibv_devinfo`, `ibv_devices`, `ibv_rc_pingpong` and its like: RDMA over weft's adapter."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

Words = Annotated[str, Parameter(allow_leading_hyphen=True)]

_VERBS = """weft verbs [--roce ADDRESS] COMMAND...

Run a program that was written for pyverbs over weft's adapter: weft verbs python app.py. It finds weft's pyverbs, as do
its children, and the tools of RDMA (ib_write_bw, ibv_devinfo ...). --roce: speak RoCE v2 at an address of the host."""


def verbs(*words: Words) -> None:
    """Run a pyverbs program on weft's software adapter.

    For example: weft verbs python app.py. --roce ADDRESS sends RoCE v2 over UDP.
    """
    from weft.errors import ConfigError
    from weft.verbs import launch

    if words[:1] in (("--help",), ("-h",)):
        print(_VERBS)
        return
    roce, rest = (words[1], words[2:]) if words[:1] == ("--roce",) and len(words) > 1 else ("", words)
    if not rest or rest[0].startswith("-"):
        raise ConfigError(f"weft verbs needs a command: {_VERBS.splitlines()[0]}")
    launch.become(rest, roce=roce)


def perftest(*words: Words) -> None:
    """Run one end of a perftest program: ib_write_bw, ...

    For example: weft perftest ib_write_bw [HOST] [-s 64K].
    """
    from weft.verbs.perftest import perftest as tool
    from weft.verbs.perftest.kinds import Test

    if not words or words[0] in ("-h", "--help"):
        print("\n".join(f"{test:<14} `weft perftest {test} --help` lists its options" for test in Test))
        return
    tool.main(words[0], words[1:], _say)


def ibv_devices() -> None:
    """List the RDMA devices."""
    from weft.verbs.perftest import devinfo

    print(devinfo.devices())


def ibv_devinfo(*words: Words) -> None:
    """Show the attributes of RDMA devices.

    -v shows all attributes, -l lists names only.
    """
    from weft.verbs.perftest import devinfo

    print(devinfo.main(words))


def ibv_rc_pingpong(*words: Words) -> None:
    """Run one end of a ping-pong over RC."""
    _pingpong("ibv_rc_pingpong", words)


def ibv_uc_pingpong(*words: Words) -> None:
    """Run one end of a ping-pong over UC."""
    _pingpong("ibv_uc_pingpong", words)


def ibv_ud_pingpong(*words: Words) -> None:
    """Run one end of a ping-pong over UD."""
    _pingpong("ibv_ud_pingpong", words)


def _pingpong(name: str, words: tuple[str, ...]) -> None:
    from weft.verbs.perftest import pingpong

    pingpong.main(name, words, _say)


def _say(line: str) -> None:
    """Print a line at once: the peer may wait for its reader."""
    print(line, flush=True)
