"""The calls. Each exists under /ufmRest, /ufmRestV2 and /ufmRestV3; the gate has authenticated the caller.

Invalid bodies and filters are answered with 400, as in UFM; unknown objects with 404, or `{}` where UFM does so.
"""

from __future__ import annotations

from fastapi import FastAPI

from weft.serve.ufm.routes import actions, app, pkeys, resources, telemetry
from weft.serve.ufm.routes.context import UfmContext

__all__: list[str] = []

BASES = ("/ufmRest", "/ufmRestV2", "/ufmRestV3")


def add_ufm(service: FastAPI, context: UfmContext, *, has_plugin_paths: bool = False) -> None:
    """Add UFM's calls. `has_plugin_paths`: also without a base path, for UFM's plugins on the same machine."""
    service.state.ufm = context
    for base in (*BASES, *([""] if has_plugin_paths else [])):
        for module in (app, resources, pkeys, actions, telemetry):
            service.include_router(module.router, prefix=base, include_in_schema=base == BASES[0])
    service.include_router(telemetry.endpoint)
