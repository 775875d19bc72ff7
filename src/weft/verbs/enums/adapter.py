"""Devices, ports, addresses and memory."""
# ruff: noqa: N801 - the names are those of verbs.h

from __future__ import annotations

from enum import IntEnum


class ibv_transport_type(IntEnum):
    """The transport of a device."""

    IBV_TRANSPORT_UNKNOWN = -1
    IBV_TRANSPORT_IB = 0
    IBV_TRANSPORT_IWARP = 1
    IBV_TRANSPORT_USNIC = 2
    IBV_TRANSPORT_USNIC_UDP = 3


class ibv_node_type(IntEnum):
    """The type of a device."""

    IBV_NODE_UNKNOWN = -1
    IBV_NODE_CA = 1
    IBV_NODE_SWITCH = 2
    IBV_NODE_ROUTER = 3
    IBV_NODE_RNIC = 4
    IBV_NODE_USNIC = 5
    IBV_NODE_USNIC_UDP = 6
    IBV_NODE_UNSPECIFIED = 7


class ibv_atomic_cap(IntEnum):
    """The scope in which an operation is atomic."""

    IBV_ATOMIC_NONE = 0
    IBV_ATOMIC_HCA = 1
    IBV_ATOMIC_GLOB = 2


class ibv_device_cap_flags(IntEnum):
    """The capabilities of a device."""

    IBV_DEVICE_RESIZE_MAX_WR = 1
    IBV_DEVICE_BAD_PKEY_CNTR = 2
    IBV_DEVICE_BAD_QKEY_CNTR = 4
    IBV_DEVICE_RAW_MULTI = 8
    IBV_DEVICE_AUTO_PATH_MIG = 0x10
    IBV_DEVICE_CHANGE_PHY_PORT = 0x20
    IBV_DEVICE_UD_AV_PORT_ENFORCE = 0x40
    IBV_DEVICE_CURR_QP_STATE_MOD = 0x80
    IBV_DEVICE_SHUTDOWN_PORT = 0x100
    IBV_DEVICE_INIT_TYPE = 0x200
    IBV_DEVICE_PORT_ACTIVE_EVENT = 0x400
    IBV_DEVICE_SYS_IMAGE_GUID = 0x800
    IBV_DEVICE_RC_RNR_NAK_GEN = 0x1000
    IBV_DEVICE_SRQ_RESIZE = 0x2000
    IBV_DEVICE_N_NOTIFY_CQ = 0x4000
    IBV_DEVICE_MEM_WINDOW = 0x20000
    IBV_DEVICE_UD_IP_CSUM = 0x40000
    IBV_DEVICE_XRC = 0x100000
    IBV_DEVICE_MEM_MGT_EXTENSIONS = 0x200000
    IBV_DEVICE_MEM_WINDOW_TYPE_2A = 0x800000
    IBV_DEVICE_MEM_WINDOW_TYPE_2B = 0x1000000
    IBV_DEVICE_RC_IP_CSUM = 0x2000000
    IBV_DEVICE_RAW_IP_CSUM = 0x4000000
    IBV_DEVICE_MANAGED_FLOW_STEERING = 0x20000000


class ibv_odp_general_caps(IntEnum):
    """The on-demand paging capabilities of a device."""

    IBV_ODP_SUPPORT = 1
    IBV_ODP_SUPPORT_IMPLICIT = 2


class ibv_odp_transport_cap_bits(IntEnum):
    """The operations that may access memory registered on demand."""

    IBV_ODP_SUPPORT_SEND = 1
    IBV_ODP_SUPPORT_RECV = 2
    IBV_ODP_SUPPORT_WRITE = 4
    IBV_ODP_SUPPORT_READ = 8
    IBV_ODP_SUPPORT_ATOMIC = 0x10
    IBV_ODP_SUPPORT_SRQ_RECV = 0x20
    IBV_ODP_SUPPORT_FLUSH = 0x40
    IBV_ODP_SUPPORT_ATOMIC_WRITE = 0x80


class ibv_raw_packet_caps(IntEnum):
    """The capabilities of a device for raw packets."""

    IBV_RAW_PACKET_CAP_CVLAN_STRIPPING = 1
    IBV_RAW_PACKET_CAP_SCATTER_FCS = 2
    IBV_RAW_PACKET_CAP_IP_CSUM = 4
    IBV_RAW_PACKET_CAP_DELAY_DROP = 8


class ibv_tm_cap_flags(IntEnum):
    """The transports with tag matching."""

    IBV_TM_CAP_RC = 1


