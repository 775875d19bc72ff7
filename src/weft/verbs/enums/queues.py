"""Queue pairs, work requests, completions and shared receive queues."""
# ruff: noqa: N801 - the names are those of verbs.h

from __future__ import annotations

from enum import IntEnum


class ibv_qp_type(IntEnum):
    """The transport service of a queue pair."""

    IBV_QPT_RC = 2
    IBV_QPT_UC = 3
    IBV_QPT_UD = 4
    IBV_QPT_RD = 7  # weft's own: libibverbs has no reliable datagrams, and no program uses this number
    IBV_QPT_RAW_PACKET = 8
    IBV_QPT_XRC_SEND = 9
    IBV_QPT_XRC_RECV = 10
    IBV_QPT_DRIVER = 255


class ibv_qp_state(IntEnum):
    """The state machine of a queue pair."""

    IBV_QPS_RESET = 0
    IBV_QPS_INIT = 1
    IBV_QPS_RTR = 2
    IBV_QPS_RTS = 3
    IBV_QPS_SQD = 4
    IBV_QPS_SQE = 5
    IBV_QPS_ERR = 6
    IBV_QPS_UNKNOWN = 7


class ibv_mig_state(IntEnum):
    """The state of automatic path migration."""

    IBV_MIG_MIGRATED = 0
    IBV_MIG_REARM = 1
    IBV_MIG_ARMED = 2


class ibv_qp_attr_mask(IntEnum):
    """The attributes that a modification of a queue pair sets."""

    IBV_QP_STATE = 1
    IBV_QP_CUR_STATE = 2
    IBV_QP_EN_SQD_ASYNC_NOTIFY = 4
    IBV_QP_ACCESS_FLAGS = 8
    IBV_QP_PKEY_INDEX = 0x10
    IBV_QP_PORT = 0x20
    IBV_QP_QKEY = 0x40
    IBV_QP_AV = 0x80
    IBV_QP_PATH_MTU = 0x100
    IBV_QP_TIMEOUT = 0x200
    IBV_QP_RETRY_CNT = 0x400
    IBV_QP_RNR_RETRY = 0x800
    IBV_QP_RQ_PSN = 0x1000
    IBV_QP_MAX_QP_RD_ATOMIC = 0x2000
    IBV_QP_ALT_PATH = 0x4000
    IBV_QP_MIN_RNR_TIMER = 0x8000
    IBV_QP_SQ_PSN = 0x10000
    IBV_QP_MAX_DEST_RD_ATOMIC = 0x20000
    IBV_QP_PATH_MIG_STATE = 0x40000
    IBV_QP_CAP = 0x80000
    IBV_QP_DEST_QPN = 0x100000
    IBV_QP_RATE_LIMIT = 0x2000000


class ibv_qp_init_attr_mask(IntEnum):
    """The fields that are set in QPInitAttrEx."""

    IBV_QP_INIT_ATTR_PD = 1
    IBV_QP_INIT_ATTR_XRCD = 2
    IBV_QP_INIT_ATTR_CREATE_FLAGS = 4
    IBV_QP_INIT_ATTR_MAX_TSO_HEADER = 8
    IBV_QP_INIT_ATTR_IND_TABLE = 0x10
    IBV_QP_INIT_ATTR_RX_HASH = 0x20
    IBV_QP_INIT_ATTR_SEND_OPS_FLAGS = 0x40


class ibv_qp_create_flags(IntEnum):
    """The options of a new queue pair."""

    IBV_QP_CREATE_BLOCK_SELF_MCAST_LB = 2
    IBV_QP_CREATE_SCATTER_FCS = 0x100
    IBV_QP_CREATE_CVLAN_STRIPPING = 0x200
    IBV_QP_CREATE_SOURCE_QPN = 0x400
    IBV_QP_CREATE_PCI_WRITE_END_PADDING = 0x800


class ibv_qp_create_send_ops_flags(IntEnum):
    """The operations that an extended queue pair can post."""

    IBV_QP_EX_WITH_RDMA_WRITE = 1
    IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM = 2
    IBV_QP_EX_WITH_SEND = 4
    IBV_QP_EX_WITH_SEND_WITH_IMM = 8
    IBV_QP_EX_WITH_RDMA_READ = 0x10
    IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP = 0x20
    IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD = 0x40
    IBV_QP_EX_WITH_LOCAL_INV = 0x80
    IBV_QP_EX_WITH_BIND_MW = 0x100
    IBV_QP_EX_WITH_SEND_WITH_INV = 0x200
    IBV_QP_EX_WITH_TSO = 0x400
    IBV_QP_EX_WITH_FLUSH = 0x800
    IBV_QP_EX_WITH_ATOMIC_WRITE = 0x1000


