"""The intent: all of it, or one tenant; and what it would change."""

from __future__ import annotations

import tomllib
from http import HTTPStatus
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Path, Request, Response

from weft.errors import ConfigError
from weft.fabric.files.hostlist import expand
from weft.serve.access import Caller, Role
from weft.serve.api.exchange import (
    answer,
    ask_fabric,
    caller_of,
    change,
    check_tags,
    encoded,
    gives,
    kept,
    ledger_of,
    refuse,
)
from weft.serve.desired import Draft, NotFoundError
from weft.serve.ledger import Ledger
from weft.serve.problems import ForbiddenError
from weft.tenants.intent import Intent, Members, Tenant, parse_intent
from weft.tenants.members import Ports
from weft.tenants.partitions import Allocation
from weft.tenants.reconcile import Names, compare, records

router = APIRouter(tags=["intent"])
_Name = Annotated[str, Path(pattern=r"^[A-Za-z][A-Za-z0-9_.-]{0,30}$", examples=["acme"])]
_THEIRS = ("hosts", "ports", "guids", "absent")  # what a tenant may change of itself
_BODY: dict[str, Any] = {
    "application/json": {"schema": {"type": "object"}},
    "application/toml": {"schema": {"type": "string"}},
}


class AppliedIntent(msgspec.Struct, kw_only=True):
    """An intent that the fabric has."""

    intent: dict[str, Any]
    notes: list[str]  # what is allowed, and may not be meant


class IntentPlan(msgspec.Struct, kw_only=True):
    summary: str
    changes: list[dict[str, Any]]
    notes: list[str]
    drift: list[str]  # how the fabric differs from the intent that it was given last


def _operators_only(request: Request) -> None:
    if not caller_of(request).may_change:
        raise refuse(request, "the intent is changed by operators")


def _all_seeing(request: Request) -> None:
    if caller_of(request).role is Role.TENANT:
        raise refuse(request, "a tenant sees itself alone")


async def _read(request: Request) -> Intent:
    body = await request.body()
    if request.headers.get("content-type", "").split(";")[0].strip() == "application/toml":
        try:
            return parse_intent(tomllib.loads(body.decode()))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ConfigError(f"the body is no TOML: {error}") from None
    found = msgspec.json.decode(body)
    if not isinstance(found, dict):
        raise ConfigError("the body is no intent: it must be an object, with tenant, service and class")
    return parse_intent(found)


@router.get("/intent", **gives(dict[str, Any], 403, tagged=True))
async def get_intent(request: Request) -> Response:
    """As it was given."""
    _all_seeing(request)
    return answer(request, encoded(ledger_of(request).desired().intent()))


@router.put("/intent", **gives(AppliedIntent, 400, 403, 409, 412, 422, 504, takes=_BODY, tagged=True))
async def put_intent(request: Request) -> Response:
    """Make the fabric have this, in JSON or TOML. Partitions that it names no more are taken away."""
    _operators_only(request)
    wanted = await _read(request)

    def edit(draft: Draft) -> AppliedIntent:
        check_tags(request, encoded(draft.intent()))
        notes = draft.set_intent(wanted).notes
        return AppliedIntent(intent=msgspec.to_builtins(draft.intent()), notes=[*notes])

    return Response(encoded(await change(request, edit)), media_type="application/json")


@router.post("/intent/plan", **gives(IntentPlan, 400, 403, 409, 422, 504, takes=_BODY))
async def plan_intent(request: Request) -> Response:
    """What it would change. Nothing is changed."""
    _all_seeing(request)
    wanted = await _read(request)
    found = await ask_fabric(request, lambda: _plan(ledger_of(request), wanted))
    return Response(encoded(found), media_type="application/json")


def _plan(ledger: Ledger, wanted: Intent) -> IntentPlan:
    draft = ledger.draft()
    compiled = draft.set_intent(wanted)
    plan = compare(draft.before.allocation(), draft.sealed().allocation())
    drift = [] if ledger.drift is None else [*ledger.drift.differences]
    summary = plan.summary
    if drift:
        differs = f"{len(drift):,} differences between the fabric and what it was given, to repair."
        summary = differs if plan.is_empty else f"{summary} {differs}"
    changes = records(plan, Names(draft.inventory))
    return IntentPlan(summary=summary, changes=changes, notes=[*compiled.notes], drift=drift)


