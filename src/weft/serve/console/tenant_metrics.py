"""What the service knows of tenants, for Prometheus, beside what the monitor knows of the fabric."""

from __future__ import annotations

from weft.monitor.metrics import Family, labels
from weft.serve.desired import Desired


def tenant_metrics(desired: Desired) -> list[Family]:
    seats = [
        (labels(tenant=one.name, p_key=f"{p_key:#06x}"), len(one.seats))
        for p_key, one in sorted(desired.slices.items())
    ]
    return [
        Family("weft_tenants", "Slices of the fabric that were given to tenants.", "gauge", [("", len(seats))]),
        Family("weft_tenant_ports", "Ports that are members of a tenant's partition.", "gauge", seats),
        Family("weft_desired_revision", "Changes of what shall be, so far.", "gauge", [("", desired.revision)]),
    ]
