"""RDMA programs in a lab: by the subnet manager's tables, counted at every port, or dropped."""

from __future__ import annotations

import errno
import time
from types import SimpleNamespace

import pytest
from tests.lab.rdma import ACCESS, GRH, Q_KEY, Host, all_active, managed, pair, refusals, running, wait_until

import weft
from weft.fabric.counters import Counter
from weft.ids import Gid
from weft.lab.lab import Lab
from weft.lab.metered_paths import clean_path
from weft.verbs import enums as e
from weft.verbs import hardware
from weft.verbs.carriers.lab.connection import QUEUE_PAIR_BITS
from weft.verbs.carriers.lab.paths import group_of
from weft.verbs.errors import PyverbsRDMAError
from weft.verbs.pyverbs.addr import AH, GID, AHAttr, GlobalRoute
from weft.verbs.pyverbs.device import Context, get_device_list
from weft.verbs.pyverbs.eec import EEC, RDD, EECAttr
from weft.verbs.pyverbs.mr import MR
from weft.verbs.pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from weft.verbs.pyverbs.wr import SGE, SendWR
from weft.wire.headers import BTH, DETH, LRH, Opcode


def way_between(lab, start: str, end: str) -> tuple[int, ...]:
    """Return the output slots of a path."""
    slot, lid = lab.fabric[f"{start}/1"].slot, lab.subnet.lid(lab.fabric[f"{end}/1"].slot)
    result = clean_path(lab.subnet.devices, slot, lid, sl=0, p_key=0xFFFF, mtu_bytes=1024)
    assert result is not None
    return result.path.out


def events(host: Host) -> list[int]:
    """Return the types of the events so far."""
    host.ctx.adapter.progress()
    return [host.ctx.events.popleft().event_type for _ in range(len(host.ctx.events))]


@pytest.fixture(scope="module")
def lab():
    with running() as up:
        yield up


@pytest.fixture
def hosts(lab, monkeypatch):
    opened: list[Host] = []

    def make(*names: str) -> list[Host]:
        opened.extend(Host(lab, name, monkeypatch) for name in names)
        return opened[-len(names) :]

    yield make
    for item in opened:
        item.close()
    lab.fix()
    wait_until(lambda: all_active(lab))


def test_queries_say_what_the_subnet_manager_has_set(lab, hosts):
    (h3,) = hosts("h3")
    port, slot = h3.ctx.query_port(1), lab.fabric["h3/1"].slot
    assert (port.lid, port.sm_lid) == (lab.subnet.lid(slot), lab.subnet.lid(lab.fabric["h1/1"].slot))
    assert (port.state, port.link_layer, port.phys_state) == (e.IBV_PORT_ACTIVE, e.IBV_LINK_LAYER_INFINIBAND, 5)
    assert h3.ctx.query_gid(1, 0).raw == bytes.fromhex("fe80000000000000") + lab.subnet.devices.port_guid(slot)
    assert h3.ctx.query_port_speed(1) == 4000, "4xNDR"
    assert h3.ctx.query_pkey(1, 0) == 0xFFFF
    assert len(h3.ctx.query_gid_table(10)) == 1


@pytest.mark.parametrize("is_global", [False, True])
@pytest.mark.parametrize("kind", [e.IBV_QPT_RC, e.IBV_QPT_UC])
def test_messages_of_many_packets_arrive_whole(hosts, kind, is_global):
    h1, h8 = hosts("h1", "h8")
    item, other = pair(kind, h1, h8, is_global=is_global)
    data = bytes(n % 251 for n in range(5000))
    h8.post_receive(other, 6000)
    h1.send(item, data)
    assert [done.status for done in h1.poll() + h8.poll()] == [e.IBV_WC_SUCCESS] * 2
    assert h8.mr.read(5000, 1 << 15) == data


def test_a_datagram_tells_where_it_came_from(lab, hosts):
    h2, h7 = hosts("h2", "h7")
    item, other = pair(e.IBV_QPT_UD, h2, h7)
    h7.post_receive(other, 100 + GRH)
    h2.send(item, b"x" * 100, AH(h2.pd, attr=h7.address()), other.qp_num)
    (done,) = h7.poll()
    assert (done.slid, done.src_qp, done.byte_len) == (lab.subnet.lid(lab.fabric["h2/1"].slot), item.qp_num, 140)
    assert not done.wc_flags & e.IBV_WC_GRH
    h2.post_receive(item, 100 + GRH)
    h7.send(other, b"y" * 10, AH(h7.pd, wc=done, grh=h7.mr.buf + (1 << 15), port_num=1), done.src_qp)
    assert len(h2.poll(2)) == 2, "the answer finds its way back"


