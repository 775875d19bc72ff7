"""`weft serve`: run the service; `weft serve token` and `weft serve user` manage its users."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from weft.cli.arguments import TABLES, File, Form, OnByDefault, Spec, Whole
from weft.cli.output import progress_bar
from weft.cli.serve_ledger import COMMANDS, Order, Rights, Role, history_of, manage, usual_database
from weft.cli.tenant_drivers import LAB, Where, attached, fabric_name, reach
from weft.errors import ConfigError

if TYPE_CHECKING:
    from weft.lab.registry import Entry
    from weft.serve.console.monitor import Backend, FabricMonitor
    from weft.serve.ledger import Ledger
    from weft.serve.settings import Settings
    from weft.serve.ufm.routes.context import UfmContext
    from weft.tenants.drivers.driver import Driver

_LOOK_S = 1.0
_FIRST = "first"  # the name of the token that is created if there is no admin
_LAB = "serve"  # the lab's name without --name
_TOKEN = "WEFT_SERVE_TOKEN"


def serve(
    spec: Spec = "",
    action: str = "",
    account: str = "",
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
    history: str = "",
    record: OnByDefault = True,
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
        A topology, to start a lab with weft's subnet manager that ends with the service; or `token`, `user`, `audit`,
        `backup`, `restore`.
    action
        For tokens and users `add`, `list` or `revoke`; for the audit log `check`; for backups the file.
    account
        The name of the token or user.
    name
        Name of the lab, with SPEC: its database is kept for the next time. Without a name both end with the service.
    database
        Database: sqlite:////var/lib/weft.db or postgresql://user@host/name. [a file per fabric in XDG_STATE_HOME]
    host
        The address to listen on. Other machines are served only with TLS.
    port
        The port to listen on; 0 for a free one.
    telemetry_port
        Also serve UFM Telemetry's CSV and Prometheus at this port, without a token, as UFM does at 9001; 0: one that is
        free. On this machine only, unless --insecure.
    tls_cert
        The certificate of the service, in PEM.
    tls_key
        The private key of the certificate, in PEM.
    tls_client_ca
        Require client certificates of this CA. Without a token, the user is the certificate's common name.
    insecure
        Serve other machines without TLS.
    trust_remote_user
        Trust the header X-Remote-User from this machine, as UFM's plugins send it.
    trusted_proxy
        Trust X-Forwarded-For and X-Forwarded-Host from these addresses or networks: 10.0.0.5,10.1.0.0/16.
    rate
        Requests per second, for a user or token together with the tokens that it created.
    history
        The database of the fabric's history: a file, or postgresql://user@host/name. [beside the database]
    record
        Record the history of the fabric.
    ends_with_lab
        End when the lab does.
    repair
        Repair ports and partitions that differ from the ledger; otherwise only report them.
    m_key
        Protect the ports by an M_Key, with SPEC: where tenants exist.
    token_file
        A file with the token of an admin, at least 32 characters; or set WEFT_SERVE_TOKEN. Otherwise one is created.
    role
        The role of a new token or user.
    tenant
        With --role tenant: the tenant.
    days
        Days until a new token expires. [365]
    certificate
        Create a user without a password, who logs in with a certificate (--tls-client-ca).
    head
        NUMBER:HASH of an earlier `audit check`: the audit log must still have that line.
    """
    if spec in COMMANDS:
        manage(Order(spec, action, account, Rights(role, tenant, days, certificate), head, form), where, database)
        return
    from weft.serve.services import announced
    from weft.serve.settings import Settings, read_networks

    if history and not record:
        raise ConfigError(f"--history {history} has no effect with --no-record: use one of them")
    if name and not spec:
        raise ConfigError(f"--name {name} has no effect without a topology: use --lab {name} for a running lab")
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
        raise ConfigError("--no-m-key needs SPEC: start a separate subnet manager with `weft sm --no-m-key`")
    secret = _configured_token(token_file)
    with ExitStack() as opened:
        lab = name or _LAB
        fabric = opened.enter_context(_new_lab(spec, lab, repair, m_key) if spec else _existing_fabric(where, repair))
        where = Where(lab=lab) if spec else where
        if not database:
            database = opened.enter_context(_temporary_database()) if spec and not name else usual_database(where)
        opened.enter_context(announced(fabric_name(where), database))
        past = (history or history_of(database)) if record else ""
        _serve(fabric, database, settings, ends_with_lab, repair, telemetry_port, secret, past)


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
    past: str,
) -> None:
    from weft.serve.app import StartupApp, create_app
    from weft.serve.console.monitor import FabricMonitor
    from weft.serve.drift import DriftWatch
    from weft.serve.ledger import Ledger
    from weft.serve.past.recorder import Recorder
    from weft.serve.server import Server
    from weft.serve.store import Store
    from weft.serve.violation_watcher import ViolationWatcher

    driver, context, backend, wait_until_up = fabric
    with ExitStack() as opened:
        starting = StartupApp("the subnet manager brings the fabric up")
        server = opened.enter_context(Server(starting, settings))
        wait_until_up()
        drift = DriftWatch(repairs=repair)
        ledger = opened.enter_context(Ledger(Store(database), driver, drift))
        watcher, monitor, recorder = None, None, None
        if backend is not None:
            monitor = opened.enter_context(FabricMonitor(backend, drift))
            drift.tell = monitor.log
            watcher = opened.enter_context(
                ViolationWatcher(
                    backend.attach, lambda: ledger.desired().allocation(), tell=monitor.log, on_trap=drift.wake
                )
            )
            recorder = opened.enter_context(Recorder(monitor, past)) if past else None
        if telemetry_port is not None:
            context = opened.enter_context(_telemetry(telemetry_port, settings, context, monitor))
        starting.set_app(create_app(settings, ledger, context, watcher, monitor, recorder))
        opened.callback(server.close)  # before the objects that its requests use
        if monitor is not None:
            opened.callback(monitor.events.close)  # before the server, which waits for its listeners
        print(f"weft serves {driver.title} at {server.url}, API documentation at {server.url}/docs")
        print(f"ledger {ledger.store.title}")
        if recorder is not None:
            print(f"history {recorder.history.title}")
        if token := _first_token(ledger, secret):
            print(f"token {token}\n  of the admin {_FIRST}, shown only once; create others with `weft serve token add`")
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
    """Serve UFM Telemetry's endpoint on a separate port; yield the context with that port."""
    from urllib.parse import urlsplit

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


