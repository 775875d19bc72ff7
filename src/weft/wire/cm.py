"""Communication management: the messages that set up and tear down connections.

Each is the whole `data` of a `CmMad`, 232 bytes, most of it private data of the application.
(InfiniBand Architecture volume 1, "Communication Management"; the same layouts as Linux include/rdma/ibta_vol1_c12.h.)
"""

# ruff: noqa: PIE794 - reserved fields are named `_`
from __future__ import annotations

from enum import IntEnum

from weft.wire.fields import bits, octets, part, reserved
from weft.wire.format import Format, Numbered
from weft.wire.mad import MAD_BYTES, ClassPortInfo, MadHeader, Method, MgmtClass


class CmMad(MadHeader, size=MAD_BYTES, mgmt_class=MgmtClass.COM_MGT, class_version=2, method=Method.SEND):
    data = octets(232)


class TransportService(IntEnum):
    RC = 0
    UC = 1
    RD = 2
    EXTENDED = 3  # see extended_transport_type: 1 is XRC


class RejReason(IntEnum):
    NO_QP = 1
    NO_EEC = 2
    NO_RESOURCES = 3
    TIMEOUT = 4
    UNSUPPORTED_REQUEST = 5
    INVALID_COMM_ID = 6
    INVALID_COMM_INSTANCE = 7
    INVALID_SERVICE_ID = 8
    INVALID_TRANSPORT_TYPE = 9
    STALE_CONNECTION = 10
    RDC_DOES_NOT_EXIST = 11
    INVALID_GID = 12
    INVALID_LID = 13
    INVALID_SL = 14
    INVALID_TRAFFIC_CLASS = 15
    INVALID_HOP_LIMIT = 16
    INVALID_PACKET_RATE = 17
    INVALID_ALT_GID = 18
    INVALID_ALT_LID = 19
    INVALID_ALT_SL = 20
    INVALID_ALT_TRAFFIC_CLASS = 21
    INVALID_ALT_HOP_LIMIT = 22
    INVALID_ALT_PACKET_RATE = 23
    PORT_AND_CM_REDIRECT = 24
    PORT_REDIRECT = 25
    INVALID_MTU = 26
    INSUFFICIENT_RESPONDER_RESOURCES = 27
    CONSUMER_DEFINED = 28
    INVALID_RNR_RETRY = 29
    DUPLICATE_LOCAL_COMM_ID = 30
    INVALID_CLASS_VERSION = 31
    INVALID_FLOW_LABEL = 32
    INVALID_ALT_FLOW_LABEL = 33


class ReqPath(Format, size=44):
    """A path in a REQ: the primary, or the alternate one for automatic migration."""

    local_port_lid = bits(16)
    remote_port_lid = bits(16)
    local_port_gid = bits(128)
    remote_port_gid = bits(128)
    flow_label = bits(20)
    _ = reserved(4)
    _ = reserved(2)
    packet_rate = bits(6)
    traffic_class = bits(8)
    hop_limit = bits(8)
    sl = bits(4)
    subnet_local = bits(1)
    _ = reserved(3)
    local_ack_timeout = bits(5)
    _ = reserved(3)


class Req(Format, size=232):
    """A request for communication."""

    local_comm_id = bits(32)
    _ = reserved(8)
    vendor_id = bits(24)
    service_id = bits(64)
    local_ca_guid = bits(64)
    _ = reserved(32)
    local_q_key = bits(32)
    local_qpn = bits(24)
    responder_resources = bits(8)
    local_eecn = bits(24)
    initiator_depth = bits(8)
    remote_eecn = bits(24)
    remote_cm_response_timeout = bits(5)
    transport_service_type = bits(2, of=TransportService)
    end_to_end_flow_control = bits(1)
    starting_psn = bits(24)
    local_cm_response_timeout = bits(5)
    retry_count = bits(3)
    partition_key = bits(16)
    path_packet_payload_mtu = bits(4)
    rdc_exists = bits(1)
    rnr_retry_count = bits(3)
    max_cm_retries = bits(4)
    srq = bits(1)
    extended_transport_type = bits(3)
    primary = part(ReqPath)
    alternate = part(ReqPath)
    private_data = octets(92)


