"""The sender of a manager's MADs: parts, waits and counts; without devices."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from tests.patience import PATIENCE_S

from weft.errors import SubnetError
from weft.mad.carrier import SMP_CLASSES
from weft.mad.walk import DATA, directed
from weft.sm import sender as sending
from weft.sm.sender import Sender, attach
from weft.wire.mad import MadHeader, Method, MgmtClass
from weft.wire.smp import DirectedSmp, NodeInfo, SmpAttribute


class Carrier:
    """A carrier that answers each MAD with its data plus one, except those of `silent` rows."""

    def __init__(self, *silent: int, status: int = 0) -> None:
        self.parts: list[tuple[list[int], Any, dict[str, int]]] = []
        self.silent, self.status, self.rows = silent, status, 0
        self.registered: list[tuple[int, tuple[int, ...], int]] = []

    def exchange(self, mads, to, *, timeout_ms, retries):
        self.parts.append(([len(mads)], None if to is None else list(to), {"ms": timeout_ms, "retries": retries}))
        answers, rows = mads.copy(), range(self.rows, self.rows + len(mads))
        answers[:, DATA : 2 * DATA] += 1
        answers[:, 4:6] = self.status.to_bytes(2, "big")[0], self.status.to_bytes(2, "big")[1]
        self.rows += len(mads)
        return answers, np.array([row not in self.silent for row in rows], bool)

    def register(self, mgmt_class, methods, class_version=1):
        self.registered.append((int(mgmt_class), tuple(methods), class_version))


@pytest.fixture(autouse=True)
def parts_of_two(monkeypatch) -> None:
    monkeypatch.setattr(sending, "_CHUNK", 2)


def routes(count: int) -> tuple[np.ndarray, np.ndarray]:
    path = np.zeros((count, 64), np.uint8)
    path[:, 1] = np.arange(count)
    return path, np.ones(count, np.uint8)


def test_mads_are_sent_in_parts_and_others_are_heard_after_each():
    carrier, waits_s = Carrier(3), []
    sender = Sender(carrier, timeout_ms=7, retries=3, between=waits_s.append)  # type: ignore[arg-type]
    mads = directed(*routes(5), SmpAttribute.NODE_INFO)
    answers, answered = sender.exchange(mads, np.arange(5))
    assert [(count, to) for (count,), to, _ in carrier.parts] == [(2, [0, 1]), (2, [2, 3]), (1, [4])]
    assert [how for *_, how in carrier.parts] == [{"ms": 7, "retries": 3}] * 3
    assert (answered.tolist(), sender.mads, waits_s) == ([True, True, True, False, True], 5, [0.0] * 3)
    assert (answers[:, :DATA] == mads[:, :DATA]).all()
    sender.exchange(mads[:1], timeout_ms=0, retries=0)
    assert carrier.parts[-1] == ([1], None, {"ms": 0, "retries": 0})
    assert sender.mads == 6


@pytest.mark.parametrize(("status", "well"), [(0, [True, False, True]), (1, [False] * 3), (0x1C, [False] * 3)])
def test_a_setting_is_taken_if_it_is_answered_without_an_error(status, well):
    sender = Sender(Carrier(1, status=status), m_key=9)  # type: ignore[arg-type]
    data = np.arange(3 * 64, dtype=np.uint8).reshape(3, 64)
    answered, took = sender.set(routes(3), SmpAttribute.PORT_INFO, np.array([4, 5, 6]), data)
    assert took.tolist() == well
    assert (answered == data + 1).all()
    read, came = sender.get(routes(3), SmpAttribute.PORT_INFO)
    assert (came.tolist(), set(read.ravel().tolist())) == ([status == 0] * 3, {1})
    assert (sender.mads, read.shape) == (6, (3, 64))


def test_smps_have_the_modifier_of_their_row_and_the_m_key():
    carrier = Carrier()
    sent: list[np.ndarray] = []
    exchange = carrier.exchange
    carrier.exchange = lambda mads, to, **how: (sent.append(mads.copy()), exchange(mads, to, **how))[1]  # type: ignore[method-assign]
    sender = Sender(carrier, m_key=9)  # type: ignore[arg-type]
    sender.set(routes(3), SmpAttribute.PORT_INFO, np.array([4, 5, 6]), np.full((3, 64), 7, np.uint8))
    sender.get(routes(2), SmpAttribute.SWITCH_INFO, 8)
    smps = [DirectedSmp.unpack(row.tobytes()) for part in sent for row in part]
    assert [(smp.method, smp.attribute_modifier, smp.m_key) for smp in smps] == [
        (Method.SET, 4, 9),
        (Method.SET, 5, 9),
        (Method.SET, 6, 9),
        (Method.GET, 8, 9),
        (Method.GET, 8, 9),
    ]
    assert [set(smp.data) for smp in smps] == [{7}] * 3 + [{0}] * 2
    assert [smp.initial_path[1] for smp in smps] == [0, 1, 2, 0, 1]


def test_nothing_is_sent_for_no_routes():
    sender = Sender(Carrier())  # type: ignore[arg-type]
    data, came = sender.get(routes(0), SmpAttribute.PORT_INFO)
    assert (data.shape, came.tolist(), sender.mads) == ((0, 64), [], 0)


def test_others_are_heard_while_something_is_computed():
    heard, waits_s = threading.Event(), []

    def hear(wait_s: float) -> None:
        waits_s.append(wait_s)
        heard.set()

    sender = Sender(Carrier(), between=hear)  # type: ignore[arg-type]
    assert sender.aside(lambda: heard.wait(PATIENCE_S) and threading.current_thread().name != "MainThread")
    assert set(waits_s) == {0.0}


def test_a_manager_registers_for_its_classes_and_reads_the_guid_of_its_port(monkeypatch):
    carrier, asked = Carrier(), []
    answers = [NodeInfo(port_guid=7).raw, None]

    def ask(_: object, mad: bytes, *, timeout_ms: int, retries: int) -> bytes | None:
        asked.append(DirectedSmp.unpack(mad).m_key)
        data = answers.pop(0)
        return None if data is None else DirectedSmp.pack(data=data)

    monkeypatch.setattr(sending, "ask", ask)
    assert attach(carrier, 5) == 7  # type: ignore[arg-type]
    assert [(kind, version) for kind, _, version in carrier.registered] == [
        *((int(kind), 1) for kind in SMP_CLASSES),
        (int(MgmtClass.SUBN_ADM), 2),
    ]
    assert Method.TRAP in carrier.registered[0][1]
    assert Method.GET_TABLE in carrier.registered[-1][1]
    with pytest.raises(SubnetError, match="does not answer NodeInfo"):
        attach(carrier, 0)  # type: ignore[arg-type]
    assert asked == [5, 0]
    assert MadHeader.size <= DATA
