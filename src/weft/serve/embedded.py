"""A UFM for a test: a fabric in software, its subnet manager and the service, for as long as the test needs them.

    with Ufm("superpod:su=1") as ufm:
        client = MyClient(ufm.url, token=ufm.token)         # or ufm.user, ufm.password
        ufm.take_away("dgx3")                               # its ports are gone, until bring_back
        ufm.fault(path="*/resources/pkeys", method="POST", status=503, times=2)

What `weft serve SPEC` serves is the same service.
"""

from __future__ import annotations

import secrets
import shutil
import tempfile
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Self

from weft import runtime
from weft.fabric.model import Fabric
from weft.fabric.spec import load
from weft.lab import control
from weft.lab.own_lab import own_lab
from weft.mad.ibsim_client import IbsimCarrier
from weft.mad.keyed import KeyedCarrier, KeyFile
from weft.serve.access import Role, add_token, new_user, put_user
from weft.serve.app import create_app
from weft.serve.console.monitor import Backend, FabricMonitor
from weft.serve.desired import Draft
from weft.serve.drift import DriftWatch
from weft.serve.fabric_actions import LabActions
from weft.serve.faults import Fault, Faults
from weft.serve.ledger import Ledger
from weft.serve.server import Server
from weft.serve.settings import Settings
from weft.serve.store import Store
from weft.serve.ufm.routes.context import UfmContext
from weft.serve.ufm.watch import Watch
from weft.tenants.drivers.subnet_manager import ManagerDriver

_USER = "admin"


class Ufm:
    """Used with `with`. `port` 0: one that is free."""

    user = _USER

    def __init__(self, fabric: str | Fabric, *, port: int = 0, settings: Settings | None = None) -> None:
        self.fabric = load(fabric) if isinstance(fabric, str) else fabric
        self.password = secrets.token_urlsafe(16)
        self.token = ""
        self.url = ""
        self.lab = f"ufm-{secrets.token_hex(4)}"
        self._admin = new_user(self.user, self.password, Role.ADMIN)
        self._settings = settings or Settings(port=port)
        self._faults = Faults()
        self._open = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as opening:
            place = opening.enter_context(tempfile.TemporaryDirectory(prefix="weft-ufm-"))
            opening.callback(self._sweep_up)
            lab = opening.enter_context(own_lab(self.fabric, self.lab))
            self._actions = LabActions(lab.entry)
            store = Store(f"sqlite:///{Path(place) / 'ledger.db'}")
            drift = DriftWatch()
            ledger = opening.enter_context(Ledger(store, ManagerDriver(lab.manager), drift))
            self.token = ledger.change("weft", "the first token", self._let_in)
            sockname = control.ask(lab.entry, "state")["sockname"]
            key = KeyFile(lab.entry.m_key_file)
            backend = Backend(lambda: closing(KeyedCarrier(IbsimCarrier("", sockname), key)), lab.entry)
            monitor = opening.enter_context(FabricMonitor(backend, drift))
            context = UfmContext(Watch(lab.manager), self._actions, self._faults)
            self.app = create_app(self._settings, ledger, context, None, monitor)
            self.url = opening.enter_context(Server(self.app, self._settings)).url
            opening.callback(monitor.live.close)  # before the server, which waits for open streams
            self._open = opening.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def _sweep_up(self) -> None:
        """Its name is never used again, so nobody else would clear what a lab leaves for its successor."""
        for path in runtime.folder().glob(f"{self.lab}.*"):
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)

    def _let_in(self, draft: Draft) -> str:
        put_user(draft, self._admin)
        return add_token(draft, "embedded", Role.ADMIN)

    # -- trouble ------------------------------------------------------------------------------------------------------

    def take_away(self, name: str) -> list[str]:
        """Pull all cables of a host or a switch, or that of a port. Returns one port of each."""
        return self._actions.take_away(name)

    def bring_back(self, name: str) -> list[str]:
        return self._actions.bring_back(name)

    def fault(
        self,
        path: str = "*",
        *,
        method: str | None = None,
        status: int | None = None,
        latency_s: float = 0.0,
        times: int | None = None,
    ) -> int:
        """Calls that fit take long, fail, or both. Returns its number, for `mend`."""
        return self._faults.add(Fault(path=path, method=method, status=status, latency_s=latency_s, times=times))

    def mend(self, number: int | None = None) -> None:
        """Take one fault away, or all."""
        self._faults.clear(number)
