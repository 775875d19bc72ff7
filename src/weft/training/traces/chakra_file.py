"""Write a trace as Chakra's files, NAME.<rank>.et: what `chakra` reads, and ASTRA-sim's tools.

Durations are whole microseconds there, rounded so that their sum stays right. Groups have a name, and the ranks whose
files name it.
"""

from __future__ import annotations

from pathlib import Path

from weft.collectives.kinds import Collective
from weft.errors import ConfigError
from weft.training.traces.chakra import COLLECTIVES, OWN_PART, WORLD
from weft.training.traces.protobuf import LENGTH, VARINT
from weft.training.traces.trace import Kind, Label, Node, Trace

_VERSION = "0.0.4"
_TYPES = {Kind.COMPUTE: 4, Kind.SEND: 5, Kind.RECV: 6, Kind.COLLECTIVE: 7}
_UINT64, _BOOL, _STRING = 13, 27, 29  # fields of AttributeProto
_US_PS = 1_000_000


def write_chakra(trace: Trace, folder: Path, name: str = "job") -> list[Path]:
    """Write one file for each rank, and return their paths."""
    made = []
    for rank, nodes in enumerate(trace.ranks):
        data = [_framed(_text(1, _VERSION))]
        places = {node.id: place for place, node in enumerate(nodes)}
        exact_ps = written_us = 0
        for node in nodes:
            exact_ps += node.duration_ps
            us = round(exact_ps / _US_PS) - written_us if node.duration_ps else 0
            written_us += us
            data.append(_framed(_node(trace, rank, node, us, places)))
        path = folder / f"{name}.{rank}.et"
        path.write_bytes(b"".join(data))
        made.append(path)
    return made


def _node(trace: Trace, rank: int, node: Node, us: int, places: dict[Label, int]) -> bytes:
    after = [places[label] for label in node.after]
    attributes: dict[str, int | bool | str] = {"is_cpu_op": False}
    if node.kind is Kind.COLLECTIVE:
        attributes |= _collective(trace, rank, node)
    elif node.kind is not Kind.COMPUTE:
        peer = "comm_dst" if node.kind is Kind.SEND else "comm_src"
        attributes |= {"comm_size": node.size_bytes, "comm_tag": node.tag, peer: node.peer}
    return b"".join(
        (
            _number(1, places[node.id]),
            _text(2, node.name),
            _number(3, _TYPES[node.kind]),
            *(_number(5, one) for one in after),
            _number(7, us),
            *(_bytes(10, _attribute(key, value)) for key, value in attributes.items()),
        )
    )


def _collective(trace: Trace, rank: int, node: Node) -> dict[str, int | str]:
    assert node.collective is not None
    if node.collective not in COLLECTIVES:
        raise ConfigError(f"{trace.source}: Chakra has no {node.collective}")
    members = trace.group_of(rank, node.group)
    parts = len(members) if node.collective in OWN_PART else 1
    made: dict[str, int | str] = {
        "comm_type": COLLECTIVES.index(node.collective),
        "comm_size": node.size_bytes // parts,
    }
    if node.group != WORLD:
        made["pg_name"] = node.group
    if node.collective in (Collective.BROADCAST, Collective.REDUCE, Collective.GATHER, Collective.SCATTER):
        made["root_rank"] = members[node.root]
    return made


# -- Protocol Buffers -------------------------------------------------------------------------------------------------


def _attribute(name: str, value: int | bool | str) -> bytes:
    if isinstance(value, bool):
        return _text(1, name) + _number(_BOOL, value)
    return _text(1, name) + (_number(_UINT64, value) if isinstance(value, int) else _text(_STRING, value))


def _varint(value: int) -> bytes:
    made: list[int] = []
    while value > 127:
        made.append(value & 127 | 128)
        value >>= 7
    return bytes([*made, value])


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3 | VARINT) + _varint(value)


def _bytes(field: int, data: bytes) -> bytes:
    return _varint(field << 3 | LENGTH) + _framed(data)


def _text(field: int, text: str) -> bytes:
    return _bytes(field, text.encode())


def _framed(data: bytes) -> bytes:
    return _varint(len(data)) + data
