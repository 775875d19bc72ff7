"""Component masks and tables of records."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from weft.errors import UnknownName
from weft.wire import formats
from weft.wire.format import Malformed
from weft.wire.port_info import PortInfo
from weft.wire.sa import MCMemberRecord, NodeRecord, PathRecord, PortInfoRecord, SMInfoRecord
from weft.wire.sa_query import (
    component_mask,
    component_names,
    components,
    covered_bits,
    matches,
    pack_records,
    unpack_records,
)
from weft.wire.smp import NodeInfo


def opensm_components() -> dict[str, list[str]]:
    text = (Path(__file__).parent / "opensm_components.txt").read_text(encoding="ascii")
    entries = re.split(r"\n(?=\w)", re.sub(r"#.*\n", "", text).strip())
    return {entry.split()[0]: entry.split()[1:] for entry in entries}


@pytest.mark.parametrize("record", opensm_components())
def test_component_bits_are_those_of_opensm(record):
    """Bits reserved in OpenSM may have a meaning in later standards."""
    expected = opensm_components()[record]
    names = [component.name for component in components(formats()[record])][: len(expected)]
    assert [name for name, theirs in zip(names, expected, strict=True) if theirs != "-"] == [
        theirs for theirs in expected if theirs != "-"
    ]
    unnamed = {name for name, theirs in zip(names, expected, strict=True) if theirs == "-"}
    assert unnamed <= {"", "port_info.mcast_p_key_trap_suppression_enabled"}


def test_a_mask_and_its_names_are_the_same():
    mask = component_mask(PathRecord, "sgid", "dgid", "numb_path")
    assert mask == 1 << 2 | 1 << 3 | 1 << 12
    assert component_names(PathRecord, mask | 1 << 7) == ["dgid", "sgid", "numb_path"]
    with pytest.raises(UnknownName, match="component of PathRecord 'sguid'; did you mean"):
        component_mask(PathRecord, "sguid")


def test_a_record_matches_a_query_where_the_mask_looks():
    record = NodeRecord(lid=4, node_info=NodeInfo(node_guid=7, num_ports=36))
    query = NodeRecord(lid=4, node_info=NodeInfo(node_guid=8, num_ports=36))
    assert matches(record, query, component_mask(NodeRecord, "lid", "node_info.num_ports"))
    assert not matches(record, query, component_mask(NodeRecord, "lid", "node_info.node_guid"))
    assert matches(record, query, 0)


def test_a_mask_covers_the_bits_of_its_fields():
    mask = component_mask(PortInfoRecord, "port_info.lmc")
    lmc = PortInfoRecord(port_info=PortInfo(lmc=7)).raw
    assert covered_bits(PortInfoRecord, mask) == int.from_bytes(lmc, "big")


def test_tables_are_read_as_they_were_written():
    records = [MCMemberRecord(mlid=0xC000 + i) for i in range(5)]
    assert unpack_records(MCMemberRecord, pack_records(records), MCMemberRecord.size // 8) == records
    assert unpack_records(MCMemberRecord, b"", 0) == []


def test_records_have_the_padding_of_opensm():
    """ib_types.h defines the attribute offsets."""
    sizes = {"NodeRecord": 112, "PortInfoRecord": 72, "SMInfoRecord": 32, "LinkRecord": 8, "MCMemberRecord": 56}
    sizes |= {"InformInfoRecord": 64, "PathRecord": 64, "ServiceRecord": 176, "SwitchInfoRecord": 24}
    assert {name: formats()[name].size for name in sizes} == sizes


def test_a_larger_offset_than_ours_is_understood():
    """A later version of a record would have it."""
    larger = SMInfoRecord(lid=3).raw + bytes(8) + SMInfoRecord(lid=4).raw + bytes(8)
    assert [record.lid for record in unpack_records(SMInfoRecord, larger, 5)] == [3, 4]
    with pytest.raises(Malformed, match="attribute offset 3 is too small for a SMInfoRecord of 32 bytes"):
        unpack_records(SMInfoRecord, bytes(64), 3)


def test_the_last_record_may_come_without_its_padding():
    table = pack_records([NodeRecord(lid=1), NodeRecord(lid=2)])
    assert [record.lid for record in unpack_records(NodeRecord, table[:-4], 14)] == [1, 2]
    assert [record.lid for record in unpack_records(NodeRecord, table[:-8], 14)] == [1]
    assert len(unpack_records(MCMemberRecord, bytes(2 * 56 + 8), 7)) == 2
