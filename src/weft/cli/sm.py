"""`weft sm`: the subnet manager, and `weft sm status`: what it did."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

if TYPE_CHECKING:
    from weft.sm.options import Options
    from weft.sm.status import Status


def sm(
    action: Literal["run", "status"] = "run",
    /,
    *,
    on: Literal["lab", "ibsim", "umad"] = "lab",
    at: str = "",
    lab: str = "",
    ibsim: str = "",
    umad: str = "any",
    config: Annotated[Path | None, Parameter(("--config", "-F"))] = None,
    partitions: Annotated[Path | None, Parameter(("--partitions", "-P"))] = None,
    priority: Annotated[int | None, Parameter(("--priority", "-p"))] = None,
    engine: Annotated[str, Parameter(("--engine", "-R"))] = "",
    once: Annotated[bool, Parameter(("--once", "-o"), negative=())] = False,
    state: Path | None = None,
    dump: Path | None = None,
    create_config: Annotated[Path | None, Parameter(("--create-config", "-c"))] = None,
    json: bool = False,
) -> None:
    """Run a subnet manager: discover, give LIDs, route, answer hosts; or show the status of those that run.

    Parameters
    ----------
    action
        `run`, or `status`.
    on
        A running lab; ibsim; or umad: this machine's adapters, or what `weft exec HOST` puts before them.
    at
        The host it runs on: a name of the lab, of ibsim's net its id. Else the first.
    lab
        A running lab, if more than one runs.
    ibsim
        The name of a running ibsim's sockets (IBSIM_SOCKNAME).
    umad
        An adapter of this machine, mlx5_0, or `any`.
    config
        Options in the form of opensm.conf.
    partitions
        partitions.conf; or opafm.xml, the virtual fabrics of Omni-Path.
    priority
        From 0 to 15: the highest is master.
    engine
        Routing engines, tried in turn: auto, fat-tree, up-down, min-hop, dfsssp, dimension-order, dragonfly.
    once
        End after the first sweep: status 0 if the subnet is up.
    state
        Where its state is kept, as JSON.
    dump
        A folder for opensm-subnet.lst, opensm.fdbs and the like after each sweep: ibdmchk reads them.
    create_config
        Write all options with their defaults to this file, and end.
    json
        Print the status as JSON.
    """
    from weft.sm.options import write_options

    options = _options(config, partitions, priority, engine, state)
    if create_config is not None:
        from weft.fabric.files.atomic import write_atomically

        write_atomically(create_config, write_options(options))
        print(f"wrote {create_config}")
    elif action == "status":
        _show(options.state_file, json=json)
    else:
        _run(options, on=on, at=at, lab=lab, ibsim=ibsim, umad=umad, once=once, dump=dump)


def _options(
    config: Path | None, partitions: Path | None, priority: int | None, engine: str, state: Path | None
) -> Options:
    from dataclasses import replace

    from weft.sm.options import Options, parse_engines, read_options

    options = read_options(config) if config else Options()
    if partitions is not None and partitions.suffix == ".xml":
        options = replace(options, virtual_fabrics_file=partitions)
    elif partitions is not None:
        options = replace(options, partition_config_file=partitions)
    if priority is not None:
        options = replace(options, sm_priority=priority)
    if engine:
        options = replace(options, routing_engine=parse_engines(engine))
    return replace(options, state_file=state) if state is not None else options


def _run(options: Options, *, on: str, at: str, lab: str, ibsim: str, umad: str, once: bool, dump: Path | None) -> None:
    import signal
    from dataclasses import replace

    from weft.cli.subnets import find_carrier
    from weft.sm.rehearsal import rehearse
    from weft.sm.run import SubnetManager

    rehearse(options)
    if on == "lab" and options.state_file is None:
        from weft.lab import registry

        entry = registry.find(lab)
        options = replace(options, state_file=entry.cache / f"sm-{(at or 'first').replace('/', '-')}.json")
    names = {"lab": ("", lab), "ibsim": (ibsim or "sim", ""), "umad": ("", "")}[on]
    carrier = find_carrier(at, names[1], names[0], umad if on == "umad" else None)
    manager = SubnetManager(carrier, options, dump=dump)
    signal.signal(signal.SIGTERM, lambda *_: manager.stop())
    signal.signal(signal.SIGINT, lambda *_: manager.stop())
    signal.signal(signal.SIGHUP, lambda *_: manager.reload())
    try:
        up = manager.run(once=once)
    finally:
        carrier.close()
    if once and not up:
        sys.exit(1)


# -- status ---------------------------------------------------------------------------------------------------------


def _show(state_file: Path | None, *, json: bool) -> None:
    from weft.cli.output import print_json
    from weft.errors import ConfigError
    from weft.sm.status import read_status

    paths = [state_file] if state_file else _known_files()
    found = [(path, status) for path in paths if (status := read_status(path)) is not None]
    if not found:
        raise ConfigError(
            "no subnet manager of weft has left its state: start one with `weft sm`, or say where with --state FILE"
        )
    if json:
        import msgspec

        print_json([msgspec.to_builtins(status) | {"running": status.is_running} for _, status in found])
        return
    for path, status in found:
        _print(path, status)


def _known_files() -> list[Path]:
    from weft.lab import registry

    return [path for entry in registry.running() for path in sorted(entry.cache.glob("sm-*.json"))]


def _print(path: Path, status: Status) -> None:
    import time

    from weft.cli.output import console, table

    seen = "running" if status.is_running else "not running"
    rows: list[tuple[str, str]] = [
        ("state", f"{status.sm_state}, priority {status.priority}, process {status.pid} {seen}"),
        ("port", f"{status.port}, LID {status.lid}, GUID {status.guid}"),
        ("master", status.master),
        ("sweeps", f"{status.sweeps:,}, {status.mads:,} MADs"),
    ]
    last = status.sweep
    if last is not None:
        rows += [
            ("last sweep", f"{time.strftime('%H:%M:%S', time.localtime(last.at_s))}, {last.seconds:.2f} s"),
            ("subnet", f"{last.switches:,} switches, {last.adapters:,} adapters, {last.links:,} links"),
            (
                "routing",
                f"{last.engine}, {last.routes_changed:,} routes changed, {last.blocks_written:,} blocks written",
            ),
        ]
        rows += [("odd", text) for text in last.oddities[:10]]
        rows += [("refused", text) for text in last.refused[:10]]
    rows += [
        ("partitions", ", ".join(f"{name} {key}" for key, name in status.partitions.items())),
        ("hosts know", f"{status.groups} groups, {status.services} services, {status.subscriptions} subscriptions"),
        ("events", ", ".join(f"{name} {count}" for name, count in status.events.items())),
    ]
    console().print(table(f"Subnet manager ({path})", ("", ""), rows, "\n".join(status.recent[-5:])))
