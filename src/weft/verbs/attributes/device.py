"""Define the structures that queries of weft's adapter, its port and its GIDs return.

The defaults describe the adapter outside of labs. Its port is a RoCE v2 port, because most programs for verbs are
written for one. Limits are the widths of the fields, or large: only memory limits the adapter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from weft.verbs import enums as e
from weft.verbs.attributes import device_text
from weft.verbs.attributes.address import GID_TABLE_LEN, NODE_GUID
from weft.verbs.attributes.objects import PyverbsObject, table
from weft.verbs.attributes.text import be64toh, gid_str
from weft.verbs.errors import PyverbsUserError
from weft.verbs.shm.layout import QUEUE_PAIRS_MAX

MAX_DM_BYTES = 256 * 1024
_VENDOR = 0xFFFFFF  # no vendor, as Linux's software adapter
_CAPS = (
    e.IBV_DEVICE_BAD_PKEY_CNTR
    | e.IBV_DEVICE_BAD_QKEY_CNTR
    | e.IBV_DEVICE_CURR_QP_STATE_MOD
    | e.IBV_DEVICE_SYS_IMAGE_GUID
    | e.IBV_DEVICE_RC_RNR_NAK_GEN
    | e.IBV_DEVICE_SRQ_RESIZE
    | e.IBV_DEVICE_N_NOTIFY_CQ
    | e.IBV_DEVICE_MEM_WINDOW
    | e.IBV_DEVICE_MEM_WINDOW_TYPE_2B
    | e.IBV_DEVICE_MEM_MGT_EXTENSIONS
    | e.IBV_DEVICE_XRC
)
QUEUE_PAIRS = QUEUE_PAIRS_MAX - 2  # of one process: numbers 0 and 1 are for management
_ODP_DATAGRAM = e.IBV_ODP_SUPPORT_SEND | e.IBV_ODP_SUPPORT_RECV | e.IBV_ODP_SUPPORT_SRQ_RECV
_ODP_UC = _ODP_DATAGRAM | e.IBV_ODP_SUPPORT_WRITE
_ODP_RC = sum(e.ibv_odp_transport_cap_bits)  # all


@dataclass(frozen=True, kw_only=True)
class DeviceAttr(PyverbsObject):
    """The ibv_device_attr of the adapter. GUIDs are in network order, as in C."""

    fw_version: str = "1.0.0"
    node_guid: int = be64toh(NODE_GUID)
    sys_image_guid: int = be64toh(NODE_GUID)
    max_mr_size: int = (1 << 64) - 1
    page_size_cap: int = 0xFFFFF000
    vendor_id: int = _VENDOR
    vendor_part_id: int = 0
    hw_ver: int = 0
    max_qp: int = QUEUE_PAIRS
    max_qp_wr: int = 1 << 14
    device_cap_flags: int = _CAPS
    max_sge: int = 32
    max_sge_rd: int = 32
    max_cq: int = 1 << 20
    max_cqe: int = 1 << 22
    max_mr: int = 0xFFFFFF  # a key has 24 bits of index
    max_pd: int = 1 << 20
    max_qp_rd_atom: int = 128
    max_ee_rd_atom: int = 128
    max_res_rd_atom: int = 128 * QUEUE_PAIRS
    max_qp_init_rd_atom: int = 128
    max_ee_init_rd_atom: int = 128
    atomic_caps: int = e.IBV_ATOMIC_HCA
    max_ee: int = 1 << 15
    max_rdd: int = 1 << 15
    max_mw: int = 0xFFFFFF
    max_raw_ipv6_qps: int = 0
    max_raw_ethy_qp: int = 0
    max_mcast_grp: int = 8192
    max_mcast_qp_attach: int = 56
    max_ah: int = 1 << 20
    max_fmr: int = 0
    max_map_per_fmr: int = 0
    max_srq: int = 1 << 20
    max_srq_wr: int = 1 << 14
    max_srq_sge: int = 32
    max_pkeys: int = 1
    local_ca_ack_delay: int = 15
    phys_port_cnt: int = 1

    def __str__(self) -> str:
        fields = {name.replace("max", "Max", 1): value for name, value in vars(self).items()}
        fields |= {name: device_text.guid_format(getattr(self, name)) for name in ("node_guid", "sys_image_guid")}
        fields["vendor_id"] = hex(self.vendor_id)
        fields["device_cap_flags"] = device_text.translate_device_caps(self.device_cap_flags)
        return table(**fields)


@dataclass(eq=False)
class QueryDeviceExInput(PyverbsObject):
    """The input of an extended query. It selects nothing, as in libibverbs."""

    comp_mask: int = 0


@dataclass(frozen=True, kw_only=True)
class ODPCaps(PyverbsObject):
    """The capabilities of on-demand paging: all, because the adapter uses the process's own page tables."""

    general_caps: int = e.IBV_ODP_SUPPORT | e.IBV_ODP_SUPPORT_IMPLICIT
    rc_odp_caps: int = _ODP_RC
    uc_odp_caps: int = _ODP_UC
    ud_odp_caps: int = _ODP_DATAGRAM
    xrc_odp_caps: int = _ODP_RC


class RSSCaps(PyverbsObject):
    """The capabilities of receive-side scaling: none."""

    supported_qpts = rx_hash_fields_mask = rx_hash_function = 0
    max_rwq_indirection_tables = max_rwq_indirection_table_size = 0


class PacketPacingCaps(PyverbsObject):
    """The rate limits of queue pairs: none."""

    qp_rate_limit_min = qp_rate_limit_max = supported_qpts = 0


