"""A process that applies an allocation and is killed, as by kill -9, at a change of its own choice.

Processes are forked off one that has no threads and has read all modules: each costs little.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.patience import PATIENCE_S

from weft.mad.ibsim_client import IbsimCarrier
from weft.sm.control import ManagerSocket
from weft.tenants.drivers.driver import Driver
from weft.tenants.drivers.opensm import OpenSmDriver
from weft.tenants.drivers.subnet_manager import ManagerDriver
from weft.tenants.drivers.ufm import UfmDriver
from weft.tenants.drivers.ufm_rest import UfmClient
from weft.tenants.partitions import Allocation

NEVER = 0
_STEPS = ((os, "replace"), (os, "kill"), (time, "sleep"), (socket.socket, "sendall"))


def of_opensm(partitions: Path, options: Path, process: int, host: str, sockname: str) -> Driver:
    carrier = IbsimCarrier(host, sockname)
    return OpenSmDriver(partitions=partitions, options=options, signal=process, carrier=carrier, timeout_s=PATIENCE_S)


def of_manager(path: Path) -> Driver:
    return ManagerDriver(ManagerSocket(path))


def of_ufm(url: str) -> Driver:
    return UfmDriver(UfmClient(url, token="t"))


def apply(make: Callable[..., Driver], given: tuple[Any, ...], wanted: Allocation, kill_at: int = NEVER) -> bool:
    """Apply in a separate process and kill it at a given write. Return whether it ended by itself."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    child = context.Process(target=_write, args=(make, given, wanted, kill_at))
    child.start()
    child.join(PATIENCE_S)
    assert child.exitcode in (0, -signal.SIGKILL)
    return child.exitcode == 0


def _write(make: Callable[..., Driver], given: tuple[Any, ...], wanted: Allocation, kill_at: int) -> None:
    driver = make(*given)
    over = driver.read()
    moments, kill = itertools.count(1), os.kill

    def pass_or_die() -> None:
        if next(moments) == kill_at:
            kill(os.getpid(), signal.SIGKILL)

    def watched(change: Callable[..., Any]) -> Callable[..., Any]:
        def with_moments(*words: Any, **named: Any) -> Any:
            pass_or_die()
            done = change(*words, **named)
            pass_or_die()
            return done

        return with_moments

    for place, name in _STEPS:
        setattr(place, name, watched(getattr(place, name)))
    driver.write(wanted, over=over)