def test_a_datagram_with_a_wrong_q_key_is_counted_by_the_port(hosts):
    h2, h7 = hosts("h2", "h7")
    sender, receiver = pair(e.IBV_QPT_UD, h2, h7, qkey=Q_KEY + 1)
    h7.post_receive(receiver, 100 + GRH)
    h2.send(sender, b"x", AH(h2.pd, attr=h7.address()), receiver.qp_num)
    wait_until(lambda: h7.ctx.query_port(1).qkey_viol_cntr == 1, "a Q_Key violation")
    assert h7.ctx.query_port(1).bad_pkey_cntr == 0


def test_a_reliable_datagram_with_a_wrong_q_key_is_refused_and_counted_by_the_port(hosts):
    h3, h5 = hosts("h3", "h5")
    domains = RDD(h3.ctx), RDD(h5.ctx)
    paths = [EEC(domain) for domain in domains]
    for end, far_end, far in ((paths[0], paths[1], h5), (paths[1], paths[0], h3)):
        attr = EECAttr()
        attr.dest_eec_num, attr.ah_attr, attr.timeout, attr.retry_cnt = far_end.eec_num, far.address(), 17, 7
        end.to_rts(attr)
    attr, cap = QPAttr(), QPCap(max_send_wr=4, max_recv_wr=4)
    attr.qkey = Q_KEY
    sender, receiver = (
        QP(host.pd, QPInitAttr(e.IBV_QPT_RD, scq=host.cq, rcq=host.cq, cap=cap, rdd=domain), attr)
        for host, domain in ((h3, domains[0]), (h5, domains[1]))
    )
    request = SendWR(num_sge=1, sg=[SGE(h3.mr.buf, 10, h3.mr.lkey)], send_flags=e.IBV_SEND_SIGNALED)
    request.set_wr_rd(paths[0], receiver.qp_num, Q_KEY + 1)
    sender.post_send(request)
    assert [done.status for done in h3.poll()] == [e.IBV_WC_REM_INV_RD_REQ_ERR]
    wait_until(lambda: h5.ctx.query_port(1).qkey_viol_cntr == 1, "a Q_Key violation")


def test_a_report_of_a_wrong_key_counts_only_for_queue_pairs_of_the_program_itself(hosts):
    (h6,) = hosts("h6")
    own = h6.qp(e.IBV_QPT_UD).qp_num

    def packet(dest_qp: int) -> bytes:
        bth = BTH.pack(opcode=Opcode.UD_SEND_ONLY, dest_qp=dest_qp, p_key=0x8001)
        return LRH.pack(slid=4, dlid=5, pkt_len=8) + bth + DETH.pack(q_key=7, src_qp=1) + bytes(6)

    line, of_another_program = h6.ctx.adapter.carrier.line, own ^ 1 << QUEUE_PAIR_BITS
    for forged in (b"", bytes(34), packet(own)[:-1], packet(of_another_program)):
        line.report_bad_key(forged, is_q_key=False)
        line.report_bad_key(forged, is_q_key=True)
    line.report_bad_key(packet(own), is_q_key=False)  # the last: when it is counted, all before it were read
    wait_until(lambda: h6.ctx.query_port(1).bad_pkey_cntr > 0, "a P_Key violation")
    assert (h6.ctx.query_port(1).bad_pkey_cntr, h6.ctx.query_port(1).qkey_viol_cntr) == (1, 0)


def test_every_port_on_the_way_counts_the_same(lab, hosts):
    h1, h8 = hosts("h1", "h8")
    item, other = pair(e.IBV_QPT_UC, h1, h8)
    way = way_between(lab, "h1", "h8")
    before = lab.fabric.counters.copy()
    for _ in range(5):
        h8.post_receive(other, 3000)
        h1.send(item, bytes(3000))
        h8.poll()
        h1.poll()
    new = lab.fabric.counters - before
    sent = 5 * (8 + 12 + 4) * 3 // 4 + 5 * 3000 // 4
    for slot in way:
        far = lab.subnet.devices.cable[slot]
        assert new[slot, Counter.PORT_XMIT_DATA_WORDS] == new[far, Counter.PORT_RCV_DATA_WORDS] == sent
        assert new[slot, Counter.PORT_XMIT_PKTS] == new[far, Counter.PORT_UNICAST_RCV_PKTS] == 15


