"""Who may do what: tokens and users, their roles, and what is kept of their secrets.

    admin        everything, tokens and users too
    operator     changes intent and partitions, reads the audit log
    tenant       sees its own tenant; changes its ports within the quota that it was given
    read-only    sees everything but the audit log and tokens

A token has 256 random bits: SHA-256 of it is kept, which nobody turns back. A password has few: scrypt, which is slow
on purpose, so one that was right is remembered by a keyed hash whose key lives as long as the process.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

import msgspec

from weft.errors import ConfigError
from weft.serve.desired import Absent, Clash, Draft
from weft.serve.ledger import Ledger

TOKEN, USER = "token", "user"  # kinds of documents
_PREFIX = "weft_"  # by which those who look for secrets in the wrong place find one
_MOST_REMEMBERED = 1000
_COST = {"n": 1 << 14, "r": 8, "p": 1, "maxmem": 64 << 20}
_LEAST_PASSWORD = 8
_Kept = TypeVar("_Kept", bound="_Rights")


class Role(StrEnum):
    ADMIN = "admin"
    OPERATOR = "operator"
    TENANT = "tenant"
    READ_ONLY = "read-only"


class _Rights(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    role: Role
    tenant: str = ""  # whose: with the role tenant, and only with it
    made_at_s: float

    def __post_init__(self) -> None:
        if (self.role is Role.TENANT) != bool(self.tenant):
            raise ConfigError(f"the role {self.role} of {self.name}: a tenant's name goes with the role tenant alone")


class Token(_Rights, frozen=True, kw_only=True):
    sha256: str


class User(_Rights, frozen=True, kw_only=True):
    salt: str
    scrypt: str


@dataclass(frozen=True, slots=True)
class Caller:
    """Who makes a request."""

    name: str
    role: Role
    tenant: str = ""

    @property
    def may_change(self) -> bool:
        return self.role in (Role.ADMIN, Role.OPERATOR)


# -- giving and taking ------------------------------------------------------------------------------------------------


def add_token(draft: Draft, name: str, role: Role, tenant: str = "") -> str:
    """The token, which is nowhere else: it is seen this once."""
    if (TOKEN, name) in draft.documents:
        raise Clash(f"there is a token {name} already: revoke it first, or choose another name")
    secret = _PREFIX + secrets.token_urlsafe(32)
    kept = Token(name=name, role=role, tenant=tenant, made_at_s=time.time(), sha256=_digest(secret))
    draft.documents[TOKEN, name] = msgspec.json.encode(kept).decode()
    return secret


def new_user(name: str, password: str, role: Role, tenant: str = "") -> User:
    """It takes a while, on purpose: not for an edit."""
    if ":" in name:
        raise ConfigError(f"the user {name!r} is refused: in HTTP's Basic form a name ends at the first colon")
    if len(password) < _LEAST_PASSWORD:
        raise ConfigError(f"the password of {name} is refused: it must have {_LEAST_PASSWORD} characters and more")
    salt = secrets.token_hex(16)
    scrypt = _stretch(password, salt)
    return User(name=name, role=role, tenant=tenant, made_at_s=time.time(), salt=salt, scrypt=scrypt)


def put_user(draft: Draft, user: User) -> None:
    """Made, or given another password and role."""
    draft.documents[USER, user.name] = msgspec.json.encode(user).decode()


def remove(draft: Draft, kind: str, name: str) -> None:
    if (kind, name) not in draft.documents:
        raise Absent(f"there is no {kind} {name}")
    del draft.documents[kind, name]


def listed(documents: Mapping[tuple[str, str], str], type_: type[_Kept]) -> list[_Kept]:
    kind = TOKEN if type_ is Token else USER
    return [msgspec.json.decode(body, type=type_) for (one, _), body in sorted(documents.items()) if one == kind]


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode(errors="replace")).hexdigest()


def _stretch(password: str, salt: str) -> str:
    return hashlib.scrypt(password.encode(errors="replace"), salt=bytes.fromhex(salt), **_COST).hex()


# -- recognising ------------------------------------------------------------------------------------------------------


class Access:
    """Says who calls, by what the ledger knows now."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._read: Mapping[tuple[str, str], str] | None = None
        self._tokens: dict[str, Caller] = {}  # by digest
        self._users: dict[str, User] = {}
        self._key = secrets.token_bytes(32)
        self._right: set[bytes] = set()  # keyed hashes of what was right
        self._slow = asyncio.Semaphore(1)  # scrypt takes a core and 16 MB

    async def identify(self, authorization: str) -> Caller | None:
        """`Bearer TOKEN`; `Basic TOKEN`, as UFM has it; `Basic` with user and password, as HTTP has it."""
        self._refresh()
        form, _, word = authorization.partition(" ")
        word = word.strip()
        if form.lower() not in ("bearer", "basic") or not word:
            return None
        known = self._tokens.get(_digest(word))
        return known if known is not None or form.lower() == "bearer" else await self._user(word)

    def named(self, user: str) -> Caller | None:
        """A user whose word is taken for it."""
        self._refresh()
        found = self._users.get(user)
        return None if found is None else _caller(found)

    async def _user(self, encoded: str) -> Caller | None:
        try:
            name, colon, password = base64.b64decode(encoded, validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            return None
        user = self._users.get(name)
        if user is None or not colon:
            return None
        shown = hmac.digest(self._key, f"{user.scrypt}\0{password}".encode(), "sha256")
        if shown not in self._right:
            async with self._slow:
                found = await asyncio.to_thread(_stretch, password, user.salt)
            if not hmac.compare_digest(found, user.scrypt):
                return None
            if len(self._right) >= _MOST_REMEMBERED:
                self._right.clear()
            self._right.add(shown)
        return _caller(user)

    def _refresh(self) -> None:
        documents = self._ledger.desired().documents
        if documents is not self._read:
            self._tokens = {one.sha256: _caller(one) for one in listed(documents, Token)}
            self._users = {one.name: one for one in listed(documents, User)}
            self._read = documents


def _caller(one: _Rights) -> Caller:
    return Caller(one.name, one.role, one.tenant)
