"""OpenSM on ibsim reads the same partition files and creates the same P_Key tables and multicast groups as weft."""

from __future__ import annotations

import random
import re
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import weft
from weft.errors import FileError
from weft.fabric.files import ibnetdiscover
from weft.fabric.tables import PKEY_ENTRIES
from weft.ids import Gid
from weft.mad.carrier import ask
from weft.mad.discover import directed_get
from weft.mad.ibsim_client import IbsimCarrier
from weft.sm.pkey.partitions import NO_FILE, Partitions
from weft.sm.pkey.partitions_conf import parse_partitions
from weft.sm.pkey.tables import PKeyTables, wanted_pkeys
from weft.wire.smp import PKeyTable, SmpAttribute

pytestmark = pytest.mark.interop

FABRIC = weft.load("fat-tree:hosts=4,radix=4,speed=HDR")
NODES = {name: int(FABRIC.first_port[number]) for number, name in enumerate(FABRIC.nodes.name)}
OWN = NODES["h1"] + 1
H1, H2, H3, H4 = (f"0x{int(FABRIC.ports.guid[NODES[name] + 1]):x}" for name in ("h1", "h2", "h3", "h4"))
LEAF = f"0x{int(FABRIC.ports.guid[NODES['leaf1']]):x}"
CAP = np.where(FABRIC.nodes.n_ports > 1, 8, 64)  # ibsim's, for a switch itself and for adapters
BLOCK = 32
HOST = "H-0002c90300000100"  # h1
# slot -> the path to its node from h1, the port's number, and how many blocks it has
PLACES = {NODES["leaf1"] + port: (b"\1", port, 2 if port else 1) for port in range(5)}
PLACES |= {OWN: (b"", 1, 2)} | {NODES[f"h{n}"] + 1: (bytes((1, n)), 1, 2) for n in (2, 3, 4)}

READ = {
    "default only": "Default=0x7fff : ALL=full ;",
    "no default rule": f"Red=0x10 : {H2}=full, {H3} ;",
    "the manager limited": "Default=0x7fff : ALL ;",
    "order within a partition": f"Red=0x10: {H2}=full, ALL, {H3}=full;\nRed=0x10: {H3}=limited;",
    "cut words": f"Default=0x7fff:A,S=f;\nRed=16,def=f:{H2}, {H3}=limi, {H4}=l;\nBlue=0x11: ALL_C=fu, ALL_S, N;",
    "nothing after =": f"Red=0x10 : {H2}=, {H3}=wrong, {H4} ;",
    "digits are the key": f"0x0123 : {H2}=full ;\n0200 : {H3} ;",
    "generated keys": f"A : {H2} ;\nB=1 : {H2} ;\nC=0 : {H3}=full ;\nA : {H4} ;\n: {H2} ;\n : {H3} ;",
    "only 15 bits": f"Red=0x8010 : {H2} ; Red=0x10010 : {H3}=full ; Blue=0xffff: ALL_CAS=full;",
    "low byte first": f"A=0x0201:ALL;B=0x0102:ALL=full;C=0x7f00: {H2}; D=0x00ff: {H2}=full;",
    "many lines": f"Red = 0x10 , ipoib , \t: {H2} = full ,\n  # all of them\n {H3},\n\n {H4}=limited ;\nBlue=0x20:ALL;",
    "no last semicolon": f"Red=0x10 : {H2}\n,{H3}=full",
    "names merge": f"Red=0x10 : {H2} ;\nBlue=0x10 : {H2}=full, {H3} ;",
    "unknown flags and ports": f"Red=0x10,nonsense,sl=99,mtu=,=4,rate=x,,scope=77 : 0x1234=full, {LEAF}=full, {H2} ;",
    "index 0": f"Red=0x10,indx0 : {H2}, {H3}=full ;\nBlue=0x20,indx0 : {H3} ;\nIn=0x30,ind: ALL;",
    "index 0 given up": f"Red=0x10,indx0 : ALL ;\nBlue=0x20,indx0 : {H3}, {H4} ;\nBlue=0x20 : {H3}=full ;",
    "index 0 of default": "Red=0x10,indx0 : ALL=full ;\nDefault=0x7fff,indx0 : ALL=full ;",
    "both is full": f"Red=0x10 : ALL=both ;\nBlue=0x20,defmember=both : {H2} ; Green=0x30,defmember=x : {H3} ;",
    "switch out of room": "\n".join(f"P{n}=0x{n:x}00 : ALL_SWITCHES ;" for n in range(1, 12)),
    "adapters out of room": "\n".join(f"P{n}={n} : ALL_CAS=full ;" for n in range(1, 71)),
    "groups": "Default=0x7fff,ipoib:\n mgid=ff12:401b::16 \n mgid=ff12::1,sl=1,Q_Key=0xDEAD\n mgid=12::\n ALL=full;",
    "no members": f"Red=0x10 : ;\nBlue=0x20 : NONE ; Green=0x30 : {H2} ;",
    "nothing at all": "# only a comment\n\n",
}
REFUSED = {
    "no colon": f"Red=0x10\n : {H2} ;",
    "not a GUID": f"Red=0x10 : {H2}, h3 ;",
    "GUID 0": "Red=0x10 : 0 ;",
    "small letters": "Default=0x7fff : all=full ;",
    "a word too long": "Default=0x7fff : ALLCAS=full ;",
    "hexadecimal without 0x": f"7fff : {H2} ;",
    "no key after =": f"Red= : {H2} ;",
    "two semicolons": f"Red=0x10 : {H2} ;;\n",
    "no semicolon between": f"Red=0x10 : {H2}\nBlue=0x20 : {H3} ;",
    "carriage returns": f"Red=0x10 : {H2} ;\r\n",
}
MANUAL_PAGE = f"Share=0x80 : defmember=limited : {H2}, {H3}=full;"
BOTH = {
    "both": f"Red=0x10 : ALL=both ;\nBlue=0x20 : {H2}=both, {H3}=full ;\nBlue=0x20 : {H2}=limited, {H3}=both ;",
    "default": "Default=0x7fff : ALL=both ;\nRed=0x10 : ALL ;",
    "default limited": "Red=0x10 : ALL=full ;",
    "index 0": "Red=0x10,indx0 : ALL=both ;\nBlue=0x08 : ALL=full ;",
}


