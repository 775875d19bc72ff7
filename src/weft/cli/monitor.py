"""`weft monitor`: the counters of a fabric for Prometheus."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from weft.cli.arguments import LabName

if TYPE_CHECKING:
    from weft.mad.carrier import Carrier
    from weft.monitor.watch import Watch


def monitor(
    *,
    lab: LabName = "",
    ibsim: str = "",
    umad: str | None = None,
    at: str = "",
    listen: str = "127.0.0.1:9315",
    every: float = 10.0,
    once: Annotated[bool, Parameter(negative=())] = False,
    rules: Annotated[bool, Parameter(negative=())] = False,
    dashboard: Annotated[bool, Parameter(negative=())] = False,
) -> None:
    """Read the counters of all ports of a fabric, and tell Prometheus, in infiniband_exporter's names.

    Parameters
    ----------
    ibsim
        The name of a running ibsim's sockets (IBSIM_SOCKNAME), instead of a lab.
    umad
        An adapter of this machine, mlx5_0, or `any`, instead of a lab.
    at
        The host to ask from: a name of the lab, of ibsim's net its id. Else the first.
    listen
        Where `/metrics` is: address and port.
    every
        Seconds from poll to poll.
    once
        Print the metrics of one poll, and end.
    rules
        Print alert rules for Prometheus, and end.
    dashboard
        Print a dashboard for Grafana, and end.
    """
    if rules or dashboard:
        from weft.monitor.files import DASHBOARD, RULES, read

        print(read(RULES if rules else DASHBOARD), end="")
        return
    import time

    from weft.monitor.exporter import render

    watch = new_watch(at, lab, ibsim, umad, every)
    if once:
        from weft.errors import SubnetError

        latest = watch.tick()
        if latest.failure:
            raise SubnetError(latest.failure)
        print(render(latest, now_s=time.monotonic()).decode(), end="")
        return
    from weft.monitor.listen import Listener

    with Listener(listen, lambda: render(watch.latest, now_s=time.monotonic())) as door, watch:
        print(f"{door.url}: every {every:g} s", flush=True)
        _until_interrupted()


def new_watch(at: str, lab: str, ibsim: str, umad: str | None, every_s: float) -> Watch:
    from weft.cli.subnets import find_carrier
    from weft.errors import ConfigError
    from weft.monitor.diagnose import diagnose
    from weft.monitor.poll import Poller
    from weft.monitor.watch import Watch

    if not 0.1 <= every_s <= 86_400:
        raise ConfigError(f"--every {every_s:g}: give seconds from poll to poll, 0.1 to 86,400")

    held: list[Carrier] = []

    def new_poller() -> Poller:
        while held:  # that of a lab that is gone
            held.pop().close()
        held.append(find_carrier(at, lab, ibsim, umad))
        return Poller(held[-1])

    return Watch(new_poller(), every_s=every_s, diagnose=diagnose, again=new_poller)


def _until_interrupted() -> None:
    import signal
    import threading

    ends = threading.Event()
    for one in (signal.SIGINT, signal.SIGTERM):
        signal.signal(one, lambda *_: ends.set())
    ends.wait()