class ibv_values_mask(IntEnum):
    """The clocks that can be read."""

    IBV_VALUES_MASK_RAW_CLOCK = 1


class ibv_fork_status(IntEnum):
    """The state of the protection of registered memory against fork()."""

    IBV_FORK_DISABLED = 0
    IBV_FORK_ENABLED = 1
    IBV_FORK_UNNEEDED = 2


class ibv_event_type(IntEnum):
    """An asynchronous event."""

    IBV_EVENT_CQ_ERR = 0
    IBV_EVENT_QP_FATAL = 1
    IBV_EVENT_QP_REQ_ERR = 2
    IBV_EVENT_QP_ACCESS_ERR = 3
    IBV_EVENT_COMM_EST = 4
    IBV_EVENT_SQ_DRAINED = 5
    IBV_EVENT_PATH_MIG = 6
    IBV_EVENT_PATH_MIG_ERR = 7
    IBV_EVENT_DEVICE_FATAL = 8
    IBV_EVENT_PORT_ACTIVE = 9
    IBV_EVENT_PORT_ERR = 10
    IBV_EVENT_LID_CHANGE = 11
    IBV_EVENT_PKEY_CHANGE = 12
    IBV_EVENT_SM_CHANGE = 13
    IBV_EVENT_SRQ_ERR = 14
    IBV_EVENT_SRQ_LIMIT_REACHED = 15
    IBV_EVENT_QP_LAST_WQE_REACHED = 16
    IBV_EVENT_CLIENT_REREGISTER = 17
    IBV_EVENT_GID_CHANGE = 18
    IBV_EVENT_WQ_FATAL = 19
    IBV_EVENT_DEVICE_SPEED_CHANGE = 20


class ibv_port_state(IntEnum):
    """The logical state of a port, as in PortInfo."""

    IBV_PORT_NOP = 0
    IBV_PORT_DOWN = 1
    IBV_PORT_INIT = 2
    IBV_PORT_ARMED = 3
    IBV_PORT_ACTIVE = 4
    IBV_PORT_ACTIVE_DEFER = 5


class ibv_port_cap_flags(IntEnum):
    """The CapabilityMask of PortInfo."""

    IBV_PORT_SM = 2
    IBV_PORT_NOTICE_SUP = 4
    IBV_PORT_TRAP_SUP = 8
    IBV_PORT_OPT_IPD_SUP = 0x10
    IBV_PORT_AUTO_MIGR_SUP = 0x20
    IBV_PORT_SL_MAP_SUP = 0x40
    IBV_PORT_MKEY_NVRAM = 0x80
    IBV_PORT_PKEY_NVRAM = 0x100
    IBV_PORT_LED_INFO_SUP = 0x200
    IBV_PORT_SYS_IMAGE_GUID_SUP = 0x800
    IBV_PORT_PKEY_SW_EXT_PORT_TRAP_SUP = 0x1000
    IBV_PORT_EXTENDED_SPEEDS_SUP = 0x4000
    IBV_PORT_CAP_MASK2_SUP = 0x8000
    IBV_PORT_CM_SUP = 0x10000
    IBV_PORT_SNMP_TUNNEL_SUP = 0x20000
    IBV_PORT_REINIT_SUP = 0x40000
    IBV_PORT_DEVICE_MGMT_SUP = 0x80000
    IBV_PORT_VENDOR_CLASS_SUP = 0x100000
    IBV_PORT_DR_NOTICE_SUP = 0x200000
    IBV_PORT_CAP_MASK_NOTICE_SUP = 0x400000
    IBV_PORT_BOOT_MGMT_SUP = 0x800000
    IBV_PORT_LINK_LATENCY_SUP = 0x1000000
    IBV_PORT_CLIENT_REG_SUP = 0x2000000
    IBV_PORT_IP_BASED_GIDS = 0x4000000


class ibv_port_cap_flags2(IntEnum):
    """The CapabilityMask2 of PortInfo."""

    IBV_PORT_SET_NODE_DESC_SUP = 1
    IBV_PORT_INFO_EXT_SUP = 2
    IBV_PORT_VIRT_SUP = 4
    IBV_PORT_SWITCH_PORT_STATE_TABLE_SUP = 8
    IBV_PORT_LINK_WIDTH_2X_SUP = 0x10
    IBV_PORT_LINK_SPEED_HDR_SUP = 0x20
    IBV_PORT_LINK_SPEED_NDR_SUP = 0x400
    IBV_PORT_LINK_SPEED_XDR_SUP = 0x1000


