"""`weft sm`: the subnet manager, and `weft sm status`: what it did."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TextIO

from cyclopts import Parameter

from weft.cli.arguments import File

if TYPE_CHECKING:
    from weft.lab.registry import Entry
    from weft.mad.carrier import Carrier
    from weft.sm.options import Options
    from weft.sm.status import Status

_OPENSMS = (
    Path("/var/log/opensm.log"),
    Path("/var/log"),
)  # `opensm -c` names them of its own accord: nobody chose them


def sm(
    action: Literal["run", "status"] = "run",
    /,
    *,
    on: Literal["lab", "ibsim", "umad"] | None = None,
    at: str = "",
    lab: str = "",
    ibsim: str = "",
    umad: str = "",
    config: Annotated[File, Parameter(("--config", "-F"))] = None,
    partitions: Annotated[File, Parameter(("--partitions", "-P"))] = None,
    priority: Annotated[int | None, Parameter(("--priority", "-p"))] = None,
    engine: Annotated[str, Parameter(("--engine", "-R"))] = "",
    once: Annotated[bool, Parameter(("--once", "-o"), negative=())] = False,
    state: Path | None = None,
    dump: Path | None = None,
    create_config: Annotated[File, Parameter(("--create-config", "-c"))] = None,
    json: bool = False,
) -> None:
    """Run a subnet manager: discover, give LIDs, route, answer hosts; or show the status of those that run.

    Parameters
    ----------
    action
        `run`, or `status`.
    on
        A running lab, the default; ibsim; or umad: this machine's adapters, or what `weft exec HOST` puts before them.
    at
        The host it runs on: a name of the lab, of ibsim's net its id. Else the first.
    lab
        A running lab, if more than one runs.
    ibsim
        The name of a running ibsim's sockets (IBSIM_SOCKNAME); else sim.
    umad
        An adapter of this machine, mlx5_0; else the first that is Active.
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
        Print the status as JSON; of a run when it ends, and its log then goes to standard error.
    """
    from weft.cli.output import say_written
    from weft.sm.options import write_options

    options = _options(config, partitions, priority, engine, state)
    if create_config is not None:
        from weft.fabric.files.atomic import write_atomically

        write_atomically(create_config, write_options(options))
        say_written(create_config)
    elif action == "status":
        _show(options.state_file, lab, json=json)
    else:
        carrier, options = _attach(options, on, at, lab, ibsim, umad)
        try:
            _run(carrier, options, once=once, dump=dump, json=json)
        finally:
            carrier.close()


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


# -- run --------------------------------------------------------------------------------------------------------------


def _attach(options: Options, on: str | None, at: str, lab: str, ibsim: str, umad: str) -> tuple[Carrier, Options]:
    """The port to speak through; and the options, with where the state is kept."""
    from dataclasses import replace

    from weft import runtime
    from weft.cli.subnets import find_carrier
    from weft.errors import ConfigError
    from weft.lab import registry
    from weft.sm.configuration import read_configuration

    given = {"lab": lab, "ibsim": ibsim, "umad": umad}
    on = on or next((name for name, value in given.items() if value), "lab")
    for name, value in given.items():
        if value and name != on:
            raise ConfigError(f"--{name} {value} is of no use with --on {on}: leave out one of them")
    read_configuration(options)  # what is wrong with them is said before anything else happens
    if on == "lab":
        entry = registry.find(lab)
        _check_host(entry, at)
        carrier = find_carrier(at, entry.name, "", None)
        folder, name = entry.cache, ""
    else:
        carrier = find_carrier(
            at, "", (ibsim or "sim") if on == "ibsim" else "", (umad or "any") if on == "umad" else None
        )
        folder, name = runtime.folder(), f"{on}-{ibsim or umad or 'first'}-"
    host = getattr(carrier, "host", "")
    place = folder / f"sm-{name}{host or 'first'}.json".replace("/", "-")
    return carrier, replace(options, state_file=options.state_file or place)


def _check_host(entry: Entry, at: str) -> None:
    """Near names are the lab's to tell."""
    from weft.lab.control import ask

    if at:
        ask(entry, "host", name=at)


