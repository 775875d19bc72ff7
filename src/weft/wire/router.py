"""Routers between subnets, as NVIDIA's describe themselves: vendor attributes of subnet management.

    RouterInfo 0xFFD0                        sizes of the router's tables, and the ranges of floating LIDs
    AdjacentSiteLocalSubnetsTable 0xFFD2     the subnets behind its other ports; the modifier is a block of eight
    AdjacentSubnetsRouterLidInfo 0xFFD5      the ranges of floating LIDs of those subnets, in blocks of eight
    RouterLidTable 0xFFD6                    a bit for each floating LID that is enabled; the modifier is a block of 512

Certainty: none of this is in the standard, and it was not tested against a real router. Numbers and layouts are those
of public copies of ibdiagnet's headers (`SMP_RouterInfo`, `AdjSiteLocalSubnetRecord`, `AdjSubnetRouterLIDRecord`,
`SMP_RouterLIDTable`); that a block has eight records follows from their size, and that the first LID of a block is its
first bit from OpenSM's `RTR_RTR_LID_TBL_BLOCK_IDX_IN_RECORD`. A site-local prefix is 0xFEC0, zeros, and 16 bits that
the tables hold; between them is the floating LID of a port (NCCL and UCX read it there). LIDs have 20 bits.
"""

# ruff: noqa: PIE794 - reserved fields are named `_`
from __future__ import annotations

from weft.wire.fields import bits, parts, reserved
from weft.wire.format import Format

SUBNETS_PER_BLOCK = 8
LIDS_PER_BLOCK = 512


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


class AdjacentRouterLids(Format, size=8):
    """The range of floating LIDs of a subnet behind another port of a router."""

    subnet_prefix = bits(16)  # the last 16 bits of a site-local prefix
    first = bits(16)
    first_high = bits(4)
    _ = reserved(8)
    last = bits(20)


class AdjacentSubnetsRouterLidInfo(Format, size=64):
    """The attribute 0xFFD5."""

    subnet = parts(SUBNETS_PER_BLOCK, AdjacentRouterLids)


class RouterLidTable(Format, size=64):
    """The attribute 0xFFD6: bit n of block b, counted from the first, is floating LID 512 b + n."""

    enabled = bits(LIDS_PER_BLOCK)
