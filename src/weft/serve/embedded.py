"""A UFM for tests: a fabric in software, its subnet manager, and the service.

    with Ufm("superpod:su=1") as ufm:
        client = MyClient(ufm.url, token=ufm.token)         # or ufm.user, ufm.password
        ufm.disconnect("dgx3")                              # its ports are down until reconnect
        ufm.fault(path="*/resources/pkeys", method="POST", status=503, times=2)

`weft serve SPEC` starts the same service.
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
    """A UFM with its own lab. Use it as a context manager. `port` 0: a free one."""

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
            opening.callback(self._remove_files)
            lab = opening.enter_context(own_lab(self.fabric, self.lab))
            self._actions = LabActions(lab.entry)
            store = Store(f"sqlite:///{Path(place) / 'ledger.db'}")
            drift = DriftWatch()
            ledger = opening.enter_context(Ledger(store, ManagerDriver(lab.manager), drift))
            self.token = ledger.change("weft", "the first token", self._add_admin)
            sockname = control.ask(lab.entry, "state")["sockname"]
            key = KeyFile(lab.entry.m_key_file)
            backend = Backend(lambda: closing(KeyedCarrier(IbsimCarrier("", sockname), key)), lab.entry)
            monitor = opening.enter_context(FabricMonitor(backend, drift))
            context = UfmContext(Watch(lab.manager), self._actions, self._faults)
            self.app = create_app(self._settings, ledger, context, None, monitor)
            self.url = opening.enter_context(Server(self.app, self._settings)).url
            opening.callback(monitor.events.close)  # before the server, which waits for open streams
            self._open = opening.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def _remove_files(self) -> None:
        """Remove the files that the lab leaves for a next lab of its name: the name is not used again."""
        for path in runtime.folder().glob(f"{self.lab}.*"):
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)

    def _add_admin(self, draft: Draft) -> str:
        put_user(draft, self._admin)
        return add_token(draft, "embedded", Role.ADMIN)

    # -- faults -------------------------------------------------------------------------------------------------------

    def disconnect(self, name: str) -> list[str]:
        """Disconnect all cables of a host or a switch, or that of a port. Return one port of each cable."""
        return self._actions.disconnect(name)

    def reconnect(self, name: str) -> list[str]:
        return self._actions.reconnect(name)

    def fault(
        self,
        path: str = "*",
        *,
        method: str | None = None,
        status: int | None = None,
        latency_s: float = 0.0,
        times: int | None = None,
    ) -> int:
        """Delay matching calls, let them fail, or both. Return the number of the fault, for `clear_faults`."""
        return self._faults.add(Fault(path=path, method=method, status=status, latency_s=latency_s, times=times))

    def clear_faults(self, number: int | None = None) -> None:
        """Remove one fault, or all."""
        self._faults.clear(number)