def _configured_token(file: Path | None) -> str:
    """Return the admin's token from a file or the environment; empty if neither is set."""
    secret = os.environ.pop(_TOKEN, "")  # child processes must not see it
    if file is None:
        return secret
    if secret:
        raise ConfigError(f"use --token-file or {_TOKEN}, not both")
    try:
        secret = file.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--token-file {file} cannot be read: {error}") from None
    if not secret:
        raise ConfigError(f"--token-file {file} is empty: write the admin's token to it")
    return secret


def _first_token(ledger: Ledger, secret: str) -> str:
    """Store the configured admin token, or create one if there is no admin; return a created token, else nothing."""
    from weft.serve import access

    if secret or access.has_configured_token(ledger.desired().documents):
        ledger.change("weft serve", "configured token", lambda draft: access.configure_token(draft, secret))
    if access.has_admin(ledger.desired().documents):
        return ""
    return ledger.change("weft serve", "first token", lambda draft: access.add_token(draft, _FIRST, access.Role.ADMIN))


def _wait(lab: Entry | None) -> None:
    """Wait for SIGINT, SIGTERM or the end of a lab."""
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    while not stop.wait(_LOOK_S if lab is not None else None):
        if lab is not None and lab.is_free():
            return


# -- the fabric -------------------------------------------------------------------------------------------------------


@contextmanager
def _new_lab(spec: str, name: str, repair: bool, m_key: bool) -> Iterator[_Fabric]:
    """Start a lab for the service. Faults can be injected in it, since it exists for tests."""
    from weft.fabric.spec import load
    from weft.lab.own_lab import launched_lab
    from weft.serve.console.monitor import Backend
    from weft.serve.fabric_actions import LabActions
    from weft.serve.faults import Faults
    from weft.serve.ufm.routes.context import UfmContext
    from weft.serve.ufm.watch import Watch
    from weft.sm.conf.options import Options
    from weft.sm.process import is_warmed_up
    from weft.tenants.drivers.subnet_manager import ManagerDriver

    with progress_bar(f"reading {spec}"):  # ends before the lab forks, when no thread may run
        fabric = load(spec)
    options = Options(repair_drift=repair, protect_tenants=m_key)
    with launched_lab(fabric, name, options) as (lab, wait_until_up):
        if not is_warmed_up():
            print("weft: the subnet manager compiles its kernels, once; this takes a minute or two", file=sys.stderr)
        context = UfmContext(Watch(lab.manager), LabActions(lab.entry), Faults())
        backend = Backend(partial(attached, Where(lab=name)), lab.entry)
        yield _Fabric(ManagerDriver(lab.manager), context, backend, wait_until_up)


@contextmanager
def _existing_fabric(where: Where, repair: bool) -> Iterator[_Fabric]:
    """Open a fabric that exists already. Ports can be switched off and on only in a lab."""
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
        if where.opensm:  # a separate port, since the driver's is busy during a change
            carrier = opened.enter_context(attached(where))
            walk = lambda: take_inventory(discover(carrier))  # noqa: E731
        watch = Watch(manager, walk, elsewhere=driver.title)
        entry = registry.find(where.lab) if is_lab or (where.opensm and not where.umad) else None
        backend = Backend(partial(attached, where), entry) if entry or where.umad else None
        yield _Fabric(driver, UfmContext(watch, LabActions(registry.find(where.lab)) if is_lab else None), backend)


@contextmanager
def _temporary_database() -> Iterator[str]:
    """Yield the URL of a database that is deleted at the end."""
    import tempfile

    with tempfile.TemporaryDirectory(prefix="weft-serve-") as folder:
        yield f"sqlite:///{folder}/ledger.db"
