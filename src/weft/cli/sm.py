"""`weft sm`: run a subnet manager; `weft sm status`: show its state."""

from __future__ import annotations

import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from weft.cli.arguments import TABLES, File, Form, LabName
from weft.cli.sm_flags import NOTHING, SmFlags, dump_folder, log_file, read_flags, sm_options
from weft.errors import ConfigError, WeftError
from weft.units import format_items

if TYPE_CHECKING:
    from weft.mad.carrier import Carrier
    from weft.sm.conf.options import Options
    from weft.sm.status import Status

_TIMEOUT_S = 5.0  # for a manager that does not answer: then its state file is shown
_NAMED = 10  # partitions in the status


def sm(
    action: Literal["run", "status"] = "run",
    /,
    *,
    on: Literal["lab", "ibsim", "umad"] | None = None,
    lab: LabName = "",
    ibsim: str = "",
    umad: str = "",
    flags: Annotated[SmFlags, Parameter(name="*")] = NOTHING,
    once: Annotated[bool, Parameter(("--once", "-o"))] = False,
    create_config: Annotated[File, Parameter(("--create-config", "-c"))] = None,
    form: Form = TABLES,
) -> None:
    """Run a subnet manager, or show its status.

    `weft sm status` ends with status 0 if a manager runs and has brought its subnet up, else with 1.

    Parameters
    ----------
    action
        `run`, or `status`.
    on
        A running lab; ibsim; or umad: this machine's adapters, or those of a host under `weft exec HOST`. [lab]
    ibsim
        The socket name of a running ibsim (IBSIM_SOCKNAME). [sim]
    umad
        An adapter of this machine, mlx5_0. [the first with an Active port]
    once
        Run once and end: after the first sweep, with status 0 if the subnet is up.
    create_config
        Write all options with their defaults to this file, and end.
    """
    if create_config is not None:
        from weft.cli.output import report_written
        from weft.fabric.files.atomic import write_atomically
        from weft.sm.conf.options import write_options

        write_atomically(create_config, write_options(sm_options(flags)))
        report_written(create_config)
    elif action == "status":
        _show(sm_options(flags).state_file, _selected_subnet(on, lab, ibsim, umad), form=form)
    else:
        _import_manager()
        subnet = _selected_subnet(on, lab, ibsim, umad) or ("lab", "")
        options = read_flags(flags)  # raises an error before anything else happens
        carrier, place, key_file, title = _attach(subnet, flags.at)
        options = replace(
            options,
            state_file=options.state_file or place,
            m_key_file=options.m_key_file or (key_file if options.protect_tenants else None),
        )
        try:
            _run(carrier, options, title, flags, once=once, form=form)
        finally:
            carrier.close()


def _selected_subnet(on: str | None, lab: str, ibsim: str, umad: str) -> tuple[str, str] | None:
    """Return the kind and the name of the chosen subnet; None if no option names one."""
    names = {"lab": lab, "ibsim": ibsim, "umad": umad}
    on = on or next((name for name, value in names.items() if value), None)
    for name, value in names.items():
        if value and name != on:
            raise ConfigError(f"--{name} {value} has no effect with --on {on}: leave out one of them")
    return None if on is None else (on, names[on])


# -- run --------------------------------------------------------------------------------------------------------------


def _import_manager() -> None:
    """Import all modules at once. The garbage collector skips them, which saves a seventh of the start-up time."""
    import gc

    gc.disable()
    try:
        import weft.sm.process  # noqa: F401
    finally:
        gc.freeze()
        gc.enable()