class ibv_mtu(IntEnum):
    """The code of an MTU: 128 << code bytes."""

    IBV_MTU_256 = 1
    IBV_MTU_512 = 2
    IBV_MTU_1024 = 3
    IBV_MTU_2048 = 4
    IBV_MTU_4096 = 5


class ibv_gid_type(IntEnum):
    """The protocol that uses a GID."""

    IBV_GID_TYPE_IB = 0
    IBV_GID_TYPE_ROCE_V1 = 1
    IBV_GID_TYPE_ROCE_V2 = 2


class ibv_gid_type_sysfs(IntEnum):
    """The kind of a GID, as the kernel's files put it."""

    IBV_GID_TYPE_SYSFS_IB_ROCE_V1 = 0
    IBV_GID_TYPE_SYSFS_ROCE_V2 = 1


class ibv_access_flags(IntEnum):
    """The access rights of a memory region."""

    IBV_ACCESS_LOCAL_WRITE = 1
    IBV_ACCESS_REMOTE_WRITE = 2
    IBV_ACCESS_REMOTE_READ = 4
    IBV_ACCESS_REMOTE_ATOMIC = 8
    IBV_ACCESS_MW_BIND = 0x10
    IBV_ACCESS_ZERO_BASED = 0x20
    IBV_ACCESS_ON_DEMAND = 0x40
    IBV_ACCESS_HUGETLB = 0x80
    IBV_ACCESS_FLUSH_GLOBAL = 0x100
    IBV_ACCESS_FLUSH_PERSISTENT = 0x200
    IBV_ACCESS_RELAXED_ORDERING = 0x100000


class ibv_rereg_mr_flags(IntEnum):
    """The parts of a memory region that a re-registration changes."""

    IBV_REREG_MR_CHANGE_TRANSLATION = 1
    IBV_REREG_MR_CHANGE_PD = 2
    IBV_REREG_MR_CHANGE_ACCESS = 4


class ibv_rereg_mr_err_code(IntEnum):
    """The state in which a failed re-registration left the region."""

    IBV_REREG_MR_ERR_INPUT = -1
    IBV_REREG_MR_ERR_DONT_FORK_NEW = -2
    IBV_REREG_MR_ERR_DO_FORK_OLD = -3
    IBV_REREG_MR_ERR_CMD = -4
    IBV_REREG_MR_ERR_CMD_AND_DO_FORK_NEW = -5


class ibv_mr_init_attr_mask(IntEnum):
    """The fields that are set in an extended registration."""

    IBV_REG_MR_MASK_IOVA = 1
    IBV_REG_MR_MASK_ADDR = 2
    IBV_REG_MR_MASK_FD = 4
    IBV_REG_MR_MASK_FD_OFFSET = 8
    IBV_REG_MR_MASK_DMAH = 0x10
    IBV_REG_MR_MASK_BUF = 0x20


class ibv_mw_type(IntEnum):
    """The type of a memory window: bound by the driver (1) or by a work request (2)."""

    IBV_MW_TYPE_1 = 1
    IBV_MW_TYPE_2 = 2


class ibv_placement_type(IntEnum):
    """The placement that a flush guarantees."""

    IBV_FLUSH_GLOBAL = 1
    IBV_FLUSH_PERSISTENT = 2


class ibv_selectivity_level(IntEnum):
    """The extent of a memory region that a flush covers."""

    IBV_FLUSH_MR = 1
    IBV_FLUSH_RANGE = 0


class ibv_dmah_init_attr_mask(IntEnum):
    """The fields that are set in DMAHandleInitAttr."""

    IBV_DMAH_INIT_ATTR_MASK_CPU_ID = 1
    IBV_DMAH_INIT_ATTR_MASK_PH = 2
    IBV_DMAH_INIT_ATTR_MASK_TPH_MEM_TYPE = 4


class ibv_tph_mem_type(IntEnum):
    """The memory type in PCIe processing hints."""

    IBV_TPH_MEM_TYPE_VM = 0
    IBV_TPH_MEM_TYPE_PM = 1


class ibv_parent_domain_init_attr_mask(IntEnum):
    """The fields that are set in ParentDomainInitAttr."""

    IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS = 1
    IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT = 2
    IBV_PARENT_DOMAIN_INIT_ATTR_ALLOW_CC_UNPROTECTED_ALLOC = 4


class ibv_xrcd_init_attr_mask(IntEnum):
    """The fields that are set in XRCDInitAttr."""

    IBV_XRCD_INIT_ATTR_FD = 1
    IBV_XRCD_INIT_ATTR_OFLAGS = 2
    IBV_XRCD_INIT_ATTR_RESERVED = 4
