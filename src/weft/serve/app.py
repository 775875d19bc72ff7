"""The service: routes, behind the gate."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.openapi.utils import get_openapi

from weft.serve.access import Access
from weft.serve.api import callers, intents, partitions, ports, violations
from weft.serve.api.exchange import PREFIX, components, encoded, ledger_of
from weft.serve.api.fault_injection import add_fault_injection
from weft.serve.console.monitor import FabricMonitor
from weft.serve.console.page import add_page
from weft.serve.console.routes import add_console
from weft.serve.drift import DriftWatch
from weft.serve.gate import Gate
from weft.serve.ledger import Ledger
from weft.serve.page import render
from weft.serve.problems import handle_errors, respond
from weft.serve.settings import Settings
from weft.serve.ufm.routes import add_ufm
from weft.serve.ufm.routes.context import UfmContext
from weft.serve.ufm.watch import Watch
from weft.serve.violation_watcher import ViolationWatcher
from weft.version import __version__

_ROUTERS = (intents.router, partitions.router, ports.router, violations.router, callers.router)


def create_app(
    settings: Settings,
    ledger: Ledger,
    context: UfmContext | None = None,
    watcher: ViolationWatcher | None = None,
    monitor: FabricMonitor | None = None,
) -> FastAPI:
    """`context`: what UFM's calls know of the subnet; without one they have partitions alone.

    `monitor`: what the console sees; without one there is its page, and the tenants on it.
    """
    context = context or UfmContext(Watch(None))
    app = FastAPI(
        title="weft", version=__version__, openapi_url=f"{PREFIX}/openapi.json", docs_url=None, redoc_url=None
    )
    app.state.settings, app.state.ledger, app.state.watcher = settings, ledger, watcher
    handle_errors(app)
    app.include_router(_health)
    for router in _ROUTERS:
        app.include_router(router, prefix=PREFIX)
    add_page(app)
    if monitor is not None:
        add_console(app, monitor)
    add_ufm(app, context, is_plugin_door=settings.trusts_remote_user)
    app.add_middleware(Gate, settings=settings, ledger=ledger, access=Access(ledger))
    if context.faults is not None and context.actions is not None:
        add_fault_injection(app, context.faults, context.actions)
    _describe(app)
    return app


_health = APIRouter()


@_health.get("/healthz", response_class=Response)
async def healthz(request: Request) -> Response:
    """For monitors: 503 if nothing can be written any more; status `drift` while the fabric differs from the ledger.

    That is 200: starting the service again would repair nothing.
    """
    ledger = ledger_of(request)
    if not ledger.is_well:
        return respond(HTTPStatus.SERVICE_UNAVAILABLE, "the ledger's writer has ended: start the service again")
    return Response(encoded(_health_of(ledger.drift)), media_type="application/json")


def _health_of(drift: DriftWatch | None) -> dict[str, Any]:
    """Counts alone: who asks here has no token."""
    if drift is None:
        return {"status": "ok"}
    status = "drift" if drift.differences else "unknown" if drift.trouble else "ok"
    return {"status": status, "differences": len(drift.differences), "repaired": drift.repaired}


@_health.get("/docs", include_in_schema=False)
async def docs(request: Request) -> Response:
    return Response(render(request.app.openapi()), media_type="text/html")


def _describe(app: FastAPI) -> None:
    """The OpenAPI document: our schemas, and how to say who one is."""

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            found = get_openapi(title=app.title, version=app.version, routes=app.routes)
            known = found.setdefault("components", {})
            known.setdefault("schemas", {}).update(components())
            known["securitySchemes"] = {
                "token": {"type": "http", "scheme": "bearer"},
                "password": {"type": "http", "scheme": "basic"},
            }
            found["security"] = [{"token": []}, {"password": []}]
            app.openapi_schema = found
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]
