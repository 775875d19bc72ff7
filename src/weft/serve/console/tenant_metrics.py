"""Prometheus metrics of tenants and drift, in addition to those of the monitor."""

from __future__ import annotations

from weft.monitor.metrics import Family, labels
from weft.serve.desired import Desired
from weft.serve.drift import DriftWatch


def tenant_metrics(desired: Desired, drift: DriftWatch | None = None) -> list[Family]:
    members = [
        (labels(tenant=partition.name, p_key=f"{p_key:#06x}"), len(partition.members))
        for p_key, partition in sorted(desired.partitions.items())
    ]
    return [
        Family("weft_tenants", "Partitions of tenants.", "gauge", [("", len(members))]),
        Family("weft_tenant_ports", "Ports that are members of a tenant's partition.", "gauge", members),
        Family("weft_desired_revision", "Revision of the desired state.", "gauge", [("", desired.revision)]),
        *_drift_metrics(drift),
    ]


def _drift_metrics(drift: DriftWatch | None) -> list[Family]:
    if drift is None:
        return []
    return [
        Family(
            "weft_drift_differences",
            "Current differences between the fabric and the ledger.",
            "gauge",
            [("", len(drift.differences))],
        ),
        Family("weft_drift_repaired_total", "Repaired differences.", "counter", [("", drift.repaired)]),
        Family(
            "weft_drift_checked_timestamp_seconds",
            "Time of the last comparison of the fabric with the ledger.",
            "gauge",
            [("", drift.checked_at_s)],
        ),
    ]
