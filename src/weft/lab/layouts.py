"""Structures of preload.c and of its server, attach.py, declared once: their formats, and their text in C.

Those that callers pass have the layout of libibumad's umad.h (ABI 5 with pkey_index), for 64-bit programs.
"""

from __future__ import annotations

from enum import IntEnum

from weft.compiler import structure


class Question(IntEnum):
    """The kinds of questions."""

    LIST_ADAPTERS = 1
    GET_ADAPTER = 2
    GET_PORT = 3
    FIND_PORT = 4
    OPEN_PORT = 5
    REGISTER = 6
    UNREGISTER = 7
    SET_IS_SM = 8


USER_MAD, _USER_MAD = structure(
    "user_mad",
    "u32 agent_id status timeout_ms retries length",
    "be32 qpn qkey",
    "be16 lid",
    "x8 sl path_bits grh_present gid_index hop_limit traffic_class gid[16]",
    "x32 flow_label",
    "u16 pkey_index",
    "x8 reserved[6]",
    tail="uint8_t mad[]",
)
PORT, _PORT = structure(
    "port",
    "char ca_name[20]",
    "int number",
    "u32 base_lid lmc sm_lid sm_sl state phys_state rate",
    "be32 capmask",
    "be64 gid_prefix guid",
    "u32 pkeys_size",
    "x32 before_pkeys",
    "u16* pkeys",
    "char link_layer[20]",
    "x32 end",
)
ADAPTER, _ADAPTER = structure(
    "adapter",
    "char name[20]",
    "u32 node_type",
    "int numports",
    "char fw_ver[20] type[40] hw_ver[20]",
    "x32 before_guids",
    "be64 node_guid system_guid",
    tail="struct port *ports[CA_PORTS]",
)
QUESTION, _QUESTION = structure(
    "question",
    "u32 kind number agent mgmt_class version rmpp_version flags oui",  # number of a port, or of an open one
    "u64 method_mask[2]",
    "char host[64] ca[20]",
    "x32 end",
)
ANSWER, _ANSWER = structure("answer", "int status", "u32 length")


def declarations() -> str:
    """Return the beginning of preload.c: structures and numbers."""
    kinds = ", ".join(f"{kind.name} = {kind.value}" for kind in Question)
    return (
        "#define _GNU_SOURCE\n#include <stddef.h>\n#include <stdint.h>\n"
        f"enum {{ CA_PORTS = 10 }};\nenum kind {{ {kinds} }};\n{_USER_MAD}{_PORT}{_ADAPTER}{_QUESTION}{_ANSWER}"
    )
