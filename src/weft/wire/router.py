"""Routers between subnets, as NVIDIA's describe themselves: vendor attributes of subnet management.

    RouterInfo 0xFFD0                        sizes of the router's tables, and the ranges of floating LIDs
    AdjacentSiteLocalSubnetsTable 0xFFD2     the subnets behind its other ports; the modifier is a block of eight

Certainty: none of this is in the standard, and it was not tested against a real router. Numbers and layouts are those
of public copies of ibdiagnet's headers (`SMP_RouterInfo`, `AdjSiteLocalSubnetRecord`); that a block has eight records
follows from their size. A site-local prefix is 0xFEC0, zeros, and 16 bits that the table holds. LIDs have 20 bits.
"""

# ruff: noqa: PIE794 - reserved fields are named `_`
from __future__ import annotations

from weft.wire.fields import bits, parts, reserved
from weft.wire.format import Format

SUBNETS_PER_BLOCK = 8


class RouterInfo(Format, size=40):
    """The attribute 0xFFD0."""

    capability_mask = bits(32)
    next_hop_table_cap = bits(32)
    next_hop_table_top = bits(32)
    table_changes = bits(16)
    adjacent_subnets_top = bits(8)
    adjacent_subnets_cap = bits(8)
    supported_subnets = bits(8)
    _ = reserved(8)
    ar_group_to_router_lid_cap = bits(16)
    _ = reserved(7)
    pfrn_over_router_enabled = bits(1)
    adjacent_router_lid_top = bits(8)
    router_lid_cap = bits(16)
    max_ar_group_id = bits(12)
    global_router_lid_base = bits(20)
    _ = reserved(12)
    global_router_lid_top = bits(20)
    _ = reserved(12)
    local_router_lid_base = bits(20)
    _ = reserved(12)
    local_router_lid_top = bits(20)


class AdjacentSubnet(Format, size=8):
    """A subnet behind another port of a router, with the P_Key of that port and the LID of the subnet's manager."""

    p_key = bits(16)
    subnet_prefix = bits(16)  # the last 16 bits of a site-local prefix
    _ = reserved(3)
    pfrn_over_router_enabled = bits(1)
    max_ar_group_id = bits(12)
    master_sm_lid = bits(16)


class AdjacentSiteLocalSubnetsTable(Format, size=64):
    """The attribute 0xFFD2."""

    subnet = parts(SUBNETS_PER_BLOCK, AdjacentSubnet)
