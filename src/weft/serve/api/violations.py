"""Who tried to get across. A tenant sees what it sent itself, and not to whom."""

from __future__ import annotations

import msgspec
from fastapi import APIRouter, Request, Response

from weft.serve.access import Role
from weft.serve.api.exchange import answer, ask_fabric, caller_of, encoded, gives, ledger_of
from weft.serve.desired import Absent
from weft.serve.ledger import Ledger
from weft.serve.lookout import Heard, Lookout
from weft.tenants.violations import Count

router = APIRouter(tags=["violations"])


class Stopped(msgspec.Struct, kw_only=True):
    """A packet, as a trap told."""

    at_s: float  # since 1970
    sender: str
    sender_partitions: list[str]
    source_is_forged: bool
    kind: str  # P_Key, Q_Key, or M_Key: an attempt to manage the receiver
    key: str
    receiver: str | None  # null for tenants, as what follows
    receiver_partitions: list[str] | None
    stopped_at: str | None


class Counted(msgspec.Struct, kw_only=True):
    """Packets at a host's port, and at the switch's before it, since they came up."""

    port: str
    partitions: list[str]
    sent: int  # that its switch did not let in
    bad_p_keys: int | None  # that came to it; null for tenants, as what follows
    bad_q_keys: int | None
    held_back: int | None  # that its switch did not let out to it


class Drifted(msgspec.Struct, kw_only=True):
    """A port, or a partition, that was not as the ledger has it."""

    at_s: float  # since 1970
    text: str
    is_repaired: bool


class Violations(msgspec.Struct, kw_only=True):
    heard: list[Stopped]  # since the service started, the newest 1,000, which come last
    not_heard_because: str | None  # why traps do not come in, if they do not
    counted: list[Counted]
    drift: list[Drifted]  # since the service started, the newest 1,000, which come last; none for tenants


@router.get("/violations", **gives(Violations, 404, 504))
async def list_violations(request: Request) -> Response:
    """All; a tenant sees those that it sent."""
    lookout: Lookout | None = request.app.state.lookout
    if lookout is None:
        raise Absent("violations are not known here: they are told to who has a port of the fabric, --umad names one")
    counted, caller = await ask_fabric(request, lookout.counted), caller_of(request)
    tenant = caller.tenant if caller.role is Role.TENANT else None
    found = Violations(
        heard=[_stopped(one, tenant) for one in lookout.heard() if tenant in (None, *one.violation.sender_slices)],
        not_heard_because=lookout.trouble or None,
        counted=[
            _counted(one, tenant) for one in counted if tenant is None or (tenant in one.slices and one.from_port)
        ],
        drift=_drifted(ledger_of(request)) if tenant is None else [],
    )
    return answer(request, encoded(found))


def _drifted(ledger: Ledger) -> list[Drifted]:
    found = [] if ledger.drift is None else ledger.drift.past()
    return [Drifted(at_s=one.at_s, text=one.text, is_repaired=one.is_repaired) for one in found]


def _stopped(one: Heard, tenant: str | None) -> Stopped:
    told, sees_all = one.violation, tenant is None
    return Stopped(
        at_s=one.at_s,
        sender=told.sender,
        sender_partitions=[name for name in told.sender_slices if tenant in (None, name)],
        source_is_forged=told.source_is_forged,
        kind=told.kind,
        key=f"{told.key:#06x}",
        receiver=told.receiver if sees_all else None,
        receiver_partitions=list(told.receiver_slices) if sees_all else None,
        stopped_at=told.at if sees_all else None,
    )


def _counted(one: Count, tenant: str | None) -> Counted:
    sees_all = tenant is None
    return Counted(
        port=one.port,
        partitions=[name for name in one.slices if tenant in (None, name)],
        sent=one.from_port,
        bad_p_keys=one.p_keys if sees_all else None,
        bad_q_keys=one.q_keys if sees_all else None,
        held_back=one.to_port if sees_all else None,
    )
