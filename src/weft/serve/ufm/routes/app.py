"""The calls `app/...`: the service itself, events, and ports that are marked as unhealthy."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Request, Response

from weft.errors import find_named
from weft.serve.access import add_own_token
from weft.serve.api.exchange import caller_of, change, gives, ledger_of
from weft.serve.ufm import health, jobs
from weft.serve.ufm.routes.context import Route, answer_json, body_of, context_of
from weft.sm.conf.options import Options
from weft.version import __version__

RELEASE = "6.22.1-0"  # the emulated version

# Collections of UFM that are empty here.
_EMPTY = (
    "event_policies_version",
    "sites_version",
    "traps_version",
    "templates_version",
    "users_version",
    "modules_version",
    "submodules_version",
    "mirror_template_version",
    "saps_version",
    "groups_version",
    "objects_groups_version",
    "smconfs_version",
)

router = APIRouter(route_class=Route, tags=["UFM"])


@router.get("/app/ufm_version", **gives(dict[str, str]))
async def ufm_version() -> Response:
    return answer_json({"ufm_release_version": RELEASE, "weft_version": __version__})


@router.get("/app/ufm_config", **gives(dict[str, str]))
async def ufm_config(request: Request) -> Response:
    """Return the list of features; no licence is needed."""
    has_counters = getattr(request.app.state, "monitor", None) is not None
    return answer_json(
        {
            "ls_auditing": "Enabled",
            "monitoring_mode": "Disabled",
            "syslog": "Disabled",
            "license_state": "valid",
            "license_state_info": "N/A",
            "telemetry": "Enabled" if has_counters else "Disabled",
        }
    )


@router.get("/app/versioning", **gives(dict[str, int], 404))
async def versioning(request: Request) -> Response:
    """Return the version of each collection: a client reads one again if its number has changed."""
    context, desired = context_of(request), ledger_of(request).desired()
    picture = await asyncio.to_thread(context.watch.picture)
    subnet = ("servers", "switches", "ports", "links")
    contents = {f"{name}_version": picture.revision for name in subnet}
    marked = tuple(sorted(health.marked(desired)))
    last_event = max((number for number, _ in context.events.all()), default=0)
    more = {"alarms_version": marked, "events_version": (last_event, len(context.events.all()))}
    return answer_json({**dict.fromkeys(_EMPTY, 0), **context.versions.numbers({**contents, **more})})


@router.get("/app/network_views", **gives(list[dict[str, Any]]))
async def network_views() -> Response:
    """Return the saved views of UFM's network map: none."""
    return answer_json([])


@router.get("/app/smconf", **gives(dict[str, str | bool]))
async def smconf() -> Response:
    """Return the default options of weft's subnet manager."""
    options = Options()
    names = ("subnet_prefix", "m_key", "sm_key", "sa_key")
    return answer_json({**{name: f"{getattr(options, name):#018x}" for name in names}, "m_key_per_port": False})


@router.post("/app/tokens", **gives(dict[str, str | int], 403))
async def make_token(request: Request) -> Response:
    """Create a token with the caller's role; it is removed with the user or token of the caller."""
    caller = caller_of(request)
    secret, token = await change(request, lambda draft: add_own_token(draft, caller), is_secret=True)
    expires_in = int((token.expires_at_s or 0) - token.made_at_s)
    return answer_json({"access_token": secret, "name": token.name, "expires_in": expires_in})


@router.get("/app/events", **gives(list[dict[str, Any]]))
async def events(request: Request) -> Response:
    return answer_json([jobs.event(*entry) for entry in context_of(request).events.all()])


@router.delete("/app/events/{number}", **gives(dict[str, str], 403, 404))
async def delete_event(request: Request, number: str) -> Response:
    context_of(request).events.remove(number)
    return answer_json({})


_Words = Annotated[str, msgspec.Meta(max_length=1000)]


class ExternalEvent(msgspec.Struct, kw_only=True):
    """An event from a client."""

    event_id: int
    description: _Words
    external_event_name: _Words = ""
    external_event_type: _Words = ""
    external_event_source: _Words = ""


@router.post("/app/events/external_event", **gives(dict[str, int], 400, 403, takes=ExternalEvent))
async def external_event(request: Request) -> Response:
    body = await body_of(request, ExternalEvent)
    words = {**msgspec.to_builtins(body), "timestamp": jobs.stamp()}
    return answer_json({"id": context_of(request).events.add(words)})


@router.get("/app/alarms", **gives(list[dict[str, Any]]))
async def alarms(request: Request) -> Response:
    """Return an alarm for each port that is marked as unhealthy."""
    marked = health.marked(ledger_of(request).desired())
    return answer_json(
        [
            {"id": number, "name": "Port is unhealthy", "object_name": name, "severity": "Warning", **details}
            for number, (name, details) in enumerate(marked.items(), 1)
        ]
    )


@router.get("/app/unhealthy_ports", **gives(list[dict[str, Any]]))
async def unhealthy_ports(request: Request) -> Response:
    return answer_json(list(health.marked(ledger_of(request).desired()).values()))


@router.get("/app/unhealthy_ports/{name}", **gives(dict[str, Any], 404))
async def unhealthy_port(request: Request, name: str) -> Response:
    return answer_json(find_named("unhealthy port", name, health.marked(ledger_of(request).desired())))


@router.put("/app/unhealthy_ports", **gives(dict[str, str], 400, 403, 404, takes=health.Policy))
async def set_unhealthy_ports(request: Request) -> Response:
    await set_policy(request, await body_of(request, health.Policy))
    return answer_json({})


async def set_policy(request: Request, policy: health.Policy) -> None:
    context, desired = context_of(request), ledger_of(request).desired()
    picture = await asyncio.to_thread(context.watch.picture)
    if policy.ports_policy == "HEALTHY":
        names = [
            *policy.ports,
            *(name for name, details in health.marked(desired).items() if _is_of(details, policy.devices)),
        ]
        healed = await asyncio.to_thread(health.heal, desired, context.actions, names)
        await change(request, lambda draft: health.note(draft, {}, healed))
    else:
        names = health.ports_of(picture, policy)
        mark = partial(health.mark, isolate=policy.action == "isolate")
        documents = await asyncio.to_thread(mark, picture, context.actions, names, policy.devices)
        await change(request, lambda draft: health.note(draft, documents))


def _is_of(details: dict[str, Any], devices: list[str]) -> bool:
    return details["UnhealthyGUID"] in devices or details["PeerGUID"] in devices