class ibv_query_qp_data_in_order_flags(IntEnum):
    """The form of the result of an in-order query."""

    IBV_QUERY_QP_DATA_IN_ORDER_RETURN_CAPS = 1


class ibv_query_qp_data_in_order_caps(IntEnum):
    """The extent of a message that arrives in order."""

    IBV_QUERY_QP_DATA_IN_ORDER_WHOLE_MSG = 1
    IBV_QUERY_QP_DATA_IN_ORDER_ALIGNED_128_BYTES = 2


class ibv_qp_attach_comp_cntr_op(IntEnum):
    """The operations that a completion counter counts."""

    IBV_QP_ATTACH_COMP_CNTR_OP_SEND = 1
    IBV_QP_ATTACH_COMP_CNTR_OP_RECV = 2
    IBV_QP_ATTACH_COMP_CNTR_OP_RDMA_READ = 4
    IBV_QP_ATTACH_COMP_CNTR_OP_REMOTE_RDMA_READ = 8
    IBV_QP_ATTACH_COMP_CNTR_OP_RDMA_WRITE = 0x10
    IBV_QP_ATTACH_COMP_CNTR_OP_REMOTE_RDMA_WRITE = 0x20


class ibv_wr_opcode(IntEnum):
    """The operation of a send work request."""

    IBV_WR_RDMA_WRITE = 0
    IBV_WR_RDMA_WRITE_WITH_IMM = 1
    IBV_WR_SEND = 2
    IBV_WR_SEND_WITH_IMM = 3
    IBV_WR_RDMA_READ = 4
    IBV_WR_ATOMIC_CMP_AND_SWP = 5
    IBV_WR_ATOMIC_FETCH_AND_ADD = 6
    IBV_WR_LOCAL_INV = 7
    IBV_WR_BIND_MW = 8
    IBV_WR_SEND_WITH_INV = 9
    IBV_WR_TSO = 10
    IBV_WR_FLUSH = 14
    IBV_WR_ATOMIC_WRITE = 15


class ibv_send_flags(IntEnum):
    """The flags of a send work request."""

    IBV_SEND_FENCE = 1
    IBV_SEND_SIGNALED = 2
    IBV_SEND_SOLICITED = 4
    IBV_SEND_INLINE = 8
    IBV_SEND_IP_CSUM = 0x10


class ibv_wc_status(IntEnum):
    """The completion status of a work request."""

    IBV_WC_SUCCESS = 0
    IBV_WC_LOC_LEN_ERR = 1
    IBV_WC_LOC_QP_OP_ERR = 2
    IBV_WC_LOC_EEC_OP_ERR = 3
    IBV_WC_LOC_PROT_ERR = 4
    IBV_WC_WR_FLUSH_ERR = 5
    IBV_WC_MW_BIND_ERR = 6
    IBV_WC_BAD_RESP_ERR = 7
    IBV_WC_LOC_ACCESS_ERR = 8
    IBV_WC_REM_INV_REQ_ERR = 9
    IBV_WC_REM_ACCESS_ERR = 10
    IBV_WC_REM_OP_ERR = 11
    IBV_WC_RETRY_EXC_ERR = 12
    IBV_WC_RNR_RETRY_EXC_ERR = 13
    IBV_WC_LOC_RDD_VIOL_ERR = 14
    IBV_WC_REM_INV_RD_REQ_ERR = 15
    IBV_WC_REM_ABORT_ERR = 16
    IBV_WC_INV_EECN_ERR = 17
    IBV_WC_INV_EEC_STATE_ERR = 18
    IBV_WC_FATAL_ERR = 19
    IBV_WC_RESP_TIMEOUT_ERR = 20
    IBV_WC_GENERAL_ERR = 21
    IBV_WC_TM_ERR = 22
    IBV_WC_TM_RNDV_INCOMPLETE = 23


