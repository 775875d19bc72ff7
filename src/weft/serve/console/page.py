"""The console's page and its files. They need no token: the page asks for one."""

from __future__ import annotations

from fastapi import FastAPI, Request, Response

from weft import web

_HEADERS = {
    "Content-Security-Policy": web.POLICY,
    "Cache-Control": "no-cache",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


def add_page(app: FastAPI) -> None:
    for path in web.PATHS:
        app.add_api_route(path, _send, methods=["GET"], include_in_schema=False)


async def _send(request: Request) -> Response:
    file = web.files().get(request.url.path)
    if file is None:
        return Response("the console is not built: see /", status_code=404, media_type="text/plain")
    return Response(file.body, headers=_HEADERS, media_type=file.media)