GROUP = ("pkey", "qkey", "mtu", "rate", "tclass", "sl_flow_hop", "scope_state")
GROUPS = re.compile(
    r"MC Group .*? mgid=(?P<mgid>\S+) .*?qkey=(?P<qkey>\S+) .*?mtu=(?P<mtu>\S+) tclass=(?P<tclass>\S+) "
    r"pkey=(?P<pkey>\S+) rate=(?P<rate>\S+) .*?sl_flow_hop=(?P<sl_flow_hop>\S+) scope_state=(?P<scope_state>\S+)"
)


def shown(mgid: int, p_key: int, q_key: int, mtu: int, rate: int, t_class: int, sl_flow_hop: int, scope: int) -> str:
    """Return a group in one line, without selectors and join state."""
    return (
        f"{Gid(mgid)} P_Key {p_key:#06x} Q_Key {q_key:#x} mtu {mtu & 63} rate {rate & 63} TClass {t_class} "
        f"SL, flow label, hops {sl_flow_hop:#010x} scope {scope >> 4}"
    )


def wanted_groups(partitions: Partitions) -> set[str]:
    return {
        shown(
            int(group.mgid),
            partition.p_key | 0x8000,
            group.q_key,
            group.mtu,
            group.rate,
            group.t_class,
            group.sl << 28 | group.flow_label << 8 | (0 if group.scope == 2 else 255),
            group.scope << 4,
        )
        for partition in partitions.partitions
        for group in partition.groups
    }


class OpenSm:
    """An OpenSM on a subnet of ibsim."""

    def __init__(self, running, folder: Path) -> None:
        self.running, self.folder = running, folder

    def sweep(self, text: str, *options: str) -> NDArray[np.uint16]:
        """Run one sweep with a partition file and options; return the resulting tables, in weft's slots."""
        (self.folder / "partitions.conf").write_text(text, newline="")
        (self.folder / "opensm.conf").write_text("\n".join(options))
        files = ["-F", "opensm.conf", "-P", "partitions.conf", "-f", "opensm.log", "-e", "-D", "0x83", "-d", "2"]
        where = {"OSM_CACHE_DIR": str(self.folder), "OSM_TMP_DIR": str(self.folder)}
        self.running.run("opensm", "-o", *files, host=HOST, **where)
        table = np.zeros((len(FABRIC.ports), PKEY_ENTRIES), np.uint16)
        carrier = IbsimCarrier(HOST, self.running.name)
        for slot, (path, port, blocks) in PLACES.items():
            for block in range(blocks):
                modifier = port << 16 | block if path == b"\1" else block
                answer = ask(carrier, directed_get(path, SmpAttribute.P_KEY_TABLE, modifier))
                assert answer is not None
                table[slot, BLOCK * block : BLOCK * (block + 1)] = PKeyTable.unpack(answer, 64).p_key
        carrier.close()
        return table

    def groups(self) -> set[str]:
        """Return the groups of the last sweep, which needs the option sa_db_dump."""
        dump = self.folder / "opensm-sa.dump"
        text = dump.read_text() if dump.exists() else ""  # OpenSM writes none without records
        return {
            shown(
                int(result["mgid"].replace("0x", "").replace(":", ""), 16), *(int(result[name], 16) for name in GROUP)
            )
            for result in GROUPS.finditer(text)
        }


