"""`weft serve`: the service; `weft serve token` and `weft serve user`: who may use it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from weft.cli.arguments import TABLES, File, Form, OnByDefault, Spec, Whole
from weft.cli.serve_ledger import COMMANDS, Order, Rights, Role, manage, usual_database
from weft.cli.tenant_drivers import LAB, Where, attached, fabric_name, reach

if TYPE_CHECKING:
    from weft.lab.registry import Entry
    from weft.serve.console.monitor import Backend, FabricMonitor
    from weft.serve.ledger import Ledger
    from weft.serve.settings import Settings
    from weft.serve.ufm.routes.context import UfmContext
    from weft.tenants.drivers.driver import Driver

_LOOK_S = 1.0
_FIRST = "first"  # the name of the token that is made where there is none
_LAB = "serve"  # the lab of a service that has no name
_TOKEN = "WEFT_SERVE_TOKEN"


def serve(
    spec: Spec = "",
    action: str = "",
    who: str = "",
    /,
    *,
    where: Where = LAB,
    name: str = "",
    database: str = "",
    host: str = "127.0.0.1",
    port: Whole = 8585,
    telemetry_port: Whole | None = None,
    tls_cert: File = None,
    tls_key: File = None,
    tls_client_ca: File = None,
    insecure: bool = False,
    trust_remote_user: bool = False,
    trusted_proxy: str = "",
    rate: float = 1000,
    ends_with_lab: bool = False,
    repair: OnByDefault = True,
    m_key: OnByDefault = True,
    token_file: File = None,
    role: Role = "read-only",
    tenant: str = "",
    days: float | None = None,
    certificate: bool = False,
    head: str = "",
    form: Form = TABLES,
) -> None:
    """Serve tenants over REST, UFM's API and the console.

    `weft serve token add NAME --role ROLE`, `token list`, `token revoke NAME`; the same with `user`, whose password is
    read from standard input. `weft serve backup FILE` and `restore FILE` copy the database; `weft serve audit check`
    looks for tampering.

    Parameters
    ----------
    spec
        A topology: a lab of it is started with weft's subnet manager, and ends with the service. Or `token`, `user`,
        `audit`, `backup`, `restore`.
    action
        Of tokens and users: `add`, `list`, `revoke`. Of the audit log: `check`. Of backups: the file.
    who
        Of tokens and users: the name.
    name
        Name of the lab, with SPEC: its database is kept for the next time. Without a name both end with the service.
    database
        sqlite:////var/lib/weft/ledger.db or postgresql://user@host/name; else a file in XDG_STATE_HOME for each fabric.
    host
        The address to listen at. Other machines are served with TLS only.
    port
        0: one that is free.
    telemetry_port
        Also serve UFM Telemetry's CSV and Prometheus at this port, without a token, as UFM does at 9001; 0: one that is
        free. On this machine only, unless --insecure.
    tls_cert
        The certificate of the service, in PEM.
    tls_key
        The private key of the certificate, in PEM.
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
    m_key
        Protect the ports by an M_Key, with SPEC: where tenants exist.
    token_file
        A file with the token of an admin, of 32 characters and more; or WEFT_SERVE_TOKEN has it. Then none is made.
    role
        Of a new token or user.
    tenant
        Whose, with --role tenant.
    days
        Until a new token expires; 365 else.
    certificate
        A new user has no password: it logs in by a certificate (--tls-client-ca).
    head
        NUMBER:HASH of an earlier `audit check`: the audit log must still have that line.
    """
    if spec in COMMANDS:
        manage(Order(spec, action, who, Rights(role, tenant, days, certificate), head, form), where, database)
        return
    from weft.errors import ConfigError
    from weft.serve.clients import read_networks
    from weft.serve.services import announced
    from weft.serve.settings import Settings

    if name and not spec:
        raise ConfigError(f"--name {name} has no effect without a topology: name a lab that runs with --lab {name}")
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
    if not (m_key or spec):
        raise ConfigError("--no-m-key is for the subnet manager of SPEC: start the other with `weft sm --no-m-key`")
    secret = _given_token(token_file)
    with ExitStack() as opened:
        lab = name or _LAB
        fabric = opened.enter_context(_own(spec, lab, repair, m_key) if spec else _others(where, repair))
        where = Where(lab=lab) if spec else where
        if not database:
            database = opened.enter_context(_passing()) if spec and not name else usual_database(where)
        opened.enter_context(announced(fabric_name(where), database))
        _serve(fabric, database, settings, ends_with_lab, repair, telemetry_port, secret)


class _Fabric(NamedTuple):
    """The fabric that is served."""

    driver: Driver
    context: UfmContext
    backend: Backend | None
    wait_until_up: Callable[[], object] = lambda: None


def _serve(
    fabric: _Fabric,
    database: str,
    settings: Settings,
    ends_with_lab: bool,
    repair: bool,
    telemetry_port: int | None,
    secret: str,
) -> None:
    from weft.serve.app import create_app
    from weft.serve.console.monitor import FabricMonitor
    from weft.serve.drift import DriftWatch
    from weft.serve.ledger import Ledger
    from weft.serve.server import Server
    from weft.serve.startup import StartupApp
    from weft.serve.store import Store
    from weft.serve.violation_watcher import ViolationWatcher

    driver, context, backend, wait_until_up = fabric
    with ExitStack() as opened:
        starting = StartupApp("the subnet manager brings the fabric up")
        server = opened.enter_context(Server(starting, settings))
        wait_until_up()
        drift = DriftWatch(repairs=repair)
        ledger = opened.enter_context(Ledger(Store(database), driver, drift))
        watcher, monitor = None, None
        if backend is not None:
            monitor = opened.enter_context(FabricMonitor(backend, drift))
            drift.tell = monitor.log
            watcher = opened.enter_context(
                ViolationWatcher(
                    backend.attach, lambda: ledger.desired().allocation(), tell=monitor.log, on_trap=drift.wake
                )
            )
        if telemetry_port is not None:
            context = opened.enter_context(_telemetry(telemetry_port, settings, context, monitor))
        starting.set_app(create_app(settings, ledger, context, watcher, monitor))
        opened.callback(server.close)  # before what its requests use
        if monitor is not None:
            opened.callback(monitor.events.close)  # before the server: it waits for who listens
        print(f"weft serves {driver.title} at {server.url}, its documents at {server.url}/docs")
        print(f"ledger {ledger.store.title}")
        if token := _first_token(ledger, secret):
            print(f"token {token}\n  of an admin, named {_FIRST}; it is shown this once: `weft serve token` makes more")
            print(_console(server.url, token))
        if context.telemetry_port:
            print(
                f"telemetry without a token at port {context.telemetry_port}: /csv/metrics, /csv/xcset/NAME, /metrics"
            )
        sys.stdout.flush()
        _wait(backend.lab if backend is not None and ends_with_lab else None)


@contextmanager
def _telemetry(
    port: int, settings: Settings, context: UfmContext, monitor: FabricMonitor | None
) -> Iterator[UfmContext]:
    """Serve UFM Telemetry's endpoint at a port of its own; yield the calls' view that names the port."""
    from dataclasses import replace
    from urllib.parse import urlsplit

    from weft.errors import ConfigError
    from weft.serve.server import Server
    from weft.serve.ufm.routes.telemetry import create_endpoint

    if monitor is None:
        raise ConfigError("--telemetry-port needs counters: serve a lab, or give a port of the fabric with --umad")
    host = settings.host if settings.is_insecure else "127.0.0.1"
    settings = replace(settings, host=host, port=port, tls_cert=None, tls_key=None, tls_client_ca=None)
    with Server(create_endpoint(settings, context, monitor), settings) as server:
        yield replace(context, telemetry_port=urlsplit(server.url).port or 0)


def _console(url: str, token: str) -> str:
    from weft.web import is_built

    return (
        f"console {url}/#token={token}" if is_built() else f"console {url}/ is not built: run `make web` in a checkout"
    )


def _given_token(file: Path | None) -> str:
    """Return the admin's token that a file or the environment has; empty if neither."""
    from weft.errors import ConfigError

    secret = os.environ.pop(_TOKEN, "")  # programs that are started here need not know it
    if file is None:
        return secret
    if secret:
        raise ConfigError(f"--token-file and {_TOKEN} both give the admin's token: leave out one")
    try:
        secret = file.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--token-file {file} cannot be read: {error}") from None
    if not secret:
        raise ConfigError(f"--token-file {file} is empty: write the admin's token to it")
    return secret


