"""The service as tests call it."""

from __future__ import annotations

import base64
import threading
from typing import Any

import httpx
from tests.patience import PATIENCE_S
from tests.serve.memory_fabric import MemoryFabric

from weft.serve.access import Role, add_token
from weft.serve.app import create_app
from weft.serve.audit import AuditLine
from weft.serve.drift import DriftWatch
from weft.serve.ledger import Ledger
from weft.serve.server import Server
from weft.serve.settings import Settings
from weft.serve.store import Store


def basic(name: str, password: str) -> dict[str, str]:
    return {"Authorization": f"Basic {base64.b64encode(f'{name}:{password}'.encode()).decode()}"}


class Service:
    """The application with callers of every role, and the fabric behind it."""

    def __init__(self, database: str, *, repairs: bool | None = None, **settings: Any) -> None:
        """Start a service. `repairs` None: the ledger is not compared with the fabric."""
        self.fabric = MemoryFabric()
        self.ledger = Ledger(Store(database), self.fabric, None if repairs is None else DriftWatch(repairs=repairs))
        options = Settings(**settings)
        self.app = create_app(options, self.ledger)
        self.server = Server(self.app, options).start()
        self.client = httpx.Client(base_url=self.server.url, timeout=PATIENCE_S, trust_env=False)
        roles = [("root", Role.ADMIN, ""), ("ops", Role.OPERATOR, ""), ("eye", Role.READ_ONLY, "")]
        self.tokens = {
            name: self.ledger.change("test", "a token", lambda draft, it=(name, role, whose): add_token(draft, *it))
            for name, role, whose in [*roles, ("blue", Role.TENANT, "blue")]
        }

    def call(self, who: str, method: str, path: str, **words: Any) -> Any:
        headers = {"Authorization": f"Bearer {self.tokens[who]}", **words.pop("headers", {})}
        return self.client.request(method, f"/api/v1{path}", headers=headers, **words)

    def be_impatient(self) -> None:
        """Shorten the timeout of the fabric, not that of slow requests on a busy machine."""
        self.app.state.settings = Settings(timeout_s=0.1)

    def stored(self) -> list[AuditLine]:
        """Return the audit log with all that was noted before the call, the newest first."""
        self.ledger.change("test", "wait for notes", lambda draft: None)
        return self.ledger.store.audit_lines(most=1000)

    def audit(self) -> list[tuple[str, str, str]]:
        return [(line.actor, line.what, line.result) for line in self.stored()]

    def close(self) -> None:
        """Close the service in a thread: uvicorn takes 0.2 s to end."""
        self.client.close()
        threading.Thread(target=self._end).start()

    def _end(self) -> None:
        self.server.close()
        self.ledger.close()
