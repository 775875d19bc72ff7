"""`weft up`: start a lab, optionally with a subnet manager and the console."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from weft.cli.arguments import Spec
from weft.cli.join import print_join_command
from weft.cli.output import progress_bar
from weft.cli.sm_flags import NOTHING, SmFlags, dump_folder, log_file, read_flags
from weft.errors import ConfigError, SubnetError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from weft.fabric.model import Fabric
    from weft.lab.registry import Entry
    from weft.sm.conf.options import Options

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
    """
    from weft.fabric.spec import load
    from weft.lab import daemon as process
    from weft.lab.planes import planarize

    sm = sm or web
    if flags.set_flags and not sm:
        raise ConfigError(f"{', '.join(flags.set_flags)} needs a subnet manager: add --sm, or start one with `weft sm`")
    with progress_bar(f"reading {spec}"):  # ends before the lab forks, when no thread may run
        fabric = planarize(load(spec))
    manage = _manager(fabric, flags) if sm else lambda entry: None
    if daemon:
        entry = process.start(fabric, name, timed=timed, join=join)
        manage(entry)
        print_join_command(entry, fabric)
        _start_console(entry, web)
        print(f"lab {name} is up: {fabric.spec}\nLog: {entry.log}")
        print(f"Try `weft exec {_host(fabric)} ibstat`; `weft down {name}` ends the lab.")
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
    from weft.sm.conf.options import Options

    options = read_flags(flags)
    managers, adjacent = _managers(fabric, options, flags.at), {} if flags.at else _adjacent(fabric)
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


def _managers(fabric: Fabric, options: Options, at: str) -> list[tuple[str, Options]]:
    """Return the host of each subnet's manager, with its options: prefixes of subnets that routers join differ.

    With `at` it is the manager of that host's subnet or plane alone; others are started by hand.
    """
    from weft.fabric.subnets import subnets_of
    from weft.lab.planes import plane_hosts
    from weft.sm.conf.options import Options

    parts, home = subnets_of(fabric), _node_of(fabric, at) if at else -1
    if fabric.planes > 1 and at == fabric.nodes.name[home]:
        raise ConfigError(
            f"--at {at} is in {fabric.planes} planes, which need a manager each: leave out --at, or give its port in "
            f"one of them, {plane_hosts(fabric, at)[0]}"
        )
    if len(parts) == 1:
        hosts = [at] if at else plane_hosts(fabric, _host(fabric)) if fabric.planes > 1 else [_host(fabric)]
        return [(host, options) for host in hosts]
    if options.subnet_prefix != Options().subnet_prefix:
        raise ConfigError(
            f"subnet_prefix {options.subnet_prefix:#x} would be that of {len(parts)} subnets: subnets that routers "
            "join need different prefixes; leave it out, and each gets its own"
        )
    ranges = _flid_ranges(options, len(parts))
    chosen = [part for part in parts if not at or home in part.nodes]
    own = [
        replace(options, subnet_prefix=part.prefix, local_flid_start=first, local_flid_end=last)
        for part, (first, last) in zip(parts, ranges, strict=True)
    ]
    return [(at or _host(fabric, part.nodes), own[part.number - 1]) for part in chosen]


def _node_of(fabric: Fabric, host: str) -> int:
    """Return the adapter of a host of the lab."""
    from weft.lab.places import Places
    from weft.mad.power_up import switch_on

    devices = switch_on(fabric)
    return devices.node_of[Places(devices).find(host)]


def _flid_ranges(options: Options, parts: int) -> list[tuple[int, int]]:
    """Return the range of floating LIDs of each subnet: equal parts of the global range."""
    from weft.sm.flids import check_ranges

    first, last, own, _ = options.flids
    if not own:
        check_ranges(options)
    if own:
        raise ConfigError(
            f"local_flid_start {own} would be that of {parts} subnets: leave it out, and each gets a part of the range "
            "from global_flid_start to global_flid_end"
        )
    if not first:
        return [(0, 0)] * parts
    size = (last - first + 1) // parts
    if not size:
        raise ConfigError(f"global_flid_start {first} to global_flid_end {last} has fewer than {parts} LIDs")
    starts = range(first, first + parts * size, size)
    return [(start, start + size - 1) for start in starts]


def _adjacent(fabric: Fabric) -> dict[int, set[int]]:
    """Return the prefixes of the subnets that share a router with each subnet, by its prefix."""
    from weft.fabric.subnets import subnets_of

    routers = {part.prefix: set(fabric.ports.node[part.router_ports].tolist()) for part in subnets_of(fabric)}
    return {own: {far for far in routers if far != own and routers[own] & routers[far]} for own in routers}


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


def _host(fabric: Fabric, nodes: Iterable[int] | None = None) -> str:
    """Return the first adapter of a fabric, or of some of its nodes; the first switch if there is none."""
    from weft.fabric.kinds import NodeKind

    chosen = [fabric.node(index) for index in (range(len(fabric.nodes)) if nodes is None else nodes)]
    by_kind = {node.kind: node.name for node in reversed(chosen)}
    return by_kind.get(NodeKind.HCA) or by_kind[NodeKind.SWITCH]


def _prompt(entry: Entry) -> None:
    import readline  # noqa: F401  (input() then has history)

    from weft.lab import control
    from weft.lab.prompt import Prompt

    try:
        Prompt(entry).run()
    finally:
        control.end(entry)
