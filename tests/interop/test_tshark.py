"""tshark decodes every kind of packet and MAD that weft writes.

All are in one capture and tshark runs once. Each of its fields must have the value that was written. Its names differ:
tshark_names.txt translates them. That file and the comments here list its bugs.
"""

from __future__ import annotations

import json
import random
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

import pytest
from tests.patience import PATIENCE_S

from weft.wire import notice, smp
from weft.wire.attributes import CLASSES
from weft.wire.fields import Numbers, Octets, Part, Parts
from weft.wire.format import Format
from weft.wire.headers import BTH, DETH, GRH, LRH, CNPPadding, Opcode
from weft.wire.mad import QP1_Q_KEY, Method, MgmtClass
from weft.wire.opcodes import CARRIES_NO_PAYLOAD, EXTENDED_HEADERS
from weft.wire.packet import Link, Packet
from weft.wire.pcap import LinkType, PcapngWriter
from weft.wire.roce import UDP, Ethernet, IPv4, IPv6, Vlan
from weft.wire.sa import MultiPathRecord

pytestmark = pytest.mark.interop
PADDED = bytes([*range(1, 14), 0, 0, 0])  # a payload of 13 bytes, with its padding
Fields = dict[str, list[str]]  # tshark's values for a packet, by its names without underscores


@dataclass(frozen=True, slots=True)
class Sample:
    """A frame and the records in it."""

    name: str
    link_type: LinkType
    frame: bytes
    records: tuple[Format, ...]


def random_record(form: type[Format], seed: int, **fixed: object) -> Format:
    """Return a record with random bits in every field that is not given."""
    raw = random.Random(f"{form.__name__} {seed}").randbytes(form.size)
    return form(**{name: field.get(raw) for name, field in form.fields.items()} | fixed)


def routes() -> dict[str, tuple[Format, ...]]:
    """Return the headers before a BTH, by route."""
    ethernet = Ethernet(destination=0x0002C9000001, source=0x0002C9000002)
    grh, lrh = random_record(GRH, 1, ip_ver=6), random_record(LRH, 1, lver=0)
    whole = {"version": 4, "ihl": 5, "more_fragments": 0, "fragment_offset": 0, "protocol": 17}
    return {
        "local": (lrh,),
        "global": (lrh, grh),
        "RoCE v1": (ethernet, grh),
        "RoCE v1 tagged": (ethernet, Vlan(pcp=3, vid=7), grh),
        "RoCE v2": (ethernet, random_record(IPv4, 1, **whole), UDP()),
        "RoCE v2 over IPv6": (ethernet, random_record(IPv6, 1, version=6, next_header=17), UDP(source_port=50_000)),
    }


def packets() -> Iterator[Sample]:
    """Yield every opcode on every route, except RD: tshark reads it as Mellanox's dynamically connected transport."""
    for opcode in (opcode for opcode in Opcode if not opcode.name.startswith("RD_")):
        bth = random_record(BTH, opcode, opcode=opcode, t_ver=0)
        extended = [kind() if kind is CNPPadding else random_record(kind, opcode) for kind in EXTENDED_HEADERS[opcode]]
        payload = b"" if opcode in CARRIES_NO_PAYLOAD else PADDED[:13]
        for route, headers in routes().items():
            frame = Packet((*headers, bth, *extended), payload).pack()
            local = isinstance(headers[0], LRH)
            sent = Packet.parse(frame, Link.INFINIBAND if local else Link.ETHERNET)
            link_type = LinkType.ERF if local else LinkType.ETHERNET
            yield Sample(f"{opcode.name} {route}", link_type, frame, sent.headers)


def mads() -> Iterator[Sample]:
    """Yield every attribute of every class, and every trap."""
    for mgmt_class, (form, attributes) in CLASSES.items():
        qp = 0 if attributes is smp.ATTRIBUTES else 1
        small = {MultiPathRecord: {"sgid_count": 2, "dgid_count": 3}}  # else they would not fit
        carried = [(number, random_record(kind, number, **small.get(kind, {}))) for number, kind in attributes.items()]
        carried += [(smp.SmpAttribute.NOTICE, trap) for trap in traps()] if qp == 0 else []
        for number, record in carried:
            fixed = {"mgmt_class": mgmt_class, "attribute_id": number, "method": Method.GET, "data": record.raw}
            fixed |= {"rmpp_type": 1} if "rmpp_type" in form.fields else {}
            mad = random_record(form, number, **fixed)
            details = notice.details(record) if type(record) is notice.Notice else None
            records = (mad, record, details) if details else (mad, record)
            lrh, bth = LRH(dlid=4, slid=9, vl=0 if qp else 15), BTH(opcode=Opcode.UD_SEND_ONLY, dest_qp=qp)
            packet = Packet((lrh, bth, DETH(q_key=QP1_Q_KEY, src_qp=qp)), mad.raw)
            yield Sample(f"{MgmtClass(mgmt_class).name} {type(record).__name__}", LinkType.ERF, packet.pack(), records)


def traps() -> Iterator[Format]:
    """Yield all traps but 259: tshark reads its switch's LID as an IPv6 address and reports a malformed packet."""
    for number, kind in notice.DETAILS.items():
        if number != notice.Trap.BAD_SWITCH_P_KEY:
            messages = random_record(kind, number).raw
            yield random_record(notice.Notice, number, is_generic=1, trap_number=number, data_details=messages)


