"""Requirements for every carrier between adapters (weft.verbs.hca.carrier).

    for check in CHECKS.values():
        check(ends)             two carriers, and the address of each for the other

A check creates its own adapters and has both carriers for itself; `closed_peer` closes one of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.patience import PATIENCE_S, wait_until
from tests.verbs.wires import Host, connect, taken

from weft.verbs.enums import IBV_WC_RETRY_EXC_ERR, IBV_WC_SUCCESS, ibv_wr_opcode
from weft.verbs.hca.carrier import TO_GROUP, Carrier
from weft.verbs.hca.queue_pair import QueuePair
from weft.verbs.hca.segment import Op, Segment, Service
from weft.verbs.shm.layout import CompletionRecord

W = ibv_wr_opcode
GRH_BYTES, Q_KEY = 40, 0x11
PATIENT = {"timeout": 18, "retry_cnt": 7}  # a second each: the machine may be busy
HASTY = {"timeout": 8, "retry_cnt": 1}  # for packets that are lost in any case
DATA = bytes(range(256)) * 400  # a hundred packets


@dataclass(frozen=True, kw_only=True)
class Ends:
    a: Carrier
    b: Carrier
    to_b: object
    to_a: object
    to_nobody: object
    group: tuple[int, object, int, int]  # the group's address, the destination for a, GIDs of both ends


def _hosts(ends: Ends, service: Service = Service.RC, **settings: int) -> tuple[Host, Host, QueuePair, QueuePair]:
    a, b = Host.over(ends.a), Host.over(ends.b)
    return a, b, *connect(a, b, ends.to_b, ends.to_a, service, **(PATIENT | settings))


def _until(count: int, *hosts: Host) -> list[CompletionRecord]:
    """Return this many completions."""
    done: list[CompletionRecord] = []

    def have_come() -> bool:
        for host in hosts:
            host.adapter.progress()
            done.extend(taken(host.cq, count))
        return len(done) >= count

    wait_until(have_come)
    return done


def _all_well(done: list[CompletionRecord]) -> None:
    assert [item.status for item in done] == [IBV_WC_SUCCESS] * len(done)


def check_send(ends: Ends, service: Service = Service.RC) -> None:
    """Check that a message of many packets arrives complete, without later changes of the sender's memory."""
    a, b, item, other = _hosts(ends, service)
    a.put(0, DATA)
    b.receive(other, 1, 0, len(DATA))
    a.send(item, 2, 0, len(DATA), W.IBV_WR_SEND_WITH_IMM, immediate=7)
    a.adapter.progress()
    if service != Service.RC:  # packets without retransmission are sent
        a.put(0, bytes(len(DATA)))
    done = _until(2, a, b)
    _all_well(done)
    (received,) = (wc for wc in done if wc.wr_id == 1)
    assert (received.byte_len, received.immediate, b.get(0, len(DATA))) == (len(DATA), 7, DATA)


def check_unreliable_send(ends: Ends) -> None:
    check_send(ends, Service.UC)


def check_write_and_read(ends: Ends) -> None:
    a, b, item, _ = _hosts(ends)
    a.put(0, DATA)
    a.send(item, 1, 0, len(DATA), W.IBV_WR_RDMA_WRITE, va=b.at, rkey=b.region.key)
    a.send(item, 2, 1 << 19, len(DATA), W.IBV_WR_RDMA_READ, va=b.at, rkey=b.region.key)
    _all_well(_until(2, a, b))
    assert b.get(0, len(DATA)) == a.get(1 << 19, len(DATA)) == DATA


def check_atomics(ends: Ends) -> None:
    """Check that each atomic is executed once and returns the old value."""
    a, b, item, _ = _hosts(ends)
    present = {"va": b.at, "rkey": b.region.key}
    for wr_id in range(4):
        a.send(item, wr_id, 8 * wr_id, 8, W.IBV_WR_ATOMIC_FETCH_AND_ADD, swap=5, **present)
    a.send(item, 4, 32, 8, W.IBV_WR_ATOMIC_CMP_AND_SWP, compare=20, swap=1, **present)
    _all_well(_until(5, a, b))
    brought = [int.from_bytes(a.get(8 * n, 8), "little") for n in range(5)]
    assert (brought, b.get(0, 1)) == ([0, 5, 10, 15, 20], b"\x01")


def check_datagram(ends: Ends) -> None:
    """Check that a received datagram has its sender's address, and that an answer to it arrives."""
    a, b, item, other = _hosts(ends, Service.UD, q_key=Q_KEY)
    b.receive(other, 1, 0, 500)
    a.put(0, b"hello")
    a.send(item, 2, 0, 5, ah=ends.to_b, remote_qp=other.number, q_key=Q_KEY)
    received = next(wc for wc in _until(2, a, b) if wc.wr_id == 1)
    assert (received.src_qp, received.byte_len, b.get(GRH_BYTES, 5)) == (item.number, GRH_BYTES + 5, b"hello")


