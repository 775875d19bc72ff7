"""Acknowledged alarms: documents of the ledger, so they are kept over restarts and every change is in the audit log.

An acknowledgement ends after some days, so that an alarm that returns months later is noticed.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Annotated

import msgspec

from weft.errors import ConfigError
from weft.serve.access import DAY_S
from weft.serve.desired import Draft, NotFoundError

KIND = "acknowledgement"  # of documents
MOST_DAYS = 365
_MOST_NAME = 255  # characters of a document's name
_Text = Annotated[str, msgspec.Meta(min_length=1, max_length=500)]


class AcknowledgementIn(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A request to acknowledge an alarm."""

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=100)]  # of a person or team
    reason: _Text
    days: Annotated[float, msgspec.Meta(gt=0, le=MOST_DAYS)] = 7


class Acknowledgement(msgspec.Struct, kw_only=True, frozen=True):
    """An acknowledged alarm."""

    alarm: str
    name: str
    reason: str
    caller: str  # the token or user of the request
    at_s: float  # since 1970
    until_s: float


def alarm_id(kind: str, ends: Iterable[str]) -> str:
    """Return the id of an alarm, which does not depend on the order of its ends."""
    return f"{kind}: {' - '.join(sorted(ends))}"


def acknowledge(draft: Draft, alarm: str, request: AcknowledgementIn, caller: str) -> Acknowledgement:
    """Store an acknowledgement, in place of an earlier one; remove those that have ended."""
    if not (request.name.strip() and request.reason.strip()):
        raise ConfigError("an acknowledgement needs a name and a reason that are not blank")
    if len(alarm) > _MOST_NAME:
        raise ConfigError(f"the id of an alarm has at most {_MOST_NAME} characters, got {len(alarm)}")
    now_s = time.time()
    for name, document in draft.before.named(KIND).items():
        if _read(document).until_s <= now_s:
            draft.documents.pop((KIND, name), None)
    acknowledgement = Acknowledgement(
        alarm=alarm,
        name=request.name.strip(),
        reason=request.reason.strip(),
        caller=caller,
        at_s=now_s,
        until_s=now_s + request.days * DAY_S,
    )
    draft.documents[KIND, alarm] = msgspec.json.encode(acknowledgement).decode()
    return acknowledgement


def withdraw(draft: Draft, alarm: str) -> None:
    if draft.documents.pop((KIND, alarm), None) is None:
        raise NotFoundError(f"the alarm {alarm!r} is not acknowledged")


def acknowledged(documents: Mapping[tuple[str, str], str], now_s: float) -> dict[str, Acknowledgement]:
    """Return the acknowledgements that have not ended, by alarm."""
    found = (_read(document) for (kind, _), document in sorted(documents.items()) if kind == KIND)
    return {each.alarm: each for each in found if each.until_s > now_s}


def _read(document: str) -> Acknowledgement:
    return msgspec.json.decode(document, type=Acknowledgement)
