"""The intent, its tenants, and plans of changes."""

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
    cached,
    caller_of,
    change,
    check_tags,
    encoded,
    gives,
    ledger_of,
    refuse,
)
from weft.serve.desired import Draft, NotFoundError
from weft.serve.ledger import Ledger
from weft.serve.problems import ForbiddenError
from weft.tenants.intent import Intent, Members, Tenant, parse_intent
from weft.tenants.members import PortResolver
from weft.tenants.partitions import Allocation
from weft.tenants.reconcile import Names, compare, records

router = APIRouter(tags=["intent"])
_Name = Annotated[str, Path(pattern=r"^[A-Za-z][A-Za-z0-9_.-]{0,30}$", examples=["acme"])]
_TENANT_FIELDS = ("hosts", "ports", "guids", "absent")  # a tenant may change these fields itself
_BODY: dict[str, Any] = {
    "application/json": {"schema": {"type": "object"}},
    "application/toml": {"schema": {"type": "string"}},
}


class AppliedIntent(msgspec.Struct, kw_only=True):
    """The applied intent."""

    intent: dict[str, Any]
    notes: list[str]  # warnings: allowed, but perhaps not intended


class IntentPlan(msgspec.Struct, kw_only=True):
    """The changes that an intent would make."""

    summary: str
    changes: list[dict[str, Any]]
    notes: list[str]
    drift: list[str]  # current differences between the fabric and the ledger


def _operators_only(request: Request) -> None:
    if not caller_of(request).may_change:
        raise refuse(request, "only operators may change the intent")


def _not_tenants(request: Request) -> None:
    if caller_of(request).role is Role.TENANT:
        raise refuse(request, "tenants can see only themselves")


async def _read(request: Request) -> Intent:
    body = await request.body()
    if request.headers.get("content-type", "").split(";")[0].strip() == "application/toml":
        try:
            return parse_intent(tomllib.loads(body.decode()))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ConfigError(f"the body is not valid TOML: {error}") from None
    data = msgspec.json.decode(body)
    if not isinstance(data, dict):
        raise ConfigError("the body must be an object with tenant, service and class")
    return parse_intent(data)


@router.get("/intent", **gives(dict[str, Any], 403, tagged=True))
async def get_intent(request: Request) -> Response:
    """Return the current intent."""
    _not_tenants(request)
    return answer(request, encoded(ledger_of(request).desired().intent()))


@router.put("/intent", **gives(AppliedIntent, 400, 403, 409, 412, 422, 504, takes=_BODY, tagged=True))
async def put_intent(request: Request) -> Response:
    """Apply an intent in JSON or TOML. Partitions of the old intent that it does not name are deleted."""
    _operators_only(request)
    intent = await _read(request)

    def edit(draft: Draft) -> AppliedIntent:
        check_tags(request, encoded(draft.intent()))
        notes = draft.set_intent(intent).notes
        return AppliedIntent(intent=msgspec.to_builtins(draft.intent()), notes=[*notes])

    return Response(encoded(await change(request, edit)), media_type="application/json")


@router.post("/intent/plan", **gives(IntentPlan, 400, 403, 409, 422, 504, takes=_BODY))
async def plan_intent(request: Request) -> Response:
    """Return the changes that an intent would make, without applying it."""
    _not_tenants(request)
    intent = await _read(request)
    plan = await ask_fabric(request, lambda: _plan(ledger_of(request), intent))
    return Response(encoded(plan), media_type="application/json")


def _plan(ledger: Ledger, intent: Intent) -> IntentPlan:
    draft = ledger.draft()
    compiled = draft.set_intent(intent)
    plan = compare(draft.before.allocation(), draft.sealed().allocation())
    drift = [] if ledger.drift is None else [*ledger.drift.differences]
    summary = plan.summary
    if drift:
        differs = f"{len(drift):,} differences between the fabric and the ledger, to repair."
        summary = differs if plan.is_empty else f"{summary} {differs}"
    changes = records(plan, Names(draft.inventory))
    return IntentPlan(summary=summary, changes=changes, notes=[*compiled.notes], drift=drift)


# -- tenants ----------------------------------------------------------------------------------------------------------


