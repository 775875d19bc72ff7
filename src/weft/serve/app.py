"""The FastAPI application: all routes, with the gate before them. Until it is ready, requests are answered with 503."""

from __future__ import annotations

import html
import json
import time
from collections.abc import Iterator
from http import HTTPStatus
from typing import Any

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.openapi.utils import get_openapi
from starlette.types import ASGIApp, Receive, Scope, Send

from weft.serve.access import Access
from weft.serve.acknowledgements import acknowledged
from weft.serve.api import alarms, callers, captures, intents, partitions, port_actions, ports, violations, what_if
from weft.serve.api.exchange import PREFIX, components, encoded, ledger_of
from weft.serve.api.fault_injection import add_fault_injection
from weft.serve.console.monitor import FabricMonitor
from weft.serve.console.page import add_page
from weft.serve.console.routes import add_console
from weft.serve.drift import DriftWatch
from weft.serve.gate import Gate
from weft.serve.ledger import Ledger
from weft.serve.past.recorder import Recorder
from weft.serve.past.routes import add_past
from weft.serve.problems import handle_errors, respond
from weft.serve.settings import Settings
from weft.serve.ufm.routes import add_ufm
from weft.serve.ufm.routes.context import UfmContext
from weft.serve.ufm.watch import Watch
from weft.serve.violation_watcher import ViolationWatcher
from weft.version import __version__

_RETRY_S = 2


class StartupApp:
    """An application that answers 503 until the service's application is set."""

    def __init__(self, reason: str) -> None:
        self._reason = reason
        self._app: ASGIApp | None = None

    def set_app(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._app is not None:
            return await self._app(scope, receive, send)
        refusal = respond(HTTPStatus.SERVICE_UNAVAILABLE, f"the service is starting: {self._reason}", **_HEADERS)
        return await refusal(scope, receive, send)


_HEADERS = {"Retry-After": str(_RETRY_S), "Connection": "close"}


_ROUTERS = (intents.router, partitions.router, ports.router, violations.router, callers.router)


def create_app(
    settings: Settings,
    ledger: Ledger,
    context: UfmContext | None = None,
    watcher: ViolationWatcher | None = None,
    monitor: FabricMonitor | None = None,
    recorder: Recorder | None = None,
) -> FastAPI:
    """Create the application.

    context: the subnet for UFM's calls; without it they have partitions only.
    monitor: the monitor for the console; without it the console shows only tenants.
    recorder: the history; without it the console shows only the present.
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
        monitor.acknowledgements = lambda: acknowledged(ledger.desired().documents, time.time())
        app.include_router(alarms.router, prefix=PREFIX)
        app.include_router(captures.router, prefix=PREFIX)
        app.include_router(what_if.router, prefix=PREFIX)
        app.include_router(port_actions.router, prefix=PREFIX)
        add_past(app, recorder)
    add_ufm(app, context, has_plugin_paths=settings.trusts_remote_user)
    app.add_middleware(Gate, settings=settings, ledger=ledger, access=Access(ledger))
    if context.faults is not None and context.actions is not None:
        add_fault_injection(app, context.faults, context.actions)
    _describe(app)
    return app


_health = APIRouter()


@_health.get("/healthz", response_class=Response)
async def healthz(request: Request) -> Response:
    """Return the health of the service: 503 if the ledger cannot write; `drift` while the fabric differs from it.

    Drift is reported with status 200, since a restart of the service would not repair it.
    """
    ledger = ledger_of(request)
    if not ledger.is_well:
        return respond(HTTPStatus.SERVICE_UNAVAILABLE, "the ledger's writer has ended: restart the service")
    return Response(encoded(_health_of(ledger.drift)), media_type="application/json")


def _health_of(drift: DriftWatch | None) -> dict[str, Any]:
    """Return counts only: this route needs no token."""
    if drift is None:
        return {"status": "ok"}
    status = "drift" if drift.differences else "unknown" if drift.trouble else "ok"
    return {"status": status, "differences": len(drift.differences), "repaired": drift.repaired}


@_health.get("/docs", include_in_schema=False)
async def docs(request: Request) -> Response:
    return Response(render(request.app.openapi()), media_type="text/html")


def _describe(app: FastAPI) -> None:
    """Add weft's schemas and security schemes to the OpenAPI document."""

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            document = get_openapi(title=app.title, version=app.version, routes=app.routes)
            parts = document.setdefault("components", {})
            parts.setdefault("schemas", {}).update(components())
            parts["securitySchemes"] = {
                "token": {"type": "http", "scheme": "bearer"},
                "password": {"type": "http", "scheme": "basic"},
            }
            document["security"] = [{"token": []}, {"password": []}]
            app.openapi_schema = document
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]


_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #222 }
h2 { margin-top: 2.5rem; border-bottom: 1px solid #ccc }
code, pre { font: 13px/1.45 ui-monospace, monospace }
pre { background: #f5f5f5; padding: .6rem; overflow-x: auto }
summary { cursor: pointer } details { margin: .35rem 0 } dd { margin: 0 0 0 1.5rem }
.method { display: inline-block; width: 4.5rem; font-weight: bold }
"""


def render(document: dict[str, Any]) -> str:
    title = html.escape(f"{document['info']['title']} {document['info']['version']}")
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title><style>{_STYLE}</style>'
        f"<h1>{title}</h1><p>Send <code>Authorization: Bearer TOKEN</code>. For programs: "
        f'<a href="api/v1/openapi.json">openapi.json</a>.</p>'
        f"{''.join(_groups(document))}<h2>Schemas</h2>{''.join(_schemas(document))}</html>"
    )


def _groups(document: dict[str, Any]) -> Iterator[str]:
    groups: dict[str, list[str]] = {}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            groups.setdefault(operation.get("tags", ["health"])[0], []).append(_operation(path, method, operation))
    for tag, operations in groups.items():
        yield f"<h2>{html.escape(tag)}</h2>{''.join(operations)}"


def _operation(path: str, method: str, operation: dict[str, Any]) -> str:
    description = html.escape(operation.get("description", ""))
    lines = [f"<p>{description}</p>"] if description else []
    named = operation.get("parameters", ())
    lines += [f"<div>{parameter['in']} <code>{html.escape(parameter['name'])}</code></div>" for parameter in named]
    for media, content in operation.get("requestBody", {}).get("content", {}).items():
        lines.append(f"<div>body <code>{html.escape(media)}</code> {_named(content)}</div>")
    for status, response in operation["responses"].items():
        names = " ".join(_named(content) for content in response.get("content", {}).values())
        lines.append(f"<div>{status} {html.escape(response['description'])} {names}</div>")
    head = f'<span class="method">{method.upper()}</span><code>{html.escape(path)}</code>'
    return f"<details><summary>{head}</summary><dd>{''.join(lines)}</dd></details>"


def _named(content: dict[str, Any]) -> str:
    """Return a link to the schema of a body, if it has a name."""
    schema = content.get("schema", {})
    reference = schema.get("$ref") or schema.get("items", {}).get("$ref")
    if not reference:
        return ""
    name = html.escape(reference.rpartition("/")[2])
    link = f'<a href="#{name}">{name}</a>'
    return f"list of {link}" if "items" in schema else link


def _schemas(document: dict[str, Any]) -> Iterator[str]:
    for name, schema in sorted(document["components"]["schemas"].items()):
        text = html.escape(json.dumps(schema, indent=2))
        yield f'<h3 id="{html.escape(name)}">{html.escape(name)}</h3><pre>{text}</pre>'