def _attach(subnet: tuple[str, str], at: str) -> tuple[Carrier, Path, Path, str]:
    """Return the port to send from, the files of the state and of the M_Key, and the title of the subnet."""
    from weft import runtime
    from weft.cli.subnets import Subnet
    from weft.lab import registry

    on, name = subnet
    if on == "lab":
        entry = registry.find(name)
        target = Subnet(lab=entry.name, at=at)
        folder, begin, title = entry.cache, "sm-", f"lab {entry.name}"
    else:
        target = Subnet(ibsim=name or "sim", at=at) if on == "ibsim" else Subnet(umad=name or "any", at=at)
        folder, begin, title = (
            runtime.folder(),
            f"sm-{on}-{name or 'first'}-",
            f"{on} {target.ibsim or target.umad}",
        )
    carrier = target.attach()
    host = getattr(carrier, "host", "")
    return carrier, folder / f"{begin}{host or 'first'}.json".replace("/", "-"), target.m_key_file, title


def _run(carrier: Carrier, options: Options, subnet: str, flags: SmFlags, *, once: bool, form: Form) -> None:
    from weft.sm.events import Log
    from weft.sm.process import obeying_signals, run_warmed_up
    from weft.sm.run import SubnetManager
    from weft.sm.status import describe

    with ExitStack() as stack:
        dump, log = dump_folder(flags, options), log_file(options)
        stream = sys.stderr if form.is_data else sys.stdout
        if not once:
            print(f"state in {options.state_file}: see `weft sm status`; Ctrl-C ends it", file=sys.stderr)
        if log is not None:
            print(f"log in {log}", file=sys.stderr)
            stream = stack.enter_context(log.open("a"))  # appended, as OpenSM does
        manager = SubnetManager(carrier, options, log=Log(stream), dump=dump, subnet=subnet)
        stack.enter_context(obeying_signals(manager))
        up = run_warmed_up(manager, once=once)
    if form.is_data and options.state_file is not None:
        from weft.cli.output import print_data

        print_data(form, _as_json(options.state_file, describe(manager, "stopped")))
    if once and not up:
        sys.exit(1)


# -- status ---------------------------------------------------------------------------------------------------------


def _show(state_file: Path | None, subnet: tuple[str, str] | None, *, form: Form) -> None:
    from weft.sm.status import read_status

    paths = [state_file] if state_file else _state_files(subnet)
    statuses = [(path, status) for path in paths if (status := read_status(path)) is not None]
    if state_file is None and subnet is None:
        statuses = _current(statuses)
    if not statuses:
        where = f" in {state_file}" if state_file else f" of {' '.join(subnet).strip()}" if subnet else ""
        raise ConfigError(
            f"no state file of a subnet manager{where}: start one with `weft sm`, or give its file with --state FILE"
        )
    statuses = [(path, _with_live_status(path, status)) for path, status in statuses]
    if form.is_data:
        from weft.cli.output import print_data

        print_data(form, [_as_json(path, status) for path, status in statuses])
    else:
        _print_all(statuses)
    if not any(status.is_running and status.sweep for _, status in statuses):
        sys.exit(1)


def _print_all(statuses: list[tuple[Path, Status]]) -> None:
    statuses.sort(key=lambda entry: (not entry[1].is_running, -entry[1].at_s))
    for place, (path, status) in enumerate(statuses):
        if place == 0 or status.is_running:
            _print(path, status)
        else:
            print(f"{status.title} ({path})")


def _state_files(subnet: tuple[str, str] | None) -> list[Path]:
    """Return the state files of a subnet; without one, those of running labs and all of ibsim and of adapters."""
    from weft import runtime
    from weft.lab import registry

    on, name = subnet or ("", "")
    if on in ("ibsim", "umad"):
        return sorted(runtime.folder().glob(f"sm-{on}-{name or '*'}-*.json"))
    entries = [registry.find(name)] if on else registry.running()
    paths = [path for entry in entries for path in sorted(entry.cache.glob("sm-*.json"))]
    return paths if on else paths + sorted(runtime.folder().glob("sm-*.json"))


def _current(statuses: list[tuple[Path, Status]]) -> list[tuple[Path, Status]]:
    """Drop ended managers of ibsim and of adapters, whose files remain, unless there is no other manager and no lab."""
    from weft import runtime
    from weft.lab import registry

    folder = runtime.folder()
    now = [(path, status) for path, status in statuses if path.parent != folder or status.is_running]
    return statuses if not now and not registry.running() else now


