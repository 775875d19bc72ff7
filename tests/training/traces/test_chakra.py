"""Chakra's files, written by Google's protobuf from et_def.proto's fields and numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from tests.training.traces.made import routed

from weft.collectives.kinds import Collective
from weft.collectives.ranks import place
from weft.collectives.run import run_program
from weft.collectives.schedules.writers import program
from weft.errors import ConfigError, FileError
from weft.training.traces.chakra import read_chakra
from weft.training.traces.link import link
from weft.training.traces.read import read
from weft.training.traces.replay import replay
from weft.training.traces.trace import Kind

pytestmark = pytest.mark.interop
FIELD = descriptor_pb2.FieldDescriptorProto
COMP, SEND, RECV, COLL = 4, 5, 6, 7
# Scalars of AttributeProto: their names, numbers and types in the proto.
SCALARS = {
    "double": 3, "float": 5, "int32": 7, "int64": 9, "uint32": 11, "uint64": 13, "sint32": 15, "sint64": 17,
    "fixed32": 19, "fixed64": 21, "sfixed32": 23, "sfixed64": 25, "bool": 27, "string": 29, "bytes": 31,
}  # fmt: skip


def _messages() -> dict[str, Any]:
    """Build the messages GlobalMetadata, Node and AttributeProto without protoc."""
    file = descriptor_pb2.FileDescriptorProto(name="et_def.proto", package="ChakraProtoMsg", syntax="proto3")
    many, item = FIELD.LABEL_REPEATED, FIELD.LABEL_OPTIONAL

    def add(message: str, *fields: tuple[str, int, int, int, str]) -> None:
        result = file.message_type.add(name=message)
        for name, number, kind, label, of in fields:
            result.field.add(name=name, number=number, type=kind, label=label, type_name=of or None)

    values = [
        (f"{name}_val", number, getattr(FIELD, f"TYPE_{name.upper()}"), item, "") for name, number in SCALARS.items()
    ]
    add("Int64List", ("values", 1, FIELD.TYPE_INT64, many, ""))
    lists = [("int64_list", 10, FIELD.TYPE_MESSAGE, item, ".ChakraProtoMsg.Int64List")]
    add("AttributeProto", ("name", 1, FIELD.TYPE_STRING, item, ""), *values, *lists)
    for field in file.message_type[-1].field:
        if field.name != "name":
            field.oneof_index = 0
    file.message_type[-1].oneof_decl.add(name="value")
    attributes = (FIELD.TYPE_MESSAGE, many, ".ChakraProtoMsg.AttributeProto")
    add("GlobalMetadata", ("version", 1, FIELD.TYPE_STRING, item, ""), ("attr", 2, *attributes))
    whole = FIELD.TYPE_UINT64
    add(
        "Node",
        ("id", 1, whole, item, ""),
        ("name", 2, FIELD.TYPE_STRING, item, ""),
        ("type", 3, FIELD.TYPE_INT32, item, ""),  # an enum is written so
        ("ctrl_deps", 4, whole, many, ""),
        ("data_deps", 5, whole, many, ""),
        ("start_time_micros", 6, whole, item, ""),
        ("duration_micros", 7, whole, item, ""),
        ("attr", 10, *attributes),
    )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    result = {}
    for name in ("GlobalMetadata", "Node", "AttributeProto", "Int64List"):
        result[name] = message_factory.GetMessageClass(pool.FindMessageTypeByName(f"ChakraProtoMsg.{name}"))
    return result


ET = _messages()


def framed(message: Any) -> bytes:
    data, length = message.SerializeToString(), bytearray()
    size = len(data)
    while size > 127:
        length.append(size & 127 | 128)
        size >>= 7
    return bytes([*length, size]) + data


def node(number: int, kind: int, *, after: tuple[int, ...] = (), us: int = 0, **attributes: Any) -> Any:
    result = ET["Node"](id=number, name=f"node {number}", type=kind, data_deps=after, duration_micros=us)
    for name, value in attributes.items():
        kinds = {bool: "bool_val", int: "uint64_val", str: "string_val"}
        result.attr.add(name=name, **{kinds[type(value)]: value})
    return result


def write(folder: Path, *ranks: list[Any]) -> Path:
    for rank, nodes in enumerate(ranks):
        head = framed(ET["GlobalMetadata"](version="0.0.4"))
        (folder / f"job.{rank}.et").write_bytes(head + b"".join(framed(item) for item in nodes))
    return folder


def test_an_all_reduce_takes_what_its_program_takes(tmp_path):
    size_bytes = 1 << 20
    ranks = [[node(1, COLL, comm_type=0, comm_size=size_bytes, is_cpu_op=False)] for _ in range(4)]
    fabric = routed("star:hosts=4")
    timed = run_program(program("all_reduce", "ring", nodes=4), place(fabric), size_bytes)
    assert replay(read([write(tmp_path, *ranks)]), fabric).total_s == pytest.approx(timed.time_ps * 1e-12, rel=1e-12)


def test_nodes_are_what_the_file_says(tmp_path):
    ranks = [
        [
            node(300, COMP, us=7, is_cpu_op=True),
            node(301, COMP, us=5, after=(300,), is_cpu_op=False, stream=20),
            node(302, COLL, after=(301, 300), comm_type=2, comm_size=1000, pg_name="tp", is_cpu_op=False),
            node(303, SEND if rank == 0 else RECV, after=(302,), comm_size=64, comm_tag=9, comm_dst=1, comm_src=0),
            node(304, COLL, us=2, is_cpu_op=True),  # the host's side of it
        ]
        for rank in range(2)
    ]
    trace = read([write(tmp_path, *ranks)])
    host, kernel, gather, send, call = trace.ranks[0]
    assert (host.kind, host.lane, host.duration_ps) == (Kind.COMPUTE, "cpu", 7_000_000)
    assert (kernel.lane, kernel.after, kernel.duration_ps) == ("stream 20", (300,), 5_000_000)
    assert (gather.collective, gather.size_bytes, gather.after) == (Collective.ALL_GATHER, 2000, (301, 300))
    assert (send.kind, send.peer, send.tag, send.size_bytes) == (Kind.SEND, 1, 9, 64)
    assert (trace.ranks[1][3].kind, trace.ranks[1][3].peer) == (Kind.RECV, 0)
    assert (call.kind, call.duration_ps) == (Kind.COMPUTE, 2_000_000)
    assert trace.groups == {"tp": ((0, 1),)}
    link(trace)


@pytest.mark.parametrize("kind", SCALARS)
def test_every_way_to_write_a_number_is_read(tmp_path, kind):
    """A size that is an int32, a sfixed64 or any other of the 15; wrong kinds are refused by name."""
    result = node(1, COLL, comm_type=0)
    values = {"bool": True, "string": "512", "bytes": b"512", "double": 512.0, "float": 512.0}
    result.attr.add(name="other").int64_list.values.extend([1, 2, 3])
    result.attr.add(name="comm_size", **{f"{kind}_val": values.get(kind, 512)})
    folder = write(tmp_path, [result])
    if kind in values and kind != "bool":
        with pytest.raises(FileError, match="comm_size, a whole number"):
            read([folder])
    else:
        assert read([folder]).ranks[0][0].size_bytes == (1 if kind == "bool" else 512)


@pytest.mark.parametrize("kind", ["int32", "int64", "sint32", "sint64", "sfixed32", "sfixed64"])
def test_negative_numbers_are_negative(tmp_path, kind):
    result = node(1, SEND, comm_size=8)
    result.attr.add(name="comm_dst", **{f"{kind}_val": -7})
    with pytest.raises(FileError, match="comm_dst -7"):
        read([write(tmp_path, [result])])


def test_a_file_cut_anywhere_is_refused(tmp_path):
    """But between two nodes: there the file just ends."""
    nodes = [node(number, COMP, us=1, stream=3) for number in range(3)]
    path = write(tmp_path, nodes) / "job.0.et"
    whole = path.read_bytes()
    ends = {0, len(framed(ET["GlobalMetadata"](version="0.0.4")))}
    for result in nodes:
        ends.add(max(ends) + len(framed(result)))
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        if size in sorted(ends)[2:]:
            assert len(read([path]).ranks[0]) == sorted(ends).index(size) - 1
        else:
            with pytest.raises(FileError):
                read([path])


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (node(1, COLL, comm_type=12, comm_size=8), r"node 1 \(node 1\): comm_type 12.*CollectiveCommType, 0 to 9"),
        (node(1, COLL, comm_type=0), "comm_size None"),
        (node(1, COMP, num_ops=100), "num_ops 100 and no duration"),
        (node(1, COLL, comm_type=5, comm_size=8, root_rank=3), "root_rank 3.*a rank of its group"),
    ],
)
def test_nodes_that_cannot_be_run_are_named(tmp_path, made, said):
    with pytest.raises(FileError, match=said):
        read([write(tmp_path, [made])])


def test_other_files_beside_them_do_no_harm(tmp_path):
    folder = write(tmp_path, [node(1, COMP, us=1)])
    (folder / "chakra_metadata.yaml").write_text("model: made")
    (folder / "comm_group.json").write_text('{"0": [0]}')
    assert len(read([folder]).ranks) == 1


def test_missing_ranks_are_named(tmp_path):
    folder = write(tmp_path, *([node(1, COMP, us=1)] for _ in range(4)))
    (folder / "job.1.et").unlink()
    with pytest.raises(ConfigError, match=r"rank 1 of 4 is missing; there are files of 0, 2, 3"):
        read([folder])


def test_a_dependency_that_is_not_there_is_named(tmp_path):
    trace = read([write(tmp_path, [node(1, COMP, us=1), node(2, COMP, us=1, after=(1, 77))])])
    with pytest.raises(
        ConfigError, match=r"job.0.et: node 2 \(node 2\) of rank 0 waits for node 77, which is not there"
    ):
        link(trace)


def test_a_node_whose_field_goes_beyond_it_is_refused(tmp_path):
    path = write(tmp_path, []) / "job.0.et"
    path.write_bytes(path.read_bytes() + b"\x04\x08\x01\x12\x09")  # a message of 4 bytes, with a name of 9
    with pytest.raises(FileError, match="field 2 goes beyond its end"):
        read([path])


def test_any_damage_is_refused_by_name_or_does_no_harm(tmp_path):
    """500 files with three bytes changed: a complaint about the input, never a crash."""
    ranks = [
        [node(1, COMP, us=3, stream=1), node(2, COLL, after=(1,), comm_type=0, comm_size=64, pg_name="g", comm_tag=1)],
        [node(1, SEND, comm_size=8, comm_dst=0, comm_tag=2), node(2, COLL, comm_type=0, comm_size=64, pg_name="g")],
    ]
    folder, rng = write(tmp_path, *ranks), np.random.default_rng(1)
    files = {rank: folder / f"job.{rank}.et" for rank in range(2)}
    data = {rank: path.read_bytes() for rank, path in files.items()}
    refused = 0
    for _ in range(500):
        broken = bytearray(data[0])
        for at in rng.integers(len(broken), size=3).tolist():
            broken[at] = int(rng.integers(256))
        try:
            link(read_chakra(files, data | {0: bytes(broken)}, "made"))
        except ConfigError:
            refused += 1
    assert refused > 250
