"""The numbers of the connection manager, by the names that rdma_cma.h gives them."""
# ruff: noqa: N801 - the names are those of rdma_cma.h

from __future__ import annotations

import sys
from enum import IntEnum
from typing import TYPE_CHECKING

from weft.verbs.enums import members

# Hints of an address query.
RAI_PASSIVE = 1
RAI_NUMERICHOST = 2
RAI_NOROUTE = 4
RAI_FAMILY = 8
RAI_SA = 16
RAI_DNS = 32

RDMA_OPTION_ID = 0
RDMA_OPTION_ID_TOS = 0
RDMA_OPTION_ID_REUSEADDR = 1
RDMA_OPTION_ID_AFONLY = 2
RDMA_OPTION_ID_ACK_TIMEOUT = 3


class rdma_cm_event_type(IntEnum):
    """An event of a connection."""

    RDMA_CM_EVENT_ADDR_RESOLVED = 0
    RDMA_CM_EVENT_ADDR_ERROR = 1
    RDMA_CM_EVENT_ROUTE_RESOLVED = 2
    RDMA_CM_EVENT_ROUTE_ERROR = 3
    RDMA_CM_EVENT_CONNECT_REQUEST = 4
    RDMA_CM_EVENT_CONNECT_RESPONSE = 5
    RDMA_CM_EVENT_CONNECT_ERROR = 6
    RDMA_CM_EVENT_UNREACHABLE = 7
    RDMA_CM_EVENT_REJECTED = 8
    RDMA_CM_EVENT_ESTABLISHED = 9
    RDMA_CM_EVENT_DISCONNECTED = 10
    RDMA_CM_EVENT_DEVICE_REMOVAL = 11
    RDMA_CM_EVENT_MULTICAST_JOIN = 12
    RDMA_CM_EVENT_MULTICAST_ERROR = 13
    RDMA_CM_EVENT_ADDR_CHANGE = 14
    RDMA_CM_EVENT_TIMEWAIT_EXIT = 15
    RDMA_CM_EVENT_ADDRINFO_RESOLVED = 16
    RDMA_CM_EVENT_ADDRINFO_ERROR = 17


class rdma_port_space(IntEnum):
    """The port space of a service number."""

    RDMA_PS_IPOIB = 2
    RDMA_PS_TCP = 0x106
    RDMA_PS_UDP = 0x111
    RDMA_PS_IB = 0x13F


class rdma_cm_join_mc_attr_mask(IntEnum):
    """The fields that are set in JoinMCAttrEx."""

    RDMA_CM_JOIN_MC_ATTR_ADDRESS = 1
    RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS = 2


class rdma_cm_mc_join_flags(IntEnum):
    """The way a multicast group is joined."""

    RDMA_MC_JOIN_FLAG_FULLMEMBER = 0
    RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER = 1


globals().update(members(sys.modules[__name__]))

if TYPE_CHECKING:
    from weft.verbs.enums.cm_names import *  # noqa: F403
