"""What the service knows of tenants, for Prometheus, beside what the monitor knows of the fabric."""

from __future__ import annotations

from weft.monitor.metrics import Family, labels
from weft.serve.desired import Desired
from weft.serve.drift import DriftWatch


def tenant_metrics(desired: Desired, drift: DriftWatch | None = None) -> list[Family]:
    members = [
        (labels(tenant=one.name, p_key=f"{p_key:#06x}"), len(one.members))
        for p_key, one in sorted(desired.partitions.items())
    ]
    return [
        Family("weft_tenants", "Slices of the fabric that were given to tenants.", "gauge", [("", len(members))]),
        Family("weft_tenant_ports", "Ports that are members of a tenant's partition.", "gauge", members),
        Family("weft_desired_revision", "Changes of what shall be, so far.", "gauge", [("", desired.revision)]),
        *_drift_metrics(drift),
    ]


def _drift_metrics(drift: DriftWatch | None) -> list[Family]:
    if drift is None:
        return []
    return [
        Family(
            "weft_drift_differences",
            "Ports and partitions that differ from the ledger now.",
            "gauge",
            [("", len(drift.differences))],
        ),
        Family("weft_drift_repaired_total", "Differences that were repaired.", "counter", [("", drift.repaired)]),
        Family(
            "weft_drift_checked_timestamp_seconds",
            "When the fabric was last compared with the ledger.",
            "gauge",
            [("", drift.checked_at_s)],
        ),
    ]
