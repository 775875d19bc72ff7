"""Tokens, users and their roles, and how their secrets are stored.

    admin        everything, including tokens and users
    operator     changes intent and partitions, reads the audit log
    tenant       sees its own tenant; changes its ports within its quota of ports and hosts
    read-only    sees everything except the audit log and tokens

A token has 256 random bits, so its SHA-256 is stored. Passwords have less entropy: they are stored with scrypt, which
is slow on purpose; a correct password is then remembered by a keyed hash whose key lives as long as the process.

A token that a caller creates for itself has an owner, the user or the token that the caller logged in with: it has the
owner's current role, and is removed with the owner.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import re
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeVar

import msgspec

from weft.errors import ConfigError, WeftError
from weft.serve.desired import ConflictError, Draft, NotFoundError
from weft.serve.ledger import Ledger

TOKEN, USER = "token", "user"  # kinds of documents
NAME = r"^[A-Za-z0-9][A-Za-z0-9_.@-]{0,62}$"  # names of tokens and users
LIFETIME_DAYS = 365.0  # default lifetime of a token
DAY_S = 24 * 3600.0
_PREFIX = "weft_"  # recognised by secret scanners
_CONFIGURED = "configured"  # name of the admin token that is set at the start
_LEAST_CONFIGURED = 32  # characters
_MOST_OWNED = 1000  # valid tokens of one owner
_OWNER_PART = 54  # characters of the owner's name in the name of its token, so that it matches NAME
_FORMS = ("bearer", "basic")  # HTTP authentication schemes
_MOST_REMEMBERED = 1000
_MOST_LOGINS = 32  # most passwords waiting to be checked
_COST = {"n": 1 << 14, "r": 8, "p": 1, "maxmem": 64 << 20}
_LEAST_PASSWORD = 8
_Kept = TypeVar("_Kept", bound="_Rights")


class Role(StrEnum):
    """The role of a caller."""

    ADMIN = "admin"
    OPERATOR = "operator"
    TENANT = "tenant"
    READ_ONLY = "read-only"


class _Rights(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    role: Role
    tenant: str = ""  # set with the role tenant only
    made_at_s: float

    def __post_init__(self) -> None:
        if (self.role is Role.TENANT) != bool(self.tenant):
            raise ConfigError(
                f"{self.name} has the role {self.role}: give a tenant's name with the role tenant, and only with it"
            )


class Token(_Rights, frozen=True, kw_only=True):
    """A stored token."""

    sha256: str
    expires_at_s: float | None = None  # since 1970; None: never
    owner: tuple[str, str] | None = None  # kind and name of the document that it was created with, and is removed with

    def is_valid(self, now_s: float) -> bool:
        return self.expires_at_s is None or now_s < self.expires_at_s


class User(_Rights, frozen=True, kw_only=True):
    """A stored user."""

    salt: str = ""
    scrypt: str = ""  # empty: no password; logs in with a certificate


@dataclass(frozen=True, slots=True)
class Caller:
    """An authenticated client."""

    name: str
    role: Role
    tenant: str = ""
    owner: tuple[str, str] = ("", "")  # the responsible user or token: itself, or the owner of its token

    @property
    def may_change(self) -> bool:
        return self.role in (Role.ADMIN, Role.OPERATOR)


class BusyError(WeftError):
    """An error: too many passwords are waiting to be checked."""


# -- tokens and users -------------------------------------------------------------------------------------------------


def add_token(draft: Draft, name: str, role: Role, tenant: str = "", *, days: float = LIFETIME_DAYS) -> str:
    """Create a token and return its secret, which is not stored."""
    _check_name(TOKEN, name)
    if not 0 < days <= 10 * LIFETIME_DAYS:
        raise ConfigError(f"days must be more than 0 and at most {10 * LIFETIME_DAYS:g}, got {days:g}")
    _drop_expired(draft)
    if (TOKEN, name) in draft.documents:
        raise ConflictError(f"a token {name} exists already: revoke it first, or choose another name")
    now_s = time.time()
    return _store(draft, name=name, role=role, tenant=tenant, made_at_s=now_s, expires_at_s=now_s + days * DAY_S)


def add_own_token(draft: Draft, caller: Caller) -> tuple[str, Token]:
    """Create a token that is removed with the user or token of the caller. Return its secret and the token."""
    _drop_expired(draft)
    kind, owner = caller.owner
    tokens = {token.name: token for token in listed(draft.documents, Token)}
    if caller.owner not in draft.documents:
        raise NotFoundError(f"the {kind} {owner} has been removed")
    if sum(token.owner == caller.owner for token in tokens.values()) >= _MOST_OWNED:
        raise ConflictError(f"{owner} has {_MOST_OWNED:,} tokens already: revoke some")
    now_s = time.time()
    expires_at_s = now_s + LIFETIME_DAYS * DAY_S
    if kind == TOKEN:
        expires_at_s = min(expires_at_s, tokens[owner].expires_at_s or expires_at_s)
    name = f"{owner[:_OWNER_PART]}-{secrets.token_hex(4)}"
    secret = _store(
        draft,
        name=name,
        role=caller.role,
        tenant=caller.tenant,
        made_at_s=now_s,
        expires_at_s=expires_at_s,
        owner=caller.owner,
    )
    return secret, msgspec.json.decode(draft.documents[TOKEN, name], type=Token)


def configure_token(draft: Draft, secret: str) -> None:
    """Set the admin token that is configured at each start; an empty secret removes it."""
    if secret and len(secret) < _LEAST_CONFIGURED:
        raise ConfigError(f"the admin token is too short: use at least {_LEAST_CONFIGURED} random characters")
    key = (TOKEN, _CONFIGURED)
    if key in draft.documents:
        if secret and msgspec.json.decode(draft.documents[key], type=Token).sha256 == _digest(secret):
            return
        remove(draft, *key)
    if secret:
        token = Token(name=_CONFIGURED, role=Role.ADMIN, made_at_s=time.time(), sha256=_digest(secret))
        draft.documents[key] = msgspec.json.encode(token).decode()


def has_configured_token(documents: Mapping[tuple[str, str], str]) -> bool:
    return (TOKEN, _CONFIGURED) in documents


def has_admin(documents: Mapping[tuple[str, str], str]) -> bool:
    """Return whether an admin can log in, with a valid token or as a user."""
    now_s = time.time()
    tokens = (document for document in listed(documents, Token) if document.is_valid(now_s))
    return any(document.role is Role.ADMIN for document in (*tokens, *listed(documents, User)))


def _store(draft: Draft, **rights: Any) -> str:
    secret = _PREFIX + secrets.token_urlsafe(32)
    token = Token(sha256=_digest(secret), **rights)
    draft.documents[TOKEN, token.name] = msgspec.json.encode(token).decode()
    return secret


def _drop_expired(draft: Draft) -> None:
    now_s = time.time()
    for token in listed(draft.documents, Token):
        if not token.is_valid(now_s) and (TOKEN, token.name) in draft.documents:  # else it was removed with its owner
            remove(draft, TOKEN, token.name)


def _check_name(kind: str, name: str) -> None:
    if not re.fullmatch(NAME, name):
        raise ConfigError(
            f"the {kind} name {name!r} must have up to 63 letters, digits, `.`, `_`, `@` and `-`, and start with a "
            "letter or digit"
        )


def new_user(name: str, password: str | None, role: Role, tenant: str = "") -> User:
    """Return a new user; without a password it logs in with a certificate. Slow (scrypt): call it outside an edit."""
    _check_name(USER, name)
    if password is None:
        return User(name=name, role=role, tenant=tenant, made_at_s=time.time())
    if len(password) < _LEAST_PASSWORD:
        raise ConfigError(f"the password of {name} is too short: use at least {_LEAST_PASSWORD} characters")
    salt = secrets.token_hex(16)
    scrypt = _stretch(password, salt)
    return User(name=name, role=role, tenant=tenant, made_at_s=time.time(), salt=salt, scrypt=scrypt)


def put_user(draft: Draft, user: User) -> None:
    """Create a user, or change its password and role; its tokens get the new role."""
    draft.documents[USER, user.name] = msgspec.json.encode(user).decode()


def remove(draft: Draft, kind: str, name: str) -> None:
    """Remove a token or a user, and the tokens that it owns."""
    if (kind, name) not in draft.documents:
        raise NotFoundError(f"there is no {kind} {name}")
    del draft.documents[kind, name]
    for token in listed(draft.documents, Token):
        if token.owner == (kind, name):
            del draft.documents[TOKEN, token.name]


def listed(documents: Mapping[tuple[str, str], str], type_: type[_Kept]) -> list[_Kept]:
    document_kind = TOKEN if type_ is Token else USER
    return [
        msgspec.json.decode(body, type=type_) for (kind, _), body in sorted(documents.items()) if kind == document_kind
    ]


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode(errors="replace")).hexdigest()


def _stretch(password: str, salt: str) -> str:
    return hashlib.scrypt(password.encode(errors="replace"), salt=bytes.fromhex(salt), **_COST).hex()


# -- authentication ---------------------------------------------------------------------------------------------------


class Access:
    """The authentication of callers, with the current credentials of the ledger."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._read: Mapping[tuple[str, str], str] | None = None
        self._tokens: dict[str, tuple[Token, Caller]] = {}  # by digest
        self._users: dict[str, User] = {}
        self._key = secrets.token_bytes(32)
        self._correct: set[bytes] = set()  # keyed hashes of correct passwords
        self._slow = asyncio.Semaphore(1)  # scrypt takes a core and 16 MB
        self._waiting = 0
        self._decoy_salt = secrets.token_hex(16)

    def recognise(self, authorization: str) -> Caller | None:
        """Return the caller with a valid token, or with a password that was checked before.

        Forms: `Bearer TOKEN`; `Basic TOKEN` as in UFM; `Basic` with user and password as in HTTP.
        """
        self._refresh()
        form, _, word = authorization.partition(" ")
        if form.lower() not in _FORMS:
            return None
        token, caller = self._tokens.get(_digest(word.strip()), (None, None))
        if token is not None:
            return caller if token.is_valid(time.time()) else None
        name, password = _user_and_password(authorization)
        user = self._users.get(name or "")
        if user is not None and self._keyed_hash(user, password) in self._correct:
            return _user_caller(user)
        return None

    def user_of(self, authorization: str) -> str | None:
        """Return the user name of credentials with a password, else None."""
        return _user_and_password(authorization)[0]

    async def log_in(self, authorization: str) -> Caller | None:
        """Check a password. An unknown user takes as long. Raise BusyError if too many checks are waiting."""
        name, password = _user_and_password(authorization)
        if name is None:
            return None
        self._refresh()
        user = self._users.get(name)
        if self._waiting >= _MOST_LOGINS:
            raise BusyError("too many logins at once: try again")
        self._waiting += 1
        try:
            async with self._slow:
                salt = user.salt if user is not None and user.salt else self._decoy_salt
                scrypt = await asyncio.to_thread(_stretch, password, salt)
        finally:
            self._waiting -= 1
        if user is None or not user.scrypt or not hmac.compare_digest(scrypt, user.scrypt):
            return None
        if len(self._correct) >= _MOST_REMEMBERED:
            self._correct.clear()
        self._correct.add(self._keyed_hash(user, password))
        return _user_caller(user)

    def named(self, user: str) -> Caller | None:
        """Return a user that TLS or a trusted program has authenticated."""
        self._refresh()
        entry = self._users.get(user)
        return None if entry is None else _user_caller(entry)

    def _keyed_hash(self, user: User, password: str) -> bytes:
        return hmac.digest(self._key, f"{user.scrypt}\0{password}".encode(), "sha256")

    def _refresh(self) -> None:
        documents = self._ledger.desired().documents
        if documents is not self._read:
            self._users = {user.name: user for user in listed(documents, User)}
            tokens = {token.name: token for token in listed(documents, Token)}
            callers = {name: _token_caller(token, tokens, self._users) for name, token in tokens.items()}
            self._tokens = {tokens[name].sha256: (tokens[name], caller) for name, caller in callers.items() if caller}
            self._read = documents


def _user_and_password(authorization: str) -> tuple[str | None, str]:
    """Return the user and password of HTTP Basic credentials; None and an empty string if they have no user."""
    form, _, word = authorization.partition(" ")
    if form.lower() != "basic":
        return None, ""
    try:
        name, colon, password = base64.b64decode(word.strip(), validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return None, ""
    return (name, password) if colon else (None, "")


def _user_caller(user: User) -> Caller:
    return Caller(user.name, user.role, user.tenant, (USER, user.name))


def _token_caller(token: Token, tokens: Mapping[str, Token], users: Mapping[str, User]) -> Caller | None:
    """Return the caller of a token, with its owner's role; None if the owner was removed."""
    if token.owner is None:
        return Caller(token.name, token.role, token.tenant, (TOKEN, token.name))
    kind, name = token.owner
    rights = users.get(name) if kind == USER else tokens.get(name)
    return None if rights is None else Caller(token.name, rights.role, rights.tenant, token.owner)
