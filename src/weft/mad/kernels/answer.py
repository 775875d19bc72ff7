"""One kernel for the SMPs of a sweep: along their directed route, to the node, and back as a response.

It answers what is plain: Get and Set by a directed route without LIDs, over links that are up and do not err, at a port
without an M_Key, with a response that says "good". For all else it returns False and has changed nothing: the agents in
Python answer, and they alone say what is right. `tests/mad/test_kernels.py` holds the kernel to them, byte for byte.
"""

from __future__ import annotations

import numpy as np

from weft.fabric.forwarding import DOWN, STATE
from weft.jit import handler, lean_kernel, part
from weft.jit.references import by_reference
from weft.mad.kernels import tables
from weft.mad.kernels.port_info import set_port_info
from weft.mad.kernels.tables import DATA_BYTES, MOST_HOPS, NONE, Mark, port_slot, two
from weft.wire.mad import Method, MgmtClass
from weft.wire.port_info import MlnxExtendedPortInfo, PortInfo
from weft.wire.smp import NodeInfo, SmpAttribute

_GET, _SET, _GET_RESP = int(Method.GET), int(Method.SET), int(Method.GET_RESP)
_DIRECTED, _DIRECTION, _NO_LID = int(MgmtClass.SUBN_DIRECTED_ROUTE), 0x80, 0xFF
_NODE_DESCRIPTION, _NODE_INFO = int(SmpAttribute.NODE_DESCRIPTION), int(SmpAttribute.NODE_INFO)
_SWITCH_INFO, _GUID_INFO = int(SmpAttribute.SWITCH_INFO), int(SmpAttribute.GUID_INFO)
_PORT_INFO, _MLNX_PORT_INFO = int(SmpAttribute.PORT_INFO), int(SmpAttribute.MLNX_EXTENDED_PORT_INFO)
_P_KEYS, _SL2VL = int(SmpAttribute.P_KEY_TABLE), int(SmpAttribute.SL_TO_VL_MAPPING_TABLE)
_VLARB, _LFT = int(SmpAttribute.VL_ARBITRATION_TABLE), int(SmpAttribute.LINEAR_FORWARDING_TABLE)
_MFT = int(SmpAttribute.MULTICAST_FORWARDING_TABLE)
_MAY_SET, _PLAIN_GUIDS, _MADS = int(Mark.MAY_SET), int(Mark.PLAIN_GUIDS), int(Mark.MADS)
_DATA, _INITIAL_PATH, _RETURN_PATH = 64, 128, 192
_PORT_GUID, _NODE_PORT = NodeInfo.port_guid.bit // 8, NodeInfo.local_port_num.bit // 8
_PORT, _GUID_CAP = PortInfo.local_port_num.bit // 8, PortInfo.guid_cap.bit // 8
_SUPPORTED = MlnxExtendedPortInfo.link_speed_supported.bit // 8
_ENABLED = MlnxExtendedPortInfo.link_speed_enabled.bit // 8
_ACTIVE = MlnxExtendedPortInfo.link_speed_active.bit // 8
_KEY_BYTES = GUID_BYTES = 8


@part
def _walk(s, slot, b, at, hops):
    """Follow the path in the SMP at byte `at`; return the slot of arrival, or NONE."""
    at_slot = np.int64(slot)
    for hop in range(hops):
        node, port = s.node_of[at_slot], np.int64(b[at + _INITIAL_PATH + 1 + hop])
        if (hop and not s.is_switch[node]) or not 0 < port <= s.last_port[node]:
            return NONE
        out = s.first[node] + port
        at_slot = np.int64(s.cable[out])
        if at_slot == NONE or s.port_info[out, STATE] & 0x0F <= DOWN or s.risky[out]:
            return NONE
        s.out[hop] = out
    return at_slot


@part
def _has_key(s, slot):
    own = s.first[s.node_of[slot]] if s.is_switch[s.node_of[slot]] else slot
    key = 0
    for i in range(_KEY_BYTES):
        key |= np.int64(s.port_info[own, i])
    return key != 0


@part
def _copy(rows, row, b, at):
    for i in range(DATA_BYTES):
        b[at + i] = rows[row, i]
    return True


@handler
def _get_node_info(s, node, slot, b, at):
    _copy(s.node_info, node, b, at)
    b[at + _NODE_PORT] = slot - s.first[node]
    if not s.is_switch[node]:
        for i in range(GUID_BYTES):
            b[at + _PORT_GUID + i] = s.guid[slot, i]
    return True


