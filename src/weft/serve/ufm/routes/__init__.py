"""The calls. Each is there under /ufmRest, /ufmRestV2 and /ufmRestV3: whoever may come in, the gate has let in.

A body or a filter that is wrong is answered 400, as UFM does; what is not there 404, or `{}` where UFM says so.
"""

from __future__ import annotations

from fastapi import FastAPI

from weft.serve.ufm.routes import actions, app, pkeys, reports, resources, telemetry
from weft.serve.ufm.routes.context import UfmContext

BASES = ("/ufmRest", "/ufmRestV2", "/ufmRestV3")


def add_ufm(service: FastAPI, context: UfmContext, *, is_plugin_door: bool = False) -> None:
    """`is_plugin_door`: also without a base, as UFM's plugins call it on its own machine."""
    service.state.ufm = context
    for base in (*BASES, *([""] if is_plugin_door else [])):
        for one in (app, resources, pkeys, actions, telemetry, reports):
            service.include_router(one.router, prefix=base, include_in_schema=base == BASES[0])
    service.include_router(telemetry.endpoint)
