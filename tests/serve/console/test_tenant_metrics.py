"""Prometheus metrics of tenants."""

from __future__ import annotations

from weft.monitor.metrics import text
from weft.serve.console.routes import tenant_metrics
from weft.serve.desired import Desired
from weft.tenants.partitions import Member, Partition


def test_tenants_and_their_ports():
    red = Partition(name="red", p_key=0x101, members={1: Member(), 2: Member(full=False)})
    messages = text(tenant_metrics(Desired(revision=7, partitions={0x101: red}))).splitlines()
    assert [line for line in messages if line[0] != "#"] == [
        "weft_tenants 1",
        'weft_tenant_ports{tenant="red",p_key="0x0101"} 2',
        "weft_desired_revision 7",
    ]
