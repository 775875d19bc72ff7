"""weft's own subnet manager on a host of a lab, as a process beside it: it ends when the lab does.

Its log is NAME.sm.log (NAME.sm-HOST.log if the lab has several subnets), its state is in NAME.cache, where `weft sm
status` finds it. Signals mean what they mean to `weft sm`.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path

from weft import runtime, user_cache
from weft.errors import ConfigError, SubnetError
from weft.lab.daemon import unfollow
from weft.lab.registry import Entry
from weft.mad.ibsim_client import IbsimCarrier
from weft.sm.conf.options import Options
from weft.sm.events import Log
from weft.sm.process import obeying_signals, run_warmed_up
from weft.sm.run import SubnetManager
from weft.sm.status import read_status

_TIMEOUT_S = 300.0  # kernels may have to be compiled first
_LOOK_S = 0.05


@dataclass(frozen=True, slots=True)
class Launched:
    """A subnet manager whose process was started."""

    entry: Entry
    log: Path
    state_file: Path
    alive: int  # the end of a pipe that can be read when the manager has ended

    def wait(self, adjacent: Collection[int] = ()) -> Path:
        """Return when the subnet is up, with the path of the log; announce it if the manager compiles kernels first.

        `adjacent` are prefixes of subnets behind routers that the manager must have found, too.
        """
        compiling = user_cache.Announcer("the subnet manager is compiling kernels")
        is_compiling = False
        try:
            for _ in range(int(_TIMEOUT_S / _LOOK_S)):
                has_ended = runtime.wait_ready([self.alive], timeout_s=_LOOK_S)
                status = read_status(self.state_file)
                if status is not None and status.sweep is not None and status.is_running:
                    found = set(status.adjacent)
                    if found >= set(adjacent):
                        return self.log
                if has_ended or not self.entry.answers():
                    break
                if not is_compiling and self._compiles():
                    is_compiling = True
                    compiling.begin()
        finally:
            os.close(self.alive)
            if is_compiling:
                compiling.end()
        raise SubnetError(f"the subnet manager of lab {self.entry.name} has not brought it up: see {self.log}")

    def _compiles(self) -> bool:
        """Return whether its log says that kernels are compiled."""
        return self.log.is_file() and user_cache.NOTICE in self.log.read_text(encoding="utf-8", errors="replace")


def launch(
    entry: Entry,
    sockname: str,
    host: str,
    options: Options | None = None,
    *,
    dump: Path | None = None,
    log: Path | None = None,
) -> Launched:
    """Start a subnet manager."""
    options = options or Options()
    options = replace(
        options,
        state_file=options.state_file or state_file(entry, host),
        m_key_file=options.m_key_file or (entry.m_key_file if options.protect_tenants else None),
    )
    assert options.state_file is not None
    place = log or new_log(entry)
    alive, held = os.pipe()  # held by the manager: when it ends, this end can be read
    if os.fork() == 0:
        os.close(alive)
        status = 1
        try:
            os.setsid()
            unfollow()
            if os.fork() == 0:  # it is not waited for
                _live(entry, sockname, host, place, options, dump)
            status = 0
        finally:
            os._exit(status)
    os.wait()
    os.close(held)
    return Launched(entry, place, options.state_file, alive)


def new_log(entry: Entry, host: str = "") -> Path:
    """Return the log of a new lab's manager, with `host` one of several; that of an earlier lab is deleted."""
    place = entry.folder / f"{entry.name}.sm{f'-{host}'.replace('/', '-') if host else ''}.log"
    place.unlink(missing_ok=True)
    return place


def state_file(entry: Entry, host: str) -> Path:
    return entry.cache / f"sm-{host.replace('/', '-')}.json"


def _live(entry: Entry, sockname: str, host: str, log: Path, options: Options, dump: Path | None) -> None:
    with log.open("a") as stream, open(os.devnull) as nothing:
        for source, target in ((nothing, 0), (stream, 1), (stream, 2)):  # let go of the caller's terminal, or pipe
            os.dup2(source.fileno(), target)
        try:
            carrier = IbsimCarrier(host, sockname)
            manager = SubnetManager(carrier, options, log=Log(stream), dump=dump, subnet=f"lab {entry.name}")
            with obeying_signals(manager):
                run_warmed_up(manager)
        except ConfigError as error:  # the lab is gone, or was never to be had
            print(error, file=stream, flush=True)
        except Exception:  # no other reader exists
            traceback.print_exc(file=stream)