@handler
def _get_guid_info(s, node, slot, modifier, b, at):
    own = s.first[node] if s.is_switch[node] else slot
    if not s.marks[_PLAIN_GUIDS] or modifier * 8 >= s.port_info[own, _GUID_CAP]:
        return False
    for i in range(DATA_BYTES):
        b[at + i] = s.guid[own, i] if i < GUID_BYTES else 0
    return True


@handler
def _port_info(s, node, slot, modifier, b, at, is_set):
    requested = port_slot(s, node, slot, modifier & 0xFF)
    if requested == NONE or _has_key(s, requested):
        return False
    if is_set and ((requested != slot and not s.is_switch[node]) or not set_port_info(s, node, requested, b, at)):
        return False
    _copy(s.port_info, requested, b, at)
    b[at + _PORT] = slot - s.first[node]
    return True


@handler
def _get_mlnx_port_info(s, node, slot, modifier, b, at):
    requested = port_slot(s, node, slot, modifier & 0xFF)
    if requested == NONE:
        return False
    for i in range(DATA_BYTES):
        b[at + i] = 0
    b[at + _SUPPORTED], b[at + _ENABLED], b[at + _ACTIVE] = (
        s.fdr10[requested, 0],
        s.fdr10[requested, 1],
        s.fdr10[requested, 2],
    )
    return True


@part
def _return(s, slot, b, at, hops):
    """Turn the SMP into its response, and count both on all links."""
    b[at + 3], b[at + 4], b[at + 5] = _GET_RESP, _DIRECTION, 0
    b[at + _RETURN_PATH] = slot - s.first[s.node_of[slot]]
    for hop in range(hops):
        out = s.out[hop]
        far = s.cable[out]
        b[at + _RETURN_PATH + 1 + hop] = far - s.first[s.node_of[far]]
        s.sent[out] += 1
        s.received[far] += 1
        s.sent[far] += 1
        s.received[out] += 1
    s.marks[_MADS] += 1


@part
def _arrives(s, slot, b, at):
    """Return the slot where the SMP at byte `at` arrives if a kernel may answer it; else NONE."""
    method, hops = np.int64(b[at + 3]), np.int64(b[at + 7])
    if b[at] != 1 or b[at + 1] != _DIRECTED or b[at + 2] != 1 or hops >= MOST_HOPS:
        return NONE
    if method != _GET and not (method == _SET and s.marks[_MAY_SET]):
        return NONE
    for i in range(32, 36):  # DrSLID and DrDLID
        if b[at + i] != _NO_LID:
            return NONE
    end = _walk(s, slot, b, at, hops)
    return NONE if end == NONE or _has_key(s, end) else end


@handler
def answer(s, slot, b, at):
    """Turn the SMP at byte `at` of `b`, sent from `slot`, into its response; False if it is for Python.

    One long function: each that calls another with all of the state costs seconds when they are compiled.
    """
    end = _arrives(s, slot, b, at)
    if end == NONE:
        return False
    node, data, is_set = np.int64(s.node_of[end]), at + _DATA, b[at + 3] == _SET
    attribute, modifier = two(b, at + 16), two(b, at + 20) << 16 | two(b, at + 22)
    done = False
    if attribute == _PORT_INFO:
        done = _port_info(s, node, end, modifier, b, data, is_set)
    elif attribute == _P_KEYS:
        done = tables.p_keys(s, node, end, modifier, b, data, is_set)
    elif attribute == _SL2VL:
        done = tables.sl2vl(s, node, end, modifier, b, data, is_set)
    elif attribute == _VLARB:
        done = tables.vl_arbitration(s, node, end, modifier, b, data, is_set)
    elif attribute == _LFT:
        done = tables.linear_forwarding(s, node, modifier, b, data, is_set)
    elif attribute == _MFT:
        done = tables.multicast_forwarding(s, node, modifier, b, data, is_set)
    elif is_set:
        return False
    elif attribute == _NODE_INFO:
        done = _get_node_info(s, node, end, b, data)
    elif attribute == _NODE_DESCRIPTION:
        done = _copy(s.node_description, node, b, data)
    elif attribute == _SWITCH_INFO and s.is_switch[node]:
        done = _copy(s.switch_info, node, b, data)
    elif attribute == _GUID_INFO:
        done = _get_guid_info(s, node, end, modifier, b, data)
    elif attribute == _MLNX_PORT_INFO:
        done = _get_mlnx_port_info(s, node, end, modifier, b, data)
    if done:
        _return(s, slot, b, at, np.int64(b[at + 7]))
    return done


@lean_kernel
def answer_one(s, slot, mad):
    """Answer one SMP that is alone in its buffer."""
    s = by_reference(s)
    return answer(s, np.int64(slot), mad, np.int64(0))