def test_a_group_is_joined_at_the_subnet_administrator_and_reaches_all_members(lab, hosts):
    sender, *members = hosts("h2", "h4", "h7", "h8")
    group = group_of(0xFFFF << 32 | int.from_bytes((224, 1, 2, 3), "big"), 0xFFFF)
    for host in members[:2]:
        carrier, own = host.ctx.adapter.carrier, int.from_bytes(host.ctx.query_gid(1, 0).raw, "big")
        assert carrier.join(group, own) == group
    ends = [host.qp(e.IBV_QPT_UD) for host in (sender, *members)]
    for host, qp in zip((sender, *members), ends, strict=True):
        host.connect(qp, host, qp)
        host.post_receive(qp, 100)
        host.ctx.adapter.join(qp.core, group)  # h8 listens, but is not a member
    address = AHAttr(gr=GlobalRoute(dgid=GID.of(group.to_bytes(16, "big")), sgid_index=0), is_global=1)
    mlid = sender.ctx.hardware.address_vector(address).lid
    tables, leaves = lab.fabric.tables, [lab.fabric[name].index for name in ("leaf1", "leaf2", "leaf4")]
    wait_until(lambda: tables.mft[tables.switch_row[leaves], mlid - 0xC000].any(axis=1).all())
    sender.send(ends[0], b"to all", AH(sender.pd, attr=address), 0xFFFFFF)
    assert [len(host.poll(count)) for host, count in zip((sender, *members[:2]), (2, 1, 1), strict=True)] == [2, 1, 1]
    assert members[2].poll(seconds=0.05) == []
    assert members[0].mr.read(6, (1 << 15) + GRH) == b"to all"
    for host, qp in zip((sender, *members), ends, strict=True):
        assert host.ctx.adapter.leave(qp.core, group)
    assert not [line for line in refusals(lab) if str(Gid(group)) in line]


def test_a_new_group_has_the_service_level_of_its_partition(tmp_path, monkeypatch):
    """As with rdma_cm in Linux, from the partition's IPv4 broadcast group."""
    (tmp_path / "partitions.conf").write_text("Default=0x7fff, ipoib, sl=3 : ALL=full ;\n")
    options = {"partition_config_file": tmp_path / "partitions.conf", "qos": True}
    with Lab(weft.load("star:hosts=3"), f"v{time.monotonic_ns() % 10**12}") as lab, managed(lab, **options) as manager:
        host = Host(lab, "h2", monkeypatch)
        group = group_of(0xFFFF << 32 | int.from_bytes((224, 1, 2, 3), "big"), 0xFFFF)
        own = int.from_bytes(host.ctx.query_gid(1, 0).raw, "big")
        assert host.ctx.adapter.carrier.join(group, own) == group
        assert manager.state.groups.by_mgid[group].record.sl == 3
        assert host.ctx.adapter.carrier.paths.to((group, own)).sl == 3
        host.close()


# -- faults -----------------------------------------------------------------------------------------------------------


def test_the_port_tells_what_happens_to_it(lab, hosts):
    (h5,) = hosts("h5")
    assert events(h5) == []
    lab.break_cable("h5/1")
    wait_until(lambda: h5.ctx.query_port(1).state == e.IBV_PORT_DOWN)
    assert e.IBV_EVENT_PORT_ERR in events(h5)
    lab.fix("h5/1")
    wait_until(lambda: h5.ctx.query_port(1).state == e.IBV_PORT_ACTIVE)
    assert e.IBV_EVENT_PORT_ACTIVE in events(h5)


def test_without_its_cable_a_host_is_not_reached(lab, hosts):
    h1, h6 = hosts("h1", "h6")
    item, other = pair(e.IBV_QPT_RC, h1, h6, timeout=8, retry_cnt=2)
    h6.post_receive(other, 100)
    lab.break_cable("h6/1")
    h1.send(item, b"lost")
    assert [done.status for done in h1.poll()] == [e.IBV_WC_RETRY_EXC_ERR]
    assert h6.poll(seconds=0.05) == []