class ibv_wc_opcode(IntEnum):
    """The operation that completed; receives have bit 7."""

    IBV_WC_SEND = 0
    IBV_WC_RDMA_WRITE = 1
    IBV_WC_RDMA_READ = 2
    IBV_WC_COMP_SWAP = 3
    IBV_WC_FETCH_ADD = 4
    IBV_WC_BIND_MW = 5
    IBV_WC_LOCAL_INV = 6
    IBV_WC_TSO = 7
    IBV_WC_FLUSH = 8
    IBV_WC_ATOMIC_WRITE = 9
    IBV_WC_RECV = 128
    IBV_WC_RECV_RDMA_WITH_IMM = 129
    IBV_WC_TM_ADD = 130
    IBV_WC_TM_DEL = 131
    IBV_WC_TM_SYNC = 132
    IBV_WC_TM_RECV = 133
    IBV_WC_TM_NO_TAG = 134
    IBV_WC_DRIVER2 = 136
    IBV_WC_DRIVER3 = 137


class ibv_wc_flags(IntEnum):
    """The fields of a completion that are valid."""

    IBV_WC_GRH = 1
    IBV_WC_WITH_IMM = 2
    IBV_WC_IP_CSUM_OK = 4
    IBV_WC_WITH_INV = 8
    IBV_WC_TM_SYNC_REQ = 0x10
    IBV_WC_TM_MATCH = 0x20
    IBV_WC_TM_DATA_VALID = 0x40


class ibv_cq_init_attr_mask(IntEnum):
    """The fields that are set in CqInitAttrEx."""

    IBV_CQ_INIT_ATTR_MASK_FLAGS = 1
    IBV_CQ_INIT_ATTR_MASK_PD = 2


class ibv_create_cq_attr_flags(IntEnum):
    """The options of an extended completion queue."""

    IBV_CREATE_CQ_ATTR_SINGLE_THREADED = 1
    IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN = 2


class ibv_create_cq_wc_flags(IntEnum):
    """The fields that an extended completion queue stores."""

    IBV_WC_EX_WITH_BYTE_LEN = 1
    IBV_WC_EX_WITH_IMM = 2
    IBV_WC_EX_WITH_QP_NUM = 4
    IBV_WC_EX_WITH_SRC_QP = 8
    IBV_WC_EX_WITH_SLID = 0x10
    IBV_WC_EX_WITH_SL = 0x20
    IBV_WC_EX_WITH_DLID_PATH_BITS = 0x40
    IBV_WC_EX_WITH_COMPLETION_TIMESTAMP = 0x80
    IBV_WC_EX_WITH_CVLAN = 0x100
    IBV_WC_EX_WITH_FLOW_TAG = 0x200
    IBV_WC_EX_WITH_TM_INFO = 0x400
    IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK = 0x800


class ibv_srq_type(IntEnum):
    """The type of a shared receive queue."""

    IBV_SRQT_BASIC = 0
    IBV_SRQT_XRC = 1
    IBV_SRQT_TM = 2


class ibv_srq_attr_mask(IntEnum):
    """The attributes that a modification of a shared receive queue sets."""

    IBV_SRQ_MAX_WR = 1
    IBV_SRQ_LIMIT = 2


class ibv_srq_init_attr_mask(IntEnum):
    """The fields that are set in SrqInitAttrEx."""

    IBV_SRQ_INIT_ATTR_TYPE = 1
    IBV_SRQ_INIT_ATTR_PD = 2
    IBV_SRQ_INIT_ATTR_XRCD = 4
    IBV_SRQ_INIT_ATTR_CQ = 8
    IBV_SRQ_INIT_ATTR_TM = 0x10


class ibv_ops_wr_opcode(IntEnum):
    """A tag-matching operation on a shared receive queue."""

    IBV_WR_TAG_ADD = 0
    IBV_WR_TAG_DEL = 1
    IBV_WR_TAG_SYNC = 2


class ibv_ops_flags(IntEnum):
    """The flags of a tag-matching operation."""

    IBV_OPS_SIGNALED = 1
    IBV_OPS_TM_SYNC = 2


class ibv_tmh_op(IntEnum):
    """The operation code of the tag-matching header."""

    IBV_TMH_NO_TAG = 0
    IBV_TMH_RNDV = 1
    IBV_TMH_FIN = 2
    IBV_TMH_EAGER = 3