def check_group(ends: Ends) -> None:
    """Check that a member of the group receives its packets, and a former member does not."""
    a, b, item, other = _hosts(ends, Service.UD, q_key=Q_KEY)
    address, to, _, own_gid = ends.group
    group = ends.b.join(address, own_gid)
    assert group is not None
    b.adapter.join(other, group)
    for wr_id in range(2):
        b.receive(other, wr_id, 0, 500)

    def was_heard() -> bool:  # after a while: switches must learn of a new member
        a.send(item, 9, 0, 5, ah=to, remote_qp=TO_GROUP, q_key=Q_KEY)
        a.adapter.progress()
        b.adapter.progress()
        return any(wc.wr_id < 2 for wc in taken(b.cq, 10))

    wait_until(was_heard)
    assert b.adapter.leave(other, group)
    ends.b.leave(group, own_gid)
    taken(b.cq, 10)
    a.send(item, 9, 0, 5, ah=to, remote_qp=TO_GROUP, q_key=Q_KEY)
    a.adapter.progress()
    b.adapter.progress()
    assert taken(b.cq, 10) == []


def check_nobody(ends: Ends) -> None:
    """Check that a packet to an unknown address is lost silently, and a request to it times out."""
    a, b = Host.over(ends.a), Host.over(ends.b)
    item, _ = connect(a, b, ends.to_nobody, ends.to_a, **HASTY)
    a.send(item, 1, 0, 8)
    assert [wc.status for wc in _until(1, a, b)] == [IBV_WC_RETRY_EXC_ERR]


def check_lost_packets(ends: Ends) -> None:
    """Check that all data arrive once although every third response is lost."""
    a, b, item, other = _hosts(ends, timeout=15)
    receive, count = ends.a.receive, 0

    def drop_some() -> list:
        nonlocal count
        came = receive()
        count += len(came)
        return [arrival for n, arrival in enumerate(came, count - len(came)) if n % 3]

    ends.a.receive = drop_some  # type: ignore[method-assign]
    try:
        for wr_id in range(3):
            b.receive(other, 100 + wr_id, 1000 * wr_id, 1000)
            a.put(0, bytes((wr_id,)) * 1000)
            a.send(item, wr_id, 0, 1000)
            _all_well(_until(2, a, b))
    finally:
        del ends.a.receive
    assert all(b.get(1000 * n, 1000) == bytes((n,)) * 1000 for n in range(3))


def check_more_than_its_window(ends: Ends) -> None:
    """Check that requests larger than the carrier's window succeed."""
    a, b, item, _ = _hosts(ends)
    size, count = 1 << 17, 4  # twice a lab's window
    for n in range(count):
        a.send(item, n, 0, size, W.IBV_WR_RDMA_WRITE, va=b.at + n * size, rkey=b.region.key)
    _all_well(_until(count, a, b))
    assert item.record.next_psn == count * size // item.settings.mtu_bytes


def check_waiting(ends: Ends) -> None:
    """Check that `wait` returns when a packet has arrived, else after its timeout, without an error."""
    assert ends.b.receive() == []
    ends.b.wait(0.001)
    segment = Segment(op=Op.SEND, service=Service.UD, dest_qp=ends.b.numbers[0], psn=0, source_qp=2, payload=b"x")
    ends.a.send(segment, ends.to_b, 1024)
    wait_until(lambda: not ends.b.is_idle())
    ends.b.wait(PATIENCE_S)
    came = wait_until(ends.b.receive)
    assert [(item.segment.payload, item.source) for item in came] == [(b"x", ends.to_a)]


def check_limits(ends: Ends) -> None:
    """Check that queue pair numbers have 24 bits, are not management's, and are in the carrier's range."""
    host = Host.over(ends.a)
    assert host.queue_pair().number in ends.a.numbers
    assert ends.a.numbers[0] > 1
    assert ends.a.numbers[-1] < TO_GROUP
    assert ends.a.window_bytes >= 0


def check_no_shared_memory(ends: Ends) -> None:
    """Check that an adapter without shared memory is offered no peer, for any address."""
    for to in (ends.to_b, ends.to_nobody):
        assert ends.a.shm_peer(to, ends.b.numbers[0], p_key=0xFFFF, mtu_bytes=1024) is None


def check_closed_peer(ends: Ends) -> None:
    """Check that a message to a closed peer fails after its timeout, without an exception."""
    a, _, item, _ = _hosts(ends, **HASTY)
    ends.b.close()
    a.send(item, 1, 0, 8)
    assert [wc.status for wc in _until(1, a)] == [IBV_WC_RETRY_EXC_ERR]


CHECKS: dict[str, Callable[[Ends], None]] = {
    name.removeprefix("check_"): check for name, check in list(globals().items()) if name.startswith("check_")
}