def test_packets_lost_at_a_broken_cable_are_sent_again_over_another_route(lab, hosts):
    h1, h8 = hosts("h1", "h8")
    item, other = pair(e.IBV_QPT_RC, h1, h8, timeout=18)  # 1.1 s, more than a sweep takes
    uplink = way_between(lab, "h1", "h8")[1]
    lab.break_cable(lab.subnet.devices.name(uplink))
    h8.post_receive(other, 3000)
    h1.send(item, b"z" * 3000)
    assert [done.status for done in h1.poll() + h8.poll()] == [e.IBV_WC_SUCCESS] * 2
    assert uplink not in way_between(lab, "h1", "h8")


class Rounds:
    """A clock for adapters that counts rounds; in each, every adapter and the lab run once.

    A timeout then means that no answer was sent, and not that the machine was busy.
    """

    def __init__(self, lab, monkeypatch, *hosts: Host) -> None:
        self.lab, self.hosts, self.count = lab, hosts, 0
        for host in hosts:
            monkeypatch.setattr(host.ctx.adapter, "clock", lambda: self.count / 1000)

    def completions(self, rounds: int = 100_000) -> list[int]:
        """Return the status of the next completion of each host."""
        result: list[list[int]] = [[] for _ in self.hosts]
        for _ in range(rounds):
            self.count += 1
            for host, done in zip(self.hosts, result, strict=True):
                host.ctx.adapter.progress()
                done += [wc.status for wc in host.cq.poll(1)[1]] if not done else []
                for _ in range(2):  # after the second all packets sent before the first are delivered
                    self.lab.server.call(lambda: None)
            if all(result):
                break
        return [status for done in result for status in done]


def test_a_bad_cable_costs_repetitions_and_shows_but_hurts_no_data(lab, hosts, monkeypatch):
    h1, h8 = hosts("h1", "h8")
    rounds = Rounds(lab, monkeypatch, h1, h8)
    item, other = pair(e.IBV_QPT_RC, h1, h8, timeout=11)
    bad = way_between(lab, "h1", "h8")[1]
    far = lab.subnet.devices.cable[bad]
    before = lab.fabric.counters.copy()
    lab.degrade(lab.subnet.devices.name(bad), 2e-5)
    for turn in range(10):
        data = bytes((turn + n) % 251 for n in range(8000))
        h8.post_receive(other, 8000)
        h1.send(item, data)
        assert rounds.completions() == [e.IBV_WC_SUCCESS] * 2
        assert h8.mr.read(8000, 1 << 15) == data
    new = lab.fabric.counters - before
    assert new[far, Counter.SYMBOL_ERROR] > 0
    assert new[bad, Counter.PORT_XMIT_PKTS] > 80, "80 packets of 1,024 bytes would do on a good cable"
    rest = [slot for slot in range(len(new)) if slot not in (bad, far)]
    assert new[rest, Counter.SYMBOL_ERROR].sum() == 0


@pytest.mark.parametrize("size", [1 << 16, 1 << 17, 1 << 20])
def test_a_read_that_ends_past_the_region_is_an_access_error(hosts, size):
    """This holds for any length, also if the READ is split."""
    h1, h8 = hosts("h1", "h8")
    item, _ = pair(e.IBV_QPT_RC, h1, h8, max_rd_atomic=4, max_dest_rd_atomic=4)
    with MR(h1.pd, size, ACCESS) as local, MR(h8.pd, size - 1, ACCESS) as present:
        work = SendWR(
            num_sge=1,
            sg=[SGE(local.buf, size, local.lkey)],
            opcode=e.IBV_WR_RDMA_READ,
            send_flags=e.IBV_SEND_SIGNALED,
        )
        work.set_wr_rdma(present.rkey, present.buf)
        item.post_send(work)
        assert [done.status for done in h1.poll()] == [e.IBV_WC_REM_ACCESS_ERR]


def test_an_address_by_an_empty_gid_is_refused(hosts):
    h1, h8 = hosts("h1", "h8")
    present = h8.ctx.query_gid(1, 0)
    attr = AHAttr(dlid=h8.ctx.query_port(1).lid, gr=GlobalRoute(dgid=present, sgid_index=1), is_global=1, port_num=1)
    with pytest.raises(PyverbsRDMAError, match="sgid_index 1") as raised:
        AH(h1.pd, attr=attr)
    assert raised.value.error_code == errno.EINVAL