def _first_token(ledger: Ledger, secret: str) -> str:
    """Set the admin's token that was given, or make one if there is no admin. Returns it if it was made."""
    from weft.serve import access

    if secret or access.has_configured_token(ledger.desired().documents):
        ledger.change("weft serve", "configured token", lambda draft: access.configure_token(draft, secret))
    if access.has_admin(ledger.desired().documents):
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
def _own(spec: str, name: str, repair: bool, m_key: bool) -> Iterator[_Fabric]:
    """A new lab. It is there for tests, so trouble can be asked for."""
    from weft.cli.output import progress_bar
    from weft.fabric.spec import load
    from weft.lab.own_lab import launched_lab
    from weft.serve.console.monitor import Backend
    from weft.serve.fabric_actions import LabActions
    from weft.serve.faults import Faults
    from weft.serve.ufm.routes.context import UfmContext
    from weft.serve.ufm.watch import Watch
    from weft.sm.conf.options import Options
    from weft.sm.warm_up import is_warmed_up
    from weft.tenants.drivers.subnet_manager import ManagerDriver

    with progress_bar(f"reading {spec}"):  # and ends with it: a lab is forked, and no thread may draw then
        fabric = load(spec)
    options = Options(repair_drift=repair, protect_tenants=m_key)
    with launched_lab(fabric, name, options) as (lab, wait_until_up):
        if not is_warmed_up():
            print("weft: the subnet manager compiles its kernels, once; this takes a minute or two", file=sys.stderr)
        context = UfmContext(Watch(lab.manager), LabActions(lab.entry), Faults())
        backend = Backend(partial(attached, Where(lab=name)), lab.entry)
        yield _Fabric(ManagerDriver(lab.manager), context, backend, wait_until_up)


