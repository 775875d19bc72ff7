"""`weft follow`, `history` and `diff`: record the changes of a running subnet, and look them up."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, closing, suppress
from dataclasses import asdict
from datetime import datetime
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from weft.cli.arguments import NAMES_FILE, TABLES, File, Form, Whole
from weft.cli.output import console, print_data, table
from weft.cli.subnets import THE_LAB, Subnet
from weft.errors import ConfigError, SubnetError

if TYPE_CHECKING:
    from weft.monitor.listen import Listener
    from weft.twin.deviations import Expected
    from weft.twin.facts import Facts
    from weft.twin.follow import Follower
    from weft.twin.history import Difference, History
    from weft.twin.source import Source

_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_DATABASE = "fabric.db"
Database = Annotated[str, Parameter(help="Database: a file of SQLite, or postgresql://user@host/name.")]


def follow(
    spec: Annotated[str, NAMES_FILE] = "",
    /,
    *,
    tables: File = None,
    ufm: str = "",
    ufm_ca: File = None,
    database: Database = _DATABASE,
    every: float = 1.0,
    times: Whole = 0,
    keep_days: float = 90.0,
    plan: Annotated[str, NAMES_FILE] = "",
    tenants: File = None,
    policy: File = None,
    scheduler: str = "",
    listen: str = "",
    subnet: Subnet = THE_LAB,
) -> None:
    """Record the changes of a running subnet, and check them.

    It reads by MADs, writes nothing to the subnet, and prints each change. `weft history` and `weft diff` look them up.
    A file that another tool writes again and again is read when it has changed.

    Parameters
    ----------
    spec
        A file of ibnetdiscover, ibdiagnet (db_csv) or OpenSM, instead of a running subnet.
    tables
        Forwarding tables dumped by OpenSM, the present ones of a file: a folder, or one file of routes.
    ufm
        The address of UFM, https://ufm.example, instead. Set WEFT_UFM_TOKEN, or WEFT_UFM_USER and WEFT_UFM_PASSWORD.
    ufm_ca
        CA file for UFM's certificate. [this machine's CAs]
    every
        Seconds between two polls; a trap of a port's change starts one at once.
    times
        End after so many polls. [until Ctrl-C]
    keep_days
        Delete facts that ended longer ago.
    plan
        The planned cabling: a folder of weft plan, a cables.csv, an NDT, any SPEC.
    tenants
        The intent of tenants, in TOML.
    policy
        The routing policy, in TOML: managers, steady, proved.
    scheduler
        Source of the running jobs: `slurm`, by squeue, or a file that another scheduler writes. [a lab's load]
    listen
        Address and port of `/metrics`, 127.0.0.1:9316. [none]
    """
    from weft.twin.follow import Follower
    from weft.twin.history import History

    if not 0.1 <= every <= 86_400:
        raise ConfigError(f"--every must be 0.1 to 86,400 seconds, got {every:g}")
    if keep_days <= 0 or times < 0:
        raise ConfigError("--keep-days must be above 0, and --times 0 or more")
    expected = _read_expected(plan, tenants, policy)
    with ExitStack() as opened:
        history = opened.enter_context(closing(History(database)))
        if ufm_ca is not None and not ufm:
            raise ConfigError("--ufm-ca needs --ufm")
        wait: Callable[[float], frozenset[int]] = _sleep
        if ufm:
            source = _open_ufm(ufm, ufm_ca, expected, bool(spec or tables) or subnet != THE_LAB)
        else:
            source, wait = _open_source(opened, spec, tables, expected, subnet)
        read_jobs = _find_jobs(scheduler, None if spec or ufm else subnet)
        follower = Follower(source, history, expected=expected, read_jobs=read_jobs)
        if listen:
            opened.enter_context(_serve_metrics(listen, follower))
        with suppress(KeyboardInterrupt):
            changed: frozenset[int] = frozenset()
            for number in count(1) if times == 0 else range(1, times + 1):
                begun_s = time.monotonic()
                _report(follower, changed, is_first=number == 1)
                if number % 1000 == 1:
                    history.forget(time.time() - keep_days * _UNITS_S["d"])
                if number != times:
                    changed = wait(every - (time.monotonic() - begun_s))


def _open_source(
    opened: ExitStack, spec: str, tables: Path | None, expected: Expected | None, subnet: Subnet
) -> tuple[Source, Callable[[float], frozenset[int]]]:
    """Return the source of a follower, and the function that waits for its next poll."""
    from weft.twin.source import Files, RunningSubnet
    from weft.twin.trap_listener import TrapListener

    if spec:
        if subnet != THE_LAB:
            raise ConfigError("use SPEC or a running subnet (--lab, --ibsim, --umad, --at), not both")
        _check_expected_of_files(expected, tables)
        return Files(spec, tables), _sleep
    if tables is not None:
        raise ConfigError("--tables needs SPEC; a running subnet has its own tables")
    poller = subnet.new_poller()
    opened.enter_context(closing(poller.carrier))
    return RunningSubnet(poller), opened.enter_context(TrapListener(subnet.attach)).wait


def _open_ufm(url: str, ca_file: Path | None, expected: Expected | None, has_another: bool) -> Source:
    from weft.cli.tenant_drivers import connect_ufm
    from weft.twin.ufm_source import Ufm

    if has_another:
        raise ConfigError("use --ufm alone: not with SPEC, --tables, --lab, --ibsim, --umad or --at")
    _check_expected_of_files(expected, None)
    return Ufm(connect_ufm(url, ca_file))


def _find_jobs(scheduler: str, subnet: Subnet | None) -> Callable[[], Facts]:
    """Return the function that reads the running jobs."""
    from weft.twin.jobs import read_file, read_load, read_slurm

    if scheduler == "slurm":
        return read_slurm
    if scheduler:
        return lambda: read_file(Path(scheduler))
    return lambda: read_load(subnet.jobs() if subnet is not None else [])


def _sleep(seconds: float) -> frozenset[int]:
    time.sleep(max(seconds, 0.0))
    return frozenset()


def _check_expected_of_files(expected: Expected | None, tables: Path | None) -> None:
    """Refuse a comparison with contents that files do not have."""
    if expected is None:
        return
    if expected.tenants is not None:
        raise ConfigError("--tenants needs a running subnet: files and UFM's ports have no P_Keys")
    policy = expected.policy
    if policy is not None and (policy.steady or policy.proved) and tables is None:
        raise ConfigError("--policy with steady or proved needs a running subnet or --tables: forwarding tables")


def _read_expected(plan: str, tenants: Path | None, policy: Path | None) -> Expected | None:
    if not (plan or tenants or policy):
        return None
    from weft.fabric.files.lab.document import Document
    from weft.plan.audit.positions import read_plan
    from weft.tenants.intent import intent_of
    from weft.twin.deviations import Expected
    from weft.twin.policy import read_policy

    return Expected(
        plan=read_plan(plan) if plan else None,
        tenants=intent_of(Document.load(tenants, ".toml")) if tenants else None,
        policy=read_policy(policy) if policy else None,
    )


def _serve_metrics(where: str, follower: Follower) -> AbstractContextManager[Listener]:
    from weft.monitor.listen import Listener
    from weft.twin.metrics import render

    listener = Listener(where, lambda: render(follower))
    print(f"metrics at {listener.url}", flush=True)
    return listener


def _report(follower: Follower, changed: frozenset[int], *, is_first: bool) -> None:
    """Poll and print the changes; of the first poll, the size of the subnet and its deviations from the intent."""
    for line in _poll(follower, changed):
        print(line, flush=True)
    if is_first:
        print(f"following {follower.size}", flush=True)
        for (kind, name), text in sorted(follower.deviations.items()):
            print(f"deviation: {kind} {name}: {text}", flush=True)


def _poll(follower: Follower, changed: frozenset[int] = frozenset()) -> list[str]:
    """Return the changes of a poll as lines; after the first poll, also the reason that it failed."""
    try:
        return [f"{_stamp(each.at_s)} {each}" for each in follower.poll(changed)]
    except (SubnetError, ConfigError) as error:
        if follower.fabric is None:
            raise
        problem = "no answer" if isinstance(error, SubnetError) else "cannot read the file"
        return [f"{_stamp(time.time())} {problem}, trying again: {error}"]


def history(
    name: str = "",
    /,
    *,
    database: Database = _DATABASE,
    since: str = "",
    form: Form = TABLES,
) -> None:
    """List the recorded changes of a subnet.

    Parameters
    ----------
    name
        A node or port: its links, LIDs, routes, P_Keys and errors. [all]
    since
        A time: yesterday, 10m, 2h, 3d (ago), 2026-11-18 or 2026-11-18T14:30. [the first poll]
    """
    opened = _open(database)
    try:
        changes = opened.changes(name=name, since_s=_read_time(since, 0.0))
        if name and not changes and not any(subject == name for _, subject in opened.state()):
            raise ConfigError(f"the history has no {name}: give a node or port as `weft show` names it")
    finally:
        opened.close()
    _show(changes, form, "Changes")


def diff(
    before: str,
    after: str = "now",
    /,
    *,
    database: Database = _DATABASE,
    form: Form = TABLES,
) -> None:
    """Compare a subnet at two moments of its history.

    Exit status 1: it differs.

    Parameters
    ----------
    before
        A time: yesterday, 10m, 2h, 3d (ago), 2026-11-18 or 2026-11-18T14:30.
    after
        The other time.
    """
    from weft.twin.history import compare

    opened = _open(database)
    try:
        first_s, _ = opened.span() or (0.0, 0.0)
        times_s = [max(_read_time(moment, first_s), first_s) for moment in (before, after)]
        states = [opened.state(at_s) for at_s in times_s]
    finally:
        opened.close()
    changes = compare(times_s[1], *states)
    _show(changes, form, f"From {_stamp(times_s[0])} to {_stamp(times_s[1])}", with_time=False)
    if changes:
        raise SystemExit(1)


def _open(database: str) -> History:
    from weft.twin.history import History

    opened = History(database, must_exist=True)
    if opened.span() is None:
        opened.close()
        raise ConfigError(f"{database} has no poll yet: `weft follow --database {database}` records some")
    return opened


def _show(changes: list[Difference], form: Form, title: str, *, with_time: bool = True) -> None:
    if form.is_data:
        print_data(form, [asdict(change) for change in changes])
        return
    columns = ("time",) * with_time + ("kind", "name", "before", "after")
    rows = [
        (_stamp(each.at_s),) * with_time + (each.kind, each.name, each.before or "-", each.after or "-")
        for each in changes
    ]
    console().print(table(title, columns, rows) if rows else f"{title}: none.", markup=False)


def _stamp(at_s: float) -> str:
    return datetime.fromtimestamp(at_s).isoformat(" ", "milliseconds")


def _read_time(moment: str, otherwise_s: float) -> float:
    """Return a moment as seconds since 1970."""
    if not moment:
        return otherwise_s
    words = {"now": 0.0, "yesterday": 86_400.0}
    if moment in words:
        return time.time() - words[moment]
    if match := re.fullmatch(r"(\d+(?:\.\d+)?)([smhd])", moment):
        return time.time() - float(match[1]) * _UNITS_S[match[2]]
    try:
        return datetime.fromisoformat(moment).timestamp()
    except ValueError:
        raise ConfigError(f"{moment!r} is not a time: write yesterday, 10m, 2h, 3d or 2026-11-18T14:30") from None