class PCIAtomicCaps(PyverbsObject):
    """The atomic operations across PCI Express: none."""

    fetch_add = swap = compare_swap = 0


class TMCaps(PyverbsObject):
    """The capabilities of tag matching: none."""

    max_rndv_hdr_size = max_num_tags = flags = max_ops = max_sge = 0


class CQModerationCaps(PyverbsObject):
    """The capabilities of completion moderation: none."""

    max_cq_count = max_cq_period = 0


class TSOCaps(PyverbsObject):
    """The capabilities of TCP segmentation offload: none."""

    max_tso = supported_qpts = 0


@dataclass(kw_only=True)
class DeviceAttrEx(PyverbsObject):
    """The ibv_device_attr_ex of the adapter."""

    orig_attr: DeviceAttr = field(default_factory=DeviceAttr)
    comp_mask: int = 0
    odp_caps: ODPCaps = field(default_factory=ODPCaps)
    completion_timestamp_mask: int = (1 << 64) - 1
    hca_core_clock: int = 1_000_000  # kHz: the clock counts nanoseconds
    device_cap_flags_ex: int = _CAPS
    tso_caps: TSOCaps = field(default_factory=TSOCaps)
    pci_atomic_caps: PCIAtomicCaps = field(default_factory=PCIAtomicCaps)
    rss_caps: RSSCaps = field(default_factory=RSSCaps)
    max_wq_type_rq: int = 0
    packet_pacing_caps: PacketPacingCaps = field(default_factory=PacketPacingCaps)
    raw_packet_caps: int = 0
    tm_caps: TMCaps = field(default_factory=TMCaps)
    cq_mod_caps: CQModerationCaps = field(default_factory=CQModerationCaps)
    max_dm_size: int = MAX_DM_BYTES
    phys_port_cnt_ex: int = 1


@dataclass(frozen=True, kw_only=True)
class PortAttr(PyverbsObject):
    """The ibv_port_attr of the adapter's port."""

    state: int = e.IBV_PORT_ACTIVE
    max_mtu: int = e.IBV_MTU_4096
    active_mtu: int = e.IBV_MTU_4096
    gid_tbl_len: int = GID_TABLE_LEN
    port_cap_flags: int = e.IBV_PORT_CM_SUP | e.IBV_PORT_IP_BASED_GIDS
    max_msg_sz: int = 1 << 30
    bad_pkey_cntr: int = 0
    qkey_viol_cntr: int = 0
    pkey_tbl_len: int = 1
    lid: int = 0
    sm_lid: int = 0
    lmc: int = 0
    max_vl_num: int = 1
    sm_sl: int = 0
    subnet_timeout: int = 0
    init_type_reply: int = 0
    active_width: int = 2  # 4X
    active_speed: int = 32  # 25 Gb/s a lane
    phys_state: int = 5  # LinkUp
    link_layer: int = e.IBV_LINK_LAYER_ETHERNET
    flags: int = 0
    port_cap_flags2: int = 0
    active_speed_ex: int = 0

    def __str__(self) -> str:
        return table(
            Port_state=device_text.port_state_to_str(self.state),
            Max_MTU=device_text.translate_mtu(self.max_mtu),
            Active_MTU=device_text.translate_mtu(self.active_mtu),
            SM_lid=self.sm_lid,
            Port_lid=self.lid,
            lmc=hex(self.lmc),
            Link_layer=device_text.translate_link_layer(self.link_layer),
            Max_message_size=hex(self.max_msg_sz),
            Port_cap_flags=device_text.translate_port_cap_flags(self.port_cap_flags),
            Port_cap_flags_2=device_text.translate_port_cap_flags2(self.port_cap_flags2),
            max_VL_num=self.max_vl_num,
            Bad_Pkey_counter=self.bad_pkey_cntr,
            Qkey_violations_counter=self.qkey_viol_cntr,
            GID_table_len=self.gid_tbl_len,
            Pkey_table_len=self.pkey_tbl_len,
            Active_width=device_text.width_to_str(self.active_width),
            Active_speed=device_text.speed_to_str(self.active_speed, self.active_speed_ex),
            Phys_state=device_text.phys_state_to_str(self.phys_state),
            Flags=self.flags,
        )


@dataclass(frozen=True)
class GIDEntry(PyverbsObject):
    """A GID of a port; its halves are in network order."""

    gid_subnet_prefix: int = 0
    gid_interface_id: int = 0
    gid_index: int = 0
    port_num: int = 0
    gid_type: int = 0
    ndev_ifindex: int = 0

    def gid_str(self) -> str:
        return gid_str(self.gid_subnet_prefix, self.gid_interface_id)

    def __str__(self) -> str:
        return table(
            GID=self.gid_str(),
            GID_Index=self.gid_index,
            Port_number=self.port_num,
            GID_type=device_text.translate_gid_type(self.gid_type),
            Ndev_ifindex=self.ndev_ifindex,
        )


class FdArr(PyverbsObject):
    """An array of file descriptors from a program: the first `count` of `arr`."""

    def __init__(self, arr: Sequence[int] = (), count: int = 0) -> None:
        if count > len(arr):
            raise PyverbsUserError(f"FdArr of {count} files was given {len(arr)}")
        self.arr, self.count = list(arr[:count]), count

    def close(self) -> None:
        """Do nothing: the files belong to the program."""

    def __str__(self) -> str:
        return table(Number_of_fd_in_arr=self.count, FDs_in_arr=str(self.arr))