@contextmanager
def _others(where: Where, repair: bool) -> Iterator[_Fabric]:
    """What runs already. Ports are switched off and on in a lab alone."""
    from weft.errors import ConfigError
    from weft.lab import registry
    from weft.serve.console.monitor import Backend
    from weft.serve.fabric_actions import LabActions
    from weft.serve.ufm.routes.context import UfmContext
    from weft.serve.ufm.watch import Watch
    from weft.sm.inventory import take_inventory
    from weft.tenants.drivers.port_tables import discover
    from weft.tenants.drivers.subnet_manager import ManagerDriver

    with reach(where) as driver, ExitStack() as opened:
        is_lab = not (where.state or where.opensm or where.ufm)
        manager = driver.manager if isinstance(driver, ManagerDriver) else None
        if manager is not None and not repair and manager.status().repairs_drift:
            raise ConfigError(
                f"--no-repair has no effect: the subnet manager of {driver.title} repairs drift itself; start it with "
                "repair_drift FALSE in its opensm.conf (weft sm -F)"
            )
        walk = None
        if where.opensm:  # by a port of its own: the driver's is in use for as long as a change takes
            carrier = opened.enter_context(attached(where))
            walk = lambda: take_inventory(discover(carrier))  # noqa: E731
        watch = Watch(manager, walk, elsewhere=driver.title)
        entry = registry.find(where.lab) if is_lab or (where.opensm and not where.umad) else None
        backend = Backend(partial(attached, where), entry) if entry or where.umad else None
        yield _Fabric(driver, UfmContext(watch, LabActions(registry.find(where.lab)) if is_lab else None), backend)


@contextmanager
def _passing() -> Iterator[str]:
    """A database that ends with the service."""
    import tempfile

    with tempfile.TemporaryDirectory(prefix="weft-serve-") as folder:
        yield f"sqlite:///{folder}/ledger.db"
