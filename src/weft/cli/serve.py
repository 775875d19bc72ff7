"""`weft serve`: the service; `weft serve token` and `weft serve user`: who may use it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

from cyclopts import Parameter

from weft.cli.arguments import TABLES, File, Form, Spec, Whole
from weft.cli.tenant_drivers import LAB, Where, attached, reach, state_file

if TYPE_CHECKING:
    from weft.lab.registry import Entry
    from weft.serve.console.sight import Behind, Sight
    from weft.serve.ledger import Ledger
    from weft.serve.settings import Settings
    from weft.serve.ufm.routes.face import Face
    from weft.tenants.drivers.driver import Driver

_Role = Literal["admin", "operator", "tenant", "read-only"]
_LOOK_S = 1.0
_FIRST = "first"  # the name of the token that is made where there is none


def serve(
    spec: Spec = "",
    action: str = "",
    who: str = "",
    /,
    *,
    where: Where = LAB,
    name: str = "serve",
    database: str = "",
    host: str = "127.0.0.1",
    port: Whole = 8585,
    telemetry_port: Whole | None = None,
    tls_cert: File = None,
    tls_key: File = None,
    tls_client_ca: File = None,
    insecure: Annotated[bool, Parameter(negative=())] = False,
    trust_remote_user: Annotated[bool, Parameter(negative=())] = False,
    trusted_proxy: str = "",
    rate: float = 1000,
    ends_with_lab: Annotated[bool, Parameter(negative=())] = False,
    repair: bool = True,
    role: _Role = "read-only",
    tenant: str = "",
    days: float = 365,
    certificate: Annotated[bool, Parameter(negative=())] = False,
    form: Form = TABLES,
) -> None:
    """Serve tenants over REST, our own and UFM's, with roles and an audit log: of a lab, an OpenSM, a UFM.

    `weft serve token add NAME --role ROLE`, `token list`, `token revoke NAME`; the same with `user`, whose password is
    read from standard input.

    Parameters
    ----------
    spec
        A topology: a lab of it is started with weft's subnet manager, and ends with the service. Or `token`, `user`.
    action
        Of tokens and users: `add`, `list`, `revoke`.
    who
        Of tokens and users: the name.
    name
        With SPEC: the lab's.
    database
        sqlite:////var/lib/weft/ledger.db or postgresql://user@host/name; else a file in XDG_STATE_HOME, and with SPEC
        one that ends with the service.
    host
        The address to listen at. Other machines are served with TLS only.
    port
        0: one that is free.
    telemetry_port
        Also serve UFM Telemetry's CSV and Prometheus at this port, without a token, as UFM does at 9001; 0: one that is
        free. On this machine only, unless --insecure.
    tls_client_ca
        Clients need a certificate of it. Without a token, they are the user of its common name.
    insecure
        Serve other machines without TLS.
    trust_remote_user
        Of callers on this machine the header X-Remote-User is believed, as UFM's plugins send it.
    trusted_proxy
        Addresses or networks of proxies whose X-Forwarded-For and X-Forwarded-Host are believed: 10.0.0.5,10.1.0.0/16.
    rate
        Requests a second of one user or token, together with the tokens that it made.
    ends_with_lab
        End when the lab does.
    repair
        Repair ports and partitions that differ from the ledger; else they are reported only.
    role
        Of a new token or user.
    tenant
        Whose, with --role tenant.
    days
        Until a new token expires.
    certificate
        A new user has no password: it logs in by a certificate (--tls-client-ca).
    """
    if spec in ("token", "user"):
        _manage(spec, action, who, database or _usual(where), _Rights(role, tenant, days, certificate), form)
        return
    from weft.serve.clients import read_networks
    from weft.serve.settings import Settings

    settings = Settings(
        host=host,
        port=port,
        tls_cert=tls_cert,
        tls_key=tls_key,
        tls_client_ca=tls_client_ca,
        is_insecure=insecure,
        rate_per_s=rate,
        trusts_remote_user=trust_remote_user,
        trusted_proxies=read_networks(trusted_proxy),
    )
    with ExitStack() as opened:
        fabric = opened.enter_context(_own(spec, name, repair) if spec else _others(where, repair))
        database = database or (opened.enter_context(_passing()) if spec else _usual(where))
        _serve(fabric, database, settings, ends_with_lab, repair, telemetry_port)


class _Fabric(NamedTuple):
    """What is served."""

    driver: Driver
    face: Face
    behind: Behind | None
    wait_until_up: Callable[[], object] = lambda: None


def _serve(
    fabric: _Fabric,
    database: str,
    settings: Settings,
    ends_with_lab: bool,
    repair: bool,
    telemetry_port: int | None,
) -> None:
    from weft.serve.app import create_app
    from weft.serve.console.sight import Sight
    from weft.serve.drift import DriftWatch
    from weft.serve.ledger import Ledger
    from weft.serve.lookout import Lookout
    from weft.serve.server import Server
    from weft.serve.starting import Starting
    from weft.serve.store import Store

    driver, face, behind, wait_until_up = fabric
    with ExitStack() as opened:
        starting = Starting("the subnet manager brings the fabric up")
        server = opened.enter_context(Server(starting, settings))
        wait_until_up()
        drift = DriftWatch(repairs=repair)
        ledger = opened.enter_context(Ledger(Store(database), driver, drift))
        lookout, sight = None, None
        if behind is not None:
            sight = opened.enter_context(Sight(behind, drift))
            drift.tell = sight.log
            lookout = opened.enter_context(
                Lookout(behind.attach, lambda: ledger.desired().allocation(), tell=sight.log, on_trap=drift.wake)
            )
        if telemetry_port is not None:
            face = opened.enter_context(_telemetry(telemetry_port, settings, face, sight))
        starting.give(create_app(settings, ledger, face, lookout, sight))
        opened.callback(server.close)  # before what its requests use
        if sight is not None:
            opened.callback(sight.live.close)  # before the server: it waits for who listens
        print(f"weft serves {driver.title} at {server.url}, its documents at {server.url}/docs")
        print(f"ledger {ledger.store.title}")
        if token := _first_token(ledger):
            print(f"token {token}\n  of an admin, named {_FIRST}; it is shown this once: `weft serve token` makes more")
            print(_console(server.url, token))
        if face.telemetry_port:
            print(f"telemetry without a token at port {face.telemetry_port}: /csv/metrics, /csv/xcset/NAME, /metrics")
        sys.stdout.flush()
        _wait(behind.lab if behind is not None and ends_with_lab else None)


@contextmanager
def _telemetry(port: int, settings: Settings, face: Face, sight: Sight | None) -> Iterator[Face]:
    """Serve UFM Telemetry's endpoint at a port of its own; yield the calls' view that names the port."""
    from dataclasses import replace
    from urllib.parse import urlsplit

    from weft.errors import ConfigError
    from weft.serve.server import Server
    from weft.serve.ufm.routes.telemetry import create_endpoint

    if sight is None:
        raise ConfigError("--telemetry-port needs counters: serve a lab, or give a port of the fabric with --umad")
    host = settings.host if settings.is_insecure else "127.0.0.1"
    settings = replace(settings, host=host, port=port, tls_cert=None, tls_key=None, tls_client_ca=None)
    with Server(create_endpoint(settings, face, sight), settings) as server:
        yield replace(face, telemetry_port=urlsplit(server.url).port or 0)


def _console(url: str, token: str) -> str:
    from weft.web import is_built

    return (
        f"console {url}/#token={token}" if is_built() else f"console {url}/ is not built: run `make web` in a checkout"
    )


def _first_token(ledger: Ledger) -> str:
    """One, where there is none: else nobody could come in."""
    from weft.serve import access

    if access.listed(ledger.desired().documents, access.Token):
        return ""
    return ledger.change("weft serve", "first token", lambda draft: access.add_token(draft, _FIRST, access.Role.ADMIN))


def _wait(lab: Entry | None) -> None:
    """Until SIGINT or SIGTERM, or the end of a lab."""
    import signal
    import threading

    told = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: told.set())
    while not told.wait(_LOOK_S if lab is not None else None):
        if lab is not None and lab.is_free():
            return


# -- where ------------------------------------------------------------------------------------------------------------


@contextmanager
def _own(spec: str, name: str, repair: bool) -> Iterator[_Fabric]:
    """A new lab. It is there for tests, so trouble can be asked for."""
    from weft.cli.output import progress_bar
    from weft.fabric.spec import load
    from weft.lab.own_lab import launched_lab
    from weft.serve.console.sight import Behind
    from weft.serve.faults import Faults
    from weft.serve.hands import LabHands
    from weft.serve.ufm.routes.face import Face
    from weft.serve.ufm.watch import Watch
    from weft.sm.conf.options import Options
    from weft.sm.rehearsal import was_rehearsed
    from weft.tenants.drivers.subnet_manager import ManagerDriver

    with progress_bar(f"reading {spec}"):  # and ends with it: a lab is forked, and no thread may draw then
        fabric = load(spec)
    with launched_lab(fabric, name, Options(repair_drift=repair)) as (lab, wait_until_up):
        if not was_rehearsed():
            print("weft: the subnet manager compiles its kernels, once; this takes a minute or two", file=sys.stderr)
        face = Face(Watch(lab.manager), LabHands(lab.entry), Faults())
        behind = Behind(partial(attached, Where(lab=name)), lab.entry)
        yield _Fabric(ManagerDriver(lab.manager), face, behind, wait_until_up)


@contextmanager
def _others(where: Where, repair: bool) -> Iterator[_Fabric]:
    """What runs already. Ports are switched off and on in a lab alone."""
    from weft.errors import ConfigError
    from weft.lab import registry
    from weft.serve.console.sight import Behind
    from weft.serve.hands import LabHands
    from weft.serve.ufm.routes.face import Face
    from weft.serve.ufm.watch import Watch
    from weft.sm.inventory import take_inventory
    from weft.tenants.drivers.seen import see
    from weft.tenants.drivers.subnet_manager import ManagerDriver

    with reach(where) as driver, ExitStack() as opened:
        is_lab = not (where.sm or where.opensm or where.ufm)
        manager = driver.manager if isinstance(driver, ManagerDriver) else None
        if manager is not None and not repair and manager.status().repairs_drift:
            raise ConfigError(
                f"--no-repair has no effect: the subnet manager of {driver.title} repairs drift itself; start it with "
                "repair_drift FALSE in its opensm.conf (weft sm -F)"
            )
        walk = None
        if where.opensm:  # by a port of its own: the driver's is in use for as long as a change takes
            carrier = opened.enter_context(attached(where))
            walk = lambda: take_inventory(see(carrier))  # noqa: E731
        watch = Watch(manager, walk, elsewhere=driver.title)
        entry = registry.find(where.lab) if is_lab or (where.opensm and not where.umad) else None
        behind = Behind(partial(attached, where), entry) if entry or where.umad else None
        yield _Fabric(driver, Face(watch, LabHands(registry.find(where.lab)) if is_lab else None), behind)


@contextmanager
def _passing() -> Iterator[str]:
    """A database that ends with the service."""
    import tempfile

    with tempfile.TemporaryDirectory(prefix="weft-serve-") as folder:
        yield f"sqlite:///{folder}/ledger.db"


def _usual(where: Where) -> str:
    """Each fabric has its own."""
    return f"sqlite:///{state_file(where, '.db')}"


# -- tokens and users -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Rights:
    role: _Role
    tenant: str
    days: float
    is_by_certificate: bool


def _manage(kind: str, action: str, name: str, database: str, rights: _Rights, form: Form) -> None:
    from weft.errors import ConfigError, UnknownName
    from weft.serve.ledger import Ledger
    from weft.serve.store import Store

    actions = ("add", "list", "revoke")
    if action not in actions:
        raise UnknownName("action", action, actions, f"As in `weft serve {kind} add NAME --role operator`.")
    if not name and action != "list":
        raise ConfigError(f"weft serve {kind} {action} needs a name: weft serve {kind} {action} ci")
    with Ledger(Store(database), None) as ledger:
        if action == "list":
            _list(ledger, kind, form)
        elif action == "revoke":
            _revoke(ledger, kind, name)
        else:
            _add(ledger, kind, name, rights)


def _list(ledger: Ledger, kind: str, form: Form) -> None:
    from weft.cli.output import console, print_data, table
    from weft.serve import access

    documents = ledger.desired().documents
    names = ["name", "role", "tenant", "made_at"]
    rows = [[one.name, one.role, one.tenant, _date(one.made_at_s)] for one in access.listed(documents, access.User)]
    if kind == access.TOKEN:
        names += ["expires_at", "owner"]
        rows = [
            [one.name, one.role, one.tenant, _date(one.made_at_s), _date(one.expires_at_s), " ".join(one.owner or ())]
            for one in access.listed(documents, access.Token)
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


def _add(ledger: Ledger, kind: str, name: str, rights: _Rights) -> None:
    from weft.serve import access

    what, role = f"weft serve {kind} add {name} --role {rights.role}", access.Role(rights.role)
    if kind == access.TOKEN:
        print(
            ledger.change(
                _me(), what, lambda draft: access.add_token(draft, name, role, rights.tenant, days=rights.days)
            )
        )
        return
    password = None if rights.is_by_certificate else _password(name)
    user = access.new_user(name, password, role, rights.tenant)
    ledger.change(_me(), what, lambda draft: access.put_user(draft, user))
    print(f"user {name} is {role}")


def _password(name: str) -> str:
    if sys.stdin.isatty():
        from getpass import getpass

        return getpass(f"Password of {name}: ")
    return sys.stdin.readline().rstrip("\n")


def _me() -> str:
    from getpass import getuser

    return f"{getuser()} on this machine"
