"""A lab's grants to write into a peer's memory: a grant ends with the peer, even if its number is reused."""

from __future__ import annotations

import mmap
import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.patience import wait_until

from weft import runtime
from weft.errors import SubnetError
from weft.verbs.carriers.lab.carrier import LabCarrier
from weft.verbs.carriers.lab.connection import METERS, QUEUE_PAIR_BITS
from weft.verbs.carriers.lab.memory_grants import MemoryGrants
from weft.verbs.carriers.lab.paths import AddressVector
from weft.verbs.carriers.loopback import Loopback
from weft.verbs.hca.adapter import Adapter
from weft.verbs.shm.layout import MeterRecord
from weft.verbs.shm.queue_memory import QueueMemory

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes share memory on Linux only")
GUID, PEER = 7, 2


class Program:
    """A program at a port of a fake lab that opens every meter."""

    def __init__(self, lab: Path, number: int) -> None:
        size_bytes = METERS * MeterRecord.size
        file = runtime.memory("meters", size_bytes)
        self.meters = (MeterRecord * METERS).from_buffer(mmap.mmap(file, size_bytes))
        line: Any = SimpleNamespace(path=str(lab), ask=self._opened, ring=lambda: None, wake=print, close=lambda: None)
        facts: Any = SimpleNamespace(info=SimpleNamespace(lid=1, lmc=0), p_keys=(0xFFFF,))
        self.carrier = LabCarrier(line, number, facts, MemoryGrants(line, GUID, number, os.dup(file)))
        self.carrier.open(Adapter(Loopback(()), memory=QueueMemory(can_be_shared=True)))

    def _opened(self, do: str, timeout_s: float, *, meter: int, **way: object) -> dict[str, int]:
        self.meters[meter].is_open = 1
        return {"guid": GUID, "slid": 1, "hop_limit": 0}

    def peer_at(self, peer: int) -> object:
        return self.carrier.shm_peer(AddressVector(1), peer << QUEUE_PAIR_BITS, p_key=0xFFFF, mtu_bytes=4096)


def test_a_way_ends_with_the_program_whose_number_was_another_s_before(tmp_path):
    own = Program(tmp_path / "lab", 1)
    for _ in range(2):
        peer = Program(tmp_path / "lab", PEER)
        assert own.peer_at(PEER) is not None
        assert own.meters[0].is_open == 1
        peer.carrier.close()
        wait_until(lambda: own.meters[0].is_open == 0, "that the way is closed")
    own.carrier.close()


def test_threads_that_ask_for_the_same_path_at_the_same_time_get_the_same_grant(tmp_path):
    """The second requests after the lab has opened the meter and before the first has the answer."""
    own, asks = Program(tmp_path / "lab", 1), 0
    grants, is_open, second_is_done = own.carrier.grants, threading.Event(), threading.Event()
    assert grants is not None

    def ask(do: str, timeout_s: float, *, meter: int, **way: object) -> dict[str, int]:
        nonlocal asks
        asks += 1
        own.meters[meter].is_open = 1
        is_open.set()
        second_is_done.wait(0.2)  # it waits for this answer
        return {"guid": GUID, "slid": 1, "hop_limit": 0}

    def handover() -> Path | None:
        granted = grants.to(AddressVector(1), 0xFFFF, 4096, PEER << QUEUE_PAIR_BITS)
        return granted and granted.handover

    def second() -> Path | None:
        is_open.wait()
        try:
            return handover()
        finally:
            second_is_done.set()

    own.carrier.line.ask = ask  # type: ignore[method-assign,assignment]
    with ThreadPoolExecutor() as threads:
        requests = threads.submit(second)
        assert handover() == requests.result() is not None
    assert asks == 1
    own.carrier.close()


def test_a_meter_that_a_late_answer_opened_is_asked_for_again(tmp_path):
    own, answers = (
        Program(tmp_path / "lab", 1),
        [SubnetError("the lab does not answer"), {"guid": GUID, "slid": 1, "hop_limit": 0}],
    )
    grants = own.carrier.grants
    assert grants is not None

    def ask(do: str, timeout_s: float, *, meter: int, **way: object) -> dict[str, int]:
        own.meters[meter].is_open = 1
        answer = answers.pop(0)
        if isinstance(answer, SubnetError):
            raise answer
        return answer

    own.carrier.line.ask = ask  # type: ignore[method-assign,assignment]
    address = AddressVector(1), 0xFFFF, 4096, PEER << QUEUE_PAIR_BITS
    assert grants.to(*address) is None
    grants.forget()
    granted = grants.to(*address)
    assert granted is not None
    assert granted.end.guid == GUID
    own.carrier.close()
