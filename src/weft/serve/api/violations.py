"""P_Key violations. A tenant sees only its own packets, without their destinations."""

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
    """A dropped packet, as reported by a trap."""

    at_s: float  # since 1970
    sender: str
    sender_partitions: list[str]
    source_is_forged: bool
    kind: str  # P_Key, Q_Key, or M_Key (an SMP with a wrong key)
    key: str
    receiver: str | None  # null for tenants, like the fields below
    receiver_partitions: list[str] | None
    stopped_at: str | None


class ViolationCounts(msgspec.Struct, kw_only=True):
    """The violation counters of a host port and its switch port, since they came up."""

    port: str
    partitions: list[str]
    sent: int  # packets from the port, dropped by its switch
    bad_p_keys: int | None  # packets received by it; null for tenants, like the fields below
    bad_q_keys: int | None
    held_back: int | None  # packets to the port, dropped by its switch


class DriftOut(msgspec.Struct, kw_only=True):
    """A difference between the fabric and the ledger."""

    at_s: float  # since 1970
    text: str
    is_repaired: bool


class ViolationsOut(msgspec.Struct, kw_only=True):
    """The violations and differences since the service started."""

    heard: list[ViolationOut]  # the newest 1,000, newest last
    not_heard_because: str | None  # why no traps arrive; null: they do
    counted: list[ViolationCounts]
    drift: list[DriftOut]  # the newest 1,000, newest last; empty for tenants


@router.get("/violations", **gives(ViolationsOut, 404, 504))
async def list_violations(request: Request) -> Response:
    """Return all violations; a tenant sees those of its own packets."""
    watcher: ViolationWatcher | None = request.app.state.watcher
    if watcher is None:
        raise NotFoundError("violations are not available: the service needs a port of the fabric, see --umad")
    counted, caller = await ask_fabric(request, watcher.counts), caller_of(request)
    tenant = caller.tenant if caller.role is Role.TENANT else None
    violations = ViolationsOut(
        heard=[
            _violation_out(entry, tenant)
            for entry in watcher.reported()
            if tenant in (None, *entry.violation.sender_partitions)
        ],
        not_heard_because=watcher.trouble or None,
        counted=[
            _counts_out(entry, tenant)
            for entry in counted
            if tenant is None or (tenant in entry.partitions and entry.from_port)
        ],
        drift=_drift_out(ledger_of(request)) if tenant is None else [],
    )
    return answer(request, encoded(violations))


def _drift_out(ledger: Ledger) -> list[DriftOut]:
    past = [] if ledger.drift is None else ledger.drift.past()
    return [
        DriftOut(at_s=difference.at_s, text=difference.text, is_repaired=difference.is_repaired) for difference in past
    ]


def _violation_out(reported: ReportedViolation, tenant: str | None) -> ViolationOut:
    violation, sees_all = reported.violation, tenant is None
    return ViolationOut(
        at_s=reported.at_s,
        sender=violation.sender,
        sender_partitions=[name for name in violation.sender_partitions if tenant in (None, name)],
        source_is_forged=violation.source_is_forged,
        kind=violation.kind,
        key=f"{violation.key:#06x}",
        receiver=violation.receiver if sees_all else None,
        receiver_partitions=list(violation.receiver_partitions) if sees_all else None,
        stopped_at=violation.at if sees_all else None,
    )


def _counts_out(count: Count, tenant: str | None) -> ViolationCounts:
    sees_all = tenant is None
    return ViolationCounts(
        port=count.port,
        partitions=[name for name in count.partitions if tenant in (None, name)],
        sent=count.from_port,
        bad_p_keys=count.p_keys if sees_all else None,
        bad_q_keys=count.q_keys if sees_all else None,
        held_back=count.to_port if sees_all else None,
    )