class CommIds(Format, size=8):
    """The beginning of messages between peers that have exchanged ids."""

    local_comm_id = bits(32)
    remote_comm_id = bits(32)


class Mra(CommIds, size=232):
    """A message receipt acknowledgment: the answer will take longer."""

    message_mraed = bits(2)
    _ = reserved(6)
    service_timeout = bits(5)
    _ = reserved(3)
    private_data = octets(222)


class Rej(CommIds, size=232):
    """A rejection."""

    message_rejected = bits(2)
    _ = reserved(6)
    reject_info_length = bits(7)
    _ = reserved(1)
    reason = bits(16, of=RejReason)
    ari = octets(72)
    private_data = octets(148)


class Rep(CommIds, size=232):
    """A reply to a REQ. The vendor's id is spread over three bytes that had been reserved."""

    local_q_key = bits(32)
    local_qpn = bits(24)
    vendor_id_h = bits(8)
    local_ee_context_number = bits(24)
    vendor_id_m = bits(8)
    starting_psn = bits(24)
    vendor_id_l = bits(8)
    responder_resources = bits(8)
    initiator_depth = bits(8)
    target_ack_delay = bits(5)
    failover_accepted = bits(2)
    end_to_end_flow_control = bits(1)
    rnr_retry_count = bits(3)
    srq = bits(1)
    _ = reserved(4)
    local_ca_guid = bits(64)
    private_data = octets(196)


class Rtu(CommIds, size=232):
    """A ready-to-use message."""

    private_data = octets(224)


class Dreq(CommIds, size=232):
    """A request to disconnect."""

    remote_qpn_eecn = bits(24)
    _ = reserved(8)
    private_data = octets(220)


class Drep(Rtu, size=232):
    """A reply to a DREQ."""


class SidrReq(Format, size=232):
    """A query for the QP of a service id."""

    request_id = bits(32)
    partition_key = bits(16)
    _ = reserved(16)
    service_id = bits(64)
    private_data = octets(216)


class SidrRep(Format, size=232):
    """A reply to a SIDR_REQ with the QP."""

    request_id = bits(32)
    status = bits(8)
    additional_information_length = bits(8)
    vendor_id_h = bits(16)
    qpn = bits(24)
    vendor_id_l = bits(8)
    service_id = bits(64)
    q_key = bits(32)
    additional_information = octets(72)
    private_data = octets(136)


class Lap(CommIds, size=232):
    """A request to load an alternate path. Traffic class and rate are in other places than in a REQ."""

    _ = reserved(32)
    remote_qpn_eecn = bits(24)
    remote_cm_response_timeout = bits(5)
    _ = reserved(3)
    _ = reserved(32)
    alternate_local_port_lid = bits(16)
    alternate_remote_port_lid = bits(16)
    alternate_local_port_gid = bits(128)
    alternate_remote_port_gid = bits(128)
    alternate_flow_label = bits(20)
    _ = reserved(4)
    alternate_traffic_class = bits(8)
    alternate_hop_limit = bits(8)
    _ = reserved(2)
    alternate_packet_rate = bits(6)
    alternate_sl = bits(4)
    alternate_subnet_local = bits(1)
    _ = reserved(3)
    alternate_local_ack_timeout = bits(5)
    _ = reserved(3)
    private_data = octets(168)


class Apr(CommIds, size=232):
    """An alternate path response."""

    additional_information_length = bits(8)
    ar_status = bits(8)
    _ = reserved(16)
    additional_information = octets(72)
    private_data = octets(148)


class CmAttribute(Numbered):
    CLASS_PORT_INFO = 0x0001, ClassPortInfo
    REQ = 0x0010, Req
    MRA = 0x0011, Mra
    REJ = 0x0012, Rej
    REP = 0x0013, Rep
    RTU = 0x0014, Rtu
    DREQ = 0x0015, Dreq
    DREP = 0x0016, Drep
    SIDR_REQ = 0x0017, SidrReq
    SIDR_REP = 0x0018, SidrRep
    LAP = 0x0019, Lap
    APR = 0x001A, Apr


ATTRIBUTES = CmAttribute.forms()
