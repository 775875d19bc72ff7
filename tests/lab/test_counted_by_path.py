"""A lab in a separate process: its port counters agree with the paths of the subnet administrator.

All-to-all by `weft traffic`, and RDMA between two hosts: every port that the forwarding tables lead to counts each
message that passes it, and no other port does. All information comes from MADs and commands.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from random import Random

import pytest
from tests.lab.rdma import Host
from tests.patience import PATIENCE_S, wait_until

import weft
from weft.diags.ibnetdiscover import ibtracert
from weft.diags.query import HERE, get_counters, get_smp, own_lid
from weft.fabric.kinds import NodeKind
from weft.fabric.views import Port
from weft.lab import control, registry
from weft.mad.administrator import ask_paths
from weft.mad.ibsim_client import IbsimCarrier
from weft.mad.keyed import KeyedCarrier, KeyFile
from weft.verbs import enums as e
from weft.verbs.pyverbs.addr import AHAttr
from weft.wire.bulk import column
from weft.wire.perf import PerfAttribute, PortCountersExtended
from weft.wire.port_info import PortInfo
from weft.wire.sa import PathRecord
from weft.wire.smp import NodeInfo, SmpAttribute

SIZE_BYTES = 1 << 20
MESSAGE_WORDS = SIZE_BYTES // 4 + 256 * (8 + 12 + 4) // 4 + 4  # LRH, BTH, ICRC of 256 packets; RETH of the first
HOP = re.compile(r"\[(\d+)\] -> \S+ port \{\w+\}\[\d+\] lid (\d+)-")
CASES = [("dragonfly:p=1,a=3,h=1", 91, True), ("torus:5x3", 92, False)]
PortKey = tuple[int, int]  # LID of the node, port number


class Lab:
    """A lab in another process, and queries from its hosts."""

    def __init__(self, spec: str, name: str) -> None:
        self.fabric, self.entry = weft.load(spec), registry.find(name)
        self.names = [self.fabric.nodes.name[node] for node in self.fabric.of_kind(NodeKind.HCA).tolist()]
        self.carriers = {}
        for host in self.names:
            messages = self.host(host)
            carrier = IbsimCarrier(messages["sim_host"], messages["sockname"])
            self.carriers[host] = KeyedCarrier(carrier, KeyFile(self.entry.m_key_file))
        self.lids = {host: own_lid(carrier) for host, carrier in self.carriers.items()}
        lid_of = dict(self.lids)
        for host in self.names[1:]:  # each switch is on the path from the first host to some other
            output = ibtracert(self.carriers[self.names[0]], [str(self.lids[self.names[0]]), str(self.lids[host])])
            lid_of |= {name: int(lid) for lid, name in re.findall(r'lid (\d+)-\d+ "(\S+)"', output)}
        self.ends = [port for link in self.fabric.all_links() for port in (link.a, link.b)]
        self.ports = [(lid_of[port.node.name], port.number) for port in self.ends]

    def host(self, name: str) -> dict[str, str]:
        return control.ask(self.entry, "host", name=name)

    def paths(self) -> dict[tuple[str, str], tuple[int, int]]:
        """Return the SL and P_Key by (source, destination), from the path records of each host."""
        result, name_of = {}, {lid: host for host, lid in self.lids.items()}
        for host, carrier in self.carriers.items():
            info = PortInfo.unpack(get_smp(carrier, HERE, SmpAttribute.PORT_INFO))
            guid = NodeInfo.unpack(get_smp(carrier, HERE, SmpAttribute.NODE_INFO)).port_guid
            rows = ask_paths(carrier, info.gid_prefix << 64 | guid)
            fields = (column(rows, item).tolist() for item in (PathRecord.dlid, PathRecord.sl, PathRecord.p_key))
            for dlid, sl, p_key in zip(*fields, strict=True):
                if name_of.get(dlid, host) != host:
                    result[host, name_of[dlid]] = sl, p_key
        return result

    def way(self, a: str, b: str) -> list[PortKey]:
        """Return the output ports of a path, by the forwarding tables read from the switches."""
        output = HOP.findall(ibtracert(self.carriers[a], [str(self.lids[a]), str(self.lids[b])]))
        nodes = [self.lids[a], *(int(lid) for _, lid in output)]
        return [(node, int(out)) for node, (out, _) in zip(nodes, output, strict=False)]

    def counted(self, ports: list[PortKey]) -> Counter[PortKey]:
        """Return the words that the ports have sent so far."""
        carrier, words = self.carriers[self.names[0]], Counter()
        for lid, port in ports:
            raw = get_counters(carrier, lid, PerfAttribute.PORT_COUNTERS_EXTENDED, port)
            words[lid, port] = PortCountersExtended.port_xmit_data.get(raw)
        return words

    def close(self) -> None:
        for carrier in self.carriers.values():
            carrier.close()


def run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def three_tenants(fabric: weft.Fabric, random: Random) -> str:
    """Return a partition file with every host except the manager's in one of three tenants."""
    slots = [int(fabric.first_port[node]) + 1 for node in fabric.of_kind(NodeKind.HCA).tolist()][1:]
    guids = [f"0x{int(fabric.ports.guid[slot]):016x}=full" for slot in random.sample(slots, len(slots))]
    lines = [f"t{n}=0x{n + 1:x} : {', '.join(guids[n::3])} ;" for n in range(3)]
    return "\n".join(["Default=0x7fff : ALL, SELF=full ;", *lines]) + "\n"


