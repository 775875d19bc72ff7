"""The event loop of a lab: handlers, ticks, services, and calls of other threads."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
from tests.patience import wait_until

import weft
from weft.lab.event_loop import IDLE_S, TICK_S, EventLoop
from weft.mad.subnet import Subnet


class Loop(EventLoop):
    """A loop that records its rounds and ticks."""

    def __init__(self) -> None:
        super().__init__(Subnet(weft.load("star:hosts=2")))
        self.has_deadlines, self.ticks_s, self.log = False, list[float](), list[str]()

    def _has_deadlines(self) -> bool:
        return self.has_deadlines

    def _on_tick(self, now_s: float) -> None:
        self.ticks_s.append(now_s)

    def _end_round(self) -> None:
        self.log.append("end")


class Pipe:
    """A service with one pipe; it is ready as long as its byte is not read."""

    def __init__(self, log: list[str]) -> None:
        self.log, self.deadline_s = log, None
        self._reader, self.writer = os.pipe()

    def fileno(self) -> int:
        return self._reader

    def on_ready(self) -> None:
        self.log.append(f"ready {os.read(self._reader, 1).decode()}")

    def after_round(self) -> None:
        self.log.append("after")

    def next_deadline_s(self) -> float | None:
        return self.deadline_s

    def on_timer(self) -> None:
        self.log.append("timer")

    def slots(self) -> list[int]:
        return []

    def close(self) -> None:
        self.log.append("closed")
        os.close(self._reader)
        os.close(self.writer)


@pytest.fixture
def loop() -> Iterator[Loop]:
    loop = Loop()
    yield loop
    loop.close()


@contextmanager
def serving(loop: Loop) -> Iterator[None]:
    thread = threading.Thread(target=loop.serve)
    thread.start()
    try:
        wait_until(lambda: loop.log)
        yield
    finally:
        loop.stop()
        thread.join()


def test_a_round_runs_handlers_timers_and_services_in_order(loop: Loop) -> None:
    loop.add_service(pipe := Pipe(loop.log))
    os.write(pipe.writer, b"x")
    loop._serve_once()
    assert loop.log == ["ready x", "timer", "after", "end"]
    loop.log.clear()
    os.write(pipe.writer, b"y")
    loop._tick_at_s += 3600
    loop._serve_once()
    assert loop.log == ["ready y", "after", "end"]  # no tick is due


def test_deadlines_of_the_loop_and_of_services_make_it_tick(loop: Loop) -> None:
    loop.add_service(pipe := Pipe(loop.log))
    assert loop._timeout_s() == IDLE_S
    loop.has_deadlines = True
    assert loop._timeout_s() == TICK_S
    loop.has_deadlines, pipe.deadline_s = False, 1.0
    assert loop._timeout_s() == TICK_S


def test_calls_run_in_the_thread_of_the_loop_and_errors_are_the_callers(loop: Loop) -> None:
    assert loop.call(threading.get_ident) == threading.get_ident()  # the loop does not run yet
    with serving(loop), ThreadPoolExecutor(4) as pool:
        threads = set(pool.map(lambda _: loop.call(threading.get_ident), range(16)))
        assert len(threads) == 1
        assert threading.get_ident() not in threads
        with pytest.raises(ZeroDivisionError):
            loop.call(lambda: 1 // 0)


def test_a_handler_that_fails_is_counted_and_the_loop_continues(loop: Loop) -> None:
    reader, writer = os.pipe()

    def fail(mask: int) -> None:
        os.read(reader, 1)
        raise ValueError("no such thing")

    loop._watch(reader, fail)
    with serving(loop):
        os.write(writer, b"x")
        wait_until(lambda: loop.errors.counts)
        assert loop.call(lambda: 7) == 7
    assert list(loop.errors.counts) == ["the server failed on an event: ValueError"]
    loop._unwatch(reader)
    os.close(reader)
    os.close(writer)


def test_a_handler_may_drop_another_of_the_same_batch(loop: Loop) -> None:
    pipes = [os.pipe(), os.pipe()]

    def drop(mask: int) -> None:
        for reader, _ in pipes:
            loop._unwatch(reader)
        loop.log.append("dropped")

    for reader, writer in pipes:
        loop._watch(reader, drop)
        os.write(writer, b"x")
    loop._serve_once()
    assert loop.log == ["dropped", "end"]
    assert not loop.errors.counts
    for reader, writer in pipes:
        os.close(reader)
        os.close(writer)


def test_the_loop_stops_when_the_other_end_of_a_pipe_closes(loop: Loop) -> None:
    reader, writer = os.pipe()
    loop.stop_when_closed(reader)
    thread = threading.Thread(target=loop.serve)
    thread.start()
    os.close(writer)
    thread.join()
    os.close(reader)


def test_services_are_closed_with_the_loop() -> None:
    loop = Loop()
    loop.add_service(Pipe(loop.log))
    loop.close()
    assert loop.log == ["closed"]
