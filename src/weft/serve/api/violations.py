"""Who tried to get across. A tenant sees what it sent itself, and not to whom."""

from __future__ import annotations

import msgspec
from fastapi import APIRouter, Request, Response

from weft.serve.access import Role
from weft.serve.api.exchange import answer, ask_fabric, caller_of, encoded, gives, ledger_of
from weft.serve.desired import NotFoundError
from weft.serve.ledger import Ledger
from weft.serve.violation_watcher import ReportedViolation, ViolationWatcher
from weft.tenants.violations import Count

router = APIRouter(tags=["violations"])


class ViolationOut(msgspec.Struct, kw_only=True):
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


class ViolationCounts(msgspec.Struct, kw_only=True):
    """Packets at a host's port, and at the switch's before it, since they came up."""

    port: str
    partitions: list[str]
    sent: int  # that its switch did not let in
    bad_p_keys: int | None  # that came to it; null for tenants, as what follows
    bad_q_keys: int | None
    held_back: int | None  # that its switch did not let out to it


class DriftOut(msgspec.Struct, kw_only=True):
    """A port, or a partition, that was not as the ledger has it."""

    at_s: float  # since 1970
    text: str
    is_repaired: bool


class ViolationsOut(msgspec.Struct, kw_only=True):
    heard: list[ViolationOut]  # since the service started, the newest 1,000, which come last
    not_heard_because: str | None  # why traps do not come in, if they do not
    counted: list[ViolationCounts]
    drift: list[DriftOut]  # since the service started, the newest 1,000, which come last; none for tenants


@router.get("/violations", **gives(ViolationsOut, 404, 504))
async def list_violations(request: Request) -> Response:
    """All; a tenant sees those that it sent."""
    watcher: ViolationWatcher | None = request.app.state.watcher
    if watcher is None:
        raise NotFoundError(
            "violations are not known here: they are told to who has a port of the fabric, --umad names one"
        )
    counted, caller = await ask_fabric(request, watcher.counted), caller_of(request)
    tenant = caller.tenant if caller.role is Role.TENANT else None
    found = ViolationsOut(
        heard=[
            _violation_out(one, tenant) for one in watcher.heard() if tenant in (None, *one.violation.sender_partitions)
        ],
        not_heard_because=watcher.trouble or None,
        counted=[
            _counts_out(one, tenant)
            for one in counted
            if tenant is None or (tenant in one.partitions and one.from_port)
        ],
        drift=_drift_out(ledger_of(request)) if tenant is None else [],
    )
    return answer(request, encoded(found))


def _drift_out(ledger: Ledger) -> list[DriftOut]:
    found = [] if ledger.drift is None else ledger.drift.past()
    return [DriftOut(at_s=one.at_s, text=one.text, is_repaired=one.is_repaired) for one in found]


def _violation_out(one: ReportedViolation, tenant: str | None) -> ViolationOut:
    told, sees_all = one.violation, tenant is None
    return ViolationOut(
        at_s=one.at_s,
        sender=told.sender,
        sender_partitions=[name for name in told.sender_partitions if tenant in (None, name)],
        source_is_forged=told.source_is_forged,
        kind=told.kind,
        key=f"{told.key:#06x}",
        receiver=told.receiver if sees_all else None,
        receiver_partitions=list(told.receiver_partitions) if sees_all else None,
        stopped_at=told.at if sees_all else None,
    )


def _counts_out(one: Count, tenant: str | None) -> ViolationCounts:
    sees_all = tenant is None
    return ViolationCounts(
        port=one.port,
        partitions=[name for name in one.partitions if tenant in (None, name)],
        sent=one.from_port,
        bad_p_keys=one.p_keys if sees_all else None,
        bad_q_keys=one.q_keys if sees_all else None,
        held_back=one.to_port if sees_all else None,
    )
