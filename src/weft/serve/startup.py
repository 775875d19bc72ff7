"""Answer 503, with the reason, until the service is ready."""

from __future__ import annotations

from http import HTTPStatus

from starlette.types import ASGIApp, Receive, Scope, Send

from weft.serve.problems import respond

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