@router.get("/tenants", **gives(dict[str, Tenant], tagged=True))
async def list_tenants(request: Request) -> Response:
    """Return the tenants of the intent by name; a tenant sees only itself."""
    caller, tenants = caller_of(request), ledger_of(request).desired().intent().tenants
    if caller.role is Role.TENANT:
        return answer(request, encoded({name: tenant for name, tenant in tenants.items() if name == caller.tenant}))
    return answer(request, *cached("tenants", (tenants,), lambda: encoded(tenants)))


@router.get("/tenants/{name}", **gives(Tenant, 404, 422, tagged=True))
async def get_tenant(request: Request, name: _Name) -> Response:
    return answer(request, encoded(_tenant(request, ledger_of(request).desired().intent(), name)))


@router.put("/tenants/{name}", **gives(Tenant, 400, 403, 404, 409, 412, 422, 504, takes=Tenant, tagged=True))
async def put_tenant(request: Request, name: _Name) -> Response:
    """Create or change a tenant. A tenant may change its own ports within its quota of ports and hosts."""
    caller = caller_of(request)
    if not caller.may_change and (caller.role, caller.tenant) != (Role.TENANT, name):
        raise refuse(request, "only operators, or the tenant itself, may change a tenant")
    desired = msgspec.json.decode(await request.body(), type=Tenant)

    def edit(draft: Draft) -> bytes:
        before = draft.intent()
        current = before.tenants.get(name)
        check_tags(request, None if current is None else encoded(current))
        if not caller.may_change:
            _check_own(caller, draft, current, desired)
        draft.set_intent(msgspec.structs.replace(before, tenants={**before.tenants, name: desired}))
        return encoded(desired)

    return answer(request, await change(request, edit))


@router.delete("/tenants/{name}", **gives(None, 403, 404, 409, 412, 422, 504, status=204, tagged=True))
async def delete_tenant(request: Request, name: _Name) -> Response:
    """Delete a tenant and its partition."""
    _operators_only(request)

    def edit(draft: Draft) -> None:
        before = draft.intent()
        check_tags(request, encoded(_tenant(request, before, name)))
        left = {other: tenant for other, tenant in before.tenants.items() if other != name}
        draft.set_intent(msgspec.structs.replace(before, tenants=left))

    await change(request, edit)
    return Response(status_code=HTTPStatus.NO_CONTENT)


def _tenant(request: Request, intent: Intent, name: str) -> Tenant:
    caller = caller_of(request)
    if name not in intent.tenants or (caller.role is Role.TENANT and caller.tenant != name):
        raise NotFoundError(f"there is no tenant {name}")
    return intent.tenants[name]


def _check_own(caller: Caller, draft: Draft, current: Tenant | None, desired: Tenant) -> None:
    """Check a change by the tenant itself. Raise ForbiddenError, which the ledger adds to the audit log."""
    if current is None or (current.quota.ports is None and not current.quota.hosts):
        raise ForbiddenError(f"{caller.name} is a tenant without a quota: only operators may change it")
    for field in msgspec.structs.fields(Tenant):
        if field.name not in _TENANT_FIELDS and getattr(current, field.name) != getattr(desired, field.name):
            raise ForbiddenError(
                f"only operators may change {field.encode_name}; a tenant may change {', '.join(_TENANT_FIELDS)}"
            )
    ports = PortResolver(draft.inventory, Allocation(partitions=draft.partitions))
    may_have = {*ports.resolve(("tenant", caller.tenant), current)}
    for text in current.quota.hosts:
        may_have |= {port.guid for host in expand(text) for port in ports.by_host.get(host, ())}
    for key in _TENANT_FIELDS:
        for text in getattr(desired, key):
            if text not in getattr(current, key) and not _is_allowed(
                ports, msgspec.convert({key: [text]}, Members), may_have
            ):
                hosts = ", ".join(current.quota.hosts) or "none"
                raise ForbiddenError(
                    f"{text} is not on a host that {caller.tenant} may claim ({hosts}): ask an operator"
                )


def _is_allowed(ports: PortResolver, members: Members, may_have: set[int]) -> bool:
    """Return whether all ports of an entry are allowed; unknown ports are refused in the same way."""
    try:
        return may_have.issuperset(ports.resolve((), members))
    except ConfigError:
        return False