def dissect(program: str, samples: list[Sample], folder: Path) -> list[tuple[Sample, Fields]]:
    """Write a capture of all samples, and return tshark's fields of each."""
    with open(folder / "all.pcapng", "wb") as file:
        writer = PcapngWriter(file)
        interfaces = {kind: writer.add_interface(kind.name, kind) for kind in (LinkType.ERF, LinkType.ETHERNET)}
        for number, sample in enumerate(samples):
            writer.write(sample.frame, 1_000_000 * number, interfaces[sample.link_type])
    guesses = ("infiniband_sdp", "rpcordma", "smb_direct", "nvme-rdma", "iser", "lnet", "smc")  # heuristic dissectors
    switched_off = [option for guess in guesses for option in ("--disable-protocol", guess)]
    command = [program, "-r", "all.pcapng", "-T", "json", "--no-duplicate-keys", "-n", *switched_off]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    output = [flatten(packet["_source"]["layers"], {}) for packet in json.loads(done.stdout)]
    return list(zip(samples, output, strict=True))


def flatten(tree: dict, into: Fields) -> Fields:
    for name, value in tree.items():
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, dict):
                flatten(item, into)
            else:
                into.setdefault(name.replace("_", ""), []).append(item)
    return into


@pytest.fixture(scope="module")
def dissected(peer, tmp_path_factory) -> list[tuple[Sample, Fields]]:
    return dissect(peer("tshark"), [*packets(), *mads()], tmp_path_factory.mktemp("tshark"))


def read_names() -> dict[str, str]:
    text = (Path(__file__).parent / "tshark_names.txt").read_text(encoding="ascii")
    return dict(line.split()[:2] for line in text.splitlines() if line.strip() and not line.startswith("#"))


NAMES = read_names()


def values(record: Format, prefix: str) -> Iterator[tuple[str, list[int]]]:
    """Yield all values of a record by name; those of a part by its format's name, or its own if that is translated."""
    for field in record.fields.values():
        value = field.get(record.raw)
        if isinstance(field, Part):
            own = f"{field.name}.{next(iter(field.form.fields))}" in NAMES
            yield from values(value, field.name if own else type(value).__name__)
        elif isinstance(field, Parts):
            yield from ((f"{prefix}.{name}", [item.as_dict()[name] for item in value]) for name in field.form.fields)
        elif isinstance(field, Numbers):
            yield f"{prefix}.{field.name}", list(value)
        else:
            yield f"{prefix}.{field.name}", [int.from_bytes(value, "big") if isinstance(field, Octets) else value]


def tshark_name(name: str) -> str:
    form, field = name.split(".")
    first = NAMES.get(form, f"infiniband.{form.lower()}")
    return NAMES.get(name, f"{first}.{field.replace('_', '')}")


def number(text: str) -> int:
    """Return the number that tshark shows in decimal or hexadecimal, as bytes with colons, or as an address."""
    if re.fullmatch(r"[0-9a-f]{2}(:[0-9a-f]{2})*", text) and not text.isdecimal():
        return int(text.replace(":", ""), 16)
    return int(text, 0) if re.fullmatch(r"0x[0-9a-f]+|\d+", text) else int(ip_address(text))


def test_no_packet_is_malformed(dissected):
    marked = {sample.name for sample, output in dissected if any("malformed" in k or "expert" in k for k in output)}
    assert not marked
    assert len(dissected) == 526


def test_every_field_has_the_value_that_went_in(dissected):
    checked, wrong = set(), {}
    for sample, output in dissected:
        for record in sample.records:
            for name, expected in values(record, type(record).__name__):
                result = [number(text) for text in output.get(tshark_name(name), [])]
                if result not in ([], expected, 2 * expected):  # tshark shows a header with a single field twice
                    wrong[name] = (sample.name, result, expected)
                checked |= {name} if result else set()
    assert wrong == {}
    assert len(checked) >= 500


def test_the_payload_starts_where_tshark_has_it(dissected):
    checked = 0
    for sample, output in dissected:
        if "data.data" in output and sample.records[-1].size < 200:
            assert output["data.data"] == [PADDED.hex(":")], sample.name
            checked += 1
    assert checked >= 6 * 32


def test_the_checks_are_where_tshark_looks_for_them(dissected):
    for sample, output in dissected:
        if sample.link_type is LinkType.ERF and "infiniband.invariant.crc" in output:
            both = output["infiniband.invariant.crc"][0][2:] + output["infiniband.variant.crc"][0][2:]
            assert bytes.fromhex(both) == sample.frame[-6:], sample.name


def test_names_and_lanes_are_read_in_order(peer, tmp_path):
    """Two attributes that tshark does not show as one number each."""
    lanes = tuple(range(15, -1, -1))
    carried = {
        smp.SmpAttribute.NODE_DESCRIPTION: smp.NodeDescription(node_string=b"leaf3 of weft"),
        smp.SmpAttribute.SL_TO_VL_MAPPING_TABLE: smp.SLtoVLMappingTable(vl=lanes),
    }
    headers = (LRH(dlid=4, slid=9, vl=15), BTH(opcode=Opcode.UD_SEND_ONLY), DETH())
    mads = [smp.Smp(method=Method.GET, attribute_id=number, data=item.raw) for number, item in carried.items()]
    samples = [Sample("", LinkType.ERF, Packet(headers, mad.raw).pack(), ()) for mad in mads]
    (_, described), (_, mapped) = dissect(peer("tshark"), samples, tmp_path)
    assert described["infiniband.nodedescription.nodestring"] == ["leaf3 of weft"]
    table = "infiniband.sltovlmappingtable.sltovl"
    assert [number(text) for text in mapped[f"{table}highbits"]] == list(lanes[0::2])
    assert [number(text) for text in mapped[f"{table}lowbits"]] == list(lanes[1::2])