# -- programs ---------------------------------------------------------------------------------------------------------


def test_programs_of_one_host_share_its_port_and_get_their_own(lab, hosts):
    program = lab.server.call(lambda: lab.verbs.attach(lab.fabric["h4/1"].slot, lambda data: None))
    h4, h1 = hosts("h4", "h1")
    assert h4.qp(e.IBV_QPT_RC).qp_num >> 16 != program.number
    item, other = pair(e.IBV_QPT_RC, h1, h4)
    h4.post_receive(other, 10)
    h1.send(item, b"for h4")
    assert len(h4.poll()) == 1
    lab.server.call(lambda: lab.verbs.detach(program))


def test_an_address_that_nobody_has_is_refused(hosts):
    (h1,) = hosts("h1")
    far = SimpleNamespace(address=lambda **how: AHAttr(dlid=0))
    with pytest.raises(PyverbsRDMAError, match="dlid 0 is no LID"):
        h1.connect(h1.qp(e.IBV_QPT_RC), far, SimpleNamespace(qp_num=5))
    nobody = GlobalRoute(dgid=GID("fe80:0000:0000:0000:0000:0000:0000:0001"))
    far = SimpleNamespace(address=lambda **how: AHAttr(gr=nobody, is_global=1))
    with pytest.raises(PyverbsRDMAError, match="the subnet administrator knows no path to fe80"):
        h1.connect(h1.qp(e.IBV_QPT_RC), far, SimpleNamespace(qp_num=5))


def test_a_host_or_device_that_is_not_there_is_named(lab, monkeypatch):
    monkeypatch.setenv(hardware.LAB, str(lab.verbs_socket))
    for name, output in (("h99", "there is no host 'h99'"), ("leaf1", "leaf1 is a switch: RDMA programs run on hosts")):
        monkeypatch.setenv(hardware.HOST, name)
        with pytest.raises(PyverbsRDMAError, match=output):
            get_device_list()
    monkeypatch.setenv(hardware.HOST, "h1")
    with pytest.raises(PyverbsRDMAError, match="Failed to find device weft0: there is mlx5_0"):
        Context(name="weft0")


def status_of_send(host: Host, qp) -> int:
    host.send(qp, b"lost")
    return host.poll()[0].status


def test_when_the_lab_goes_down_operations_end_and_the_way_out_is_said(monkeypatch):
    """Also for shared memory: without a lab no port would count them."""
    with running() as lab:
        h1, h2, cut_off = (Host(lab, name, monkeypatch) for name in ("h1", "h2", "h4"))
        pairs = [pair(e.IBV_QPT_RC, start, h2, timeout=8, retry_cnt=1) for start in (h1, h1, cut_off)]
        for qp, other in pairs[1:]:
            h2.post_receive(other, 100)
            assert qp.core.find_shm_path(at_once=True) is not None
        cut_off.ctx.adapter.carrier.line._end()  # as if the lab had been killed
        wait_until(lambda: cut_off.ctx.query_port(1).state == e.IBV_PORT_DOWN)
        assert status_of_send(cut_off, pairs[2][0]) == e.IBV_WC_RETRY_EXC_ERR
    assert [status_of_send(h1, qp) for qp, _ in pairs[:2]] == [e.IBV_WC_RETRY_EXC_ERR] * 2
    assert h1.ctx.query_port(1).state == e.IBV_PORT_DOWN
    assert e.IBV_EVENT_PORT_ERR in events(h1)
    monkeypatch.setenv(hardware.LAB, str(lab.verbs_socket))
    monkeypatch.setenv(hardware.HOST, "h3")
    with pytest.raises(PyverbsRDMAError, match=rf"lab {lab.name} does not answer: start it with `weft up"):
        get_device_list()


def test_a_program_that_does_nothing_hears_that_the_lab_is_gone(monkeypatch):
    """Otherwise its adapter would poll a closed connection and use a whole core."""
    with running() as lab:
        h1 = Host(lab, "h1", monkeypatch)
    wait_until(lambda: any(one.event_type == e.IBV_EVENT_PORT_ERR for one in list(h1.ctx.events)))
