"""Tokens and users, for admins; the audit log."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Annotated

import msgspec
from fastapi import APIRouter, Path, Query, Request, Response

from weft.serve import access
from weft.serve.access import Role, Token, User
from weft.serve.api.exchange import answer, caller_of, change, encoded, gives, ledger_of, refuse
from weft.serve.desired import Draft

router = APIRouter(tags=["access"])
_Name = Annotated[str, Path(pattern=access.NAME, examples=["ci"])]


class Rights(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    role: Role
    tenant: str = ""  # with the role tenant


class TokenIn(Rights, kw_only=True, forbid_unknown_fields=True):
    days: float = access.LIFETIME_DAYS  # until it expires


class UserIn(Rights, kw_only=True, forbid_unknown_fields=True):
    password: Annotated[str, msgspec.Meta(min_length=8)] | None = None  # None: it logs in by a certificate


class UserOut(msgspec.Struct, kw_only=True):
    name: str
    role: Role
    tenant: str
    made_at_s: float  # since 1970


class TokenOut(UserOut, kw_only=True):
    expires_at_s: float | None  # None: never
    owner: str  # the user or token that it ends with, as "user bob"; or empty


class TokenSecret(msgspec.Struct, kw_only=True):
    token: str  # it is shown this once


class AuditEntry(msgspec.Struct, kw_only=True):
    """A line of the audit log."""

    id: int
    at_s: float  # since 1970
    actor: str
    what: str
    result: str
    revision: int
    times: int  # of refusals like this one
    hash: str  # of this line and the one before it of the same kind


def _admins_only(request: Request) -> None:
    if caller_of(request).role is not Role.ADMIN:
        raise refuse(request, "tokens and users are for admins")


def _user_out(user: User) -> UserOut:
    return UserOut(name=user.name, role=user.role, tenant=user.tenant, made_at_s=user.made_at_s)


def _token_out(token: Token) -> TokenOut:
    return TokenOut(
        name=token.name,
        role=token.role,
        tenant=token.tenant,
        made_at_s=token.made_at_s,
        expires_at_s=token.expires_at_s,
        owner=" ".join(token.owner or ()),
    )


@router.get("/tokens", **gives(list[TokenOut], 403))
async def list_tokens(request: Request) -> Response:
    """Without their secrets, which are kept nowhere."""
    _admins_only(request)
    documents = ledger_of(request).desired().documents
    return answer(request, encoded([_token_out(one) for one in access.listed(documents, Token)]))


@router.put("/tokens/{name}", **gives(TokenSecret, 400, 403, 409, 422, status=201, takes=TokenIn))
async def put_token(request: Request, name: _Name) -> Response:
    """Make a token, which is shown this once."""
    _admins_only(request)
    wanted = msgspec.json.decode(await request.body(), type=TokenIn)

    def edit(draft: Draft) -> str:
        return access.add_token(draft, name, wanted.role, wanted.tenant, days=wanted.days)

    token = await change(request, edit)
    return Response(encoded(TokenSecret(token=token)), HTTPStatus.CREATED, media_type="application/json")


@router.delete("/tokens/{name}", **gives(None, 403, 404, 422, status=204))
async def delete_token(request: Request, name: _Name) -> Response:
    """Revoke a token, and those that were made with it: the next request with one is refused."""
    _admins_only(request)
    await change(request, lambda draft: access.remove(draft, access.TOKEN, name))
    return Response(status_code=HTTPStatus.NO_CONTENT)


@router.get("/users", **gives(list[UserOut], 403))
async def list_users(request: Request) -> Response:
    """Those with a password, for clients that know nothing else."""
    _admins_only(request)
    documents = ledger_of(request).desired().documents
    return answer(request, encoded([_user_out(one) for one in access.listed(documents, User)]))


@router.put("/users/{name}", **gives(UserOut, 400, 403, 422, takes=UserIn))
async def put_user(request: Request, name: _Name) -> Response:
    """Make a user, or give it another password and role."""
    _admins_only(request)
    wanted = msgspec.json.decode(await request.body(), type=UserIn)
    made = await asyncio.to_thread(access.new_user, name, wanted.password, wanted.role, wanted.tenant)

    def edit(draft: Draft) -> None:
        access.put_user(draft, made)

    await change(request, edit, is_secret=True)
    return answer(request, encoded(_user_out(made)))


@router.delete("/users/{name}", **gives(None, 403, 404, 422, status=204))
async def delete_user(request: Request, name: _Name) -> Response:
    """Remove a user, and the tokens that it made for itself."""
    _admins_only(request)
    await change(request, lambda draft: access.remove(draft, access.USER, name))
    return Response(status_code=HTTPStatus.NO_CONTENT)


@router.get("/audit", **gives(list[AuditEntry], 403, 422))
async def read_audit(
    request: Request,
    before: Annotated[int | None, Query(ge=1, le=2**62)] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> Response:
    """Who did what, when, and how it ended; the newest first. `before` an id: older ones."""
    if not caller_of(request).may_change:
        raise refuse(request, "the audit log is for admins and operators")
    lines = await asyncio.to_thread(ledger_of(request).store.audit_lines, before, limit)
    return answer(request, encoded([AuditEntry(**line._asdict()) for line in lines]))