@pytest.fixture(scope="module", params=CASES, ids=lambda case: f"{case[0]}-{case[1]}")
def lab(request, tmp_path_factory, warm) -> Iterator[Lab]:
    """A lab with three tenants, or one with a pulled cable and rewritten tables."""
    spec, seed, divided = request.param
    random, name, conf = Random(seed), f"c{os.getpid()}-{seed}", tmp_path_factory.mktemp("lab") / "partitions.conf"
    fabric = weft.load(spec)
    conf.write_text(three_tenants(fabric, random) if divided else "Default=0x7fff : ALL=full ;\n")
    run(str(warm), "up", spec, "--daemon", "--sm", "--partitions", str(conf), "--name", name)
    result = Lab(spec, name)
    try:
        if not divided:
            switch = NodeKind.SWITCH
            between = [port for port in result.ends if {port.node.kind, port.peer.node.kind} == {switch}]
            pull(result, random.choice(between))
        yield result
    finally:
        result.close()
        control.end(result.entry)


def pull(lab: Lab, end: Port) -> None:
    """Pull a cable and wait until the subnet manager has routed all paths around it."""
    log = lab.entry.log.with_suffix(".sm.log")
    sweeps = log.read_text().count("SUBNET UP")
    ends = {lab.ports[at] for at, port in enumerate(lab.ends) if port in (end, end.peer)}
    control.ask(lab.entry, "break", name=str(end))
    wait_until(lambda: log.read_text().count("SUBNET UP") > sweeps, "a sweep")
    messages = lab.paths()
    assert len(messages) == len(lab.names) * (len(lab.names) - 1)
    assert not any(ends & set(lab.way(*pair)) for pair in messages)


def flows_over(lab: Lab, before: Counter[PortKey], unit_words: int) -> dict[PortKey, int]:
    """Return the messages that each port has sent since: MADs and acknowledgements are less than half of one."""
    since = {port: words - before[port] for port, words in lab.counted(list(before)).items()}
    return {port: count for port, words in since.items() if (count := round(words / unit_words))}


def test_ports_count_the_messages_of_all_to_all_that_the_paths_lead_over_them(lab, warm) -> None:
    messages = lab.paths()
    pairs = [pair for pair in messages if pair[::-1] in messages]
    ways = [lab.way(*pair) for pair in pairs]
    before = lab.counted(lab.ports)
    report = json.loads(run(str(warm), "traffic", "all-to-all", "--size", "1M", "--json", "--lab", lab.entry.name))
    every = len(lab.names) * (len(lab.names) - 1)
    assert (report["delivered"], report["without_path"]) == (len(pairs), every - len(pairs))
    assert flows_over(lab, before, MESSAGE_WORDS) == Counter(port for way in ways for port in way)


def test_ports_count_what_two_programs_send_by_the_path_that_they_were_told(lab, monkeypatch) -> None:
    received = lab.paths()
    pair = Random(lab.entry.name).choice([pair for pair in received if pair[::-1] in received])
    ends = [Host(lab, name, monkeypatch) for name in pair]
    qps = [end.qp(e.IBV_QPT_RC) for end in ends]
    for item, other in ((0, 1), (1, 0)):
        sl, p_key = received[pair[item], pair[other]]
        attr = AHAttr(lab.lids[pair[other]], sl)
        monkeypatch.setattr(ends[other], "address", lambda attr=attr, **how: attr)
        keys = ends[item].ctx
        index = next(at for at in range(16) if keys.query_pkey(1, at) & 0x7FFF == p_key & 0x7FFF)
        ends[item].connect(qps[item], ends[other], qps[other], pkey_index=index)
    before, messages, size_bytes = lab.counted(lab.ports), 100, 20 * 1024
    for _ in range(messages):
        ends[1].post_receive(qps[1], size_bytes)
        ends[0].send(qps[0], bytes(size_bytes))
        assert [done.status for done in ends[0].poll() + ends[1].poll()] == [e.IBV_WC_SUCCESS] * 2
    words = messages * (size_bytes + 20 * (8 + 12 + 4)) // 4
    assert flows_over(lab, before, words) == dict.fromkeys(lab.way(*pair), 1)
    for end in ends:
        end.close()
