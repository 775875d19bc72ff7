"""`weft up`: start a lab, optionally with a subnet manager and the console."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from weft.cli.arguments import Spec
from weft.cli.join import print_join_command
from weft.cli.output import progress_bar
from weft.cli.sm_flags import NOTHING, SmFlags, dump_folder, log_file, read_flags
from weft.errors import ConfigError, SubnetError

if TYPE_CHECKING:
    from collections.abc import Callable

    from weft.fabric.model import Fabric
    from weft.lab.registry import Entry

CONSOLE_S = 120.0  # until the console is up, on a busy machine


def up(
    spec: Spec,
    /,
    *,
    name: str = "lab",
    daemon: bool = False,
    sm: bool = False,
    web: bool = False,
    timed: bool = False,
    join: str = "",
    ethernet: str = "",
    flags: Annotated[SmFlags, Parameter(name="*", group="Subnet manager, with --sm")] = NOTHING,
) -> None:
    """Start a lab: an emulated fabric for real tools.

    OpenSM, infiniband-diags and RDMA programs run in it. On a terminal it opens a prompt; without one it runs until
    SIGTERM, SIGINT or `weft down`.

    Parameters
    ----------
    name
        Name of the lab, if several run.
    daemon
        Return when the lab is up; `weft down` ends it.
    sm
        Also start weft's subnet manager on the first host, one in each subnet or plane; all ports are Active when the
        command returns.
    web
        Also start the subnet manager and `weft serve`, the console in a browser, which ends with the lab.
    timed
        Delay RDMA traffic by the latency and the rate of the links, as modelled by `weft sim`.
    join
        ADDRESS:PORT on which other machines and containers join the lab as hosts with `weft join`.
    ethernet
        Ports of VPI adapters and switches that are Ethernet, as names of hosts, adapters, ports or switches, all of
        whose cables are meant: h[3-4],leaf2/9. Programs use RoCE v2 there.
    """
    from weft.fabric.files import hostlist
    from weft.fabric.link_layers import as_ethernet
    from weft.fabric.spec import load
    from weft.lab import daemon as process
    from weft.lab.managers import first_host
    from weft.lab.planes import planarize

    sm = sm or web
    if flags.set_flags and not sm:
        raise ConfigError(f"{', '.join(flags.set_flags)} needs a subnet manager: add --sm, or start one with `weft sm`")
    with progress_bar(f"reading {spec}"):  # ends before the lab forks, when no thread may run
        fabric = planarize(as_ethernet(load(spec), hostlist.expand(ethernet) if ethernet else ()))
    manage = _manager(fabric, flags) if sm else lambda entry: None
    if daemon:
        entry = process.start(fabric, name, timed=timed, join=join)
        manage(entry)
        print_join_command(entry, fabric)
        _start_console(entry, web)
        print(f"lab {name} is up: {fabric.spec}\nLog: {entry.log}")
        print(f"Try `weft exec {first_host(fabric)} ibstat`; `weft down {name}` ends the lab.")
        return
    has_terminal = sys.stdin.isatty() and sys.stdout.isatty()
    if not has_terminal:
        process.end_on_signals()
    entry = process.start(fabric, name, timed=timed, join=join, follow=True, has_log=has_terminal)
    manage(entry)
    print_join_command(entry, fabric)
    _start_console(entry, web)
    if has_terminal:
        _prompt(entry)
    else:
        print(f"lab {name} is up: {fabric.spec}; `weft down` or SIGTERM ends it", flush=True)
        process.wait(entry)


def _manager(fabric: Fabric, flags: SmFlags) -> Callable[[Entry], None]:
    """Return a function that starts a subnet manager in each subnet; their options are checked now, before the lab."""
    from weft.lab.managers import adjacent_prefixes, managers_of
    from weft.sm.conf.options import Options

    options = read_flags(flags)
    managers, adjacent = managers_of(fabric, options, flags.at), {} if flags.at else adjacent_prefixes(fabric)
    dump, log = dump_folder(flags, options), log_file(options)

    def manage(entry: Entry) -> None:
        from weft.lab import control, subnet_manager

        sockname, several = control.ask(entry, "state")["sockname"], len(managers) > 1
        launched = []
        for host, own in managers:
            place = dump / host.replace("/", "-") if dump and several else dump
            if place is not None:
                place.mkdir(exist_ok=True)
            own_log = log or (subnet_manager.new_log(entry, host) if several else None)
            launched.append(subnet_manager.launch(entry, sockname, host, own, dump=place, log=own_log))
        for (host, own), manager in zip(managers, launched, strict=True):
            place = manager.wait(adjacent.get(own.subnet_prefix, ()))
            is_one_of_several = own.subnet_prefix not in (Options().subnet_prefix, options.subnet_prefix)
            prefix = f", prefix {own.subnet_prefix:#x}" if is_one_of_several else ""
            print(f"SUBNET UP by the subnet manager on {host}{prefix}; log: {place}")

    return manage


def _start_console(entry: Entry, web: bool) -> None:
    """Start the console with --web: a service that ends with the lab."""
    if not web:
        return
    import subprocess

    place = entry.folder / f"{entry.name}.web.log"
    arguments = ("--lab", entry.name, "--port", "0", "--database", f"sqlite:///{entry.cache}/web.db", "--ends-with-lab")
    with place.open("w") as log:
        service = subprocess.Popen(
            [sys.executable, "-m", "weft", "serve", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    until = time.monotonic() + CONSOLE_S
    while service.poll() is None:
        if time.monotonic() > until:
            service.kill()
            service.wait()
            raise SubnetError(
                f"the console was not up after {CONSOLE_S:g} s and was stopped: see {place}. The lab runs: try "
                f"`weft serve --lab {entry.name}`, or end it with `weft down`"
            )
        lines = [line for line in place.read_text().splitlines() if line.startswith("console ")]
        if lines:
            print(lines[0])
            return
        time.sleep(0.05)
    raise SubnetError(f"the console failed to start: see {place}")


def _prompt(entry: Entry) -> None:
    import readline  # noqa: F401  (input() then has history)

    from weft.lab import control
    from weft.lab.prompt import Prompt

    try:
        Prompt(entry).run()
    finally:
        control.end(entry)