def _with_live_status(path: Path, status: Status) -> Status:
    """Return the status with the changes that the manager received over its socket since it wrote the file."""
    import msgspec

    from weft.ids import PKey
    from weft.sm.control import ManagerSocket, socket_of
    from weft.sm.pkey.partitions import DEFAULT_P_KEY
    from weft.sm.status import read_status

    if not status.is_running:
        return status
    try:
        manager = ManagerSocket(socket_of(path), _TIMEOUT_S)
        allocation, live = manager.allocation(), manager.status()
    except WeftError:  # another user's socket, or none
        return status
    filed = {str(PKey(p_key)) for p_key in (DEFAULT_P_KEY, *allocation.taken)}
    names = {key: name for key, name in status.partitions.items() if key in filed}
    names |= {str(PKey(definition.p_key)): definition.name for definition in allocation.partitions}
    written = read_status(path) or status  # the manager may have written it meanwhile
    since = max(live.sweeps - written.sweeps, 0)
    return msgspec.structs.replace(written, partitions=names, drift=live.drift, sweeps_since=since)


def _as_json(path: Path, status: Status) -> dict[str, Any]:
    import msgspec

    return {"state_file": str(path), **msgspec.to_builtins(status), "running": status.is_running}


def _print(path: Path, status: Status) -> None:
    from weft.cli.output import console

    out = console()
    out.print(status.title, style="bold", markup=False)
    for label, value in (*_rows(status), ("state file", f"{path}, and its socket {path.with_suffix('.sock').name}")):
        first, rest = f"  {label:<12}", " " * 14
        print(textwrap.fill(value, out.width, initial_indent=first, subsequent_indent=rest, break_on_hyphens=False))
    print("  recent log:")
    for line in status.recent[-5:]:
        print(textwrap.fill(line, out.width, initial_indent="  ", subsequent_indent="    ", break_on_hyphens=False))


def _rows(status: Status) -> Iterator[tuple[str, str]]:
    own = status.master == status.guid
    yield "port", f"LID {status.lid}, GUID {status.guid}, priority {status.priority}"
    yield "master", "this one" if own else status.master
    yield "sweeps", f"{status.sweeps:,} since it started, {status.mads:,} MADs"
    if status.sweeps_since:
        yield (
            "out of date",
            f"{format_items(status.sweeps_since, 'sweep')} since {_clock(status.at_s)}, when the state file "
            "was written last: see the manager's log; the disk may be full",
        )
    last = status.sweep
    if last is not None:
        yield "last sweep", f"{_clock(last.at_s)}, {last.seconds:.2f} s, {format_items(last.mads, 'MAD')}"
        yield (
            "subnet",
            ", ".join(
                format_items(n, noun)
                for n, noun in ((last.switches, "switch"), (last.adapters, "adapter"), (last.links, "link"))
            ),
        )
        yield (
            "routing",
            f"{last.engine}: {format_items(last.routes_changed, 'route')} changed, "
            f"{format_items(last.blocks_written, 'block')} written",
        )
        yield from (("odd", text) for text in last.oddities[:10])
        yield from (("refused", text) for text in last.refused[:10])
    named = [f"{name} {key}" for key, name in status.partitions.items()]
    more = f" and {len(named) - _NAMED:,} more" if len(named) > _NAMED else ""
    yield "partitions", (", ".join(named[:_NAMED]) or "none yet") + more
    yield from (("drift", text) for text in status.drift[:_NAMED])
    within = " of this subnet alone (routers forward no multicast)" if status.adjacent else ""
    yield (
        "SA records",
        f"{status.groups} multicast groups{within}, {status.services} services, {status.subscriptions} subscriptions",
    )
    yield "events", ", ".join(f"{name} {count}" for name, count in status.events.items())


def _clock(at_s: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at_s))
