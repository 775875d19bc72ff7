"""Operate a fabric: find its bad cables."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from weft.api.arguments import read_number, read_whole
from weft.errors import ConfigError
from weft.lab.subnets import Subnet

if TYPE_CHECKING:
    from weft.monitor.change import Change
    from weft.monitor.poll import Poller
    from weft.monitor.suspects import Diagnosis

Progress = Callable[[int, int], None]  # polls done, and in all


def diagnose(
    lab: str = "",
    *,
    polls: int = 3,
    every_s: float = 10.0,
    plan: str = "",
    ibsim: str = "",
    umad: str = "",
    at: str = "",
    progress: Progress | None = None,
) -> Diagnosis:
    """Find the bad cables of a running fabric from its port counters, as `weft diagnose` does.

    Parameters
    ----------
    lab
        The name of a lab; by default the only one that runs.
    polls
        How often all counters are read, 2 or more.
    every_s
        Seconds from poll to poll, by the clock of the subnet. Longer finds rarer errors.
    plan
        The expected cabling: a folder of `weft plan`, a cables.csv, a dump, or a spec. By default that of the lab.
    ibsim, umad
        Instead of a lab: the name of ibsim's sockets, or an adapter of this machine, `mlx5_0`.
    at
        The host to read from; by default the first.
    progress
        Called with the number of polls done and of all polls.

    Returns
    -------
    Diagnosis
        `suspects`, the worst first, each with its `name`, `evidence` and `action`; `is_well` if there is none.

    Examples
    --------
    >>> from weft.lab.lab import Lab
    >>> from weft.mad.ibsim_client import IbsimCarrier
    >>> from weft.sm.run import SubnetManager
    >>> with Lab(weft.load("star:hosts=4")) as lab:
    ...     manager = IbsimCarrier("h1", lab.sockname)
    ...     changes = SubnetManager(manager).run(once=True)
    ...     manager.close()
    ...     weft.diagnose(ibsim=lab.sockname, at="h2", polls=2, every_s=0.1).is_well
    True
    """
    subnet = Subnet(lab=lab, ibsim=ibsim, umad=umad, at=at)
    return diagnose_subnet(
        subnet,
        polls=read_whole("--polls", polls),
        every_s=read_number("--every", every_s),
        plan=plan,
        progress=progress,
    )


def diagnose_subnet(
    subnet: Subnet, *, polls: int, every_s: float, plan: str = "", progress: Progress | None = None
) -> Diagnosis:
    """Poll a subnet, diagnose the changes, and add the impact of suspects on its jobs."""
    from weft.monitor.diagnose import diagnose as diagnose_changes
    from weft.monitor.impact import add_impact, read_jobs, read_routed

    if polls < 2:
        raise ConfigError(f"--polls must be at least 2, got {polls}: errors are counted between two polls")
    if not 0.1 <= every_s <= 86_400:
        raise ConfigError(f"--every must be 0.1 to 86,400 seconds, got {every_s:g}")
    poller = subnet.new_poller(plan)
    try:
        diagnosis = diagnose_changes(_poll(poller, polls, every_s, progress))
        if diagnosis.suspects:
            fabric = read_routed(poller.carrier)
            diagnosis = add_impact(diagnosis, fabric, read_jobs(fabric, subnet.jobs()))
    finally:
        poller.carrier.close()
    return diagnosis


def _poll(poller: Poller, polls: int, every_s: float, progress: Progress | None) -> list[Change]:
    from weft.monitor.change import between

    changes: list[Change] = []
    last = poller.poll()
    for number in range(1, polls):
        if progress is not None:
            progress(number, polls)
        while poller.clock() < last.at_s + every_s:
            time.sleep(min(0.05, every_s / 2))
        last, before = poller.poll(), last
        changes.append(between(before, last))
    return changes