def _run(carrier: Carrier, options: Options, *, once: bool, dump: Path | None, json: bool) -> None:
    import signal
    from contextlib import ExitStack

    from weft.cli.output import print_json
    from weft.sm.events import Log
    from weft.sm.rehearsal import rehearse
    from weft.sm.run import SubnetManager
    from weft.sm.status import describe

    with ExitStack() as stack:
        if options.dump_files_dir not in _OPENSMS:
            dump = dump or options.dump_files_dir
        if dump is not None:
            _make_folder(dump)
        stream = sys.stderr if json else sys.stdout
        if not once:
            print(f"state in {options.state_file}: see `weft sm status`; Ctrl-C ends it", file=sys.stderr)
        if options.log_file is not None and options.log_file not in _OPENSMS:
            print(f"log in {options.log_file}", file=sys.stderr)
            stream = stack.enter_context(_open_log(options.log_file))
        rehearse(options)
        manager = SubnetManager(carrier, options, log=Log(stream), dump=dump)
        on_signal = {signal.SIGTERM: manager.stop, signal.SIGINT: manager.stop, signal.SIGHUP: manager.reload}
        for number, act in on_signal.items():
            before = signal.signal(number, lambda *_, act=act: act())
            stack.callback(signal.signal, number, before)
        up = manager.run(once=once)
    if json and options.state_file is not None:
        print_json(_as_json(options.state_file, describe(manager, "stopped")))
    if once and not up:
        sys.exit(1)


def _make_folder(path: Path) -> None:
    from weft.errors import ConfigError

    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"cannot make the folder {path} for dumps: {error.strerror}; name another with --dump"
        ) from None


def _open_log(path: Path) -> TextIO:
    """After what it holds already, as OpenSM does."""
    from weft.errors import ConfigError

    try:
        return path.open("a")
    except OSError as error:
        raise ConfigError(f"log_file {path} cannot be written: {error.strerror}; (null) logs to the terminal") from None


# -- status ---------------------------------------------------------------------------------------------------------


def _show(state_file: Path | None, lab: str, *, json: bool) -> None:
    from weft.cli.output import print_json
    from weft.errors import ConfigError
    from weft.sm.status import read_status

    paths = [state_file] if state_file else _known_files(lab)
    found = [(path, status) for path in paths if (status := read_status(path)) is not None]
    if not found:
        where = f" in {state_file}" if state_file else ""
        raise ConfigError(
            f"no subnet manager of weft has left its state{where}: start one with `weft sm`, or say where it is with "
            "--state FILE"
        )
    if json:
        print_json([_as_json(path, status) for path, status in found])
        return
    found.sort(key=lambda one: (not one[1].is_running, -one[1].at_s))
    for place, (path, status) in enumerate(found):
        if place == 0 or status.is_running:
            _print(path, status)
        else:
            print(f"{status.title} ({path})")


def _known_files(lab: str) -> list[Path]:
    from weft import runtime
    from weft.lab import registry

    entries = [registry.find(lab)] if lab else registry.running()
    found = [path for entry in entries for path in sorted(entry.cache.glob("sm-*.json"))]
    return found if lab else found + sorted(runtime.folder().glob("sm-*.json"))


def _as_json(path: Path, status: Status) -> dict[str, Any]:
    import msgspec

    return {"state_file": str(path), **msgspec.to_builtins(status), "running": status.is_running}


def _print(path: Path, status: Status) -> None:
    import textwrap

    from weft.cli.output import console

    out = console()
    out.print(status.title, style="bold", markup=False)
    for label, value in (*_rows(status), ("state file", str(path))):
        first, rest = f"  {label:<12}", " " * 14
        print(textwrap.fill(value, out.width, initial_indent=first, subsequent_indent=rest, break_on_hyphens=False))
    print("  the last it said:")
    for line in status.recent[-5:]:
        print(f"  {line}")


def _rows(status: Status) -> Iterator[tuple[str, str]]:
    own = status.master == status.guid
    yield "port", f"LID {status.lid}, GUID {status.guid}, priority {status.priority}"
    yield "master", "this one" if own else status.master
    yield "sweeps", f"{status.sweeps:,} since it started, {status.mads:,} MADs"
    last = status.sweep
    if last is not None:
        yield "last sweep", f"{_clock(last.at_s)}, {last.seconds:.2f} s, {last.mads:,} MADs"
        yield "subnet", f"{last.switches:,} switches, {last.adapters:,} adapters, {last.links:,} links"
        yield (
            "routing",
            f"{last.engine}: {last.routes_changed:,} routes changed, {last.blocks_written:,} blocks written",
        )
        yield from (("odd", text) for text in last.oddities[:10])
        yield from (("refused", text) for text in last.refused[:10])
    yield "partitions", ", ".join(f"{name} {key}" for key, name in status.partitions.items()) or "none yet"
    yield "of hosts", f"{status.groups} groups, {status.services} services, {status.subscriptions} subscriptions"
    yield "events", ", ".join(f"{name} {count}" for name, count in status.events.items())


def _clock(at_s: float) -> str:
    import time

    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at_s))
