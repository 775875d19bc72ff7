"""`weft serve token`, `user`, `audit`, `backup` and `restore`: manage the ledger of a service, running or not."""

from __future__ import annotations

import sys
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from weft.cli.arguments import Form
from weft.cli.output import console, print_data, table
from weft.cli.tenant_drivers import LAB, Where, fabric_name, state_file
from weft.errors import ConfigError, UnknownName

if TYPE_CHECKING:
    from weft.serve.ledger import Ledger

Role = Literal["admin", "operator", "tenant", "read-only"]
COMMANDS = ("token", "user", "audit", "backup", "restore")
_DAYS = 365.0


@dataclass(frozen=True)
class Rights:
    """The rights of a new token or user."""

    role: Role = "read-only"
    tenant: str = ""
    days: float | None = None
    is_by_certificate: bool = False


@dataclass(frozen=True)
class Order:
    command: str
    action: str
    name: str
    rights: Rights
    head: str
    form: Form


def manage(order: Order, where: Where, database: str) -> None:
    _check(order)
    if not database:
        database = find_database(where)
        print(f"ledger {database}", file=sys.stderr)
    if order.command in ("audit", "backup") or order.action in ("list", "revoke"):
        _must_exist(database)
    if order.command == "audit":
        _check_audit(database, order.head)
    elif order.command in ("backup", "restore"):
        _copy(order.command, Path(order.action), database)
    else:
        _manage_callers(order, database)


def _check(order: Order) -> None:
    command, action = order.command, order.action
    if command in ("token", "user"):
        actions = ("add", "list", "revoke")
        if action not in actions:
            raise UnknownName("action", action, actions, f"As in `weft serve {command} add NAME --role operator`.")
        if not order.name and action != "list":
            raise ConfigError(f"weft serve {command} {action} needs a name: weft serve {command} {action} ci")
    elif command == "audit" and action != "check":
        raise UnknownName("action", action, ("check",), "As in `weft serve audit check`.")
    elif not action:
        raise ConfigError(f"weft serve {command} needs a file: weft serve {command} ledger.backup")
    is_new = action == "add"
    for option, is_given, is_used in (
        ("--days", order.rights.days is not None, is_new and command == "token"),
        ("--certificate", order.rights.is_by_certificate, is_new and command == "user"),
        ("--head", bool(order.head), command == "audit"),
    ):
        if is_given and not is_used:
            raise ConfigError(f"{option} has no effect on `weft serve {command} {action}`: leave it out")


# -- the database -----------------------------------------------------------------------------------------------------


def usual_database(where: Where) -> str:
    """Return the default database of a fabric."""
    return f"sqlite:///{state_file(where, '.db')}"


def history_of(database: str) -> str:
    """Return the database of the history that belongs to a ledger: a file beside it, or the same server."""
    return f"{database.removesuffix('.db')}.history.db" if database.startswith("sqlite") else database


def find_database(where: Where) -> str:
    """Return the database of the running service, else the default database of this fabric."""
    from weft.lab import registry
    from weft.serve import services

    if where != LAB:
        databases = services.databases(fabric_name(where))
        return _only(databases) if databases else usual_database(where)
    if databases := services.databases():
        return _only(databases)
    if len(registry.running()) != 1:
        raise ConfigError("no service runs: give --lab NAME or --database")
    return usual_database(where)


def _only(databases: dict[str, list[str]]) -> str:
    several = [database for urls in databases.values() for database in urls]
    if len(several) > 1:
        names = ", ".join(databases)
        raise ConfigError(f"{len(several)} services run, of {names}: choose one with --lab NAME or --database")
    return several[0]


def _must_exist(database: str) -> None:
    path = database.removeprefix("sqlite:///")
    if path != database and path and not Path(path).exists():
        raise ConfigError(f"{path}: no such ledger; choose one with --lab or --database")


# -- the audit log, backups -------------------------------------------------------------------------------------------


def _check_audit(database: str, head: str) -> None:
    from weft.serve.store import Store, TamperedError

    with closing(Store(database)) as store:
        newest = store.check_audit()
        if head:
            number, _, expected = head.partition(":")
            if not number.isdecimal() or not expected:
                raise ConfigError(f"--head must be NUMBER:HASH, as `weft serve audit check` prints it, got {head}")
            line = store.audit_line(int(number))
            if line is None or line.hash != expected:
                raise TamperedError(f"line {number} of the audit log is not the one with the hash {expected}")
        print("the audit log is intact")
        for kind, line in newest.items():
            print(f"{kind}: head {line.id}:{line.hash}")


def _copy(command: str, path: Path, database: str) -> None:
    from weft.serve.backup import back_up, restore
    from weft.serve.store import Store

    with closing(Store(database)) as store:
        if command == "backup":
            print(f"{back_up(store, path):,} rows of {store.title} are in {path}")
        else:
            print(f"{restore(store, path, _me()):,} rows of {path} are in {store.title}")


# -- tokens and users -------------------------------------------------------------------------------------------------


def _manage_callers(order: Order, database: str) -> None:
    from weft.serve.ledger import Ledger
    from weft.serve.store import Store

    with Ledger(Store(database), None) as ledger:
        if order.action == "list":
            _list(ledger, order.command, order.form)
        elif order.action == "revoke":
            _revoke(ledger, order.command, order.name)
        else:
            _add(ledger, order.command, order.name, order.rights)


def _list(ledger: Ledger, kind: str, form: Form) -> None:
    from weft.serve import access

    documents = ledger.desired().documents
    names = ["name", "role", "tenant", "made_at"]
    rows = [
        [entry.name, entry.role, entry.tenant, _date(entry.made_at_s)]
        for entry in access.listed(documents, access.User)
    ]
    if kind == access.TOKEN:
        names += ["expires_at", "owner"]
        rows = [
            [
                entry.name,
                entry.role,
                entry.tenant,
                _date(entry.made_at_s),
                _date(entry.expires_at_s),
                " ".join(entry.owner or ()),
            ]
            for entry in access.listed(documents, access.Token)
        ]
    if form.is_data:
        print_data(form, [dict(zip(names, row, strict=True)) for row in rows])
    else:
        console().print(table(f"{kind}s", [name.replace("_", " ") for name in names], rows))


def _date(at_s: float | None) -> str:
    from datetime import UTC, datetime

    return "never" if at_s is None else datetime.fromtimestamp(at_s, UTC).isoformat(timespec="seconds")


def _revoke(ledger: Ledger, kind: str, name: str) -> None:
    from weft.serve import access

    ledger.change(_me(), f"weft serve {kind} revoke {name}", lambda draft: access.remove(draft, kind, name))
    print(f"{kind} {name} is revoked")


def _add(ledger: Ledger, kind: str, name: str, rights: Rights) -> None:
    from weft.serve import access

    request, role = f"weft serve {kind} add {name} --role {rights.role}", access.Role(rights.role)
    if kind == access.TOKEN:
        print(
            ledger.change(
                _me(),
                request,
                lambda draft: access.add_token(draft, name, role, rights.tenant, days=rights.days or _DAYS),
            )
        )
        return
    password = None if rights.is_by_certificate else _password(name)
    user = access.new_user(name, password, role, rights.tenant)
    ledger.change(_me(), request, lambda draft: access.put_user(draft, user))
    print(f"user {name} is {role}")


def _password(name: str) -> str:
    if sys.stdin.isatty():
        from getpass import getpass

        return getpass(f"Password of {name}: ")
    return sys.stdin.readline().rstrip("\n")


def _me() -> str:
    from getpass import getuser

    return f"{getuser()} on this machine"