@pytest.fixture
def opensm(ibsim, tmp_path) -> OpenSm:
    return OpenSm(ibsim(ibnetdiscover.to_text(FABRIC)), tmp_path)


def wanted(partitions: Partitions, **options: object) -> PKeyTables:
    return wanted_pkeys(partitions, FABRIC, OWN, partition_cap=CAP, enforcement_cap=np.full(len(CAP), 64), **options)


def differences(weft_has: NDArray[np.uint16], opensm_has: NDArray[np.uint16]) -> list[str]:
    def keys(row: NDArray[np.uint16]) -> str:
        return " ".join(f"{key:04x}" for key in np.trim_zeros(row, "b").tolist())

    rows = [slot for slot in PLACES if (weft_has[slot] != opensm_has[slot]).any()]
    return [f"{FABRIC.port(slot)}: weft {keys(weft_has[slot])}, OpenSM {keys(opensm_has[slot])}" for slot in rows]


@pytest.mark.parametrize("name", READ)
def test_opensm_leaves_the_tables_that_weft_wants(opensm, name):
    assert differences(wanted(parse_partitions(READ[name])).table, opensm.sweep(READ[name])) == []


# -- groups ------------------------------------------------------------------------------------------------------------

WITH_GROUPS = {
    "scope of ipoib": "Red=0x10,ipoib,scope=5 : ALL ;",
    "scopes of groups": "Red=0x10,ipoib,scope=5,scope=2:\n mgid=ff12::1\n mgid=ff15::2\n mgid=ff12:401b::16\n ALL;",
    "sl": "Red=0x10,ipoib,sl=3:\n mgid=ff12:401b::16\n mgid=ff12::1,sl=2\n ALL=full;",
    "IP without broadcast": "Red=0x10:\n mgid=ff12:401b::16\n mgid=ff12:601b::16\n mgid=ff12:401b::ffff:ffff\n ALL;",
    "broadcast by hand": "Red=0x10:\n mgid=ff12:401b::ffff:ffff\n mgid=ff12:601b::16\n ALL;",
    "link-local of the SA": "Red=0x10:\n mgid=ff12:a01b::1\n mgid=ff15:a01b::1\n mgid=ff15:a01b::2,scope=8\n ALL;",
    "flags": "Red=0x10,ipoib,mtu=5,rate=6,Q_Key=18,TClass=3,FlowLabel=77:\n mgid=ff32::1\n mgid=ff12::1,rate=x\n ALL;",
    "no codes": "Red=16,ipoib,mtu=2048:\n mgid=ff12::1,mtu=4\n ALL;\nB=17,ipoib,rate=50:ALL;C=18,ipoib,rate=:ALL;",
    "twice": "R=1,ipoib:ALL;\nR=1,ipoib,rate=7:\n mgid=ff12:401b::16\n mgid=ff12::1\n mgid=ff12::1,scope=5\n ALL;",
    "without members": "Red=0x10,ipoib: NONE;\nDefault=0x7fff,ipoib:ALL=full;",
    "nothing at all": "# only a comment\n",
}


def random_file(seed: int) -> str:
    """Return a random file with every construct of the grammar, and some outside it."""
    dice = random.Random(seed)

    def some(words: list[str], most: int) -> list[str]:
        return dice.sample(words, dice.randint(0, most))

    flags = ["ipoib", "ipoib", "scope=5", "scope=2", "scope=0xe", "sl=3", "sl=77", "mtu=5", "mtu=9", "mtu=", "rate=6"]
    flags += ["rate=x", "Q_Key=0x1234", "TClass=9", "FlowLabel=0x123", "defmember=full", "indx0", "odd", "s=8", "Q_Key"]
    groups = ["ff12:401b::16", "ff12:601b::16", "ff12:401b::ffff:ffff", "ff12:401b:8010::22", "fe80::1"]
    groups += ["ff12:601b:ffff::1", "ff12:401b:ffff::ffff:ffff"]
    # If one of these is in two partitions, OpenSM frees it twice when it ends.
    own_groups = ["ff15::", "ff12::", "ff12:a01b::", "ff18:a01b::", "ff32::"]
    ports = [
        f"{item}{how}" for item in ("ALL", "SELF", "ALL_CAS", H2, H3, H4, LEAF) for how in ("", "=full", "=limited")
    ]
    lines = []
    for number in range(1, dice.randint(2, 6)):
        name = dice.choice(["Default=0x7fff", "Red=0x10", "Red", "Blue=0x11", "0x12", "Green"])
        lines.append(",".join([name, *some(flags, 5)]) + " :")
        of_group = ["sl=2", "rate=6", "scope=8", "mtu=5", "Q_Key=0x77", "scope=5"]
        lines += [
            " " + ",".join([f"mgid={item}", *some(of_group, 2)])
            for item in some(groups + [f"{own}{number}" for own in own_groups], 5)
        ]
        lines.append(" " + ", ".join([*some(ports, 3), dice.choice(ports)]) + " ;")
    return "\n".join(lines)


