"""Tokens and users (for admins), and the audit log."""

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
    """The role of a token or user."""

    role: Role
    tenant: str = ""  # required for the role tenant


class TokenIn(Rights, kw_only=True, forbid_unknown_fields=True):
    """A request for a token."""

    days: float = access.LIFETIME_DAYS  # until it expires


class UserIn(Rights, kw_only=True, forbid_unknown_fields=True):
    """A request for a user."""

    password: Annotated[str, msgspec.Meta(min_length=8)] | None = None  # None: the user logs in with a certificate


class UserOut(msgspec.Struct, kw_only=True):
    """A user."""

    name: str
    role: Role
    tenant: str
    made_at_s: float  # since 1970


class TokenOut(UserOut, kw_only=True):
    """A token, without its secret."""

    expires_at_s: float | None  # None: never
    owner: str  # the user or token that it is removed with, such as "user bob"; or empty


class TokenSecret(msgspec.Struct, kw_only=True):
    """The secret of a new token."""

    token: str  # shown only once


class AuditEntry(msgspec.Struct, kw_only=True):
    """A line of the audit log."""

    id: int
    at_s: float  # since 1970
    actor: str
    what: str
    result: str
    revision: int
    times: int  # number of equal refusals
    hash: str  # over this line and the previous hash of its chain


def _admins_only(request: Request) -> None:
    if caller_of(request).role is not Role.ADMIN:
        raise refuse(request, "only admins may manage tokens and users")


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
    """Return all tokens, without their secrets."""
    _admins_only(request)
    documents = ledger_of(request).desired().documents
    return answer(request, encoded([_token_out(token) for token in access.listed(documents, Token)]))


@router.put("/tokens/{name}", **gives(TokenSecret, 400, 403, 409, 422, status=201, takes=TokenIn))
async def put_token(request: Request, name: _Name) -> Response:
    """Create a token and return its secret, which is shown only once."""
    _admins_only(request)
    body = msgspec.json.decode(await request.body(), type=TokenIn)

    def edit(draft: Draft) -> str:
        return access.add_token(draft, name, body.role, body.tenant, days=body.days)

    token = await change(request, edit)
    return Response(encoded(TokenSecret(token=token)), HTTPStatus.CREATED, media_type="application/json")


@router.delete("/tokens/{name}", **gives(None, 403, 404, 422, status=204))
async def delete_token(request: Request, name: _Name) -> Response:
    """Revoke a token and the tokens that were created with it."""
    _admins_only(request)
    await change(request, lambda draft: access.remove(draft, access.TOKEN, name))
    return Response(status_code=HTTPStatus.NO_CONTENT)


@router.get("/users", **gives(list[UserOut], 403))
async def list_users(request: Request) -> Response:
    """Return all users."""
    _admins_only(request)
    documents = ledger_of(request).desired().documents
    return answer(request, encoded([_user_out(user) for user in access.listed(documents, User)]))


@router.put("/users/{name}", **gives(UserOut, 400, 403, 422, takes=UserIn))
async def put_user(request: Request, name: _Name) -> Response:
    """Create a user, or change its password and role."""
    _admins_only(request)
    body = msgspec.json.decode(await request.body(), type=UserIn)
    user = await asyncio.to_thread(access.new_user, name, body.password, body.role, body.tenant)

    def edit(draft: Draft) -> None:
        access.put_user(draft, user)

    await change(request, edit, is_secret=True)
    return answer(request, encoded(_user_out(user)))


@router.delete("/users/{name}", **gives(None, 403, 404, 422, status=204))
async def delete_user(request: Request, name: _Name) -> Response:
    """Remove a user and the tokens that it created."""
    _admins_only(request)
    await change(request, lambda draft: access.remove(draft, access.USER, name))
    return Response(status_code=HTTPStatus.NO_CONTENT)


@router.get("/audit", **gives(list[AuditEntry], 403, 422))
async def read_audit(
    request: Request,
    before: Annotated[int | None, Query(ge=1, le=2**62)] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> Response:
    """Return lines of the audit log, newest first. `before`: only lines with a lower id."""
    if not caller_of(request).may_change:
        raise refuse(request, "only admins and operators may read the audit log")
    lines = await asyncio.to_thread(ledger_of(request).store.audit_lines, before, limit)
    return answer(request, encoded([AuditEntry(**line._asdict()) for line in lines]))
