"""RMPP between two ports, in this process: windows, losses, aborts."""

from __future__ import annotations

from collections import deque

import pytest

from weft.mad.local import ManualClock
from weft.mad.transfers import RETRIES, TIMEOUT_S, WINDOW, Transfers, is_rmpp
from weft.wire.mad import Method, RmppFlag, RmppMad, RmppType
from weft.wire.rmpp import split
from weft.wire.sa import SaMad

DATA_BYTES = 200  # in a segment of the SA


class Line:
    """A link between A (LID 1) and B (LID 2); `lose`: indexes of the MADs that are lost."""

    def __init__(self, lose: set[int] = frozenset(), *, insists: bool = True) -> None:
        self.clock, self.lose = ManualClock(), lose
        self.wire: deque[tuple[str, bytes]] = deque()
        self.sent: list[tuple[str, bytes]] = []
        self.whole: list[bytes] = []
        self.ends = {name: Transfers(self.sender(name), self.clock, insists=insists) for name in "AB"}

    def sender(self, name: str):
        def send(mad: bytes, lid: int) -> None:
            if len(self.sent) not in self.lose:
                self.wire.append((name, mad))
            self.sent.append((name, mad))

        return send

    def run(self) -> None:
        while self.wire:
            self.step()

    def step(self) -> None:
        name, mad = self.wire.popleft()
        other, lid = ("B", 1) if name == "A" else ("A", 2)
        message = self.ends[other].receive(mad, lid)
        if message is not None:
            self.whole.append(message)

    def wait(self) -> None:
        """Run until no end has anything to retransmit."""
        for _ in range(RETRIES + 2):
            self.clock.sleep(TIMEOUT_S)
            for end in self.ends.values():
                end.on_timer()
            self.run()


def message(data_bytes: int) -> bytes:
    header = SaMad(method=Method.GET_TABLE_RESP, transaction_id=7, rmpp_version=1, rmpp_flags=RmppFlag.ACTIVE).raw[:56]
    return header + bytes(n % 251 for n in range(data_bytes))


@pytest.mark.parametrize("segments", [0.3, 1, 2, WINDOW, WINDOW + 1, 5 * WINDOW + 0.5])
def test_transferred_bytes_are_equal(segments):
    line = Line()
    line.ends["A"].start(message(int(segments * DATA_BYTES)), 2)
    line.run()
    assert [received[56:] for received in line.whole] == [message(int(segments * DATA_BYTES))[56:]]
    assert line.ends["A"].next_deadline_s() is None  # no retransmission is pending


def test_the_sender_stays_in_the_window_that_the_receiver_opened():
    line = Line()
    line.ends["A"].start(message(3 * WINDOW * DATA_BYTES), 2)
    ahead = allowed = 1
    line.run()
    for name, mad in line.sent:
        if name == "B":
            allowed = RmppMad.data2.get(mad)
            assert allowed == RmppMad.data1.get(mad) + WINDOW
        else:
            ahead = RmppMad.data1.get(mad)
            assert ahead <= allowed
    assert ahead == 3 * WINDOW
    acks = [mad for name, mad in line.sent if name == "B"]
    assert len(acks) == 4  # the first segment, then one a window, the last segment


@pytest.mark.parametrize("lost", [{0}, {1}, {5, 6, 30}, {68}, set(range(3, 60, 7))])
def test_lost_segments_and_acks_are_made_good(lost):
    line = Line(lost)
    line.ends["A"].start(message(2 * WINDOW * DATA_BYTES), 2)
    line.run()
    line.wait()
    assert [received[56:] for received in line.whole] == [message(2 * WINDOW * DATA_BYTES)[56:]]


def test_a_lost_last_ack_brings_no_second_message():
    line = Line({1})
    line.ends["A"].start(message(50), 2)
    line.run()
    assert len(line.whole) == 1
    line.wait()
    assert len(line.whole) == 1
    assert [name for name, _ in line.sent] == ["A", "B", "A", "B"]


def test_a_sender_that_nobody_hears_gives_up_and_says_so():
    line = Line(set(range(1000)))
    line.ends["A"].start(message(500), 2)
    line.wait()
    kinds = [RmppMad.rmpp_type.get(mad) for _, mad in line.sent]
    assert kinds == [RmppType.DATA] * (1 + RETRIES) + [RmppType.ABORT]
    assert line.ends["A"].next_deadline_s() is None


def test_retry_has_the_whole_timeout_again():
    line = Line(set(range(1000)))
    sender = line.ends["A"]
    sender.start(message(500), 2)
    for _ in range(RETRIES):
        assert sender.next_deadline_s() == pytest.approx(line.clock() + TIMEOUT_S)
        line.clock.sleep(TIMEOUT_S)
        sender.on_timer()
        sender.on_timer()  # nothing is due
    assert len(line.sent) == 1 + RETRIES


def test_an_abort_ends_a_transfer_at_the_other_end():
    line = Line()
    line.ends["A"].start(message(500), 2)
    _, first = line.wire.popleft()
    assert line.ends["B"].receive(first, 1) is None
    stop = bytearray(line.sent[-1][1])  # B's ACK
    RmppMad.rmpp_type.set(stop, RmppType.ABORT)
    line.ends["A"].receive(bytes(stop), 2)
    assert line.ends["A"].next_deadline_s() is None


def test_repeated_request_during_the_answer_gets_no_second_one():
    """Neither end could distinguish the segments and ACKs of the two answers."""
    line = Line()
    line.ends["A"].start(message(3 * WINDOW * DATA_BYTES), 2)
    for _ in range(10):
        line.step()
    line.ends["A"].start(message(3 * WINDOW * DATA_BYTES), 2)
    line.run()
    assert len(line.whole) == 1
    assert line.ends["A"].next_deadline_s() is None


def test_segments_beyond_the_window_are_dropped():
    line = Line()
    line.ends["A"].start(message(3 * DATA_BYTES), 2)
    segments = split(message(3 * DATA_BYTES)[:56], message(3 * DATA_BYTES)[56:])
    assert [line.ends["B"].receive(segments[n], 1) for n in (1, 2, 0)] == [None] * 3
    assert line.ends["B"].receive(segments[1], 1) is None
    assert (
        line.ends["B"].receive(segments[2], 1) == message(3 * DATA_BYTES)[:24] + segments[0][24:56] + message(600)[56:]
    )


def test_classes_without_rmpp_have_none():
    directed = bytearray(256)
    directed[1], directed[26] = 0x81, RmppFlag.ACTIVE
    assert not is_rmpp(directed)
    assert is_rmpp(message(10))


def test_unacknowledged_transfer_ends_unless_the_sender_insists():
    """libumad2sim never sends ACKs: later segments would reach the next program at that port."""
    line = Line(lose={0}, insists=False)
    line.ends["A"].start(message(3 * DATA_BYTES), 2)
    line.wait()
    assert len(line.sent) == 1
    assert line.ends["A"].next_deadline_s() is None


def test_lost_segments_are_sent_again_after_an_acknowledgement():
    line = Line(lose={2}, insists=False)  # segment 2, after segment 1 and its ACK
    line.ends["A"].start(message(3 * DATA_BYTES), 2)
    line.run()
    line.wait()
    assert [received[56:] for received in line.whole] == [message(3 * DATA_BYTES)[56:]]