# -- tenants ----------------------------------------------------------------------------------------------------------


@router.get("/tenants", **gives(dict[str, Tenant], tagged=True))
async def list_tenants(request: Request) -> Response:
    """Those of the intent, by name."""
    caller, tenants = caller_of(request), ledger_of(request).desired().intent().tenants
    if caller.role is Role.TENANT:
        return answer(request, encoded({name: one for name, one in tenants.items() if name == caller.tenant}))
    return answer(request, *kept("tenants", (tenants,), lambda: encoded(tenants)))


@router.get("/tenants/{name}", **gives(Tenant, 404, 422, tagged=True))
async def get_tenant(request: Request, name: _Name) -> Response:
    return answer(request, encoded(_tenant(request, ledger_of(request).desired().intent(), name)))


@router.put("/tenants/{name}", **gives(Tenant, 400, 403, 404, 409, 412, 422, 504, takes=Tenant, tagged=True))
async def put_tenant(request: Request, name: _Name) -> Response:
    """Make it, or change it. A tenant may change its own ports, within its quota of ports and hosts."""
    caller = caller_of(request)
    if not caller.may_change and (caller.role, caller.tenant) != (Role.TENANT, name):
        raise refuse(request, "tenants are changed by operators, or by themselves")
    wanted = msgspec.json.decode(await request.body(), type=Tenant)

    def edit(draft: Draft) -> bytes:
        before = draft.intent()
        there = before.tenants.get(name)
        check_tags(request, None if there is None else encoded(there))
        if not caller.may_change:
            _check_own(caller, draft, there, wanted)
        draft.set_intent(msgspec.structs.replace(before, tenants={**before.tenants, name: wanted}))
        return encoded(wanted)

    return answer(request, await change(request, edit))


@router.delete("/tenants/{name}", **gives(None, 403, 404, 409, 412, 422, 504, status=204, tagged=True))
async def delete_tenant(request: Request, name: _Name) -> Response:
    """Take its partition away."""
    _operators_only(request)

    def edit(draft: Draft) -> None:
        before = draft.intent()
        check_tags(request, encoded(_tenant(request, before, name)))
        left = {one: tenant for one, tenant in before.tenants.items() if one != name}
        draft.set_intent(msgspec.structs.replace(before, tenants=left))

    await change(request, edit)
    return Response(status_code=HTTPStatus.NO_CONTENT)


def _tenant(request: Request, intent: Intent, name: str) -> Tenant:
    caller = caller_of(request)
    if name not in intent.tenants or (caller.role is Role.TENANT and caller.tenant != name):
        raise NotFoundError(f"there is no tenant {name}")
    return intent.tenants[name]


def _check_own(caller: Caller, draft: Draft, there: Tenant | None, wanted: Tenant) -> None:
    """Check a change that a tenant asks for itself: ForbiddenError, which the ledger puts into the audit log."""
    if there is None or (there.quota.ports is None and not there.quota.hosts):
        raise ForbiddenError(f"{caller.name} is a tenant without a quota, and is changed by operators alone")
    for field in msgspec.structs.fields(Tenant):
        if field.name not in _THEIRS and getattr(there, field.name) != getattr(wanted, field.name):
            raise ForbiddenError(
                f"{field.encode_name} is changed by operators; a tenant's own are {', '.join(_THEIRS)}"
            )
    ports = Ports(draft.inventory, Allocation(partitions=draft.partitions))
    may_have = {*ports.of(("tenant", caller.tenant), there)}
    for text in there.quota.hosts:
        may_have |= {port.guid for host in expand(text) for port in ports.by_host.get(host, ())}
    for key in _THEIRS:
        for text in getattr(wanted, key):
            if text not in getattr(there, key) and not _is_of(ports, msgspec.convert({key: [text]}, Members), may_have):
                hosts = ", ".join(there.quota.hosts) or "none"
                raise ForbiddenError(
                    f"{text} is not on a host that {caller.tenant} may claim ({hosts}): ask an operator"
                )


def _is_of(ports: Ports, words: Members, may_have: set[int]) -> bool:
    """Return whether all ports of some words are allowed; unknown ones are not, and are not told apart."""
    try:
        return may_have.issuperset(ports.of((), words))
    except ConfigError:
        return False