def check_both(opensm: OpenSm, text: str, *, qos: bool) -> None:
    read = parse_partitions(text, qos=qos)
    table = opensm.sweep(text, "sa_db_dump TRUE", f"qos {'TRUE' if qos else 'FALSE'}")
    assert differences(wanted(read).table, table) == [], text
    assert sorted(wanted_groups(read)) == sorted(opensm.groups()), text


@pytest.mark.parametrize("qos", [False, True])
@pytest.mark.parametrize("name", WITH_GROUPS)
def test_opensm_makes_the_groups_that_weft_makes(opensm, name, qos):
    check_both(opensm, WITH_GROUPS[name], qos=qos)


@pytest.mark.parametrize("seed", range(20))
def test_opensm_reads_any_file_as_weft_does(opensm, seed):
    check_both(opensm, random_file(seed), qos=seed % 2 == 0)


def test_files_that_weft_refuses_are_dropped_by_opensm(opensm, tmp_path):
    for name, text in REFUSED.items():
        with pytest.raises(FileError):
            parse_partitions(text)
        assert differences(wanted(NO_FILE).table, opensm.sweep(text)) == [], name
        assert (tmp_path / "opensm.log").read_text().count("retrying with default config") == 1, name


def test_the_manual_pages_own_line_is_dropped_by_opensm_and_meant_by_weft(opensm, tmp_path):
    assert differences(wanted(NO_FILE).table, opensm.sweep(MANUAL_PAGE)) == []
    meant = MANUAL_PAGE.replace(" : def", ",def")
    assert differences(wanted(parse_partitions(MANUAL_PAGE)).table, opensm.sweep(meant)) == []


def test_smpquery_reads_the_same(opensm):
    table = opensm.sweep(READ["low byte first"])
    output = opensm.running.run("smpquery", "-D", "pkeys", "0,1,2", host=HOST)
    keys = [int(key, 16) for key in re.findall(r"0x[0-9a-f]{4}", output)]
    assert keys == table[NODES["h2"] + 1, : len(keys)].tolist()
    assert len(keys) == 64


@pytest.mark.parametrize("name", BOTH)
def test_ports_with_both_keys_of_a_partition(opensm, name):
    result = wanted(parse_partitions(BOTH[name]), allow_both=True)
    assert differences(result.table, opensm.sweep(BOTH[name], "allow_both_pkeys TRUE")) == []


def test_keys_keep_the_indexes_at_which_they_were_found(opensm):
    before = opensm.sweep(f"A=0x01:ALL;B=0x02:ALL=full;C=0x03:ALL;D=0x0100,indx0:{H3};")
    text = f"0x02:ALL;0x04:ALL_CAS=full;0x05,indx0:{H2}=full;0x03:{H3},{H4}=full;0x0100:{H3};"
    result = wanted(parse_partitions(text), found=before, keep_indexes=True)
    assert differences(result.table, opensm.sweep(text, "keep_pkey_indexes TRUE")) == []
    assert result.table[NODES["h2"] + 1, 2] == 0x0002


@pytest.mark.parametrize("enforce", ["off", "in"])
def test_only_switches_that_check_get_tables(opensm, enforce):
    """The tables of ibsim's switches are empty before."""
    text = f"Red=0x10 : {H2}=full ;"
    result = wanted_pkeys(parse_partitions(text), FABRIC, OWN, part_enforce=enforce)
    present = opensm.sweep(text, f"part_enforce {enforce}")
    facing = NODES["leaf1"] + 2
    assert result.programmed[facing] == (enforce == "in")
    assert (present[facing, 1] == 0x8010) == (enforce == "in")
